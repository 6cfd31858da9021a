"""Logs of which no file stays open between two uses, as where other threads forget files at each moment."""

from __future__ import annotations

import os
from pathlib import Path

from manual_clock import ManualClock
from partition_logs import append, read_all
from record_batches import simple_batch
from replica_logs import compact

from kafkalake.record.layout import ATTRIBUTE_TRANSACTIONAL as TRANSACTIONAL
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import RealFiles
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.storage.verify import verify_partition


class NeverKept(RealFiles):
    """Files of which each that is opened is forgotten at once. A descriptor that is used after its file was closed is an error."""

    def __init__(self) -> None:
        self.open_files = OpenFiles(self, 16)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        opened = super().open(path, write=write, create=create)
        self.open_files.forget(path)
        return opened


def uncached(directory: Path, *, is_replicated: bool = False) -> Log:
    files = NeverKept()
    config = LogConfig(segment_bytes=2_000, index_interval_bytes=0, file_delete_delay_ms=0)
    return Log.open(directory, config, ManualClock(), files, files.open_files, is_replicated=is_replicated)


def write(log: Log) -> None:
    """Records, of which some are aborted."""
    for number in range(30):
        append(log, simple_batch([b"%d" % number + bytes(300)], producer_id=4, epoch=0, sequence=number))
        if number % 3 == 0:
            append(log, simple_batch([b"x"], producer_id=9, epoch=0, sequence=number // 3, attributes=TRANSACTIONAL))
            log.append_control(EndMarker(9, 0, ABORT, 0), 0)
            log.advance_high_watermark(log.log_end_offset)


def test_they_are_written_recovered_and_truncated(tmp_path: Path) -> None:
    log = uncached(tmp_path)
    write(log)
    rows = read_all(log)
    for closes in (False, True):
        if closes:
            log.close()
        log = uncached(tmp_path)
        assert read_all(log) == rows
    log.close()
    assert verify_partition(tmp_path) == []
    follower = uncached(tmp_path, is_replicated=True)
    follower.truncate_to(20, below_high_watermark=True)
    assert read_all(follower, 0, 20) == [row for row in rows if row[0] < 20]
    follower.close()
    assert verify_partition(tmp_path) == []


def test_they_are_compacted_and_what_they_lost_is_marked(tmp_path: Path) -> None:
    log = uncached(tmp_path)
    write(log)
    compact(log, [each.base_offset for each in log.sealed_segments()[:2]])
    end = log.log_end_offset
    log.discard()
    last = max(tmp_path.glob("*.arrow"))
    os.truncate(last, last.stat().st_size - 64)
    log = uncached(tmp_path)
    assert log.log_end_offset == end
    log.close()
    assert any("lost" in problem.what for problem in verify_partition(tmp_path))
