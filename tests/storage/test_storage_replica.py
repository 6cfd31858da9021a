"""A follower's log: the leader's messages and segments, byte for byte."""

from __future__ import annotations

from pathlib import Path

from manual_clock import ManualClock
from partition_logs import append, open_log
from record_batches import simple_batch

from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker
from kafkalake.storage.segment_names import DATA_SUFFIX


def copied(leader: Log, follower: Log, max_bytes: int = 3_000) -> None:
    """Copy what the follower lacks, and then the watermark."""
    while True:
        read = leader.read_replica(follower.log_end_offset, max_bytes)
        done = follower.append_replica(read.messages, read.segment_base_offset, ends_segment=read.ends_segment)
        assert (done.first_offset, done.next_offset) == (read.first_offset, read.next_offset)
        if not len(read.messages):
            break
    follower.advance_high_watermark(min(leader.high_watermark, follower.log_end_offset))


def data_of(directory: Path) -> dict[str, bytes]:
    """The data files."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix == DATA_SUFFIX}


def written(directory: Path, clock: ManualClock) -> Log:
    """A leader's log of several segments and epochs, with idempotent producers and transactions."""
    log = open_log(directory, clock, segment_bytes=5_000)
    for number in range(40):
        if number in (0, 13, 26):
            log.take_over(number + 1)
        epoch = log.latest_epoch
        append(log, simple_batch([b"a%d" % number] * 5, producer_id=4, epoch=0, sequence=5 * number), epoch=epoch)
        append(log, simple_batch([b"t"], producer_id=7, epoch=0, sequence=number, transactional=True), epoch=epoch)
        if number % 5 == 4:
            log.append_control(EndMarker(7, 0, ABORT if number % 2 else COMMIT, 0), epoch)
            log.advance_high_watermark(log.log_end_offset)
    return log


def test_a_copied_log_has_the_files_and_the_state_of_its_leader(tmp_path: Path) -> None:
    clock = ManualClock()
    leader, follower = written(tmp_path / "leader", clock), open_log(tmp_path / "follower", clock, segment_bytes=5_000)
    copied(leader, follower)
    assert len(leader.sealed_base_offsets) > 5
    assert data_of(tmp_path / "follower") == data_of(tmp_path / "leader")
    assert follower.producers() == leader.producers()
    assert follower.last_stable_offset == leader.last_stable_offset
    end = leader.log_end_offset
    assert follower.aborted_transactions(0, end) == leader.aborted_transactions(0, end) != []
    assert [follower.end_offset_for_epoch(n) for n in range(30)] == [leader.end_offset_for_epoch(n) for n in range(30)]


def test_a_closed_follower_goes_on_in_the_segment_of_its_leader(tmp_path: Path) -> None:
    clock = ManualClock()
    leader, follower = open_log(tmp_path / "leader", clock), open_log(tmp_path / "follower", clock)
    for number in range(5):
        append(leader, simple_batch([b"%d" % number] * 3))
        copied(leader, follower)
        follower.close()
        follower = open_log(tmp_path / "follower", clock)
        assert follower.log_end_offset == leader.log_end_offset
    append(leader, simple_batch([b"last"]))
    copied(leader, follower)
    assert data_of(tmp_path / "follower") == data_of(tmp_path / "leader")
    assert len(data_of(tmp_path / "follower")) == 1


def test_a_follower_is_truncated_below_its_watermark_and_copies_on(tmp_path: Path) -> None:
    clock = ManualClock()
    leader, follower = written(tmp_path / "leader", clock), open_log(tmp_path / "follower", clock, segment_bytes=5_000)
    copied(leader, follower)
    for offset in sorted({read.first_offset for read in reads_of(leader)}, reverse=True):
        follower.truncate_to(offset, below_high_watermark=True)
        assert follower.log_end_offset == follower.high_watermark == offset
    copied(leader, follower)
    assert data_of(tmp_path / "follower") == data_of(tmp_path / "leader")
    follower.restart_at(1_000)
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (1_000, 1_000, 1_000)
    assert follower.producers() == [] and follower.latest_epoch == -1
    follower.restart_at(leader.replica_start_offset)
    copied(leader, follower)
    assert data_of(tmp_path / "follower") == data_of(tmp_path / "leader")


def test_a_follower_raises_its_log_start_and_keeps_the_segment_that_the_leader_appends_to(tmp_path: Path) -> None:
    clock = ManualClock()
    leader, follower = written(tmp_path / "leader", clock), open_log(tmp_path / "follower", clock, segment_bytes=5_000)
    copied(leader, follower)
    for start in (leader.sealed_base_offsets[2] + 1, leader.log_end_offset):
        follower.raise_start(start + 1_000 if start == leader.log_end_offset else start)
        assert follower.log_start_offset == start
        assert follower.replica_start_offset <= start
    append(leader, simple_batch([b"more"]), epoch=leader.latest_epoch)
    copied(leader, follower)
    assert follower.log_end_offset == leader.log_end_offset
    leader.delete_records_before(start)
    assert data_of(tmp_path / "follower") == data_of(tmp_path / "leader")


def reads_of(leader: Log) -> list:
    """The messages one by one."""
    reads, offset = [], leader.replica_start_offset
    while offset < leader.log_end_offset:
        reads.append(leader.read_replica(offset, 1))
        offset = reads[-1].next_offset
    return reads
