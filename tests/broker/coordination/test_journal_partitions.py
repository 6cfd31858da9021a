"""A broker coordinates the names of the journal partitions that it leads, while leadership comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker.coordination.journals import CLICKS, GROUP_JOURNAL, KEY, PARTITIONS, Journals, group_of, run

from kafkalake.broker.coordination import journal_lifecycle, journal_loading, journal_writer
from kafkalake.broker.coordination.journal_replay import JournalReplay
from kafkalake.broker.groups.journal_format import GROUP_FORMAT
from kafkalake.broker.groups.records import CommittedOffset, GroupTombstone, OffsetRecord
from kafkalake.cluster.image import PartitionRegistration
from kafkalake.cluster.replication import begin_leadership
from kafkalake.errors import (
    CoordinatorLoadInProgressError,
    KafkaStorageError,
    NotCoordinatorError,
)
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.build import ReadBatch


@pytest.fixture
def b(tmp_path: Path) -> Journals:
    return Journals(tmp_path)


async def until(is_so: Callable[[], bool]) -> None:
    """Let the event loop turn until it is so."""
    while not is_so():
        await asyncio.sleep(0)


def loaded(b: Journals, index: int) -> Callable[[], bool]:
    return lambda: b.groups.table.is_serving(index)


def test_names_of_partitions_led_elsewhere_have_another_coordinator(b: Journals) -> None:
    async def scenario() -> None:
        b.add_topic([0, 2])
        await b.journal.start()
        answers = [b.commit(index, 5) for index in range(PARTITIONS)]
        b.turn()
        assert [answer[0][KEY] for answer in answers] == [None, NotCoordinatorError, None]
        assert [b.committed(index) for index in range(PARTITIONS)] == [5, NotCoordinatorError, 5]
        assert not b.groups.table.is_whole
        b.publish()
        assert sorted(b.positions) == [0, 2]

    run(scenario())


def test_a_topic_that_another_broker_has_created_is_not_created_again(b: Journals) -> None:
    async def scenario() -> None:
        await b.journal.start()
        b.add_topic([])
        assert not b.journal.is_ready
        await b.journal.make_ready()
        assert b.journal.is_ready and not b.created
        assert b.committed(1) is NotCoordinatorError

    run(scenario())


def test_a_new_topic_is_served_at_once(b: Journals) -> None:
    async def scenario() -> None:
        await b.journal.start()
        await asyncio.gather(b.journal.make_ready(), b.journal.make_ready())
        assert [new.name for new in b.created] == [GROUP_JOURNAL]
        assert [b.committed(index) for index in range(PARTITIONS)] == [None] * PARTITIONS
        assert b.groups.table.is_whole

    run(scenario())


def test_a_new_topic_whose_partitions_are_given_by_the_image_is_served_when_it_is_ready(b: Journals) -> None:
    async def scenario() -> None:
        await b.journal.start()
        b.created_by_image = True
        first, second = (asyncio.ensure_future(b.journal.make_ready()) for _ in range(2))
        await until(lambda: bool(b.created))
        assert not b.journal.is_ready
        await asyncio.gather(first, second)
        assert [b.committed(index) for index in range(PARTITIONS)] == [None] * PARTITIONS

    run(scenario())


def test_a_commit_is_seen_when_the_followers_have_it_and_a_new_leader_loads_it_no_sooner(b: Journals) -> None:
    two = PartitionRegistration(0, 1, (0, 1), (0, 1))

    async def scenario() -> None:
        b.add_topic([0, 1])
        b.open_as(1, begin_leadership(two, 0, 0, 2, 0))
        await b.journal.start()
        answers = b.commit(1, 5)
        b.turn()
        assert (answers, b.committed(1)) == ([], None)
        b.fetch_as_follower(1)
        assert (answers, b.committed(1)) == ([{KEY: None}], 5)
        b.commit(1, 6)
        b.turn()
        older = b.topics.topic(GROUP_JOURNAL).replicas[1]
        b.journal.resign(1)
        older.resign()
        b.append_queue.leave(older)
        b.open_as(1, begin_leadership(replace(two, leader_epoch=2), 0, b.logs[1].log_end_offset, 2, 0))
        b.journal.lead(1)
        b.journal.lead(1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert b.committed(1) is CoordinatorLoadInProgressError
        b.fetch_as_follower(1)
        await until(loaded(b, 1))
        assert b.committed(1) == 6

    run(scenario())


def test_a_partition_that_is_taken_away_before_its_followers_have_fetched_is_not_loaded(b: Journals) -> None:
    async def scenario() -> None:
        b.add_topic([0, 1])
        two = PartitionRegistration(0, 1, (0, 1), (0, 1))
        b.open_as(1, begin_leadership(two, 0, 0, 2, 0))
        b.commit(1, 5)
        partition = b.topics.topic(GROUP_JOURNAL).replicas[1]
        partition.lead(replace(partition.leadership, epoch_start=1))
        await b.journal.start()
        assert b.committed(1) is CoordinatorLoadInProgressError
        assert b.committed(0) is None
        b.journal.resign(1)
        partition.resign()
        b.append_queue.leave(partition)
        b.open(1, leader_epoch=2)
        b.journal.lead(1)
        await until(loaded(b, 1))

    run(scenario())


def test_a_partition_that_comes_is_loaded_from_delta_and_the_journal(b: Journals) -> None:
    async def scenario() -> None:
        b.add_topic([0, 1])
        await b.journal.start()
        b.commit(1, 5)
        b.turn()
        b.publish()
        b.commit(1, 6)
        b.turn()
        b.journal.resign(1)
        assert b.committed(1) is NotCoordinatorError
        b.publish()
        assert b.positions == {1: 1}, "the next leader publishes the second commit"
        b.journal.lead(1)
        assert b.committed(1) is CoordinatorLoadInProgressError
        assert b.commit(1, 7) == [{KEY: CoordinatorLoadInProgressError}]
        b.publish()
        assert b.positions == {1: 1}
        await until(loaded(b, 1))
        assert b.committed(1) == 6
        b.publish()
        assert b.positions == {1: 2}

    run(scenario())


def test_several_partitions_that_come_at_once_read_delta_once(b: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        topic = b.add_topic([])
        await b.journal.start()
        reads = []
        read = b.run_blocking
        monkeypatch.setattr(b, "run_blocking", lambda work: (reads.append(1), read(work))[1])
        for index in range(PARTITIONS):
            b.open(index)
            b.journal.lead(index)
        await until(lambda: b.groups.table.is_whole)
        assert len(reads) == 1 and len(topic.replicas) == PARTITIONS

    run(scenario())


def test_a_commit_under_way_when_its_partition_goes_is_there_when_it_comes_back(b: Journals) -> None:
    """The old coordinator has refused it: its outcome is not known to the client, and one of the two has to be true."""

    async def scenario() -> None:
        b.add_topic([0])
        await b.journal.start()
        answers = b.commit(0, 5)
        b.journal.resign(0)
        b.journal.lead(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert b.committed(0) is CoordinatorLoadInProgressError, "a batch is on its way that nobody has seen"
        b.turn()
        await until(loaded(b, 0))
        assert b.committed(0) == 5
        assert answers == [{KEY: None}]
        again = b.commit(0, 6)
        b.turn()
        assert again == [{KEY: None}] and b.committed(0) == 6
        b.publish()
        assert b.positions == {0: 2}

    run(scenario())


def test_a_partition_that_goes_while_it_is_loading_is_not_served(b: Journals) -> None:
    async def scenario() -> None:
        b.add_topic([0])
        await b.journal.start()
        b.commit(0, 5)
        b.turn()
        b.journal.resign(0)
        b.journal.lead(0)
        await asyncio.sleep(0)
        b.journal.resign(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert b.committed(0) is NotCoordinatorError
        b.journal.lead(0)
        b.journal.resign(0)
        b.journal.lead(0)
        await until(loaded(b, 0))
        assert b.committed(0) == 5

    run(scenario())


def test_a_partition_that_could_not_be_loaded_is_tried_again(b: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_loading, "RETRY_S", 0.001)

    async def scenario() -> None:
        b.add_topic([0])
        b.delta_fails = [KafkaStorageError("Delta is away")] * 2
        b.journal.lead(0)
        await until(loaded(b, 0))
        assert b.committed(0) is None and not b.delta_fails

    run(scenario())


def test_a_batch_for_which_there_is_no_memory_holds_nothing_up(b: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [MemoryError(), MemoryError()]
    build = journal_writer.build_batch

    def build_if_there_is_memory(*arguments: Any, **more: Any) -> ProducerBatch:
        if faults:
            raise faults.pop()
        return build(*arguments, **more)

    monkeypatch.setattr(journal_writer, "build_batch", build_if_there_is_memory)

    async def scenario() -> None:
        b.add_topic([0])
        await b.journal.start()
        for _ in range(2):
            assert b.commit(0, 5) != [{KEY: None}]
        b.journal.resign(0)
        b.journal.lead(0)
        await until(loaded(b, 0))
        answer = b.commit(0, 6)
        b.turn()
        assert (answer, b.committed(0)) == ([{KEY: None}], 6)

    run(scenario())


def test_a_partition_that_fails_unexpectedly_at_the_start_is_loaded_later(
    b: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [MemoryError()]

    def replay(replay: JournalReplay) -> None:
        if faults:
            raise faults.pop()
        for _ in replay.steps(1 << 20):
            pass

    monkeypatch.setattr(JournalReplay, "run", replay)

    async def scenario() -> None:
        b.add_topic([0, 1])
        await b.journal.start()
        assert (b.committed(0), b.committed(1)) == (CoordinatorLoadInProgressError, None)
        await until(loaded(b, 0))

    run(scenario())


@pytest.mark.parametrize("at_start", [False, True], ids=["led later", "at the start"])
def test_a_journal_that_cannot_be_filled_is_loaded_once_the_disk_takes_it(
    b: Journals, monkeypatch: pytest.MonkeyPatch, at_start: bool
) -> None:
    monkeypatch.setattr(journal_loading, "RETRY_S", 0.001)

    async def scenario() -> None:
        b.positions = {0: 7}  # a loss of power has taken what Delta has
        b.files.fail_at_call = calls = b.files.calls + 1
        b.add_topic([0, 1])
        if at_start:
            await b.journal.start()
        else:
            b.journal.lead(0)
            b.journal.lead(1)
        await until(loaded(b, 1))  # which has nothing to write
        await until(lambda: b.files.calls > calls + 3)
        assert b.committed(0) is CoordinatorLoadInProgressError
        b.files.fail_at_call = None
        await until(loaded(b, 0))
        answer = b.commit(0, 5)
        b.turn()
        assert (answer, b.committed(0), b.logs[0].log_end_offset) == ([{KEY: None}], 5, 8)

    run(scenario())


def test_a_newer_epoch_is_taken_without_loading_again(b: Journals) -> None:
    async def scenario() -> None:
        b.add_topic([0], leader_epoch=3)
        await b.journal.start()
        b.commit(0, 5)
        b.turn()
        b.open(0, leader_epoch=7)
        b.journal.lead(0)
        assert b.committed(0) == 5
        shard = b.groups.table.shard(0)
        assert shard is not None and shard.leader_epoch == 7

    run(scenario())


def test_a_batch_of_a_state_that_was_unloaded_is_not_written_later(b: Journals) -> None:
    """It has lingered meanwhile, as heartbeats of the consumer protocol do: behind the load it would bring back what is past."""

    async def scenario() -> None:
        b.add_topic([0])
        await b.journal.start()
        written: list[object] = []
        b.groups.write(0, [GroupTombstone(group_of(0))], written.append, may_wait=True)
        b.journal.resign(0)
        b.journal.lead(0)
        b.groups.flush()
        assert written == [NotCoordinatorError]

    run(scenario())


async def commit_in_two(b: Journals) -> None:
    """Commit an offset in each of two partitions of the journal, which are served."""
    b.add_topic([0, 1])
    await b.journal.start()
    for index in (0, 1):
        b.commit(index, 5)
    b.turn()


def test_only_what_is_served_is_trimmed(b: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_lifecycle, "TRIM_RECORDS", 1)

    async def scenario() -> None:
        await commit_in_two(b)
        changes = b.journal.take_changes()
        assert changes.resume_at == {0: 1, 1: 1}
        b.journal.resign(0)
        trimming = asyncio.ensure_future(b.journal.trim(changes.resume_at))
        await until(lambda: b.kept == [1])
        b.journal.resign(1)
        await trimming
        assert [log.log_start_offset for log in b.logs] == [0, 0, 0], "what had to be kept is not known any more"
        b.journal.lead(1)
        await until(loaded(b, 1))
        await b.journal.trim({1: 1})
        assert [log.log_start_offset for log in b.logs] == [0, 1, 0]

    run(scenario())


def test_what_a_trim_has_kept_leads_to_no_other_trim(b: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_lifecycle, "TRIM_RECORDS", 2)
    b.to_keep = 5

    async def scenario() -> None:
        await commit_in_two(b)
        log = b.logs[1]
        starts = []
        for number in range(14):
            b.commit(1, number)
            b.turn()
            await b.journal.trim({1: log.log_end_offset})
            starts.append(log.log_start_offset)
        # 2 are trimmed, 5 are written again; then as soon as 5 others have come
        assert starts == [2] * 5 + [12] * 5 + [22] * 4
        b.journal.resign(1)
        b.journal.lead(1)
        await until(loaded(b, 1))
        await b.journal.trim({1: log.log_end_offset})
        assert log.log_start_offset > 22, "who comes next does not know what was kept"

    run(scenario())


def test_a_partition_that_is_led_elsewhere_by_its_turn_is_not_trimmed(
    b: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log follows another leader by then. Who is to follow waits for a trim that is under way."""
    monkeypatch.setattr(journal_lifecycle, "TRIM_RECORDS", 1)

    async def scenario() -> None:
        await commit_in_two(b)
        led = b.topics.find(GROUP_JOURNAL).replicas  # type: ignore[union-attr]
        under_way = []

        async def run_blocking(work: Callable[[], Any]) -> Any:
            await asyncio.sleep(0)
            under_way.append([len(led[index].under_way) for index in (0, 1)])
            led[1].resign()
            return work()

        monkeypatch.setattr(b, "run_blocking", run_blocking)
        await b.journal.trim({0: 1, 1: 1})
        assert under_way == [[1, 0]]
        assert [log.log_start_offset for log in b.logs] == [1, 0, 0]

    run(scenario())


