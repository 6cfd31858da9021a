"""A disk that is full, fails, or lies: the producer gets an error, what was acknowledged stays, and appends go on once
there is room."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_files import FaultyFiles
from manual_clock import ManualClock
from partition_logs import accepted, append, open_log, read_all
from record_batches import simple_batch, with_values_apart

from kafkalake.errors import KafkaStorageError
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.storage.segment import FIRST_MESSAGE
from kafkalake.storage.verify import verify_partition


def batch(number: int, size: int = 400) -> object:
    """A batch; every other one is written in parts."""
    made = simple_batch([b"%06d" % number + bytes(size)], producer_id=3, epoch=0, sequence=number)
    return with_values_apart(made) if number % 2 else made


def append_until_full(log: Log, number: int) -> int:
    """Append and acknowledge until the disk is full; the number of the first batch that was not taken."""
    while True:
        answer = log.append([batch(number)], 0)[0]  # type: ignore[list-item]
        if isinstance(answer, KafkaStorageError):
            return number
        assert accepted(answer).base_offset == number
        log.advance_high_watermark(log.log_end_offset)
        number += 1
        assert number < 100_000


def numbers(log: Log) -> list[int]:
    return [int((row[2] or b"")[:6]) for _, row in read_all(log)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("capacity", [0, 100, 600, 5_000, 20_000, 20_483, 40_001])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_full_disk_refuses_records_and_loses_none(tmp_path: Path, capacity: int, codec: str) -> None:
    files = FaultyFiles()
    config = {"segment_bytes": 8_000, "index_interval_bytes": 0, "segment_compression": codec}
    log = open_log(tmp_path, files=files, **config)
    files.capacity_bytes = capacity
    number = append_until_full(log, 0)
    for _ in range(3):
        assert isinstance(log.append([batch(number)], 0)[0], KafkaStorageError)  # type: ignore[list-item]
        assert (log.log_end_offset, log.high_watermark) == (number, number)
        assert numbers(log) == list(range(number))
    files.capacity_bytes = None
    for n in range(number, number + 5):
        assert accepted(append(log, batch(n))[0]).base_offset == n  # type: ignore[arg-type]
    assert numbers(log) == list(range(number + 5))
    assert numbers(open_log(tmp_path, **config)) == list(range(number + 5))
    log = open_log(tmp_path, **config)
    log.close()
    assert verify_partition(tmp_path) == []


def test_a_crash_while_the_disk_is_full_loses_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, segment_bytes=8_000)
    files.capacity_bytes = 30_000
    number = append_until_full(log, 0)
    assert number > 10
    assert numbers(open_log(tmp_path)) == list(range(number))


def test_short_writes_are_finished(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.short_writes = 100
    log = open_log(tmp_path, files=files, segment_bytes=8_000)
    for n in range(30):
        append(log, batch(n))  # type: ignore[arg-type]
    log.close()
    assert numbers(open_log(tmp_path)) == list(range(30))
    assert verify_partition(tmp_path) == []


def test_batches_of_one_append_fail_together_and_so_do_their_duplicates(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, batch(0))  # type: ignore[arg-type]
    files.capacity_bytes = 500
    answers = log.append([batch(0), batch(1), batch(2), batch(1)], 0)  # type: ignore[list-item]
    assert accepted(answers[0]).duplicate
    assert all(isinstance(answer, KafkaStorageError) for answer in answers[1:])
    files.capacity_bytes = None
    answers = log.append([batch(1), batch(2)], 0)  # type: ignore[list-item]
    assert [(accepted(a).base_offset, accepted(a).duplicate) for a in answers] == [(1, False), (2, False)]


def test_a_failing_flush_takes_back_what_was_not_acknowledged(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, segment_bytes=8_000, flush_messages=1)
    for n in range(20):
        append(log, batch(n))  # type: ignore[arg-type]
    log.flush()
    for n in range(20, 30):
        log.append([batch(n)], 0)  # type: ignore[list-item]
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (20, 20, 20)
    with pytest.raises(KafkaStorageError):
        log.advance_high_watermark(30)
    answers = log.append([batch(n) for n in range(20, 30)], 0)  # type: ignore[misc]
    assert [(accepted(a).base_offset, accepted(a).duplicate) for a in answers] == [(n, False) for n in range(20, 30)]
    log.flush()
    log.advance_high_watermark(30)
    assert (log.recovery_point, numbers(log)) == (30, list(range(30)))
    log.close()
    assert numbers(open_log(tmp_path)) == list(range(30))
    assert verify_partition(tmp_path) == []


def test_a_failing_flush_keeps_what_an_earlier_one_has_forced(tmp_path: Path) -> None:
    """A follower has fetched beyond it, for which its leader counts it, and has yet to hear of the high watermark. Twice."""
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    number = 0
    for _ in range(2):
        for _ in range(2):
            log.append([batch(number)], 0)  # type: ignore[list-item]
            number += 1
            log.flush()
        log.append([batch(number)], 0)  # type: ignore[list-item]
        files.fail_at_call = 0  # nothing can be discarded yet
        with pytest.raises(KafkaStorageError):
            log.flush()
        files.fail_at_call = None
        with pytest.raises(KafkaStorageError):
            log.flush()  # the kernel reports the error once: this would force no page that it has dropped
        assert (log.high_watermark, log.log_end_offset, log.recovery_point) == (0, number, number)
    log.advance_high_watermark(number)
    assert numbers(log) == list(range(number))
    assert numbers(open_log(tmp_path)) == list(range(number))


def fail_flush(log: Log, files: FaultyFiles, counted_end: int) -> None:
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.flush(counted_end)


def test_what_a_leader_counts_and_a_failing_flush_discards_is_told_until_it_is_known(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, is_replicated=True)
    log.append([batch(0), batch(1)], 0)  # type: ignore[list-item]
    fail_flush(log, files, 0)
    assert (log.log_end_offset, log.was_cut) == (0, False)
    log.append([batch(0), batch(1)], 0)  # type: ignore[list-item]
    log.flush(counted_end=2)
    log.append([batch(2)], 0)  # type: ignore[list-item]
    fail_flush(log, files, 2)
    assert (log.log_end_offset, log.was_cut) == (2, False), "what was forced is there"
    log.append([batch(2), batch(3)], 0)  # type: ignore[list-item]
    fail_flush(log, files, 3)
    assert (log.log_end_offset, log.was_cut) == (2, True)
    log.discard()
    log = open_log(tmp_path, files=files, is_replicated=True)  # a kill comes before the controller knows
    assert log.was_cut
    log.close()
    log = open_log(tmp_path, files=files, is_replicated=True)
    assert log.was_cut
    log.restart_at(7)
    log.discard()
    log = open_log(tmp_path, files=files, is_replicated=True)
    assert (log.log_end_offset, log.was_cut) == (7, True)
    files.fail_at_call = 0
    with pytest.raises(KafkaStorageError):
        log.forget_cut()
    assert log.was_cut
    files.fail_at_call = None
    log.forget_cut()
    log.discard()
    assert not open_log(tmp_path, files=files, is_replicated=True).was_cut


def test_a_kill_within_a_flush_that_discards_what_a_leader_counts_does_not_hide_it(tmp_path: Path) -> None:
    """The process ends after each of its calls of the disk."""
    ends = set()
    for calls in range(12):
        files, directory = FaultyFiles(), tmp_path / str(calls)
        log = open_log(directory, files=files, is_replicated=True)
        log.append([batch(0), batch(1)], 0)  # type: ignore[list-item]
        files.failing_syncs, files.fail_at_call = 1, files.calls + calls
        with pytest.raises(KafkaStorageError):
            log.flush(counted_end=2)
        log = open_log(directory, is_replicated=True)
        assert log.was_cut or log.log_end_offset == 2
        ends.add((log.log_end_offset, log.was_cut))
    assert ends == {(2, False), (2, True), (0, True)}


def test_records_found_after_a_kill_that_cannot_be_forced_are_told(tmp_path: Path) -> None:
    """A leader may count all of them. What is discarded was above the high watermark that this replica knew."""
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, is_replicated=True)
    log.append([batch(0), batch(1)], 0)  # type: ignore[list-item]
    log.discard()
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        open_log(tmp_path, files=files, is_replicated=True, flush_messages=1)
    log = open_log(tmp_path, files=files, is_replicated=True, flush_messages=1)
    assert (log.log_end_offset, log.was_cut) == (0, True)


def test_a_close_that_cannot_force_its_records_discards_none(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, is_replicated=True)
    log.append([batch(0), batch(1)], 0)  # type: ignore[list-item]
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.close()
    log = open_log(tmp_path, files=files, is_replicated=True)
    assert (log.log_end_offset, log.was_cut) == (2, False)


def test_records_found_after_a_kill_are_forced_as_the_topic_asks(tmp_path: Path) -> None:
    """A producer's retry is then a duplicate, which is acknowledged without an fsync."""
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, flush_messages=1)
    log.append([batch(0)], 0)  # type: ignore[list-item]
    log = open_log(tmp_path, files=files)
    assert (log.log_end_offset, log.recovery_point) == (1, 0)
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        open_log(tmp_path, files=files, flush_messages=1)
    log = open_log(tmp_path, files=files)
    assert accepted(append(log, batch(0))[0]).base_offset == 0  # type: ignore[arg-type]
    log = open_log(tmp_path, files=files, flush_messages=1)
    assert (log.log_end_offset, log.recovery_point) == (1, 1)


