"""Reads during which segments are removed or replaced, at the moment at which they open a file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from faulty_files import ActsAtOpening
from manual_clock import ManualClock
from partition_logs import append, open_log
from record_batches import simple_batch
from replica_logs import SEGMENT_BYTES, compact, written

from kafkalake.errors import OffsetOutOfRangeError
from kafkalake.record import layout as at
from kafkalake.storage import segments
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.storage.replica_read import SegmentRef
from kafkalake.storage.segment_names import file_name


def reopened(directory: Path, files: ActsAtOpening) -> Log:
    """A log whose files are all to be opened, and removed at once."""
    written(directory, ManualClock()).close()
    return open_log(directory, files=files, segment_bytes=SEGMENT_BYTES)


def middle_of(log: Log) -> int:
    """The base offset of the third segment, one of those that `compact` replaces."""
    return log.sealed_base_offsets[2]


READS: dict[str, Callable[[Log, int], object]] = {
    "read": lambda log, offset: log.read(offset, 1).base_offset,
    "offset_for_timestamp": lambda log, _: log.offset_for_timestamp(0),
    "max_timestamp": lambda log, _: log.max_timestamp(),
    "read_behind_damage": lambda log, offset: len(log.read_behind_damage(offset, 1)),
    "aborted_transactions": lambda log, offset: log.aborted_transactions(offset, log.log_end_offset)[-1],
    "sealed_segments": lambda log, _: log.sealed_segments()[0].base_offset,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("after", [False, True])
def test_a_read_during_a_compaction_finds_the_new_segment(memory_path: Path, read: str, *, after: bool) -> None:
    files = ActsAtOpening(after=after)
    log = reopened(memory_path, files)
    offset = middle_of(log)
    files.act = lambda: compact(log, log.sealed_base_offsets[1:5])
    found = READS[read](log, offset)
    assert files.act is None
    assert log.generations, "compacted"
    assert found == READS[read](log, offset)


@pytest.mark.parametrize("read", READS)
def test_a_read_during_a_deletion_reads_what_is_left(memory_path: Path, read: str) -> None:
    files = ActsAtOpening()
    log = reopened(memory_path, files)
    offset, start = middle_of(log), log.sealed_base_offsets[4]
    files.act = lambda: log.delete_records_before(start)
    if read == "read":
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 1)
    else:
        found = READS[read](log, offset)
        assert found == READS[read](log, start)
    assert (files.act, log.log_start_offset) == (None, start)


@pytest.mark.parametrize("seen", [1, 2])
def test_a_scan_during_which_segments_are_replaced_has_each_offset_once(memory_path: Path, seen: int) -> None:
    log = written(memory_path, ManualClock(), file_delete_delay_ms=60_000)
    bases = log.sealed_base_offsets
    scan = log.scan(0, log.log_end_offset, at.ALL_COLUMNS)
    found = [(messages.base_offset, messages.next_offset) for messages in islice(scan, seen)]
    assert found[-1][1] == bases[seen]
    compact(log, bases[1:5])
    found += [(messages.base_offset, messages.next_offset) for messages in scan]
    assert [first for first, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == log.log_end_offset


def test_a_scan_has_the_segment_once_that_is_sealed_as_it_begins(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(memory_path, ManualClock())

    def find(bases: list[int], offset: int) -> int:
        monkeypatch.undo()
        log.roll()
        return bisect_right(bases, offset)

    monkeypatch.setattr(segments, "bisect_right", find)
    found = [
        (messages.base_offset, messages.next_offset) for messages in log.scan(0, log.log_end_offset, at.ALL_COLUMNS)
    ]
    assert [first for first, _ in found] == [0, *(end for _, end in found[:-1])]


def test_an_aborted_transaction_is_listed_once_though_its_segment_is_sealed_meanwhile(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers take the second entry for another transaction of the producer, and pass over records that are committed."""
    log = written(memory_path, ManualClock())
    append(log, simple_batch([b"t"], producer_id=9, epoch=0, sequence=0, transactional=True), epoch=log.latest_epoch)
    log.append_control(EndMarker(9, 0, ABORT, 0), log.latest_epoch)
    append(log, simple_batch([b"more"]), epoch=log.latest_epoch)
    found = log.aborted_transactions(0, log.log_end_offset)
    look = segments.Segments._sealed_with_aborted

    def look_after_a_roll(listed: segments.Segments) -> list[int]:
        monkeypatch.undo()
        log.roll()
        return look(listed)

    monkeypatch.setattr(segments.Segments, "_sealed_with_aborted", look_after_a_roll)
    assert log.aborted_transactions(0, log.log_end_offset) == found
    assert log.aborted_transactions(0, log.log_end_offset) == found


REPLICA_READS: dict[str, Callable[[Log, SegmentRef], object]] = {
    "read_replica": lambda log, ref: log.read_replica(ref.base_offset, 1),
    "segment_reference": lambda log, ref: log.segment_reference(ref.base_offset, 0),
    "read_segment_file": lambda log, ref: log.read_segment_file(ref, 0, 100),
}


@pytest.mark.parametrize("read", REPLICA_READS)
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_follower_learns_that_the_segment_it_reads_is_gone(
    memory_path: Path, read: str, *, is_compacted: bool
) -> None:
    """And not that the leader's disk has failed."""
    files = ActsAtOpening()
    log = reopened(memory_path, files)
    bases = log.sealed_base_offsets
    ref = log.segment_reference(middle_of(log), 0)
    log.close()
    log = open_log(memory_path, files=files, segment_bytes=SEGMENT_BYTES)
    files.act = lambda: compact(log, bases[1:5]) if is_compacted else log.delete_records_before(bases[4])
    if is_compacted and read == "read_replica":
        whole = log.read_replica(ref.base_offset, 1).whole
        assert whole is not None
        assert (whole.base_offset, whole.generation) == (bases[1], 1)
    else:
        with pytest.raises(OffsetOutOfRangeError):
            REPLICA_READS[read](log, ref)
    assert files.act is None


@pytest.mark.parametrize("after", [False, True])
def test_a_file_that_is_removed_while_it_is_opened_is_not_kept(tmp_path: Path, *, after: bool) -> None:
    """Another one of its name would be read as it was."""
    path = str(tmp_path / file_name(0))
    files = ActsAtOpening(after=after)
    open_files = OpenFiles(files)
    Path(path).write_bytes(b"old")

    def replace() -> None:
        open_files.unlink(path)
        Path(path).write_bytes(b"new")

    files.act = replace
    open_files.get(path)
    assert REAL_FILES.read(open_files.get(path).descriptor, 3, 0) == b"new"
