"""Followers: what each answer of a leader makes of a log, and what errors of one partition or leader do to the others."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from broker.replica_pairs import PART_BYTES, TOPIC, LeadersHere, ReplicaPairs, data_of, run
from faulty_files import FaultyFiles
from record_batches import simple_batch
from storage.partition_logs import append

from kafkalake.broker.partitions.fetchers import INLINE_BYTES
from kafkalake.broker.partitions.followers import Follower
from kafkalake.broker.partitions.leader_replicas import FetchedReplica
from kafkalake.buffers import Buffer
from kafkalake.errors import KafkaStorageError, UnknownTopicIdError
from kafkalake.storage.files import RealFiles
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.replica_read import NEVER
from kafkalake.storage.rewrite import RewriteRule, rewrite


def fill(log: Log, epoch: int, count: int = 10, size: int = 400) -> None:
    """Append batches as the leader of an epoch, acknowledged."""
    log.take_over(epoch)
    for number in range(count):
        append(log, simple_batch([b"%d-%d" % (epoch, number) + bytes(size)]), epoch=epoch)


def rewritten(log: Log, first: int, last: int) -> RewrittenSegment:
    """Rewrite the sealed segments from one to another as a job does, with every other record, and adopt the new one."""
    old = log.sealed_segments()[first : last + 1]
    kept = np.arange(old[0].base_offset, old[-1].next_offset, 2)
    new = rewrite([each.path for each in old], log.directory, 1, RewriteRule(kept, frozenset(), {}, 0, 0)).segment
    ref = RewrittenSegment(new.base_offset, new.next_offset, new.generation)
    assert log.adopt_rewritten([ref]) == []
    return ref


def has_all(follower: Log, leader: Log) -> bool:
    return (follower.log_end_offset, follower.high_watermark) == (leader.log_end_offset, leader.high_watermark)


def test_a_follower_copies_the_log_the_watermark_and_later_appends(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path, replica_fetch_max_bytes=2_000)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 30)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.until(lambda: has_all(log, leader))
        append(leader, simple_batch([b"later"]), epoch=1)
        pairs.leaders.appended()
        await pairs.until(lambda: has_all(log, leader))
        assert len(log.sealed_base_offsets) > 2
        assert data_of(log) == data_of(leader)
        await pairs.fetchers.stop_all()

    run(test)


def test_the_watermark_is_the_leaders_and_never_above_the_own_end(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path, replica_fetch_max_bytes=1)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 5, size=5_000)
        leader.append([simple_batch([b"not acknowledged"])], 1)
        seen = []
        pairs.leaders.change = lambda fetched: seen.append((log.high_watermark, log.log_end_offset))
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.until(lambda: log.log_end_offset == 6)
        assert log.high_watermark == leader.high_watermark == 5
        assert seen == [(n, n) for n in range(6)], seen
        await pairs.fetchers.stop_all()

    run(test)


@pytest.mark.parametrize("own_records", [0, 1, 7])
def test_what_only_a_deposed_leader_has_is_cut_off(tmp_path: Path, own_records: int) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        for each in (leader, log):
            fill(each, 1)
        log.take_over(2)
        for number in range(own_records):
            log.append([simple_batch([b"lost %d" % number])], 2)
        fill(leader, 3)
        pairs.leaders.lead((TOPIC, 0), leader, 3)
        pairs.follow(log, 3)
        await pairs.until(lambda: has_all(log, leader))
        assert data_of(log) == data_of(leader)
        assert log.end_offset_for_epoch(2) == (1, 10)
        await pairs.fetchers.stop_all()

    run(test)


def test_after_an_unclean_election_the_log_is_cut_below_its_watermark(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 4)
        fill(log, 1, 9)
        fill(leader, 2, 3)
        pairs.leaders.lead((TOPIC, 0), leader, 2)
        pairs.follow(log, 2)
        await pairs.until(lambda: has_all(log, leader))
        assert data_of(log) == data_of(leader)
        await pairs.fetchers.stop_all()

    run(test)


def test_a_follower_begins_anew_where_its_leader_begins_after_its_end(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(log, 1, 3)
        fill(leader, 1, 40)
        leader.delete_records_before(25)
        leader.remove_deleted_files()
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.until(lambda: has_all(log, leader))
        assert log.log_start_offset == 25
        assert data_of(log) == data_of(leader)
        await pairs.fetchers.stop_all()

    run(test)


def test_the_log_start_follows_the_leaders(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 40)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.until(lambda: has_all(log, leader))
        leader.delete_records_before(22)
        pairs.leaders.appended()
        await pairs.until(lambda: log.sealed_base_offsets == leader.sealed_base_offsets)
        assert log.log_start_offset == 22
        await pairs.fetchers.stop_all()

    run(test)


def test_an_error_of_one_partition_delays_no_other_and_its_pause_grows(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        logs = []
        for number in range(3):
            leader, log = pairs.log("leader", number), pairs.log("follower", number)
            fill(leader, 1, 3)
            pairs.leaders.lead((TOPIC, number), leader, 1)
            logs.append(log)
        pairs.leaders.refused[TOPIC, 1] = UnknownTopicIdError()
        for number, log in enumerate(logs):
            pairs.follow(log, 1, number)
        await pairs.until(lambda: logs[0].high_watermark == logs[2].high_watermark == 3)
        attempts = []
        for _ in range(8):
            await pairs.advance(49)
            before = len(pairs.leaders.asked)
            await pairs.advance(1)
            attempts.append(
                sum((TOPIC, 1) in [each.replica for each in asked] for asked in pairs.leaders.asked[before:])
            )
        assert attempts == [1, 0, 1, 0, 0, 0, 1, 0]  # after 50 ms, then 100, then 200
        del pairs.leaders.refused[TOPIC, 1]
        await pairs.advance(1_000)
        await pairs.until(lambda: logs[1].high_watermark == 3)
        await pairs.fetchers.stop_all()

    run(test)


def test_an_unexpected_error_while_answers_are_applied_holds_up_no_partition_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        logs = [(pairs.log("leader", number), pairs.log("follower", number)) for number in range(3)]
        advanced, failures = pairs.fetchers.reads.advanced, 1

        def fail(follower: Follower, appended_bytes: int) -> None:
            nonlocal failures
            if failures > 0:
                failures -= 1
                raise RuntimeError("injected")
            advanced(follower, appended_bytes)

        monkeypatch.setattr(pairs.fetchers.reads, "advanced", fail)
        for number, (leader, log) in enumerate(logs):
            fill(leader, 1, 3, size=INLINE_BYTES // 4)  # together they are applied in a thread
            pairs.leaders.lead((TOPIC, number), leader, 1)
            pairs.follow(log, 1, number)
        for again in (1, 1, 0):
            while failures or not all(has_all(log, leader) for leader, log in logs):
                await pairs.advance(1_000)
                await asyncio.sleep(0.001)  # for the threads
            failures = again
            for leader, _ in logs:
                append(leader, simple_batch([bytes(INLINE_BYTES // 2)]), epoch=1)
            pairs.leaders.appended()
        await pairs.fetchers.stop_all()

    run(test)


class NotesSyncs(RealFiles):
    """Notes the threads that force data to disk."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def sync(self, descriptor: int) -> None:
        self.threads.append(threading.current_thread())
        super().sync(descriptor)


