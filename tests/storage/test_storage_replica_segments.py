"""Whole segments that followers copy as files: rewritten generations, at any state of the follower's log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from manual_clock import ManualClock
from partition_logs import append, open_log
from record_batches import simple_batch
from replica_logs import (
    SEGMENT_BYTES,
    assert_same,
    compact,
    copied,
    copied_once,
    data_of,
    downloaded,
    install,
    open_follower,
    written,
)

from kafkalake.errors import CorruptMessageError, DivergedLogError, KafkaStorageError, OffsetOutOfRangeError
from kafkalake.storage.files import RealFiles
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.verify import verify_partition


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def leader(memory_path: Path, clock: ManualClock) -> Log:
    return written(memory_path / "leader", clock)


@pytest.fixture
def new(leader: Log) -> RewrittenSegment:
    """The leader's segments from the second to the fifth, rewritten as one."""
    return compact(leader, leader.sealed_base_offsets[1:5])


def reopened(follower: Log, clock: ManualClock, new: RewrittenSegment) -> Log:
    """The log as of the next start after a kill, with the rewritten segment in Delta."""
    follower.discard()
    return open_log(Path(follower.directory), clock, swapped=(new,), is_replicated=True, segment_bytes=SEGMENT_BYTES)


def assert_whole(leader: Log, follower: Log, clock: ManualClock, new: RewrittenSegment) -> None:
    for _ in range(2):
        assert_same_files(leader, follower)
        assert follower.generations == leader.generations == {new.base_offset: new.generation}
        follower = reopened(follower, clock, new)
    append(leader, simple_batch([b"more"]), epoch=leader.latest_epoch)
    copied(leader, follower)
    assert_same_files(leader, follower)


