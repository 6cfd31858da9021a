"""Whoever takes over a log writes into files of its own; one who may not be the owner writes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from faulty_files import FaultyFiles
from manual_clock import ManualClock
from partition_logs import append, open_log, read_all
from record_batches import simple_batch

from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.errors import KafkaError, KafkaStorageError
from kafkalake.ownership import Ownership
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.owned_files import OwnedFiles
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker
from kafkalake.storage.state import read_state
from kafkalake.storage.takeover import begin_leadership, take_over_files
from kafkalake.storage.verify import verify_partition

LEASE_MS = 3_000


def succeed(directory: Path) -> Log:
    """Take over the log of somebody who may still run."""
    take_over_files(directory, REAL_FILES)
    log = open_log(directory)
    begin_leadership(log)
    return log


def test_files_that_were_not_replaced_are_at_the_next_attempt_to_open_the_log(tmp_path: Path) -> None:
    """A replica whose log does not open is opened again after a while."""
    files, topic_id = FaultyFiles(), uuid4()
    logs = LogDirectory(tmp_path, ManualClock(), OpenFiles(files, 16))
    directory = logs.path("clicks", 0)
    old = open_log(directory, topic_id=topic_id)
    append(old, simple_batch([b"a"]))
    opened = {path.stat().st_ino for path in (directory / "state", *directory.glob("*.arrow"))}
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        logs.open("clicks", 0, topic_id, LogConfig(), taking_over=True)
    new = logs.open("clicks", 0, topic_id, LogConfig())
    assert not opened & {path.stat().st_ino for path in directory.iterdir()}
    append(old, simple_batch([b"late"]))
    assert [row[2] for _, row in read_all(new)] == [b"a"]
    kept = {path.stat().st_ino for path in (directory / "state", *directory.glob("*.arrow"))}
    new.discard()
    logs.open("clicks", 0, topic_id, LogConfig())
    assert kept <= {path.stat().st_ino for path in directory.iterdir()}, "once is enough"


@pytest.mark.parametrize("late", ["append", "marker", "state", "flush"])
def test_what_the_last_owner_writes_late_is_nowhere(tmp_path: Path, late: str) -> None:
    """It was paused right before a write, so nothing stops that one."""
    directory = tmp_path / "clicks-0"
    old = open_log(directory)
    for producer in (6, 7):
        append(old, simple_batch([b"a"], producer_id=producer, epoch=0, sequence=0, transactional=True))
    old.append_control(EndMarker(6, 0, ABORT, 0), 0)
    append(old, simple_batch([b"b"]))
    expected = read_all(old)

    new = succeed(directory)
    assert (new.leader_epoch, new.log_end_offset, new.sealed_base_offsets) == (1, 4, [0])
    assert append(new, simple_batch([b"new"]), epoch=2)
    expected += read_all(new, 4)

    writes: dict[str, Callable[[], object]] = {
        "append": lambda: append(old, simple_batch([b"late"] * 5)),
        "marker": lambda: old.append_control(EndMarker(7, 0, ABORT, 0), 0),
        "state": lambda: old._segments.write_state(sync=True),
        "flush": old.flush,
    }
    writes[late]()
    assert read_all(new) == expected
    assert read_state(directory).log_end_offset == 5
    again = open_log(directory)  # as after a SIGKILL of the new owner
    assert read_all(again) == expected
    assert again.epoch_for_offset(3) == 0 and again.epoch_for_offset(4) == 2
    again.close()
    assert verify_partition(directory) == []


def test_a_takeover_without_an_append_has_an_epoch_of_its_own(tmp_path: Path) -> None:
    directory = tmp_path / "clicks-0"
    append(open_log(directory), simple_batch([b"a"]))
    epochs = []
    for _ in range(3):
        log = succeed(directory)
        epochs.append(log.leader_epoch)
        assert open_log(directory).leader_epoch == log.leader_epoch
    assert epochs == [1, 2, 3]
    assert [row[2] for _, row in read_all(open_log(directory))] == [b"a"]


def test_a_directory_that_is_not_there_is_taken_over(tmp_path: Path) -> None:
    take_over_files(tmp_path / "new-0", REAL_FILES)
    assert not (tmp_path / "new-0").exists()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ownership(clock: ManualClock) -> Ownership:
    certain = Ownership(clock)
    certain.renewed(clock.elapsed_ms(), LEASE_MS)
    return certain


def listing(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_who_is_not_certain_to_be_the_owner_changes_no_file(
    tmp_path: Path, clock: ManualClock, ownership: Ownership
) -> None:
    directory = tmp_path / "clicks-0"
    log = open_log(directory, clock, OwnedFiles(REAL_FILES, ownership))
    append(log, simple_batch([b"a", b"b"]))
    before = listing(directory)
    clock.advance(LEASE_MS)
    (answer,) = log.append([simple_batch([b"c"])], 0)
    assert isinstance(answer, KafkaStorageError)
    for change in (
        lambda: log.append_control(EndMarker(7, 0, COMMIT, 0), 0),
        lambda: log.delete_records_before(1),
        log.roll,
    ):
        with pytest.raises(KafkaError):
            change()
    assert listing(directory) == before

    ownership.renewed(clock.elapsed_ms(), LEASE_MS)
    append(log, simple_batch([b"c"]))
    log.close()
    assert [row[2] for _, row in read_all(open_log(directory))] == [b"a", b"b", b"c"]


def test_every_call_that_changes_a_file_is_refused(tmp_path: Path, clock: ManualClock, ownership: Ownership) -> None:
    files = OwnedFiles(REAL_FILES, ownership)
    path = str(tmp_path / "file")
    descriptor = files.open(path, write=True, create=True)
    files.write(descriptor, b"mine", 0)
    clock.advance(LEASE_MS)
    for change in (
        lambda: files.open(path + "2", write=True, create=True),
        lambda: files.write(descriptor, b"late", 0),
        lambda: files.truncate(descriptor, 0),
        lambda: files.rename(path, path + "2"),
        lambda: files.unlink(path),
    ):
        with pytest.raises(OSError, match="another broker may own the logs now"):
            change()
    assert Path(path).read_bytes() == b"mine"
    files.close(descriptor)
    assert os.listdir(tmp_path) == ["file"]