@pytest.mark.parametrize("setting", [{"flush_messages": 1}, {"flush_ms": 100}], ids=["messages", "ms"])
def test_what_a_follower_forces_with_a_small_answer_is_forced_in_a_thread(
    tmp_path: Path, setting: dict[str, int]
) -> None:
    """All partitions and clients of the broker waited for its disk."""

    async def test() -> None:
        files = NotesSyncs()
        pairs = ReplicaPairs(tmp_path, files)
        leader, log = pairs.log("leader"), pairs.log("follower", **setting)
        files.threads.clear()
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.advance(100)
        for end in (1, 2):
            append(leader, simple_batch([b"a"]))
            pairs.leaders.appended()
            await pairs.until(lambda end=end: log.recovery_point == end)  # type: ignore[misc]
            await pairs.advance(100)
        assert files.threads and threading.main_thread() not in files.threads
        await pairs.fetchers.stop_all()

    run(test)


def test_a_leader_that_is_not_reached_is_asked_after_pauses_of_at_most_the_backoff(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path, replica_fetch_backoff_ms=150)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 3)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.leaders.is_cut = True
        pairs.follow(log, 1)
        await pairs.turns()
        times = []
        for _ in range(60):
            before = len(pairs.leaders.asked)
            await pairs.advance(10)
            times += [pairs.clock.monotonic_ms()] * (len(pairs.leaders.asked) - before)
        pauses = [after - before for before, after in pairwise(times)]
        assert pauses[:3] == [100, 150, 150]
        pairs.leaders.is_cut = False
        await pairs.advance(150)
        await pairs.until(lambda: has_all(log, leader))
        await pairs.fetchers.stop_all()

    run(test)


