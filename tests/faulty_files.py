"""Fault injection: replaces `RealFiles` in tests and simulations.

Faults are set by call count, so that a run can be repeated with the fault one call later each time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from kafkalake.storage.files import RealFiles


class FaultyFiles(RealFiles):
    """Real files with injected faults.

    capacity_bytes: free bytes. Beyond it writes are short, then fail with ENOSPC, as on a full disk. None: no limit.
    fail_at_call: the changing call (create, write, truncate, sync, rename, unlink) with this number, from 1 on, and all later
    ones fail with EIO. `calls` counts them. short_writes: maximum bytes per write. failing_syncs: number of next syncs that fail.
    """

    def __init__(self) -> None:
        self.capacity_bytes: int | None = None
        self.fail_at_call: int | None = None
        self.short_writes: int | None = None
        self.failing_syncs = 0
        self.calls = 0

    def _change(self) -> None:
        self.calls += 1
        if self.fail_at_call is not None and self.calls >= self.fail_at_call:
            raise OSError(errno.EIO, "the disk fails on purpose")

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if create:
            self._change()
        return super().open(path, write=write, create=create)

    def write(self, descriptor: int, data: Any, position: int) -> int:
        self._change()
        view = memoryview(data)
        if self.short_writes is not None:
            view = view[: self.short_writes]
        grows = max(0, position + len(view) - self.size(descriptor))
        if self.capacity_bytes is not None and grows > self.capacity_bytes:
            view = view[: len(view) - (grows - self.capacity_bytes)]
            grows = self.capacity_bytes
            if not view:
                raise OSError(errno.ENOSPC, "no space left on a disk that is full on purpose")
        written = super().write(descriptor, view, position)
        if self.capacity_bytes is not None:
            self.capacity_bytes -= grows
        return written

    def truncate(self, descriptor: int, size: int) -> None:
        self._change()
        freed = max(0, self.size(descriptor) - size)
        super().truncate(descriptor, size)
        if self.capacity_bytes is not None:
            self.capacity_bytes += freed

    def sync(self, descriptor: int) -> None:
        self._change()
        if self.failing_syncs:
            self.failing_syncs -= 1
            raise OSError(errno.EIO, "fsync fails on purpose")
        super().sync(descriptor)

    def rename(self, source: str, target: str) -> None:
        self._change()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._change()
        super().unlink(path)


class ActsAtOpening(RealFiles):
    """Real files. `act` is called once, before or after a file with `name` is opened."""

    def __init__(self, name: str = "", *, after: bool = False) -> None:
        self.name, self.after = name, after
        self.act: Callable[[], object] | None = None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        act = self.act if path.endswith(self.name) else None
        if act is None:
            return super().open(path, write=write, create=create)
        self.act = None
        if self.after:
            opened = super().open(path, write=write, create=create)
            act()
            return opened
        act()
        return super().open(path, write=write, create=create)


class ActsInSync(FaultyFiles):
    """Files of which the next fsync of one with `name` calls `act` first, and then fails if it is to."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name = name
        self.act: Callable[[], object] | None = None

    def sync(self, descriptor: int) -> None:
        if self.act is not None and os.readlink(f"/proc/self/fd/{descriptor}").endswith(self.name):
            act, self.act = self.act, None
            act()
        super().sync(descriptor)
