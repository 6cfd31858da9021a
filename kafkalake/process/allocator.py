"""How the process keeps memory: glibc's allocator told to hold on to what it will need again in a moment.

A broker takes and frees buffers of up to a few megabytes thousands of times a second. By default glibc maps each of the large ones
anew and gives it back, and the kernel finds and clears every page again: measured on a virtual machine, half the system time of
serving consumers. Here buffers of up to 8 MiB come from the heap, and up to 64 MiB of free heap is kept. That is so for the heap of
each of the two threads that decode large requests, too: a request with 28 MiB of names leaves so much free there, for the next one.
`malloc_trim` would not help: it leaves the end of a thread's heap alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MAPPED_FROM_BYTES = 8 * 1024 * 1024
_KEPT_BYTES = 64 * 1024 * 1024


def keep_buffers() -> None:
    """Tell glibc; does nothing where there is another C library."""
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def settle_collector() -> None:
    """After the start: what is there now stays, so the collector need not look at it again; then collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def memory_bytes() -> int:
    """Return the memory of this machine, or of the container where that has less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text()))
    return total