def test_damaged_messages_are_not_appended_and_fetched_again(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 8)

        def damage(fetched: FetchedReplica) -> None:
            damaged = bytearray(fetched.messages)
            damaged[len(damaged) // 2] ^= 1
            fetched.messages = memoryview(bytes(damaged))

        pairs.leaders.change = damage
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.turns()
        assert log.log_end_offset == 0 and not pairs.failed
        pairs.leaders.change = LeadersHere().change
        await pairs.advance(1_000)
        await pairs.until(lambda: has_all(log, leader))
        assert data_of(log) == data_of(leader)
        await pairs.fetchers.stop_all()

    run(test)


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_a_replica_whose_disk_fails_is_offline_and_the_others_go_on(tmp_path: Path, fault: int) -> None:
    async def test() -> None:
        files = FaultyFiles()
        pairs = ReplicaPairs(tmp_path, files)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 3)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.files = FaultyFiles()
        other_leader, other = pairs.log("leader", 1), pairs.log("follower", 1)
        fill(other_leader, 1, 3)
        pairs.leaders.lead((TOPIC, 1), other_leader, 1)
        if fault == errno.EIO:
            files.fail_at_call = files.calls + 1
        else:
            files.capacity_bytes = 0
        pairs.follow(log, 1)
        pairs.follow(other, 1, 1)
        await pairs.until(lambda: has_all(other, other_leader) and bool(pairs.failed))
        assert isinstance(pairs.failed.pop((TOPIC, 0)), KafkaStorageError)
        assert pairs.fetchers.find((TOPIC, 0)) is None
        append(other_leader, simple_batch([b"later"]), epoch=1)
        pairs.leaders.appended()
        await pairs.until(lambda: has_all(other, other_leader))
        assert not pairs.failed
        await pairs.fetchers.stop_all()

    run(test)


def test_rewritten_segments_are_copied_as_files_and_a_broken_copy_goes_on_where_it_was(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 40)
        rewritten(leader, 2, 6)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.leaders.breaks_after = 2
        follower = pairs.follow(log, 1)
        await pairs.pass_pause(follower)
        assert pairs.leaders.parts[:3] == [0, PART_BYTES, 2 * PART_BYTES]
        await pairs.until(lambda: has_all(log, leader))
        assert pairs.leaders.parts[3:5] == [2 * PART_BYTES, 3 * PART_BYTES]
        assert data_of(log) == data_of(leader)
        assert log.generations == leader.generations != {}
        assert not list(Path(log.directory).glob("*.tmp"))
        await pairs.fetchers.stop_all()

    run(test)


@pytest.mark.exhaustive
@pytest.mark.parametrize("breaks_after", [None, 0, 3, 4])
def test_large_segments_are_copied_as_files_and_the_rest_by_messages(tmp_path: Path, breaks_after: int | None) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 30)
        fill(leader, 3, 30)
        pairs.leaders.whole_from_bytes = 2_000
        pairs.leaders.breaks_after = breaks_after
        pairs.leaders.lead((TOPIC, 0), leader, 3)
        follower = pairs.follow(log, 3)
        if breaks_after is not None:
            await pairs.pass_pause(follower)
        await pairs.until(lambda: has_all(log, leader))
        assert len(pairs.leaders.parts) > 3 * len(leader.sealed_base_offsets)
        assert data_of(log) == data_of(leader)
        assert log.end_offset_for_epoch(1) == leader.end_offset_for_epoch(1)
        assert not list(Path(log.directory).glob("*.tmp"))
        await pairs.fetchers.stop_all()

    run(test)


@pytest.mark.exhaustive
@pytest.mark.parametrize("whole_from_bytes", [NEVER, 500])
def test_a_follower_that_falls_behind_while_its_leader_rolls_quickly_has_the_same_files(
    tmp_path: Path, whole_from_bytes: int
) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader", segment_bytes=1_000), pairs.log("follower", segment_bytes=1_000)
        leader.take_over(1)
        left = 60

        def roll(fetched: FetchedReplica) -> None:
            """Append three messages, each in a segment of its own, while an answer is on its way."""
            nonlocal left
            for _ in range(min(left, 3)):
                append(leader, simple_batch([b"%d" % left + bytes(700)]), epoch=1)
                left -= 1

        append(leader, simple_batch([b"first"]), epoch=1)
        pairs.leaders.whole_from_bytes, pairs.leaders.change = whole_from_bytes, roll
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.until(lambda: not left and has_all(log, leader))
        assert len(leader.sealed_base_offsets) > 30
        assert data_of(log) == data_of(leader) and log.sealed_base_offsets == leader.sealed_base_offsets
        await pairs.fetchers.stop_all()

    run(test)