def assert_same_files(leader: Log, follower: Log) -> None:
    follower.remove_deleted_files()
    leader.remove_deleted_files()
    assert data_of(Path(follower.directory)) == data_of(Path(leader.directory))
    end = leader.log_end_offset
    assert follower.log_end_offset == end
    # They begin later on the follower if compaction removed their first records.
    ended = [[each[::2] for each in log.aborted_transactions(0, end)] for log in (leader, follower)]
    assert ended[0] == ended[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("then", [None, "close", "discard"])
@pytest.mark.parametrize("first", [0, 1, 6])
def test_large_sealed_segments_are_copied_as_files_with_all_that_follows_from_their_headers(
    memory_path: Path, clock: ManualClock, leader: Log, first: int, then: str | None
) -> None:
    follower = open_follower(memory_path / "follower", clock)
    for _ in range(first):
        copied_once(leader, follower, 1)
    bases = []
    while (read := leader.read_replica(follower.log_end_offset, 3_000, SEGMENT_BYTES // 2)).next_offset < (
        leader.log_end_offset
    ):
        bases += [] if read.whole is None else [read.whole.base_offset]
        copied_once(leader, follower, 3_000, SEGMENT_BYTES // 2)
    assert len(bases) > len(leader.sealed_base_offsets) // 2
    copied(leader, follower)
    assert_same(leader, follower)
    assert follower.generations == {}
    assert follower.has_unsynced_segments() and follower.recovery_point == 0
    for _ in range(2):
        if then is not None:
            getattr(follower, then)()
            follower = open_follower(memory_path / "follower", clock)
        append(leader, simple_batch([b"more"]), epoch=leader.latest_epoch)
        copied(leader, follower, 3_000, SEGMENT_BYTES // 2)
        assert_same(leader, follower)
    follower.flush()
    assert follower.recovery_point == leader.log_end_offset


def test_an_active_a_small_and_a_damaged_segment_are_copied_by_messages(
    memory_path: Path, clock: ManualClock, leader: Log
) -> None:
    bases = leader.sealed_base_offsets
    size = leader.segment_reference(bases[1], 0).size_bytes
    assert leader.read_replica(bases[1], 1, size + 1).whole is None
    assert leader.read_replica(bases[1], 1, size // 2).whole is not None
    second = leader.read_replica(bases[1], 1).next_offset
    assert leader.read_replica(second, 1, 1).whole is None, "the follower has its first message"
    assert leader.read_replica(leader.sealed_segments()[-1].next_offset, 1, 1).whole is None
    leader.discard()
    path = Path(leader.directory) / f"{bases[1]:020d}.arrow"
    path.write_bytes(path.read_bytes()[:-30])
    reopened = open_log(Path(leader.directory), clock, segment_bytes=SEGMENT_BYTES)
    assert reopened.read_replica(bases[1], 1, 1).whole is None


def test_an_empty_follower_copies_a_rewritten_segment(
    memory_path: Path, clock: ManualClock, leader: Log, new: RewrittenSegment
) -> None:
    follower = open_follower(memory_path / "follower", clock)
    copied(leader, follower, 700)
    assert_whole(leader, follower, clock, new)


def test_a_follower_in_the_middle_of_a_rewritten_segment_copies_it(
    memory_path: Path, clock: ManualClock, leader: Log
) -> None:
    follower = open_follower(memory_path / "follower", clock)
    while follower.log_end_offset < leader.sealed_base_offsets[3]:
        copied_once(leader, follower, 1)
    copied_once(leader, follower, 1)
    new = compact(leader, leader.sealed_base_offsets[1:4])
    assert new.base_offset < follower.log_end_offset < new.next_offset
    copied(leader, follower)
    assert_whole(leader, follower, clock, new)


@pytest.mark.parametrize("then", [None, "close", "discard"])
def test_a_follower_with_the_old_segments_gets_the_rewritten_one(
    memory_path: Path, clock: ManualClock, leader: Log, then: str | None
) -> None:
    follower = open_follower(memory_path / "follower", clock)
    copied(leader, follower)
    new = compact(leader, leader.sealed_base_offsets[1:4])
    if then is not None:
        getattr(follower, then)()
        follower = open_follower(memory_path / "follower", clock)
    ref = leader.read_replica(new.base_offset, 1).whole
    assert ref is not None and ref.generation == 1
    for _ in range(2):
        install(leader, follower, ref, 1_000)
    append(leader, simple_batch([b"after a close"]), epoch=leader.latest_epoch)
    copied(leader, follower)
    assert_whole(leader, follower, clock, new)


def test_the_last_segment_of_a_log_is_replaced_and_copied_on(
    memory_path: Path, clock: ManualClock, leader: Log
) -> None:
    follower = open_follower(memory_path / "follower", clock)
    leader.roll()
    copied(leader, follower)
    new = compact(leader, leader.sealed_base_offsets[-2:])
    ref = leader.read_replica(new.base_offset, 1).whole
    assert ref is not None
    install(leader, follower, ref, 1_000)
    assert_whole(leader, follower, clock, new)


def test_a_damaged_or_foreign_segment_is_refused(
    memory_path: Path, clock: ManualClock, leader: Log, new: RewrittenSegment
) -> None:
    follower = open_follower(memory_path / "follower", clock)
    copied_once(leader, follower, 1 << 20)
    ref = leader.read_replica(new.base_offset, 1).whole
    assert ref is not None and ref.txn_index_bytes
    path = downloaded(leader, memory_path / "follower", ref, 1 << 20)
    whole, before = path.read_bytes(), data_of(memory_path / "follower")
    step = len(whole) // 40
    damaged = [whole[:n] + bytes([whole[n] ^ 4]) + whole[n + 1 :] for n in range(3, len(whole), step)]
    for data in (*damaged, b"", whole[:-1], whole + b"x"):
        path.write_bytes(data)
        with pytest.raises(CorruptMessageError):
            follower.install_segment(ref, str(path))
    for other, error in (
        (ref._replace(next_offset=ref.next_offset + 1), CorruptMessageError),
        (ref._replace(base_offset=ref.base_offset - 1), DivergedLogError),
        (ref._replace(base_offset=ref.base_offset + 1, next_offset=ref.next_offset + 1), DivergedLogError),
    ):
        path.write_bytes(whole)
        with pytest.raises(error):
            follower.install_segment(other, str(path))
    assert data_of(memory_path / "follower") == before
    path.write_bytes(whole)
    follower.install_segment(ref, str(path))
    copied(leader, follower)
    assert_whole(leader, follower, clock, new)


def test_a_generation_that_is_gone_is_not_served(leader: Log, new: RewrittenSegment) -> None:
    ref = leader.read_replica(new.base_offset, 1).whole
    assert ref is not None
    for other in (ref._replace(generation=2), ref._replace(base_offset=ref.base_offset + 1)):
        with pytest.raises(OffsetOutOfRangeError):
            leader.read_segment_file(other, 0, 100)


def test_what_is_left_of_a_copy_is_removed_at_the_next_start(
    memory_path: Path, clock: ManualClock, leader: Log, new: RewrittenSegment
) -> None:
    open_follower(memory_path / "follower", clock).discard()
    ref = leader.read_replica(new.base_offset, 1).whole
    assert ref is not None
    path = downloaded(leader, memory_path / "follower", ref, 1 << 20)
    follower = open_follower(memory_path / "follower", clock)
    assert not path.exists()
    copied(leader, follower)
    assert_same_files(leader, follower)
    assert verify_partition(memory_path / "leader") is not None


def test_a_log_is_cut_in_front_of_a_rewritten_segment(
    memory_path: Path, clock: ManualClock, leader: Log, new: RewrittenSegment
) -> None:
    """Its messages have other borders than the leader's log may have."""
    follower = open_follower(memory_path / "follower", clock)
    copied(leader, follower)
    follower.truncate_to(new.base_offset + 3, below_high_watermark=True)
    assert follower.log_end_offset == new.base_offset
    copied(leader, follower)
    assert_whole(leader, follower, clock, new)


class HeldTruncation(RealFiles):
    """Truncations that begin while it `holds` wait until they go on: near the end of a verification, in the middle of a cut."""

    def __init__(self, *, holds: bool = True) -> None:
        self.holds, self.began, self.goes_on = holds, threading.Event(), threading.Event()

    def truncate(self, descriptor: int, size: int) -> None:
        if self.holds:
            self.began.set()
            assert self.goes_on.wait(30)
        super().truncate(descriptor, size)


def is_at_once(work: Callable[[], object]) -> bool:
    """Do something in a thread and return whether that waits for nobody."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()


def test_nothing_waits_while_a_copied_segment_is_verified(memory_path: Path, clock: ManualClock, leader: Log) -> None:
    """The event loop looks after all logs, asks for their producers, and discards one that has failed."""
    files = HeldTruncation()
    follower = open_follower(memory_path / "follower", clock, files)
    ref = leader.read_replica(0, 1 << 20, 1).whole
    assert ref is not None and ref.base_offset == 0
    path = str(downloaded(leader, memory_path / "follower", ref, 1 << 20))
    installing = threading.Thread(target=follower.install_segment, args=(ref, path))
    installing.start()
    assert files.began.wait(30)
    looks: list[Callable[[], object]] = [follower.remove_deleted_files, follower.expire_producers, follower.producers]
    waited = [look for look in looks if not is_at_once(look)]
    files.goes_on.set()
    installing.join()
    assert waited == []
    copied(leader, follower)
    assert_same(leader, follower)


def test_a_log_that_is_discarded_while_a_segment_is_verified_stays_as_it_was(
    memory_path: Path, clock: ManualClock, leader: Log
) -> None:
    files, errors = HeldTruncation(), list[KafkaStorageError]()
    follower = open_follower(memory_path / "follower", clock, files)
    ref = leader.read_replica(0, 1 << 20, 1).whole
    assert ref is not None
    path = str(downloaded(leader, memory_path / "follower", ref, 1 << 20))

    def install_in_vain() -> None:
        try:
            follower.install_segment(ref, path)
        except KafkaStorageError as error:
            errors.append(error)

    installing = threading.Thread(target=install_in_vain)
    installing.start()
    assert files.began.wait(30)
    discarded = is_at_once(follower.discard)
    files.goes_on.set()
    installing.join()
    assert discarded and len(errors) == 1
    follower = open_follower(memory_path / "follower", clock)
    assert follower.log_end_offset == 0
    copied(leader, follower, whole_from_bytes=1)
    assert_same(leader, follower)


class HeldNames(RealFiles):
    """Names that are forced to disk while it `holds` are so once they go on."""

    def __init__(self) -> None:
        self.holds, self.began, self.goes_on = False, threading.Event(), threading.Event()

    def sync_directory(self, path: str) -> None:
        if self.holds:
            self.began.set()
            assert self.goes_on.wait(30)
        super().sync_directory(path)


def test_a_log_that_is_discarded_while_a_rewritten_segment_is_placed_removes_no_file(
    memory_path: Path, clock: ManualClock, leader: Log
) -> None:
    """It was offline and open again meanwhile, and the segments of the log that was opened were removed under it."""
    files, errors = HeldNames(), list[KafkaStorageError]()
    follower = open_follower(memory_path / "follower", clock, files)
    copied(leader, follower)
    before = data_of(memory_path / "follower")
    new = compact(leader, leader.sealed_base_offsets[1:5])
    ref = leader.segment_reference(new.base_offset, new.generation)
    path = str(downloaded(leader, memory_path / "follower", ref, 1 << 20))

    def install_in_vain() -> None:
        try:
            follower.install_segment(ref, path)
        except KafkaStorageError as error:
            errors.append(error)

    files.holds = True
    installing = threading.Thread(target=install_in_vain)
    installing.start()
    assert files.began.wait(30)
    follower.discard()
    again = open_follower(memory_path / "follower", clock)
    files.goes_on.set()
    installing.join()
    follower.remove_deleted_files()
    assert len(errors) == 1
    assert data_of(memory_path / "follower").items() >= before.items()
    assert again.log_end_offset == leader.log_end_offset
    assert again.read(new.base_offset, 1).base_offset == new.base_offset


def test_the_upkeep_does_not_wait_for_a_log_that_is_being_cut(
    memory_path: Path, clock: ManualClock, leader: Log
) -> None:
    """What is left in its last segment is verified meanwhile. The next upkeep does it."""
    files = HeldTruncation(holds=False)
    follower = open_follower(memory_path / "follower", clock, files, producer_id_expiration_ms=1_000)
    border = 0
    while follower.log_end_offset < 20:
        border = follower.log_end_offset
        copied_once(leader, follower, 1)
    clock.advance(2_000)
    files.holds = True
    cutting = threading.Thread(target=follower.truncate_to, args=(border,))
    cutting.start()
    assert files.began.wait(30)
    looks: list[Callable[[], object]] = [follower.remove_deleted_files, follower.expire_producers]
    waited = [look for look in looks if not is_at_once(look)]
    files.goes_on.set()
    cutting.join()
    assert waited == []
    assert follower.expire_producers() == 1
