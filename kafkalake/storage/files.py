"""The disk as a small interface, so that tests and simulations can replace it.

`RealFiles` is the operating system. Tests have one that injects faults. Paths are plain strings. File
descriptors are ints. All calls raise `OSError` if I/O fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Iterable
from typing import Protocol

import numpy as np

from kafkalake.buffers import Buffer

_LIBC = ctypes.CDLL(None, use_errno=True)
_CACHESTAT = 451
"""The system call's number, the same on all architectures."""


class Files(Protocol):
    """The disk interface of storage."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int: ...

    def close(self, descriptor: int) -> None: ...

    def size(self, descriptor: int) -> int: ...

    def modified_ms(self, descriptor: int) -> int:
        """Return the file's modification time in ms since 1970, UTC."""
        ...

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        """Return up to `length` bytes from `position`, fewer at the end of the file."""
        ...

    def read_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        """Read bytes from `position` into `buffer` and return their number, 0 at the end of the file."""
        ...

    def view(self, descriptor: int, length: int, position: int) -> Buffer:
        """Return the bytes as `read`, for sparse access to a big range: a buffer, possibly without a copy. The file must not
        shrink. May return fewer bytes, as `read`."""
        ...

    def write(self, descriptor: int, data: Buffer, position: int) -> int:
        """Write bytes-like `data` at `position` and return the number of bytes written, which may be fewer."""
        ...

    def truncate(self, descriptor: int, size: int) -> None: ...

    def sync(self, descriptor: int) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, unordered."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, if missing."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make created, renamed and removed names durable."""
        ...


def _is_in_memory(descriptor: int, mapped: mmap.mmap, position: int) -> bool:
    """Return whether all mapped pages, from the page at `position` on, are in the page cache.

    Touching a mapped page that cannot be read from disk kills the process (SIGBUS), while a failed read is an error.
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

    def read_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        return os.preadv(descriptor, [buffer], position)

    def view(self, descriptor: int, length: int, position: int) -> Buffer:
        length = min(length, self.size(descriptor) - position)
        if length <= 0:
            return b""
        lead = position % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(descriptor, length + lead, prot=mmap.PROT_READ, offset=position - lead)
        if not _is_in_memory(descriptor, mapped, position - lead):
            return self.read(descriptor, length, position)
        return memoryview(mapped)[lead:]

    write = staticmethod(os.pwrite)

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
    """Create a directory and its parents, and fsync the names of the new ones. Raise `OSError` if I/O fails.

    Its own name is fsynced in any case: a process that created it may have been killed before it did so.
    """
    named = [path]
    while not os.path.isdir(named[-1]) and not os.path.isdir(parent := os.path.dirname(named[-1])):
        named.append(parent)
    files.make_directory(path)
    for each in reversed(named):
        files.sync_directory(os.path.dirname(each) or ".")


def write_parts(files: Files, descriptor: int, parts: Iterable[Buffer], position: int) -> int:
    """Write data behind each other from `position` on, see `write_all`, and return the position behind it."""
    for part in parts:
        write_all(files, descriptor, part, position)
        position += len(part)
    return position


def write_all(files: Files, descriptor: int, data: Buffer, position: int) -> None:
    """Write all of `data` (bytes-like, one byte per item) at `position`, retrying short writes. Raise `OSError` if I/O fails."""
    written = files.write(descriptor, data, position)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(rest):
        count = files.write(descriptor, rest[written:], position + written)
        if count <= 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        written += count


def overwrite(files: Files, descriptor: int, data: bytes) -> None:
    """Make `data` the content of a small file, without a write if it is: the disk may be full. Raise `OSError` if I/O fails."""
    found = None
    with contextlib.suppress(OSError):  # an unreadable file is written again
        found = read_all(files, descriptor, len(data) + 1, 0)
    if found == data:
        return
    # No truncation to 0 first: file systems fsync such a file when it is closed.
    if data:
        write_all(files, descriptor, data, 0)
    files.truncate(descriptor, len(data))


def read_all(files: Files, descriptor: int, length: int, position: int) -> bytes:
    """Return exactly `length` bytes, or fewer only at the end of the file. Raise `OSError` if I/O fails."""
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
    """Return a small file's bytes. Raise `FileNotFoundError` if it is missing, `OSError` if I/O fails."""
    descriptor = files.open(path)
    try:
        return read_all(files, descriptor, files.size(descriptor), 0)
    finally:
        files.close(descriptor)


def replace_file(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    """Replace a small file atomically by write and rename. With `sync` the new file is durable on return.

    Raise `OSError` if I/O fails, keeping the old file.
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