def parted(pairs: ReplicaPairs, epochs: int) -> tuple[Log, Log]:
    """A leader's log, and one of the same epochs with other segments in the newest of them."""
    leader, log = pairs.log("leader"), pairs.log("follower")
    for each in (leader, log):
        for epoch in range(1, epochs):
            fill(each, epoch)
    fill(leader, epochs, 20)
    fill(log, epochs, 2)
    log.roll()
    for _ in range(2):
        append(log, simple_batch([b"elsewhere"]), epoch=epochs)
    return leader, log


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_log_that_is_no_prefix_of_its_leaders_is_copied_again_once_it_may_not_lead(
    tmp_path: Path, epochs: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = parted(pairs, epochs)
        end = log.log_end_offset
        pairs.eligible.add((TOPIC, 0))
        pairs.leaders.lead((TOPIC, 0), leader, epochs)
        follower = pairs.follow(log, epochs)
        for _ in range(3):
            await pairs.pass_pause(follower)
        assert log.log_end_offset >= end, "no record of a replica in sync is removed"
        pairs.eligible.clear()
        await pairs.pass_pause(follower)
        await pairs.until(lambda: has_all(log, leader))
        assert data_of(log) == data_of(leader)
        how = "log emptied" if epochs == 1 else "log cut where its newest epoch begins"
        assert [each.message for each in caplog.records if each.message.startswith(how)] and not pairs.failed
        await pairs.fetchers.stop_all()

    run(test)


@pytest.mark.exhaustive
def test_a_log_is_refilled_twice_in_an_epoch_at_most(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = parted(pairs, 2)
        pairs.leaders.lead((TOPIC, 0), leader, 2)
        ends = []

        def misplace(fetched: FetchedReplica) -> None:
            ends.append(log.log_end_offset)
            fetched.segment_base_offset += 1

        pairs.leaders.change = misplace
        follower = pairs.follow(log, 2)
        for _ in range(3):
            await pairs.pass_pause(follower)
        assert ends[-3:] == [0, 0, 0] and set(ends) > {0, 10}, "its newest epoch begins at 10"
        assert not pairs.failed
        pairs.leaders.change = lambda fetched: None
        await pairs.pass_pause(follower)
        await pairs.until(lambda: has_all(log, leader))
        await pairs.fetchers.stop_all()

    run(test)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_there", [False, True])
def test_segments_that_were_rewritten_later_are_taken_while_records_are_fetched(tmp_path: Path, is_there: bool) -> None:
    """Copied from the leader, or already there if a job wrote into the directory of this replica when it led."""

    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 40)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        follower = pairs.follow(log, 1)
        await pairs.until(lambda: has_all(log, leader))
        first = rewritten(leader, 6, 7)
        new = [rewritten(leader, 2, 4), first]
        if is_there:
            for each in new:
                for path in Path(leader.directory).glob(f"{each.base_offset:020d}-1.*"):
                    shutil.copy(path, log.directory)
        append(leader, simple_batch([b"later"]), epoch=1)
        pairs.fetchers.take_rewritten(follower, new)
        pairs.leaders.appended()
        await pairs.until(lambda: has_all(log, leader) and log.generations == leader.generations)
        assert bool(pairs.leaders.parts) is not is_there
        await pairs.until(lambda: not follower.tasks)
        leader.remove_deleted_files()
        assert data_of(log).keys() > data_of(leader).keys() or log.config.file_delete_delay_ms == 0
        await pairs.advance(log.config.file_delete_delay_ms + 1)
        leader.remove_deleted_files()
        assert data_of(log) == data_of(leader), "without a look at all logs"
        await pairs.fetchers.stop_all()

    run(test)


def test_a_partition_that_becomes_due_does_not_wait_for_the_answer_of_the_others(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        other_leader, other = pairs.log("leader", 1), pairs.log("follower", 1)
        fill(leader, 1, 3)
        fill(other_leader, 1, 3)
        for number, each in enumerate((leader, other_leader)):
            pairs.leaders.lead((TOPIC, number), each, 1)
        pairs.follow(log, 1)
        await pairs.until(lambda: has_all(log, leader))
        await pairs.turns()
        asked = len(pairs.leaders.asked)
        pairs.follow(other, 1, 1)
        await pairs.until(lambda: has_all(other, other_leader))
        assert len(pairs.leaders.asked) > asked
        append(leader, simple_batch([b"later"]), epoch=1)
        pairs.leaders.appended()
        await pairs.until(lambda: has_all(log, leader))
        assert data_of(log) == data_of(leader)
        await pairs.fetchers.stop_all()

    run(test)


def test_nothing_touches_the_log_of_a_stopped_follower(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path)
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 3)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        follower = pairs.follow(log, 1)
        await pairs.until(lambda: has_all(log, leader))
        await pairs.turns()
        append(leader, simple_batch([b"after the stop"]), epoch=1)
        pairs.leaders.appended()  # the answer is on its way
        assert await pairs.fetchers.stop([(TOPIC, 0)]) == [follower]
        await pairs.turns()
        assert log.log_end_offset == 3
        log.take_over(2)
        append(log, simple_batch([b"as the leader"]), epoch=2)
        assert log.log_end_offset == 4

    run(test)


def test_large_answers_are_appended_in_a_thread_and_a_stop_waits_for_it(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path, replica_fetch_max_bytes=4 << 20)
        leader, log = pairs.log("leader", segment_bytes=4 << 20), pairs.log("follower", segment_bytes=4 << 20)
        fill(leader, 1, 3, size=500_000)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.until(lambda: pairs.in_thread > 0)
        await pairs.fetchers.stop([(TOPIC, 0)])
        assert log.log_end_offset == 3
        log.take_over(2)

    run(test)


class ReadsOnTheLoop(RealFiles):
    """Counts the bytes that the event loop's thread reads of segments."""

    def __init__(self) -> None:
        self.bytes = 0
        self._loop = threading.get_ident()

    def _count(self, length: int) -> None:
        self.bytes += length if threading.get_ident() == self._loop else 0

    def view(self, descriptor: int, length: int, position: int) -> Buffer:
        self._count(length)
        return super().view(descriptor, length, position)

    def read_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        self._count(len(buffer))
        return super().read_into(descriptor, buffer, position)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_whole_segment_is_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool) -> None:
    """One that goes on after a close is verified again, one that ends gets a footer."""
    monkeypatch.setattr("kafkalake.storage.log_copy.SEAL_BYTES_MAX", 100_000)

    async def test() -> None:
        files = ReadsOnTheLoop()
        pairs = ReplicaPairs(tmp_path, files)
        leader, log = pairs.log("leader", segment_bytes=4 << 20), pairs.log("follower", segment_bytes=4 << 20)
        fill(leader, 1, 60, size=5_000)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.until(lambda: has_all(log, leader))
        if is_closed:
            await pairs.fetchers.stop_all()
            log.close()
            log = pairs.log("follower", segment_bytes=4 << 20)
            pairs.follow(log, 1)
            await pairs.turns()
        else:
            leader.roll()
        files.bytes = pairs.in_thread = 0
        append(leader, simple_batch([b"later"]), epoch=1)
        pairs.leaders.appended()
        await pairs.until(lambda: has_all(log, leader))
        await pairs.fetchers.stop_all()
        assert files.bytes < 100_000
        assert pairs.in_thread == 1, "what follows is short"
        assert data_of(log) == data_of(leader)

    run(test)


