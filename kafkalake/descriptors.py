"""File descriptors: how many this process may have, and who gets them.

Half of them at most are for segment files. Of the other half a reserve stays for what must always go on, whatever clients do: the
lease, Delta, staged files. What is left is for connections; a further one is closed at once, whatever `max.connections` says.
"""

from __future__ import annotations

import contextlib
import resource
from typing import NamedTuple

LIMIT_MAX = 1 << 20
RESERVE_MAX = 256


class Descriptors(NamedTuple):
    """How a process's descriptors are shared out."""

    limit: int
    segment_files: int
    connections: int
    reserve: int


def raise_limit() -> None:
    """Raise the soft limit of this process to the hard one, at most to `LIMIT_MAX`: the usual soft one, 1,024, is for `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def current_limit() -> int:
    """Return how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LIMIT_MAX if soft == resource.RLIM_INFINITY else soft


def share_out(limit: int, segment_files_max: int) -> Descriptors:
    """Share out `limit` descriptors where `open.files.max` is `segment_files_max`."""
    segment_files = max(1, min(segment_files_max, limit // 2))
    reserve = min(RESERVE_MAX, limit // 4)
    return Descriptors(limit, segment_files, max(1, limit - segment_files - reserve), reserve)
