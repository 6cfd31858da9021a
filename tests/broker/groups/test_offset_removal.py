"""The removal of offsets of deleted topics and of expired ones: in turns, few batches at a time, and never a newer commit."""

from __future__ import annotations

import uuid

import pytest
from broker.groups.coordination import Cluster

from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.offset_removal import BATCHES_MAX
from kafkalake.broker.groups.offset_requests import RECORDS_PER_BATCH, OffsetToCommit
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