def test_a_throttled_follower_is_left_out_while_the_rate_is_exceeded_until_it_is_in_sync(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path, replica_fetch_max_bytes=2_000)
        pairs.throttled.rate = 1_000
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 10)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        follower = pairs.follow(log, 1)
        await pairs.until(lambda: log.log_end_offset > 0)
        await pairs.turns()
        before, asked = log.log_end_offset, len(pairs.leaders.asked)
        assert before < leader.log_end_offset and not follower.is_in_sync
        await pairs.advance(100)
        assert (log.log_end_offset, len(pairs.leaders.asked)) == (before, asked)
        while not has_all(log, leader):
            await pairs.advance(100)
            await asyncio.sleep(0)
        assert pairs.clock.monotonic_ms() > 2_000
        assert follower.is_in_sync
        append(leader, simple_batch([bytes(1_900)]), simple_batch([b"b"]), epoch=1)
        pairs.leaders.appended()
        await pairs.until(lambda: has_all(log, leader))
        await pairs.fetchers.stop_all()

    run(test)


def test_a_throttle_that_is_removed_holds_nothing_back_any_more(tmp_path: Path) -> None:
    async def test() -> None:
        pairs = ReplicaPairs(tmp_path, replica_fetch_max_bytes=2_000)
        pairs.throttled.rate = 1
        leader, log = pairs.log("leader"), pairs.log("follower")
        fill(leader, 1, 10)
        pairs.leaders.lead((TOPIC, 0), leader, 1)
        pairs.follow(log, 1)
        await pairs.until(lambda: log.log_end_offset > 0)
        await pairs.turns()
        await pairs.advance(500)
        assert not has_all(log, leader)
        pairs.throttled.rate = None
        await pairs.advance(500)
        await pairs.until(lambda: has_all(log, leader))
        await pairs.fetchers.stop_all()

    run(test)