def test_a_log_that_cannot_even_be_cut_refuses_appends_until_it_can(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, batch(0))  # type: ignore[arg-type]
    log.append([batch(1)], 0)  # type: ignore[list-item]
    files.fail_at_call = 0
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert isinstance(log.append([batch(2)], 0)[0], KafkaStorageError)  # type: ignore[list-item]
    files.fail_at_call = None
    assert isinstance(log.append([batch(2)], 0)[0], KafkaStorageError)  # type: ignore[list-item]
    assert log.log_end_offset == 1
    assert accepted(append(log, batch(1))[0]).base_offset == 1  # type: ignore[arg-type]
    assert numbers(log) == [0, 1]


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_marker_that_cannot_be_written_leaves_no_aborted_transaction(tmp_path: Path, failing: int) -> None:
    """Its entry precedes it, in an index that is then sealed without one."""
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, simple_batch([b"a"], producer_id=1, epoch=0, sequence=0, transactional=True))
    log.roll()
    files.calls, files.fail_at_call = 0, failing
    with pytest.raises(KafkaStorageError):
        log.append_control(EndMarker(1, 0, ABORT, 0), 0)
    files.fail_at_call = None
    append(log, batch(0))  # type: ignore[arg-type]
    log.roll()
    assert log.aborted_transactions(0, 2) == []
    log.append_control(EndMarker(1, 0, ABORT, 0), 0)
    log.close()
    assert open_log(tmp_path).aborted_transactions(0, 3) == [(1, 0, 2, 3)]
    assert not [found for found in verify_partition(tmp_path) if found.file.endswith(".txnindex")]


