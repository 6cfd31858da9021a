"""Threads that force one log at the same time, and logs that change while they are forced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from faulty_files import ActsInSync
from partition_logs import open_log
from record_batches import simple_batch

from kafkalake.errors import KafkaStorageError
from kafkalake.storage.log import Log
from kafkalake.storage.segment_names import DATA_SUFFIX
from kafkalake.storage.state import read_state


def _opened(directory: Path, files: ActsInSync, **config: object) -> Log:
    return open_log(directory, files=files, segment_bytes=4_000, flush_messages=1, **config)


def _append(log: Log, records: int) -> None:
    for _ in range(records):
        log.append([simple_batch([b"x" * 100])], 0)


def _sealed(directory: Path, files: ActsInSync) -> Log:
    """A log with sealed segments, none of whose records is forced or acknowledged."""
    log = _opened(directory, files)
    _append(log, 20)
    assert log.sealed_base_offsets and log.recovery_point == 0
    return log


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    """`work` in a thread that has ended, or waits for what is under way here."""

    def run() -> None:
        with suppress(KafkaStorageError):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.2)
    return thread


def test_what_the_fsync_of_sealed_segments_has_not_forced_is_not_acknowledged_by_the_next_one(tmp_path: Path) -> None:
    """It succeeds without what the kernel has dropped."""
    files = ActsInSync(DATA_SUFFIX)
    log = _sealed(tmp_path, files)
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.flush_sealed()
    log.flush()
    assert (log.log_end_offset, log.high_watermark) == (0, 0)
    _append(log, 20)
    log.flush()
    log.advance_high_watermark(20)
    assert log.recovery_point == 20


def test_what_it_has_not_forced_is_not_acknowledged_either_if_it_cannot_be_discarded_at_once(tmp_path: Path) -> None:
    files = ActsInSync(DATA_SUFFIX)
    log = _sealed(tmp_path, files)
    files.fail_at_call = 0
    with pytest.raises(KafkaStorageError):
        log.flush_sealed()
    with pytest.raises(KafkaStorageError):
        log.flush()
    files.fail_at_call = None
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.log_end_offset == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", [Log.flush_sealed, Log.flush], ids=["sealed", "all"])
@pytest.mark.parametrize("second", [Log.flush_sealed, Log.flush], ids=["sealed", "all"])
def test_of_two_threads_the_second_waits_for_the_error_of_the_first(
    tmp_path: Path, first: Callable[[Log], None], second: Callable[[Log], None]
) -> None:
    """The kernel reports it to one of them."""
    files = ActsInSync(DATA_SUFFIX)
    log = _sealed(tmp_path, files)
    threads: list[threading.Thread] = []
    forced: list[int] = []

    def force() -> None:
        second(log)
        forced.append(log.log_end_offset)

    def fail() -> None:
        threads.append(_in_thread(force))
        files.failing_syncs = 1

    files.act = fail
    with pytest.raises(KafkaStorageError):
        first(log)
    threads[0].join()
    assert forced == [0], "nothing that is left is not forced"


@pytest.mark.exhaustive
def test_records_appended_beside_two_flushes_are_counted_once(tmp_path: Path) -> None:
    """The records of the second one included those of the first: taken off twice, later ones seemed forced."""
    files = ActsInSync(DATA_SUFFIX)
    log = _sealed(tmp_path, files)
    threads: list[threading.Thread] = []

    def flush_and_append() -> None:
        threads.append(_in_thread(log.flush))
        _append(log, 1)

    files.act = flush_and_append
    log.flush()
    threads[0].join()
    assert log.flush_due() or log.recovery_point == log.log_end_offset


def test_a_failed_fsync_counts_also_if_the_log_is_truncated_meanwhile(tmp_path: Path) -> None:
    """What is left of the records was not forced."""
    files = ActsInSync(DATA_SUFFIX)
    log = _sealed(tmp_path, files)
    log.advance_high_watermark(10)

    def fail() -> None:
        log.truncate_to(15)
        files.failing_syncs = 1

    files.act = fail
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.log_end_offset == 10
    assert read_state(tmp_path / "state").fsync_failed
    log.flush()
    assert log.recovery_point == 0
