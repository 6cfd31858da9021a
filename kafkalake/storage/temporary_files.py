"""Files beside a log with data derived from it. They are removed when the log is opened again, as all with their suffix are."""

from __future__ import annotations

import contextlib
import errno

from kafkalake.buffers import Buffer
from kafkalake.storage.files import Files, read_all

_SUFFIX = ".tmp"


class TemporaryFiles:
    """The temporary files of one log, by name. Nothing is forced to the disk. All calls raise `OSError` if I/O fails.

    prefix: of the names. With one of its own nobody else's files are written to.
    """

    def __init__(self, directory: str, files: Files, prefix: str) -> None:
        self._begin = f"{directory}/{prefix}"
        self._files = files

    def _path(self, name: str) -> str:
        return f"{self._begin}{name}{_SUFFIX}"

    def write(self, name: str, position: int, data: Buffer) -> None:
        """Write at a position of a file, which is created if it does not exist."""
        descriptor = self._files.open(self._path(name), write=True, create=True)
        try:
            done, view = 0, memoryview(data).cast("B")
            while done < len(view):
                count = self._files.write(descriptor, view[done:], position + done)
                if not count:
                    raise OSError(errno.ENOSPC, "nothing was written", self._path(name))
                done += count
        finally:
            self._files.close(descriptor)

    def read(self, name: str, position: int, length: int) -> bytes:
        """Return `length` bytes of a file from a position on. Raise `OSError` if it is shorter, too."""
        descriptor = self._files.open(self._path(name))
        try:
            data = read_all(self._files, descriptor, length, position)
        finally:
            self._files.close(descriptor)
        if len(data) != length:
            raise OSError(errno.EIO, "the file became shorter", self._path(name))
        return bytes(data)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self._path(name))