def test_a_state_that_cannot_be_written_keeps_records_invisible(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, batch(0))  # type: ignore[arg-type]
    log.append([batch(1)], 0)  # type: ignore[list-item]
    files.fail_at_call = 0
    with pytest.raises(KafkaStorageError):
        log.advance_high_watermark(2)
    assert (log.high_watermark, numbers(log)) == (1, [0])
    files.fail_at_call = None
    log.advance_high_watermark(2)
    assert numbers(log) == [0, 1]


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(KafkaStorageError, match="file"):
        open_log(tmp_path / "file" / "log")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB of its own: a real one where this process may mount it, else a limit on the size of files."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(directory)], capture_output=True, check=False
    )
    if mounted.returncode == 0:
        yield directory
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
        return
    import resource
    import signal

    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    yield directory
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.process
def test_a_real_small_disk_fills_up_and_is_used_again_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError):
        ballast.write_bytes(bytes(100_000))
    log = open_log(small_disk / "log", ManualClock(), segment_bytes=1 << 30)
    number = append_until_full(log, 0)
    assert number > 20
    assert numbers(log) == list(range(number))
    assert numbers(open_log(small_disk / "log")) == list(range(number))
    ballast.unlink()
    log = open_log(small_disk / "log")
    if os.path.ismount(small_disk):
        append(log, batch(number))  # type: ignore[arg-type]
        number += 1
    else:
        log.delete_records_before(number)
    start = log.log_start_offset
    assert numbers(log) == list(range(start, number))
    assert numbers(open_log(small_disk / "log")) == list(range(start, number))


