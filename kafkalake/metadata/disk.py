"""What the metadata asks of the disk so that it outlives a loss of power: files and names are there only once they are forced.

A parameter, so that a test can stand in for it and forget what was not forced. All calls raise `OSError`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Disk:
    """The operating system's."""

    def force(self, file: Path) -> None:
        """Have the disk keep the bytes of `file`; not yet its name."""
        _sync(file)

    def force_directory(self, directory: Path) -> None:
        """Have the disk keep the names that were made, changed or removed in `directory`."""
        _sync(directory)

    def make_directory(self, directory: Path) -> None:
        """Make a directory and those that lead to it, where there are none; durable when the call returns."""
        missing = [each for each in (directory, *directory.parents) if not each.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        for each in reversed(missing):
            self.force_directory(each.parent)

    def replace(self, file: Path, content: bytes, mode: int = 0o644) -> None:
        """Put a small file in place whole or not at all, durable when the call returns; what fails leaves the old one."""
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
        """Give a file another name, in place of what has it; not yet durable."""
        os.replace(source, target)


DISK = Disk()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