def test_a_marker_written_while_its_partition_is_loading_is_read_in_its_place(b: Journals) -> None:
    """Applied at once it would commit what an earlier marker, not read yet, aborts."""
    b.add_topic([0])
    groups = b.groups
    pending = [GROUP_FORMAT.encode(record) for record in (offset_record(5), offset_record(6))]
    groups.journaled.begin_load(0)
    groups.journaled.load(0, ReadBatch(0, pending[:1], 7, 0, None))
    groups.table.end_transaction(0, 7, committed=True, position=3)
    groups.journaled.load(0, ReadBatch(1, [], 7, 0, False))
    groups.journaled.load(0, ReadBatch(2, pending[1:], 7, 0, None))
    groups.journaled.finish_load(0, 3)
    assert b.committed(0) is None
    groups.table.end_transaction(0, 7, committed=True, position=3)
    assert b.committed(0) == 6


def offset_record(offset: int) -> OffsetRecord:
    return OffsetRecord(group_of(0), *KEY, CommittedOffset(offset, -1, "", 0, -1, CLICKS))


def test_nothing_is_loaded_after_the_stop(b: Journals) -> None:
    async def scenario() -> None:
        b.add_topic([0])
        b.journal.lead(0)
        b.journal.stop()
        await asyncio.sleep(0)
        b.journal.lead(0)
        assert b.committed(0) is NotCoordinatorError

    run(scenario())