def test_the_double_is_full_as_a_disk_is(tmp_path: Path) -> None:
    files = FaultyFiles()
    descriptor = files.open(str(tmp_path / "f"), write=True, create=True)
    files.capacity_bytes = 10
    assert files.write(descriptor, b"12345678", 0) == 8
    assert files.write(descriptor, b"12345678", 8) == 2
    with pytest.raises(OSError) as caught:
        files.write(descriptor, b"1", 10)
    assert caught.value.errno == errno.ENOSPC
    assert files.write(descriptor, b"abc", 0) == 3
    files.truncate(descriptor, 5)
    assert files.write(descriptor, b"12345678", 5) == 5
    files.close(descriptor)


def test_records_that_a_failed_flush_could_not_discard_are_never_shown(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, simple_batch([b"kept"]))
    log.append([simple_batch([b"not forced"])], 0)
    files.failing_syncs = 1
    files.fail_at_call = files.calls + 3  # the file is cut, the state is not written
    with pytest.raises(KafkaStorageError):
        log.flush()
    files.fail_at_call = None
    with pytest.raises(KafkaStorageError, match="discard"):
        log.advance_high_watermark(log.log_end_offset)
    assert isinstance(append(log, simple_batch([b"discards"]))[0], KafkaStorageError)
    assert accepted(append(log, simple_batch([b"new"]))[0]).base_offset == 1
    assert [row[2] for _, row in read_all(log)] == [b"kept", b"new"]


def test_a_batch_that_a_failed_flush_has_to_discard_is_no_duplicate(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, batch(0))  # type: ignore[arg-type]
    log.append([batch(1)], 0)  # type: ignore[list-item]
    files.fail_at_call = 0
    with pytest.raises(KafkaStorageError):
        log.flush()
    files.fail_at_call = None
    answers = log.append([batch(1), batch(2)], 0)  # type: ignore[list-item]
    assert [type(answer) for answer in answers] == [KafkaStorageError, KafkaStorageError]
    answers = log.append([batch(1), batch(2)], 0)  # type: ignore[list-item]
    assert [(accepted(a).base_offset, accepted(a).duplicate) for a in answers] == [(1, False), (2, False)]


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("index_interval_bytes", [0, 4_096])
def test_what_a_failed_flush_damaged_is_discarded(tmp_path: Path, index_interval_bytes: int, rolled: bool) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, index_interval_bytes=index_interval_bytes)
    append(log, batch(0))  # type: ignore[arg-type]
    append(log, batch(1))  # type: ignore[arg-type]
    if rolled:
        log.roll()
    segment = tmp_path / f"{2 if rolled else 0:020d}.arrow"
    position = FIRST_MESSAGE if rolled else segment.stat().st_size
    for number in (2, 3):
        log.append([batch(number)], 0)  # type: ignore[list-item]
    overwrite(segment, position, bytes(64))  # the file system dropped the page
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert accepted(append(log, batch(2))[0]).base_offset == 2  # type: ignore[arg-type]
    assert numbers(log) == [0, 1, 2]


def test_acknowledged_records_that_a_failed_flush_damaged_are_not_cut_off(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, batch(0))  # type: ignore[arg-type]
    segment = tmp_path / f"{0:020d}.arrow"
    position = segment.stat().st_size
    append(log, batch(1))  # type: ignore[arg-type]
    log.append([batch(2)], 0)  # type: ignore[list-item]
    before = segment.stat().st_size
    overwrite(segment, position, bytes(64))
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert isinstance(log.append([batch(2)], 0)[0], KafkaStorageError)  # type: ignore[list-item]
    assert segment.stat().st_size == before


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("fails_at", [0, 3], ids=["nothing was cut", "the file was cut, the state not written"])
def test_a_log_that_is_closed_keeps_nothing_that_a_failed_flush_has_to_discard(tmp_path: Path, fails_at: int) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, batch(0))  # type: ignore[arg-type]
    log.append([batch(1)], 0)  # type: ignore[list-item]
    files.failing_syncs = 1
    files.fail_at_call = files.calls + fails_at if fails_at else 0
    with pytest.raises(KafkaStorageError):
        log.flush()
    files.fail_at_call, files.failing_syncs = None, 0
    log.close()
    again = open_log(tmp_path)
    answer = accepted(append(again, batch(1))[0])  # type: ignore[arg-type]
    assert (answer.base_offset, answer.duplicate) == (1, False)
    assert numbers(again) == [0, 1]
