"""A megabyte of disk space reserved by a broker, so that it can start on a full disk.

A running broker needs no space to renew its lease (`lease`), nor do its readers. A start does: it takes the lease by a row in
Delta, and recovery writes small files. If little space is free, the starting process frees the reserve just before it takes the
lease. Once started, and before it serves any producer, the broker reserves again what the start has left. A start uses some 50 KB,
so several starts are possible on a disk that stays full.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

RESERVE_BYTES = 1 << 20

logger = logging.getLogger(__name__)


def give_back(file: Path) -> None:
    """Free the reserve if less than its size is free. Only for the starting broker: another would use up its space."""
    try:
        if _free_bytes(file) >= RESERVE_BYTES or not file.stat().st_size:
            return
        os.truncate(file, 0)
        logger.warning("the disk is full, starting in the space that was kept for that file=%s", file)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("the space kept for a start on a full disk cannot be freed file=%s error=%s", file, error)


def keep(file: Path) -> None:
    """Fill up the reserve, or as much of it as there is space for. Failures are only logged."""
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
        logger.warning("no space can be kept for a start on a full disk file=%s error=%s", file, error)


def _free_bytes(file: Path) -> int:
    disk = os.statvfs(file.parent)
    return disk.f_bavail * disk.f_frsize
