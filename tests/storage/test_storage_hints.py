"""Indexes that lack entries because a write failed or bytes are damaged: a search takes longer, and finds the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from faulty_files import FaultyFiles
from partition_logs import accepted, append, open_log
from record_batches import record_batch

from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.rewrite import RewriteRule, rewrite
from kafkalake.storage.verify import verify_partition


class FullForOne(FaultyFiles):
    """Files of which those with `suffix` cannot be created or written, `failures` times."""

    def __init__(self, suffix: str, failures: int) -> None:
        super().__init__()
        self.suffix, self.failures = suffix, failures

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if self.failures and create and path.endswith(self.suffix) and not os.path.exists(path):
            self.failures -= 1
            raise OSError(errno.ENOSPC, "no space left for it")
        return super().open(path, write=write, create=create)

    def write(self, descriptor: int, data: object, position: int) -> int:
        if self.failures and os.readlink(f"/proc/self/fd/{descriptor}").endswith(self.suffix):
            self.failures -= 1
            raise OSError(errno.ENOSPC, "no space left for it")
        return super().write(descriptor, data, position)


def append_at(log: Log, *stamps: int, size: int = 50) -> None:
    for stamp in stamps:
        accepted(append(log, record_batch([(stamp, b"%d" % stamp, b"x" * size, [])]))[0])


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_entries_that_could_not_be_written_at_a_start_are_written_when_the_segment_is_sealed(
    tmp_path: Path, suffix: str
) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    append_at(log, 9_000)
    log.roll()
    append_at(log, *range(1_000, 3_000, 100))  # and no close, so that the indexes are made anew
    files = FullForOne(suffix, failures=1)
    log = open_log(tmp_path, files=files, index_interval_bytes=0)
    assert files.failures == 0
    append_at(log, *range(3_000, 5_000, 100))
    assert log.offset_for_timestamp(2_500) == (9_000, 0)
    log.close()
    assert verify_partition(tmp_path) == []


@pytest.mark.parametrize("interval_bytes", [0, 4096])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_could_not_be_created_is_there_once_the_segment_is_sealed(
    tmp_path: Path, suffix: str, interval_bytes: int
) -> None:
    files = FullForOne(suffix, failures=1)
    log = open_log(tmp_path, files=files, index_interval_bytes=interval_bytes)
    append_at(log, 1_000, 2_000, 3_000)
    assert files.failures == 0
    for timestamp, offset in ((500, 0), (1_500, 1), (2_500, 2)):
        assert log.offset_for_timestamp(timestamp) == ((offset + 1) * 1_000, offset)
    log.roll()
    append_at(log, 4_000)
    log.close()
    assert verify_partition(tmp_path) == []


def test_a_segment_that_could_not_be_sealed_and_takes_smaller_records_has_an_entry_for_them(tmp_path: Path) -> None:
    files = FullForOne(".arrow", failures=0)
    log = open_log(tmp_path, files=files, segment_bytes=4_000, index_interval_bytes=4_096)
    append_at(log, 1_000, 3_000)
    files.failures = 1
    with pytest.raises(AssertionError, match="no space left for it"):
        append_at(log, 9_000, size=3_000)
    append_at(log, 2_000, 4_000)
    assert len(log.sealed_segments()) == 0
    for timestamp, expected in ((2_500, (3_000, 1)), (3_500, (4_000, 3)), (4_001, None)):
        assert log.offset_for_timestamp(timestamp) == expected
    log.close()
    assert verify_partition(tmp_path) == []


def test_a_time_is_found_before_a_rewritten_segment_of_which_the_index_was_damaged(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    for stamp in (1_000, 9_000, 2_000, 3_000):
        append_at(log, stamp)
        log.roll()
    old = log.sealed_segments()[2]
    Path(old.path).with_suffix(".timeindex").write_bytes(b"")
    new = rewrite([old.path], str(tmp_path), 1, RewriteRule(np.arange(4), frozenset(), {}, 0, 0)).segment
    assert log.adopt_rewritten([RewrittenSegment(new.base_offset, new.next_offset, new.generation)]) == []
    for timestamp, expected in ((500, (1_000, 0)), (1_500, (9_000, 1)), (2_500, (9_000, 1)), (9_001, None)):
        assert log.offset_for_timestamp(timestamp) == expected
