"""Files that can be changed only while this process certainly owns them."""

from __future__ import annotations

import errno

from kafkalake.buffers import Buffer
from kafkalake.ownership import Ownership
from kafkalake.storage.files import Files

_REASON = "another broker may own the logs now: the lease was not renewed in time"


class OwnedFiles:
    """Files below an ownership. Changing calls raise `OSError` (EROFS) while `ownership` is not certain.

    Ownership is checked between opening a file and writing to it. So a process that is paused right before the write writes to
    the file that it opened as owner. The new owner has replaced that file by a copy (`takeover.py`).
    """

    def __init__(self, files: Files, ownership: Ownership) -> None:
        self._files = files
        self._write = files.write
        self._is_certain = ownership.is_certain
        self.close, self.size, self.modified_ms = files.close, files.size, files.modified_ms
        self.read, self.read_into, self.view, self.list = files.read, files.read_into, files.view, files.list
        self.sync, self.sync_directory, self.make_directory = files.sync, files.sync_directory, files.make_directory

    def _require(self, path: str | None = None) -> None:
        if not self._is_certain():
            raise OSError(errno.EROFS, _REASON, path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if create:
            self._require(path)
        return self._files.open(path, write=write, create=create)

    def write(self, descriptor: int, data: Buffer, position: int) -> int:
        if not self._is_certain():
            raise OSError(errno.EROFS, _REASON)
        return self._write(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        self._require()
        self._files.truncate(descriptor, size)

    def rename(self, source: str, target: str) -> None:
        self._require(target)
        self._files.rename(source, target)

    def unlink(self, path: str) -> None:
        self._require(path)
        self._files.unlink(path)
