"""Staged files: records written by a job and not yet in a log, in the format of segments.

A file is `PREAMBLE`, then messages of one batch each, written by the segment writer. pyarrow reads it as a stream from byte 8,
and every byte is under a checksum. Two batch header fields that a producer cannot set hold the destination: `LEADER_EPOCH` is the
partition, `BASE_SEQUENCE` the topic (its number in a list stored elsewhere).

The content is untrusted: beyond the checksums, each batch must be one that the wire codec could have made from a producer's,
because the compiled code that follows does not check again.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_i32, load_i64
from kafkalake.record.message import OK, REASONS, TORN, check_frame
from kafkalake.record.message_set import scan
from kafkalake.record.schema import PREAMBLE
from kafkalake.storage.files import REAL_FILES, Files, write_all, write_parts
from kafkalake.storage.message_writer import write_message

CHUNK_BYTES = 2 << 20


class StagedWriter:
    """A writer of one staged file, which must not exist yet. Use it in a `with` block."""

    def __init__(self, path: str, files: Files = REAL_FILES) -> None:
        """Create the file. Raise `OSError` if it exists or I/O fails."""
        self.bytes = len(PREAMBLE)
        self.batches = 0
        self.records = 0
        self._files = files
        self._descriptor = os.open(path, os.O_CLOEXEC | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        write_all(files, self._descriptor, PREAMBLE, 0)

    def append(self, batch: ProducerBatch, topic: int, partition: int) -> None:
        """Write one batch. Raise `OSError` if I/O fails."""
        batch.header[at.BASE_OFFSET] = 0
        batch.header[at.LEADER_EPOCH], batch.header[at.BASE_SEQUENCE] = partition, topic
        message = write_message([batch], at.NO_CODEC)
        self.bytes = write_parts(self._files, self._descriptor, message.parts, self.bytes)
        self.batches += 1
        self.records += batch.rows

    def close(self) -> None:
        """Close the file. Repeating it does nothing."""
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> StagedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A batch and its destination. It shares the memory of the reader's chunk."""

    topic: int
    partition: int
    batch: ProducerBatch


class StagedReader:
    """A reader of one staged file of `size_bytes`, a few MiB at a time. Callable from any thread, one at a time.

    message_bytes_max: the maximum message length, to bound memory.
    """

    def __init__(self, path: str, size_bytes: int, message_bytes_max: int, files: Files = REAL_FILES) -> None:
        self._path = path
        self._size = size_bytes
        self._message_bytes_max = message_bytes_max
        self._files = files
        self._descriptor = -1
        self._position = 0

    def read(self, chunk_bytes: int = CHUNK_BYTES) -> list[StagedBatch]:
        """Return at least one batch, none at the end. Raise `CorruptSegmentError` on damage, `OSError` if I/O fails."""
        if self._descriptor < 0:
            self._open()
        left = self._size - self._position
        if left <= 0:
            return []
        data = self._bytes(min(chunk_bytes, left))
        found = scan(data, 0, len(data))
        if not len(found.messages) and found.status == TORN and len(data) < left:
            data = self._bytes(self._length_of(data, left))
            found = scan(data, 0, len(data))
        if not len(found.messages) or found.status not in (OK, TORN):
            raise self._corrupt(found.end, REASONS.get(found.status, "no batch"))
        if found.status == TORN and self._position + len(data) >= self._size:
            raise self._corrupt(found.end, REASONS[TORN])
        messages = found.messages
        batches = []
        for m in range(len(messages)):
            begin, end = int(messages.starts[m]), int(messages.positions[m + 1])
            body, layout = messages.data[begin:end], messages.layouts[m]
            header = messages.headers[int(messages.first_batch[m])]
            if messages.first_batch[m + 1] - messages.first_batch[m] != 1 or batch_fault(body, layout, header):
                raise self._corrupt(int(messages.positions[m]), "no batch that a producer could have sent")
            batches.append(
                StagedBatch(
                    int(header[at.BASE_SEQUENCE]), int(header[at.LEADER_EPOCH]), ProducerBatch(body, layout, header)
                )
            )
        self._position += int(messages.positions[-1])
        return batches

    def close(self) -> None:
        """Close the file. Repeating it does nothing."""
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._descriptor = open_regular(self._path)
        size = self._files.size(self._descriptor)
        if size != self._size:
            raise self._corrupt(min(size, self._size), f"the file has {size} bytes, its job wrote {self._size}")
        if self._files.read(self._descriptor, len(PREAMBLE), 0) != PREAMBLE:
            raise self._corrupt(0, "no staged file starts like this")
        self._position = len(PREAMBLE)

    def _bytes(self, length: int) -> Bytes:
        data = self._files.read(self._descriptor, length, self._position)
        if len(data) != length:
            raise self._corrupt(self._position + len(data), "the file ends early")
        return np.frombuffer(data, dtype=np.uint8)

    def _length_of(self, data: Bytes, left: int) -> int:
        """Return the bytes of the message at the start of `data`, which holds only a part of it."""
        lengths = np.zeros(3, dtype=np.int64)
        status = check_frame(data, 0, len(data), lengths)
        length = int(lengths[0] + lengths[1])
        if status != OK or length > left or length > self._message_bytes_max:
            raise self._corrupt(0, REASONS.get(status, f"a message of {length} bytes"))
        return length

    def _corrupt(self, position: int, reason: str) -> CorruptSegmentError:
        return CorruptSegmentError(self._path, self._position + position, reason)


