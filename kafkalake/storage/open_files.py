"""Bounds open file descriptors, across thousands of partitions with tens of thousands of files.

A descriptor belongs to an `OpenFile` and is closed with its last reference. The cache holds one. So evicting the least recently
used file never closes it during another thread's read, and at most `limit` plus the calls in progress are open. (This relies on
CPython's reference counting, which closes at once.)
"""

from __future__ import annotations

import contextlib
import resource
import threading
from collections import OrderedDict

from kafkalake.storage.files import REAL_FILES, Files


class OpenFile:
    """An open file. Keep a reference to the object, not the number, while using `descriptor`."""

    __slots__ = ("_files", "descriptor", "writable")

    def __init__(self, files: Files, path: str, *, write: bool, create: bool) -> None:
        self._files = files
        self.descriptor = -1
        self.descriptor = files.open(path, write=write, create=create)
        self.writable = write

    def __del__(self) -> None:
        if self.descriptor >= 0:
            with contextlib.suppress(OSError):
                self._files.close(self.descriptor)


def default_limit() -> int:
    """Return half of the process's file limit, 64 to 8,192. The other half is for sockets."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, min(8192, soft // 2 if soft > 0 else 8192))


class OpenFiles:
    """An LRU cache of the open files of all logs of a broker. Thread-safe."""

    def __init__(self, files: Files = REAL_FILES, limit: int | None = None) -> None:
        self.files = files
        self.limit = default_limit() if limit is None else limit
        assert self.limit > 0
        self._open: OrderedDict[str, OpenFile] = OrderedDict()
        self._lock = threading.Lock()
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str, *, write: bool = False, create: bool = False) -> OpenFile:
        """Return the file at `path`, opening it if needed. Raise `OSError` if I/O fails."""
        with self._lock:
            found = self._open.get(path)
            if found is not None and (found.writable or not write):
                self._open.move_to_end(path)
                return found
            forgotten = self._forgotten
        opened = OpenFile(self.files, path, write=write, create=create)
        with self._lock:
            if forgotten != self._forgotten:
                return opened  # perhaps this one, which was removed before it is kept
            self._open[path] = opened
            self._open.move_to_end(path)
            if len(self._open) > self.limit:
                self._open.popitem(last=False)
        return opened

    def unlink(self, path: str) -> None:
        """Remove a file and evict it. Raise `OSError` as `unlink(2)`."""
        try:
            self.files.unlink(path)
        finally:
            self.forget(path)

    def forget(self, path: str) -> None:
        """Evict a file that was renamed or replaced, or is not needed soon. Not earlier: another thread may open it meanwhile."""
        with self._lock:
            self._forgotten += 1
            self._open.pop(path, None)

    def forget_directory(self, directory: str) -> None:
        """Evict all files in a directory that was renamed or is no longer used."""
        prefix = f"{directory}/"
        with self._lock:
            self._forgotten += 1
            for path in [path for path in self._open if path.startswith(prefix)]:
                del self._open[path]
