"""Whole segments that a follower copies: two parts are asked for at a time, and the next segment while one is verified."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import pytest
from broker.replica_pairs import PART_BYTES, TOPIC, LeadersHere, ReplicaPairs, data_of, run
from broker.test_followers import fill, has_all
from broker.throttled import Throttle
from faulty_files import FaultyFiles
from manual_clock import ManualClock

from kafkalake.broker.partitions.leader_replicas import AskedSegment, SegmentPart
from kafkalake.broker.partitions.segment_copies import PARTS_MAX, SegmentCopies
from kafkalake.buffers import Buffer
from kafkalake.config.layers import Settings
from kafkalake.errors import ConnectionLostError, OffsetOutOfRangeError
from kafkalake.storage.files import REAL_FILES, Files
from kafkalake.storage.replica_read import NEVER, SegmentRef

Change = Callable[[SegmentPart], SegmentPart]
REPLICA = TOPIC, 0


def as_it_is(part: SegmentPart) -> SegmentPart:
    return part


class HeldParts(LeadersHere):
    """Each part of a segment is held until it is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.whole_from_bytes = 2_000
        self.held: list[tuple[int, int]] = []
        """The segment and the position of each."""
        self.asked_at_once = 0
        self._answers: list[asyncio.Future[Change]] = []

    async def fetch_segment(self, leader_id: int, asked: AskedSegment, position: int, timeout_ms: int) -> SegmentPart:
        answer: asyncio.Future[Change] = asyncio.get_running_loop().create_future()
        entry = asked.base_offset, position
        self.held.append(entry)
        self._answers.append(answer)
        self.asked_at_once = max(self.asked_at_once, len(self.held))
        try:
            return (await answer)(await super().fetch_segment(leader_id, asked, position, timeout_ms))
        finally:
            self.held.remove(entry)
            self._answers.remove(answer)

    def answer(self, change: Change = as_it_is) -> None:
        """Answer the part that was asked for first."""
        if self._answers and not self._answers[0].done():
            self._answers[0].set_result(change)

    def fail(self, error: type[Exception]) -> None:
        """Fail all parts."""
        for each in self._answers:
            if not each.done():
                each.set_exception(error())


class HeldInstalls(ReplicaPairs):
    """Segments that are whole are verified once `may_install` is set."""

    def __init__(self, root: Path, leaders: HeldParts, files: Files) -> None:
        super().__init__(root, files, leaders)
        self.may_install = asyncio.Event()

    async def _run_blocking(self, work: Callable[[], Any]) -> Any:
        if isinstance(work, partial) and work.func.__name__ == "install_segment":
            await self.may_install.wait()
        return await super()._run_blocking(work)


class Copied:
    """A leader with large sealed segments, and an empty log that follows it."""

    def __init__(self, root: Path, files: Files = REAL_FILES, **config: object) -> None:
        self.leaders = HeldParts()
        self.pairs = HeldInstalls(root, self.leaders, files)
        self.leader, self.log = self.pairs.log("leader"), self.pairs.log("follower", **config)
        fill(self.leader, 1, 40)
        self.leaders.lead(REPLICA, self.leader, 1)
        self.follower = self.pairs.follow(self.log, 1)

    @property
    def second(self) -> int:
        """The base offset of the second segment."""
        return self.leader.sealed_base_offsets[1]

    async def until_two_are_asked(self) -> None:
        await self.answer_until(lambda: len(self.leaders.held) == 2)

    async def answer_until(self, holds: Callable[[], bool]) -> None:
        def holds_now() -> bool:
            if not holds():
                self.leaders.answer()
            return holds()

        await self.pairs.until(holds_now)

    async def end(self) -> None:
        """Answer everything until the logs are equal."""
        self.pairs.may_install.set()
        await self.answer_until(lambda: has_all(self.log, self.leader))
        assert data_of(self.log) == data_of(self.leader)
        await self.pairs.until(lambda: not list(Path(self.log.directory).glob("*.tmp")))
        await self.pairs.fetchers.stop_all()
        assert not self.pairs.failed


