"""A megabyte that a broker keeps of its disk, so that it starts again when the rest of it is full.

A broker that runs needs no space to keep its lease (`lease`), and its readers none to go on. A start does: it takes the lease by a
row in Delta, and recovery puts its small files in order. So whoever is about to take the lease gives the reserve back to the disk
when little else is free, and once the broker has started, it keeps again what the start has left of it, before it serves anybody
who could write. A start uses some 50 KB: a disk that stays full is good for several.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

RESERVE_BYTES = 1 << 20

_log = logging.getLogger(__name__)


def give_back(file: Path) -> None:
    """Free the reserve where less than a reserve is free. Only for the one whose start it is: another would use it up."""
    try:
        if _free_bytes(file) >= RESERVE_BYTES or not file.stat().st_size:
            return
        os.truncate(file, 0)
        _log.warning("the disk is full, starting in the space that was kept for that file=%s", file)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("the space kept for a start on a full disk cannot be freed file=%s error=%s", file, error)


def keep(file: Path) -> None:
    """Take what is missing of the reserve, or what there is."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            there = os.fstat(descriptor).st_size
            size = min(RESERVE_BYTES, there + _free_bytes(file))
            if size > there:
                os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
    except OSError as error:
        _log.warning("no space can be kept for a start on a full disk file=%s error=%s", file, error)


def _free_bytes(file: Path) -> int:
    disk = os.statvfs(file.parent)
    return disk.f_bavail * disk.f_frsize
