"""Disk operations for metadata that must survive a power loss: files and names are durable only after an fsync.

It is a parameter, so that a test can replace it and discard data without fsync. All calls raise `OSError` on failure.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Disk:
    """The operating system's disk."""

    def force(self, file: Path) -> None:
        """Fsync the content of `file`, but not its name."""
        _sync(file)

    def force_directory(self, directory: Path) -> None:
        """Fsync `directory`: names created, changed or removed in it become durable."""
        _sync(directory)

    def make_directory(self, directory: Path) -> None:
        """Create a directory and its missing parents. Durable on return."""
        missing = [each for each in (directory, *directory.parents) if not each.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        for each in reversed(missing):
            self.force_directory(each.parent)

    def replace(self, file: Path, content: bytes, mode: int = 0o644) -> None:
        """Replace a small file atomically. Durable on return. A failed write leaves the old file."""
        temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            with open(descriptor, "wb") as opened:
                opened.write(content)
            self.force(temporary)
            self.rename(temporary, file)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self.force_directory(file.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing `target`. Not yet durable."""
        os.replace(source, target)


DISK = Disk()


class FileForcing:
    """Fsyncs files. One whose fsync failed is rewritten: the kernel may have dropped its dirty pages and reports that only once."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._doubtful: set[Path] = set()

    @property
    def has_failed(self) -> bool:
        """Return whether a file has not been forced since its fsync failed."""
        return bool(self._doubtful)

    def force(self, file: Path) -> None:
        """Fsync a file, or do nothing if it has been removed. Raise `OSError` if that fails."""
        try:
            if file in self._doubtful:
                self._disk.replace(file, file.read_bytes())
                self._doubtful.discard(file)
            else:
                self._disk.force(file)
        except FileNotFoundError:
            self._doubtful.discard(file)
        except OSError:
            self._doubtful.add(file)
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
