"""Consumers read a replica that follows: what they see, what their fetches wait for, and how they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from broker.replica_pairs import LEADER, TOPIC, ReplicaPairs, run
from faulty_files import ActsAtOpening
from record_batches import simple_batch
from storage.replica_logs import compact, copied

from kafkalake.broker.partitions.fetch import FetchRequest, FetchService
from kafkalake.broker.partitions.fetch_sessions import FetchPartition, FetchSessionCache
from kafkalake.broker.partitions.fetched import Fetched, FetchedPartition, Isolation, StoredRecords
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.cluster.image import ClusterImage, PartitionRegistration
from kafkalake.config.layers import Settings
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.storage.segment_names import TXN_INDEX_SUFFIX

EPOCH = 1


class Consumed:
    """A broker that follows partition 0, and a consumer's fetches there."""

    def __init__(self, root: Path) -> None:
        self.pairs = ReplicaPairs(root)
        self.pairs.files = self.files = ActsAtOpening(TXN_INDEX_SUFFIX)
        self.leader, self.log = self.pairs.log("leader"), self.pairs.log("follower")
        self.leader.take_over(EPOCH)
        topics = Topics(ClusterImage("lake"))
        topic = Topic("t", TOPIC, {}, Settings({}).topic({}), 0)
        topic.registrations = (PartitionRegistration(LEADER, EPOCH, (LEADER, 2), (LEADER, 2)),)
        topics.add(topic)
        config = Settings({}).broker
        sessions = FetchSessionCache(10, lambda: 1)
        pairs = self.pairs
        self.service = FetchService(topics, sessions, pairs.purgatory, pairs.clock, lambda: config, pairs.reads)

    def append(self, value: bytes, *, is_committed: bool = True) -> None:
        self.leader.append([simple_batch([value])], EPOCH)
        if is_committed:
            self.leader.advance_high_watermark(self.leader.log_end_offset)
        self.pairs.leaders.appended()

    def follow(self) -> None:
        self.pairs.leaders.lead((TOPIC, 0), self.leader, EPOCH)
        self.pairs.follow(self.log, EPOCH)

    def fetch(
        self,
        offset: int,
        rack: str | None = "",
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_bytes: int = 1 << 20,
        **asked: int,
    ) -> list[FetchedPartition]:
        """Fetch at the follower, and return a list that has the answer once it is there."""
        partition = FetchPartition("t", 0, offset, max_bytes, **asked)
        request = FetchRequest(
            [partition], [], 0, -1, False, isolation, 1, 1 << 20, 10_000, lambda name: True, "", rack
        )
        answers: list[FetchedPartition] = []

        def answered(fetched: Fetched) -> None:
            answers.extend(fetched.partitions)

        for _ in self.service.fetch(request, answered):
            pass
        return answers


def offsets(answers: list[FetchedPartition]) -> tuple[int, int] | str:
    """The first offset of the records and the one after the last, or the label of the error."""
    (answer,) = answers
    if answer.error is not None:
        return answer.error.label
    assert isinstance(answer.records, StoredRecords)
    return answer.records.read.offset, answer.records.messages.next_offset


def consumed(root: Path, test: Callable[[Consumed], Awaitable[None]]) -> None:
    async def main() -> None:
        found = Consumed(root)
        await test(found)
        await found.pairs.fetchers.stop_all()

    run(main)


def has(log: Log, high_watermark: int) -> Callable[[], bool]:
    return lambda: log.high_watermark == high_watermark


def test_records_below_the_watermark_of_the_follower_are_read(tmp_path: Path) -> None:
    async def test(here: Consumed) -> None:
        here.append(b"a")
        here.append(b"b", is_committed=False)
        here.follow()
        await here.pairs.until(lambda: (here.log.high_watermark, here.log.log_end_offset) == (1, 2))
        assert offsets(here.fetch(0)) == (0, 1)
        assert offsets(here.fetch(3)) == "OFFSET_OUT_OF_RANGE"
        assert offsets(here.fetch(0, current_leader_epoch=0)) == "FENCED_LEADER_EPOCH"
        assert offsets(here.fetch(0, current_leader_epoch=2)) == "UNKNOWN_LEADER_EPOCH"
        assert offsets(here.fetch(0, rack=None)) == "NOT_LEADER_OR_FOLLOWER"

    consumed(tmp_path, test)


def test_a_fetch_waits_until_the_watermark_of_the_follower_passes_it(tmp_path: Path) -> None:
    async def test(here: Consumed) -> None:
        here.append(b"a")
        here.follow()
        await here.pairs.until(has(here.log, 1))
        waiting = here.fetch(1)
        here.append(b"b", is_committed=False)
        await here.pairs.until(lambda: here.log.log_end_offset == 2)
        assert waiting == []
        here.leader.advance_high_watermark(2)
        here.pairs.leaders.appended()
        await here.pairs.until(lambda: bool(waiting))
        assert offsets(waiting) == (1, 2)

    consumed(tmp_path, test)


def test_a_fetch_ends_with_the_replica_and_the_next_one_is_of_the_next_leader_epoch(tmp_path: Path) -> None:
    async def test(here: Consumed) -> None:
        here.append(b"a")
        here.follow()
        await here.pairs.until(has(here.log, 1))
        for _ in range(2):
            waiting = here.fetch(1)
            await here.pairs.fetchers.stop([(TOPIC, 0)])
            assert offsets(waiting) == "NOT_LEADER_OR_FOLLOWER"
            assert offsets(here.fetch(0)) == "NOT_LEADER_OR_FOLLOWER"
            here.pairs.follow(here.log, EPOCH)
        assert offsets(here.fetch(0)) == (0, 1)
        assert len(here.pairs.purgatory) == 0

    consumed(tmp_path, test)


def test_a_follower_whose_disk_fails_answers_the_fetches_that_wait(tmp_path: Path) -> None:
    async def test(here: Consumed) -> None:
        here.append(b"a")
        here.follow()
        await here.pairs.until(has(here.log, 1))
        waiting = here.fetch(1)
        here.log.close()
        here.append(b"b")
        await here.pairs.until(lambda: bool(waiting))
        assert offsets(waiting) == "NOT_LEADER_OR_FOLLOWER"

    consumed(tmp_path, test)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_aborted_records_are_told_of_although_their_segment_goes_meanwhile(tmp_path: Path, *, is_deleted: bool) -> None:
    """Without the index of aborted transactions, which goes with it, they were handed over as committed ones."""

    async def test(here: Consumed) -> None:
        here.leader.append([simple_batch([b"a"], producer_id=4, epoch=0, sequence=0)], EPOCH)
        here.leader.append([simple_batch([b"x"], producer_id=7, epoch=0, sequence=0, transactional=True)], EPOCH)
        here.leader.append_control(EndMarker(7, 0, ABORT, 0), EPOCH)
        here.append(b"b")
        here.leader.roll()
        here.append(b"c")
        here.leader.roll()
        here.append(b"d")
        copied(here.leader, here.log)
        here.log.close()
        here.log = here.pairs.log("follower")  # with no file open
        here.follow()
        assert here.log.sealed_base_offsets == [0, 4, 5]
        here.files.act = lambda: here.log.delete_records_before(4) if is_deleted else compact(here.log, [0, 4])
        found = here.fetch(0, isolation=Isolation.READ_COMMITTED)
        assert here.files.act is None
        if is_deleted:
            assert offsets(found) == "OFFSET_OUT_OF_RANGE"
        else:
            assert (found[0].aborted, here.log.generations) == ([(7, 1)], {0: 1})

    consumed(tmp_path, test)
