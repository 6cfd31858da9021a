"""Real files that are only changed while this process knows that they are its own."""

from __future__ import annotations

import errno
import os
from typing import Any

from kafkalake.ownership import Ownership
from kafkalake.storage.files import RealFiles

_REASON = "another broker may own the logs now: the lease was not renewed in time"


class OwnedFiles(RealFiles):
    """As `RealFiles`; what changes a file raises `OSError` (EROFS) while `ownership` is not certain.

    A file is opened before it is written to, and ownership is looked at in between. So a process that is paused right before the
    write writes into the file that it had opened as the owner; whoever takes over has put a copy in its place (`takeover.py`).
    """

    def __init__(self, ownership: Ownership) -> None:
        self._is_certain = ownership.is_certain

    def _require(self, path: str | None = None) -> None:
        if not self._is_certain():
            raise OSError(errno.EROFS, _REASON, path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if create:
            self._require(path)
        return super().open(path, write=write, create=create)

    def write(self, descriptor: int, data: Any, position: int) -> int:
        if not self._is_certain():
            raise OSError(errno.EROFS, _REASON)
        return os.pwrite(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        self._require()
        os.ftruncate(descriptor, size)

    def rename(self, source: str, target: str) -> None:
        self._require(target)
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        self._require(path)
        os.unlink(path)
