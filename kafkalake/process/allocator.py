"""Memory settings of the process: makes glibc's allocator keep buffers that will be needed again soon.

A broker allocates and frees buffers of up to a few megabytes thousands of times a second. By default glibc maps and unmaps each
large one, and the kernel finds and clears every page again: measured on a virtual machine, half the system time of serving
consumers. Here buffers of up to 8 MiB come from the heap, and up to 64 MiB of free heap is kept, until `trim_heap` after a request
of many megabytes. All threads share one heap, because `malloc_trim` leaves the free end of any other one as it is: `tune_malloc`
must be called before a thread has its own, that is before the libraries that start threads are imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MAPPED_FROM_BYTES = 8 * 1024 * 1024
_KEPT_BYTES = 64 * 1024 * 1024


def tune_malloc() -> None:
    """Set glibc's thresholds. Does nothing with another C library."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def trim_heap() -> None:
    """Return free heap to the system, in about a millisecond. Does nothing with another C library."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def defer_gc() -> None:
    """Have the garbage collector run rarely until `freeze_gc`: what a start makes stays, and each pass over it takes longer.

    Measured with 4,000 partitions: a sixth of the processor time of the start.
    """
    gc.set_threshold(1_000_000, 1_000, 1_000)


def freeze_gc() -> None:
    """Freeze the objects that exist after the start, so that the garbage collector skips them, and make it run less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def memory_bytes() -> int:
    """Return the memory of this machine, or of its container if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text()))
    return total
