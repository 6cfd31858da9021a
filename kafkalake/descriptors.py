"""Shares out the file descriptors of this process.

At most half of them are for segment files. Of the other half, a reserve is kept for work that must continue under any client load:
the lease, Delta, staged files. The rest is for connections. Further ones are closed at once, whatever `max.connections` says.
"""

from __future__ import annotations

import contextlib
import resource
from typing import NamedTuple

LIMIT_MAX = 1 << 20
RESERVE_MAX = 256


class Descriptors(NamedTuple):
    """The shares of a process's descriptors."""

    limit: int
    segment_files: int
    connections: int
    reserve: int


def raise_limit() -> None:
    """Raise this process's soft limit to the hard one, at most to `LIMIT_MAX`: the usual soft one, 1,024, suits only `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def current_limit() -> int:
    """Return the maximum number of descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LIMIT_MAX if soft == resource.RLIM_INFINITY else soft


def share_out(limit: int, segment_files_max: int) -> Descriptors:
    """Return the shares of `limit` descriptors if `open.files.max` is `segment_files_max`."""
    segment_files = max(1, min(segment_files_max, limit // 2))
    reserve = min(RESERVE_MAX, limit // 4)
    return Descriptors(limit, segment_files, max(1, limit - segment_files - reserve), reserve)
