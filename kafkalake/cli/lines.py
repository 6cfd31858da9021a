"""Reads lines of a file or of stdin in batches, as soon as they are available.

A pipe is read without waiting for more than it holds, so that a typed or logged line is sent at once, while a file is read in large
chunks. The last line counts with or without a line feed. A carriage return before a line feed belongs to neither.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable, Iterator

from kafkalake.cli.output import Failure

CHUNK_BYTES = 2 * 1024 * 1024
LONGEST_LINE_BYTES = 64 * 1024 * 1024


def read_lines(descriptor: int, progress: Callable[[int], None] = lambda _: None) -> Iterator[list[bytes]]:
    """Yield lists of lines, one list per read. See `read_blocks`."""
    for block in read_blocks(descriptor, progress):
        lines = block.split(b"\n")
        lines.pop()
        yield lines


def read_blocks(descriptor: int, progress: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """Yield whole lines, each with a line feed, as many as a read has. `progress` is called with the bytes read so far.

    Raise `Failure` for a line of more than 64 MiB.
    """
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    rest = b""
    done = 0
    while True:
        chunk = os.read(descriptor, CHUNK_BYTES) if is_file else _read_available(descriptor)
        if not chunk:
            break
        done += len(chunk)
        progress(done)
        chunk = rest + chunk if rest else chunk
        if b"\r\n" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n")
        end = chunk.rfind(b"\n") + 1
        rest = chunk[end:]
        if len(rest) > LONGEST_LINE_BYTES:
            raise Failure(f"a line has more than {LONGEST_LINE_BYTES >> 20} MiB; is this a text file?")
        if end:
            yield chunk[:end]
    if rest:
        yield rest.removesuffix(b"\r") + b"\n"


def is_waiting(descriptor: int) -> bool:
    """Return whether reading would block: no data is available, and the end is not reached."""
    poll = select.poll()  # `select` accepts no descriptor above 1,023
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(0)


def _read_available(descriptor: int) -> bytes:
    """Wait for the first bytes, then take available ones without waiting, up to `CHUNK_BYTES`. Return empty bytes at the end."""
    chunks = [os.read(descriptor, CHUNK_BYTES)]
    size = len(chunks[0])
    while chunks[-1] and size < CHUNK_BYTES and not is_waiting(descriptor):
        chunks.append(os.read(descriptor, CHUNK_BYTES))
        size += len(chunks[-1])
    return b"".join(chunks)
