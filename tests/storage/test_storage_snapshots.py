"""Snapshots of producers that cannot be removed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from faulty_files import FaultyFiles
from partition_logs import append, open_log
from record_batches import simple_batch

from kafkalake.errors import KafkaStorageError


class KeptSnapshots(FaultyFiles):
    """Files of which snapshots cannot be removed, `failures` times."""

    failures = 0

    def unlink(self, path: str) -> None:
        if self.failures and path.endswith(".snapshot"):
            self.failures -= 1
            raise OSError(errno.EIO, "the disk fails on purpose", path)
        super().unlink(path)


def snapshots(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def test_none_stays_above_the_end_of_a_truncated_log(tmp_path: Path) -> None:
    """It would be read once the log has grown past it."""
    files = KeptSnapshots()
    log = open_log(tmp_path, files=files, is_replicated=True)
    for number in range(4):
        append(log, simple_batch([b"x"], producer_id=3, epoch=0, sequence=number))
        log.roll()
    assert max(snapshots(tmp_path)) > 1
    files.failures = 1
    with pytest.raises(KafkaStorageError):
        log.truncate_to(1, below_high_watermark=True)
    log.truncate_to(1, below_high_watermark=True)
    assert not [offset for offset in snapshots(tmp_path) if offset > 1]


def test_an_older_one_that_stays_is_removed_with_the_next(tmp_path: Path) -> None:
    files = KeptSnapshots()
    log = open_log(tmp_path, files=files)
    files.failures = 2
    for number in range(6):
        append(log, simple_batch([b"x"], producer_id=3, epoch=0, sequence=number))
        log.roll()
    assert files.failures == 0
    assert len(snapshots(tmp_path)) == 2