@pytest.mark.exhaustive
def test_two_parts_are_asked_for_at_a_time_and_the_next_segment_while_one_is_verified(tmp_path: Path) -> None:
    async def test() -> None:
        copied = Copied(tmp_path)
        await copied.pairs.until(lambda: copied.leaders.held == [(0, 0)])
        copied.leaders.answer()
        await copied.pairs.until(lambda: copied.leaders.held == [(0, PART_BYTES), (0, 2 * PART_BYTES)])
        await copied.answer_until(lambda: copied.leaders.held == [(copied.second, 0)])
        await copied.answer_until(lambda: not copied.leaders.held)
        await copied.pairs.turns()
        assert copied.leaders.held == [] and copied.log.log_end_offset == 0, "no more than one is copied ahead"
        assert copied.leaders.asked_at_once == 2
        await copied.end()

    run(test)


@pytest.mark.exhaustive
def test_a_copied_segment_is_forced_before_the_leader_hears_of_it(tmp_path: Path) -> None:
    """Where each record is: the leader counts it for the high watermark."""

    async def test() -> None:
        copied = Copied(tmp_path, flush_messages=1)
        copied.pairs.may_install.set()
        told = []
        fetch = copied.leaders.fetch

        async def heard(leader_id: int, fetcher: int, asked: Any, *rest: Any) -> Any:
            told.append((asked[REPLICA].offset, copied.log.recovery_point))
            return await fetch(leader_id, fetcher, asked, *rest)

        copied.leaders.fetch = heard  # type: ignore[method-assign]
        await copied.end()
        assert max(told)[0] > copied.second
        assert all(recovery_point >= end for end, recovery_point in told)

    run(test)


@pytest.mark.exhaustive
def test_a_replica_that_loses_what_its_leader_counts_with_a_copied_segment_is_offline(tmp_path: Path) -> None:
    """The flush after the second segment fails, of which nothing before was forced."""

    async def test() -> None:
        files = FaultyFiles()
        copied = Copied(tmp_path, files, is_replicated=True)
        copied.leaders.change = lambda fetched: setattr(fetched, "high_watermark", 0)
        copied.log.configure(replace(copied.log.config, flush_messages=copied.second + 1))
        copied.pairs.may_install.set()
        await copied.answer_until(lambda: copied.log.log_end_offset == copied.second)
        files.failing_syncs = 1
        await copied.answer_until(lambda: REPLICA in copied.pairs.failed)
        assert (copied.log.log_end_offset, copied.log.was_cut) == (0, True)
        await copied.pairs.fetchers.stop_all()

    run(test)


