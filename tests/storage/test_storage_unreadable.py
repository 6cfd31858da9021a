"""A file that recovery builds anew need not be readable: an I/O error in it is damage, and the partition opens all the same."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest
from manual_clock import ManualClock
from partition_logs import append, open_log, read_all
from record_batches import simple_batch
from replica_logs import compact
from replica_logs import written as written_by_leader

from kafkalake.errors import KafkaStorageError
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import RealFiles
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.storage.segment_names import file_name
from kafkalake.storage.verify import verify_partition


class BadSectors(RealFiles):
    """Files with these suffixes have a sector that cannot be read, until something is put in its place."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.bad: set[int] = set()
        self.hits = 0

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        descriptor = super().open(path, write=write, create=create)
        if path.endswith(self.suffix):
            self.bad.add(descriptor)
        else:
            self.bad.discard(descriptor)
        return descriptor

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        if descriptor in self.bad:
            self.hits += 1
            raise OSError(errno.EIO, "a sector that cannot be read")
        return super().read(descriptor, length, position)

    def read_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        data = self.read(descriptor, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)


def written(directory: Path) -> list[bytes | None]:
    log = open_log(directory, segment_bytes=2_000, index_interval_bytes=0)
    for sequence in range(20):
        append(log, simple_batch([b"%d" % sequence], producer_id=4, epoch=0, sequence=sequence, transactional=True))
    log.append_control(EndMarker(4, 0, ABORT, 0), 0)
    log.advance_high_watermark(log.log_end_offset)
    return [row[2] for _, row in read_all(log)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["leader-epochs", "state", ".snapshot", ".index", ".timeindex", ".txnindex"])
def test_a_partition_opens_without_what_is_built_anew(tmp_path: Path, name: str) -> None:
    expected = written(tmp_path)
    files = BadSectors(name)
    log = open_log(tmp_path, files=files, segment_bytes=2_000, index_interval_bytes=0)
    log.advance_high_watermark(log.log_end_offset)
    assert [row[2] for _, row in read_all(log)] == expected
    append(log, simple_batch([b"more"]))
    again = open_log(tmp_path)
    assert [row[2] for _, row in read_all(again)] == [*expected, b"more"]
    assert again.active_producers() == 1
    again.close()
    assert verify_partition(tmp_path) == []


class FailingOpens(RealFiles):
    """The next `failures` opens of the file of that name fail."""

    def __init__(self, name: str, error: int, failures: int) -> None:
        self.name, self.error, self.failures = name, error, failures

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if Path(path).name == self.name and self.failures:
            self.failures -= 1
            raise OSError(self.error, "fails on purpose", path)
        return super().open(path, write=write, create=create)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_replicated", [False, True])
@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize(("error", "failures"), [(errno.EMFILE, 1), (errno.ENOMEM, 1), (errno.EIO, 1), (errno.EIO, 2)])
def test_a_state_that_is_not_read_once_costs_no_record_and_brings_none_back(
    tmp_path: Path, error: int, failures: int, is_closed: bool, is_replicated: bool
) -> None:
    """A replica without its log start removed all its segments, and a log that is alone began at its first segment again."""
    log = open_log(tmp_path, is_replicated=is_replicated, segment_bytes=2_000)
    for number in range(40):
        append(log, simple_batch([b"%d" % number * 50]))
    log.delete_records_before(22)
    first = log.sealed_base_offsets[0]
    if is_closed:
        log.close()
    else:
        log.discard()
    files, attempts = FailingOpens("state", error, failures), 0
    while files.failures:
        attempts += 1
        with contextlib.suppress(KafkaStorageError):
            open_log(tmp_path, files=files, is_replicated=is_replicated, segment_bytes=2_000).discard()
    log = open_log(tmp_path, is_replicated=is_replicated, segment_bytes=2_000)
    found = log.log_start_offset, log.high_watermark, log.log_end_offset
    has_forgotten = failures == 2 and not is_replicated  # its sector is lost for good: what the log has is shown
    assert found == (first if has_forgotten else 22, 40, 40)
    assert (attempts, log.was_cut) == (1, has_forgotten)
    assert [row[2] for _, row in read_all(log)][-18:] == [b"%d" % number * 50 for number in range(22, 40)]


def test_records_that_cannot_be_read_keep_only_their_partition_from_opening(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(KafkaStorageError):
        open_log(tmp_path, files=BadSectors(".arrow"))


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_rewritten_segment_that_is_not_opened_once_is_adopted_when_asked_again(tmp_path: Path, error: int) -> None:
    """It was refused as damaged, until the next start."""
    log = written_by_leader(tmp_path, ManualClock())
    bases = log.sealed_base_offsets[:2]
    log.discard()
    files = FailingOpens("", error, 0)
    log = open_log(tmp_path, files=files, file_delete_delay_ms=60_000)
    files.name, files.failures = file_name(bases[0], generation=1), 1
    with pytest.raises(KafkaStorageError, match="on purpose"):
        compact(log, bases)
    new = RewrittenSegment(bases[0], log.sealed_base_offsets[2], 1)
    assert (log.adopt_rewritten([new]), log.generations) == ([], {bases[0]: 1})
    log.discard()
    files.failures = 1
    log = open_log(tmp_path, files=files, swapped=[new])
    assert (files.failures, log.generations) == (0, {}), "the old ones are there"
    assert (log.adopt_rewritten([new]), log.generations) == ([], {bases[0]: 1})


def test_a_log_that_is_offline_knows_nothing_and_touches_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    log = Log.offline(tmp_path, LogConfig(), ManualClock(), OpenFiles())
    assert isinstance(log.append([simple_batch([b"x"])], 0)[0], KafkaStorageError)
    for call in (lambda: log.read(0, 100), log.roll, log.flush, lambda: log.size_bytes):
        with pytest.raises(KafkaStorageError):
            call()
    log.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
