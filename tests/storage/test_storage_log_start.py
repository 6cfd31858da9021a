"""Moving the start of a log: durable before it is answered, and nobody who appends waits for the disk."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faulty_files import FaultyFiles
from manual_clock import ManualClock
from partition_logs import accepted, append, open_log, read_all
from record_batches import simple_batch

from kafkalake.errors import KafkaError, KafkaStorageError
from kafkalake.storage.files import RealFiles
from kafkalake.storage.log import Log
from kafkalake.storage.retention import RetentionRule
from kafkalake.storage.state import read_state

MOVES: dict[str, Callable[[Log], object]] = {
    "a part": lambda log: log.delete_records_before(5),
    "all": lambda log: log.delete_records_before(10),
    "retention": lambda log: log.enforce_retention(RetentionRule(True, -1, 1), {}),
}


class HangingState(RealFiles):
    """A disk on which forcing `state` takes until `break_cycle`, and fails then if it is to."""

    def __init__(self) -> None:
        self.hangs, self.break_cycle, self.armed = threading.Event(), threading.Event(), False
        self.fails = False

    def sync(self, descriptor: int) -> None:
        if self.armed and os.readlink(f"/proc/self/fd/{descriptor}").endswith("/state"):
            self.hangs.set()
            assert self.break_cycle.wait(60)
            if self.fails:
                raise OSError(errno.EIO, "fsync fails on purpose")
        super().sync(descriptor)


@pytest.fixture
def files() -> Iterator[HangingState]:
    files = HangingState()
    yield files
    files.break_cycle.set()


def written(directory: Path, files: RealFiles) -> Log:
    log = open_log(directory, ManualClock(), files)
    for number in range(10):
        append(log, simple_batch([b"%d" % number]))
        if number % 2:
            log.roll()
    return log


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_an_append_does_not_wait_for_the_disk(
    tmp_path: Path, files: HangingState, move: Callable[[Log], object]
) -> None:
    log = written(tmp_path, files)
    files.armed = True
    thread = threading.Thread(target=lambda: move(log), daemon=True)
    thread.start()
    assert files.hangs.wait(60)
    assert (
        accepted(append(log, simple_batch([b"meanwhile"]))[0]).base_offset == 10
    )  # in this thread, which holds no lock
    start = log.log_start_offset
    assert read_all(log, 10)[0][0] == 10
    assert thread.is_alive()
    assert (tmp_path / f"{0:020d}.arrow").exists()  # nothing goes before the new start is on the disk
    files.break_cycle.set()
    thread.join(60)
    assert not (tmp_path / f"{0:020d}.arrow").exists()
    assert 5 <= start == log.log_start_offset == read_state(tmp_path).log_start_offset
    log = open_log(tmp_path)
    assert [offset for offset, _ in read_all(log)] == list(range(start, 11))


def test_a_log_that_is_closed_meanwhile_deletes_nothing(tmp_path: Path, files: HangingState) -> None:
    log = written(tmp_path, files)
    files.armed = True
    failures: list[KafkaError] = []

    def move() -> None:
        try:
            log.delete_records_before(5)
        except KafkaStorageError as error:
            failures.append(error.with_traceback(None))

    thread = threading.Thread(target=move, daemon=True)
    thread.start()
    assert files.hangs.wait(60)
    log.discard()
    before = sorted(os.listdir(tmp_path))
    files.break_cycle.set()
    thread.join(60)
    assert len(failures) == 1
    assert sorted(os.listdir(tmp_path)) == before


def test_a_start_is_taken_back_as_far_as_there_are_segments(tmp_path: Path, files: HangingState) -> None:
    """A failed flush in another thread has truncated the log meanwhile, and its start was above the first ones."""
    log = written(tmp_path, files)
    log.append([simple_batch([b"not acknowledged"])], 0)

    def move() -> None:
        with pytest.raises(KafkaStorageError):
            log.delete_records_before(5)

    thread = threading.Thread(target=move, daemon=True)
    files.armed = True
    thread.start()
    assert files.hangs.wait(60)
    files.armed = False
    log.truncate_to(10)
    files.fails = True
    files.break_cycle.set()
    thread.join(60)
    assert [offset for offset, _ in read_all(log)] == list(range(4, 10))
    log.discard()
    log = open_log(tmp_path, is_replicated=True)
    assert [offset for offset, _ in read_all(log)] == list(range(log.log_start_offset, 10))
    assert not log.was_cut


def test_a_start_that_cannot_be_forced_is_taken_back(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = written(tmp_path, files)
    append(log, simple_batch([b"open"], producer_id=4, epoch=0, sequence=0, transactional=True))
    assert (log.last_stable_offset, log.high_watermark) == (10, 11)
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.delete_records_before(11)
    assert (log.log_start_offset, log.last_stable_offset) == (0, 10)
    assert [offset for offset, _ in read_all(log)] == list(range(11))
    append(log, simple_batch([b"more"]))
    assert read_state(tmp_path)[:3] == (0, 12, 10)
    log.delete_records_before(11)
    assert (log.log_start_offset, log.last_stable_offset) == (11, 11)
