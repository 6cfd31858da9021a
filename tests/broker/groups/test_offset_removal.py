"""The removal of offsets of deleted topics and of expired ones: in turns, few batches at a time, and never a newer commit."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from broker.groups.coordination import Cluster

from kafkalake.broker.groups import offset_requests
from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.offset_removal import BATCHES_MAX, OFFSETS_PER_STEP
from kafkalake.broker.groups.offset_requests import RECORDS_PER_BATCH, OffsetToCommit
from kafkalake.broker.groups.records import CommittedOffset, OffsetRecord
from kafkalake.errors import KafkaStorageError
from kafkalake.run_blocking import TURN_NS

HOUR_MS = 3_600_000
WIDE = 2 * BATCHES_MAX * RECORDS_PER_BATCH
"""Partitions of a topic."""


def one(offset: int, partition: int = 0, topic: str = "clicks") -> OffsetToCommit:
    return OffsetToCommit(topic, partition, offset)


def new_topic(c: Cluster, name: str, partitions: int) -> None:
    c.topics[name] = TopicOfGroup(uuid.uuid4(), partitions)


@pytest.mark.parametrize("has_expired", [True, False], ids=["expired", "of a deleted topic"])
def test_a_commit_on_its_way_to_the_journal_is_not_removed(has_expired: bool) -> None:
    c = Cluster(offsets_retention_ms=HOUR_MS)
    c.commit("g", one(1), one(1, 1))
    c.journal.hold = True
    if has_expired:
        c.clock.advance(2 * HOUR_MS)
    else:
        new_topic(c, "clicks", 4)
    answers = c.commit("g", one(9))
    if has_expired:
        c.removal.expire()
    else:
        c.removal.delete_stale(["clicks"])
    c.journal.hold = False
    c.journal.release()
    c.advance(5_000)
    assert answers == [{("clicks", 0): None}]
    for _ in range(2):
        assert c.fetched("g", ("clicks", 0)) == {("clicks", 0): 9}
        c.start()


def test_a_commit_between_two_batches_of_tombstones_is_not_removed() -> None:
    c = Cluster()
    new_topic(c, "wide", WIDE)
    c.commit("g", *[one(1, partition, "wide") for partition in range(WIDE)])
    c.journal.hold = True
    new_topic(c, "wide", WIDE)
    c.removal.delete_stale(["wide"])
    last = WIDE - 1
    c.journal.release()
    answers = c.commit("g", one(7, last, "wide"))
    c.journal.release()
    assert answers == [{("wide", last): None}]
    c.journal.hold = False
    c.journal.release()
    c.advance(5_000)
    assert c.fetched("g") == {("wide", last): 7}


def test_a_topic_that_many_groups_have_read_is_removed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Cluster()
    groups = 50
    for number in range(groups):
        c.commit(f"g{number}", one(1))
    now_ns = c.clock.monotonic_ns()

    def pass_some_time() -> int:
        nonlocal now_ns
        now_ns += TURN_NS // 10
        return now_ns

    monkeypatch.setattr(c.clock, "monotonic_ns", pass_some_time)
    before = sum(c.journal.ends.values())
    del c.topics["clicks"]
    c.removal.delete_stale(["clicks"])
    turns = 0
    while (written := sum(c.journal.ends.values()) - before) < groups:
        assert written <= 10 * (turns + 1)
        turns += 1
        c.timers.ring()
    assert turns >= groups // 10 - 1
    assert not any(c.fetched(f"g{number}") for number in range(groups))


def test_a_commit_between_the_look_at_a_group_that_has_expired_and_its_deletion_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The turn ends there."""
    c = Cluster(offsets_retention_ms=HOUR_MS)
    c.commit("g", one(1))
    c.clock.advance(2 * HOUR_MS)
    now_ns = c.clock.monotonic_ns()

    def pass_a_turn() -> int:
        nonlocal now_ns
        now_ns += TURN_NS
        return now_ns

    with monkeypatch.context() as slow:
        slow.setattr(c.clock, "monotonic_ns", pass_a_turn)
        c.removal.expire()
        assert c.commit("g", one(9)) == [{("clicks", 0): None}]
        for _ in range(10):
            c.timers.ring()
    assert c.fetched("g", ("clicks", 0)) == {("clicks", 0): 9}
    c.clock.advance(2 * HOUR_MS)
    c.removal.expire()
    assert len(c.coordinator.table) == 0


def test_the_offsets_of_one_group_are_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Cluster()
    new_topic(c, "wide", WIDE)
    c.commit("g", *[one(1, partition, "wide") for partition in range(WIDE)])
    now_ns, looks = c.clock.monotonic_ns(), 0
    is_stale = c.offsets.is_stale

    def look(name: str, committed: CommittedOffset) -> bool:
        nonlocal now_ns, looks
        now_ns += TURN_NS // OFFSETS_PER_STEP
        looks += 1
        return is_stale(name, committed)

    monkeypatch.setattr(c.offsets, "is_stale", look)
    monkeypatch.setattr(c.clock, "monotonic_ns", lambda: now_ns)
    c.removal.delete_stale()
    assert 0 < looks <= 2 * OFFSETS_PER_STEP
    while looks < WIDE:
        before = looks
        c.timers.ring()
        assert before < looks <= before + 2 * OFFSETS_PER_STEP
    assert len(c.fetched("g")) == WIDE


def test_a_group_is_deleted_with_its_offsets_a_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Cluster()
    new_topic(c, "wide", WIDE)
    c.commit("g", *[one(1, partition, "wide") for partition in range(WIDE)])
    made = 0

    def make(*fields: Any) -> OffsetRecord:
        nonlocal made
        made += 1
        return OffsetRecord(*fields)

    monkeypatch.setattr(offset_requests, "OffsetRecord", make)
    c.journal.hold = True
    answers = c.delete_groups("g")
    assert 0 < made <= RECORDS_PER_BATCH
    while not answers:
        before = made
        c.journal.release()
        assert made - before <= RECORDS_PER_BATCH
    assert (made, answers) == (WIDE, [{"g": None}])
    assert len(c.coordinator.table) == 0


def test_only_few_batches_are_on_their_way_and_one_that_fails_is_tried_again() -> None:
    c = Cluster()
    groups = 3 * BATCHES_MAX
    for number in range(groups):
        c.commit(f"g{number}", one(1))
    before = sum(c.journal.ends.values())
    del c.topics["clicks"]
    c.journal.hold = True
    c.removal.delete_stale(["clicks"])
    c.journal.fail_next = KafkaStorageError()
    c.journal.release()
    assert sum(c.journal.ends.values()) - before == BATCHES_MAX - 1
    c.journal.hold = False
    c.advance(5_000)
    assert sum(c.journal.ends.values()) - before == groups
    assert not any(c.fetched(f"g{number}") for number in range(groups))