@pytest.mark.exhaustive
@pytest.mark.parametrize("error", [ConnectionLostError, MemoryError])
def test_parts_that_fail_while_two_are_asked_for_are_asked_for_again_however_often(
    tmp_path: Path, error: type[Exception]
) -> None:
    async def test() -> None:
        copied = Copied(tmp_path)
        for _ in range(PARTS_MAX // 2 + 1):
            await copied.until_two_are_asked()
            first = copied.leaders.held[0]
            copied.leaders.fail(error)
            await copied.pairs.pass_pause(copied.follower)
            await copied.pairs.until(lambda first=first: copied.leaders.held == [first])
        await copied.end()

    run(test)


@pytest.mark.exhaustive
def test_a_failure_of_what_is_copied_ahead_delays_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        copied = Copied(tmp_path)
        await copied.answer_until(lambda: [base for base, _ in copied.leaders.held] == [copied.second] * 2)
        first = copied.leaders.held[0]
        copied.leaders.fail(OffsetOutOfRangeError)
        await copied.pairs.until(lambda: not copied.leaders.held)
        copied.pairs.may_install.set()
        await copied.pairs.until(lambda: copied.leaders.held == [first])
        await copied.end()

    run(test)


@pytest.mark.exhaustive
def test_parts_shorter_than_asked_for_leave_no_gap(tmp_path: Path) -> None:
    async def test() -> None:
        copied = Copied(tmp_path)
        await copied.until_two_are_asked()
        (base, position), _ = copied.leaders.held
        copied.leaders.answer(lambda part: SegmentPart(part.segment, part.data[:100]))
        await copied.pairs.until(lambda: copied.leaders.held[:1] == [(base, position + 100)])
        await copied.end()

    run(test)


@pytest.mark.exhaustive
def test_a_segment_that_is_another_one_between_two_parts_is_copied_anew(tmp_path: Path) -> None:
    async def test() -> None:
        copied = Copied(tmp_path)
        for _ in range(2):
            await copied.until_two_are_asked()
            copied.leaders.answer(
                lambda part: SegmentPart(part.segment._replace(size_bytes=part.segment.size_bytes + 8), part.data)
            )
            await copied.pairs.pass_pause(copied.follower)
            await copied.pairs.until(lambda: copied.leaders.held == [(0, 0)])
        await copied.end()

    run(test)


@pytest.mark.exhaustive
def test_a_segment_that_retention_removes_between_two_parts_is_left_behind(tmp_path: Path) -> None:
    async def test() -> None:
        copied = Copied(tmp_path)
        await copied.until_two_are_asked()
        copied.leader.delete_records_before(copied.leader.sealed_base_offsets[2])
        copied.leaders.fail(OffsetOutOfRangeError)
        await copied.pairs.pass_pause(copied.follower)
        await copied.end()
        assert copied.log.log_start_offset == copied.leader.log_start_offset > 0

    run(test)


def test_a_segment_copied_ahead_that_is_fetched_by_messages_leaves_no_file(tmp_path: Path) -> None:
    async def test() -> None:
        copied = Copied(tmp_path)
        await copied.answer_until(lambda: [base for base, _ in copied.leaders.held] == [copied.second] * 2)
        copied.leaders.whole_from_bytes = NEVER
        await copied.end()

    run(test)


@pytest.mark.exhaustive
def test_a_stop_between_two_parts_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        copied = Copied(tmp_path)
        await copied.until_two_are_asked()
        await copied.pairs.fetchers.stop_all()
        await copied.pairs.turns()
        assert copied.leaders.held == [] and not list(Path(copied.log.directory).glob("*.tmp"))
        assert not copied.follower.under_way and not copied.follower.tasks
        copied.pairs.follow(copied.log, 1)
        await copied.end()

    run(test)


class SmallParts:
    """A leader that answers at once, with parts of these lengths, and a log that takes them."""

    log: Any
    replica, leader_id, leader_epoch = REPLICA, 1, 1

    def __init__(self, lengths: Sequence[int]) -> None:
        self.log = self
        self.path = ""
        self.base_offset = self.generation = self.position = 0
        self.segment: SegmentRef | None = None
        self._lengths = dict(zip(accumulate([0, *lengths]), lengths, strict=False))
        self._whole = SegmentRef(0, 10, 1, sum(lengths), 0)
        self.throttle = Throttle(ManualClock()).throttle

    async def fetch_segment(
        self, leader_id: int, asked: AskedSegment, position: int, *, timeout_ms: int
    ) -> SegmentPart:
        await asyncio.sleep(0)
        return SegmentPart(self._whole, memoryview(bytes(self._lengths.get(position, 1))))

    def begin_copy(self, base_offset: int, generation: int) -> SmallParts:
        return SmallParts([*self._lengths.values()])

    def write(self, data: Buffer, segment: SegmentRef) -> None:
        self.position, self.segment = self.position + len(data), segment

    def install_segment(self, ref: SegmentRef, path: str) -> None:
        pass

    def work_until(self, done: asyncio.Future[Any]) -> None:
        pass


@pytest.mark.parametrize("lengths", [(4, 4, 4, 4, 1), (4, 2, 4, 3, 1), (1,)], ids=["equal", "others", "one"])
def test_a_copy_that_is_given_up_at_any_moment_leaves_room_for_others(lengths: tuple[int, ...]) -> None:
    async def in_turn(work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return work()

    async def test() -> None:
        for turns in range(40):
            parts = SmallParts(lengths)
            copies = SegmentCopies(cast(Any, parts), lambda: Settings({}).broker, in_turn, parts.throttle)
            copying = asyncio.ensure_future(copies.copy(parts, 0, 1))
            for _ in range(turns):
                await asyncio.sleep(0)
            copying.cancel()
            await asyncio.wait([copying])
            for _ in range(10):
                await asyncio.sleep(0)
            assert copies._slots._value == PARTS_MAX, f"given up after {turns} turns"

    run(test)
