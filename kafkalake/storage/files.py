"""The disk as a handful of calls, so that a test or a simulation can stand in for it.

`RealFiles` is the operating system. The double that runs out of space is `faulty_files.py`. Paths are plain strings; a file
descriptor is an int. All calls raise `OSError`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import struct
from typing import Any, Protocol

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_CACHESTAT = 451
"""The system call's number, on every machine."""


class Files(Protocol):
    """What storage asks of a disk."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int: ...

    def close(self, descriptor: int) -> None: ...

    def size(self, descriptor: int) -> int: ...

    def modified_ms(self, descriptor: int) -> int:
        """When the file was last written to, in ms since 1970, UTC."""
        ...

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer at the end of the file."""
        ...

    def view(self, descriptor: int, length: int, position: int) -> Any:
        """As `read`, for a big range of which little is looked at: a buffer that need not be a copy. The file must not get
        shorter. May return fewer bytes, as `read`."""
        ...

    def write(self, descriptor: int, data: Any, position: int) -> int:
        """Write bytes-like `data` at `position`; returns how many bytes were written, which may be fewer."""
        ...

    def truncate(self, descriptor: int, size: int) -> None: ...

    def sync(self, descriptor: int) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def list(self, directory: str) -> list[str]:
        """Names in a directory, in no order."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents; no error when it is there."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make created, renamed and removed names durable."""
        ...


def _is_in_memory(descriptor: int, mapped: mmap.mmap, position: int) -> bool:
    """Return whether the kernel has in memory all of the file that is mapped, from `position` (of a page) on.

    To touch a page that it has to read from the disk, and cannot, is the end of the process (SIGBUS), where a read is an error.
    """
    pages = -(-len(mapped) // mmap.PAGESIZE)
    asked, found = struct.pack("QQ", position, len(mapped)), ctypes.create_string_buffer(5 * 8)
    if _LIBC.syscall(_CACHESTAT, descriptor, asked, found, 0) == 0:
        return bool(struct.unpack_from("Q", found)[0] == pages)
    start = np.frombuffer(mapped, dtype=np.uint8).ctypes.data  # a kernel before 6.5
    seen = np.zeros(pages, dtype=np.uint8)
    failed = _LIBC.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(mapped)), ctypes.c_void_p(seen.ctypes.data))
    return not failed and bool((seen & 1).all())


class RealFiles:
    """The operating system's files."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o644)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def modified_ms(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_mtime_ns // 1_000_000

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        return os.pread(descriptor, length, position)

    def view(self, descriptor: int, length: int, position: int) -> Any:
        length = min(length, self.size(descriptor) - position)
        if length <= 0:
            return b""
        lead = position % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(descriptor, length + lead, prot=mmap.PROT_READ, offset=position - lead)
        if not _is_in_memory(descriptor, mapped, position - lead):
            return self.read(descriptor, length, position)
        return memoryview(mapped)[lead:]

    def write(self, descriptor: int, data: Any, position: int) -> int:
        return os.pwrite(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def list(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


REAL_FILES = RealFiles()


def make_durable_directory(files: Files, path: str) -> None:
    """Make a directory and its parents, and force the names of those that were not there to the disk. Raise `OSError`."""
    made = []
    missing = path
    while not os.path.isdir(missing):
        made.append(missing)
        missing = os.path.dirname(missing)
    files.make_directory(path)
    for each in reversed(made):
        files.sync_directory(os.path.dirname(each) or ".")


def write_all(files: Files, descriptor: int, data: Any, position: int) -> None:
    """Write all of `data` (bytes-like, one byte an item) at `position`, over short writes. Raises `OSError`."""
    written = files.write(descriptor, data, position)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(rest):
        count = files.write(descriptor, rest[written:], position + written)
        if count <= 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        written += count


def read_all(files: Files, descriptor: int, length: int, position: int) -> bytes:
    """Exactly `length` bytes, or fewer only where the file ends. Raises `OSError`."""
    data = files.read(descriptor, length, position)
    if len(data) == length or not data:
        return data
    parts = [data]
    done = len(data)
    while done < length:
        data = files.read(descriptor, length - done, position + done)
        if not data:
            break
        parts.append(data)
        done += len(data)
    return b"".join(parts)


def read_file(files: Files, path: str) -> bytes:
    """A small file's bytes. Raises `OSError` (`FileNotFoundError` where there is none)."""
    descriptor = files.open(path)
    try:
        return read_all(files, descriptor, files.size(descriptor), 0)
    finally:
        files.close(descriptor)


def replace_file(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    """Put a small file in place whole or not at all: write beside it and rename; with `sync`, durable before returning.

    Raises `OSError`; the old file then stays.
    """
    temporary = f"{path}.tmp"
    try:
        descriptor = files.open(temporary, write=True, create=True)
        try:
            files.truncate(descriptor, 0)
            write_all(files, descriptor, data, 0)
            if sync:
                files.sync(descriptor)
        finally:
            files.close(descriptor)
        files.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise
    if sync:
        files.sync_directory(os.path.dirname(path))