def open_regular(path: str) -> int:
    """Open a regular file to read and return its descriptor. Neither it nor its directory may be a link. A pipe would block.

    Raise `OSError` if it is not such a file or I/O fails.
    """
    directory, name = os.path.split(path)
    flags = os.O_CLOEXEC | os.O_RDONLY | os.O_NOFOLLOW
    parent = os.open(directory, flags | os.O_DIRECTORY)
    try:
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=parent)
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file")
    return descriptor


def data_bytes(batch: ProducerBatch) -> int:
    """Return the bytes of keys, values and headers: a lower bound of the batch's size on the wire."""
    buffers = (at.KEY_DATA, at.VALUE_DATA, at.HEADER_KEY_DATA, at.HEADER_VALUE_DATA)
    return sum(int(batch.layout[at.FIRST_BUFFER + 2 * buffer + 1]) for buffer in buffers)


@compiled()
def _length(layout: Int64s, buffer: int) -> int:
    found: int = layout[at.FIRST_BUFFER + 2 * buffer + 1]
    return found


@compiled()
def _offsets_fault(body: Bytes, layout: Int64s, buffer: int, count: int, end: int) -> bool:
    """Return whether the int32 offsets are not `count + 1` non-decreasing numbers from 0 to `end`."""
    if _length(layout, buffer) != 4 * (count + 1):
        return True
    start = layout[at.FIRST_BUFFER + 2 * buffer]
    previous = 0
    bad = load_i32(body, start) != 0
    for i in range(1, count + 1):
        offset = load_i32(body, start + 4 * i)
        bad |= offset < previous
        previous = offset
    return bad or previous != end


@compiled()
def _binary_fault(body: Bytes, layout: Int64s, first: int, count: int, nulls: int) -> bool:
    validity = _length(layout, first)
    if nulls:
        if validity != (count + 7) // 8:
            return True
        start = layout[at.FIRST_BUFFER + 2 * first]
        valid = 0
        for i in range(count):
            valid += (body[start + (i >> 3)] >> (i & 7)) & 1
        if valid != count - nulls:
            return True
    elif validity:
        return True
    return _offsets_fault(body, layout, first + 1, count, _length(layout, first + 2))


@compiled("int64(view, int64[::1], int64[::1])")
def batch_fault(body: Bytes, layout: Int64s, header: Int64s) -> int:
    """Return 0 if a batch (`ProducerBatch`'s arrays) has records, offsets from 0 on, and consistent buffers, else 1 to 5."""
    rows = layout[at.ROWS]
    inner = layout[at.HEADER_ROWS]
    if rows < 1 or header[at.RECORDS] != rows or header[at.LAST_OFFSET_DELTA] != rows - 1:
        return 1
    if header[at.ATTRIBUTES] & ~at.ATTRIBUTE_COMPRESSION_MASK or header[at.CONTROL_TYPE] != -1:
        return 1
    if _length(layout, at.OFFSET_DATA) != 8 * rows or _length(layout, at.TIMESTAMP_DATA) != 8 * rows:
        return 2
    offsets = layout[at.FIRST_BUFFER + 2 * at.OFFSET_DATA]
    timestamps = layout[at.FIRST_BUFFER + 2 * at.TIMESTAMP_DATA]
    newest = load_i64(body, timestamps)
    for i in range(rows):
        if load_i64(body, offsets + 8 * i) != i:
            return 2
        newest = max(newest, load_i64(body, timestamps + 8 * i))
    if newest != header[at.MAX_TIMESTAMP]:
        return 2
    if _binary_fault(body, layout, at.KEY_VALIDITY, rows, layout[at.KEY_NULLS]):
        return 3
    if _binary_fault(body, layout, at.VALUE_VALIDITY, rows, layout[at.VALUE_NULLS]):
        return 4
    if _offsets_fault(body, layout, at.HEADERS_OFFSETS, rows, inner):
        return 5
    if _binary_fault(body, layout, at.HEADER_KEY_OFFSETS - 1, inner, 0):
        return 5
    if _binary_fault(body, layout, at.HEADER_VALUE_VALIDITY, inner, layout[at.HEADER_VALUE_NULLS]):
        return 5
    return 0
