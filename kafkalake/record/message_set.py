"""Many Arrow messages at once: verified in one compiled call, joined into one Arrow batch in another.

A segment of small producer batches has thousands of messages, so no Python runs per message. `scan` verifies checksums before use.
It returns the requested columns uncompressed. Compressed bytes may expand a thousand times, so `scan` stops at a size limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import body_to_arrow
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_i64
from kafkalake.record.merge import merge_columns, merged_bound
from kafkalake.record.message import BAD_METADATA, OK, TORN, check_columns, check_frame, read_metadata

CODECS = {"none": at.NO_CODEC, "lz4": at.LZ4, "zstd": at.ZSTD}
"""Codecs of an Arrow body by name (`segment.compression`)."""
_NAMES = {codec: name for name, codec in CODECS.items()}
_RAW_BUFFER = -1
PLAIN_BYTES = 8 << 20
"""The maximum bytes decompressed at once, except for a single larger message."""


@dataclass(slots=True, eq=False)
class MessageSet:
    """M consecutive messages with B producer batches and uncompressed bodies.

    data: uint8[], the bodies. starts: int64[M], start of each body in `data`. layouts: int64[M, LAYOUT_SIZE].
    headers: int64[B, HEADER_FIELDS]. first_batch: int64[M + 1], message m has batches `headers[first_batch[m]:first_batch[m + 1]]`.
    positions: int64[M + 1], start of each message in the scanned bytes, and the end of the last one.
    """

    data: Bytes
    starts: Int64s
    layouts: Int64s
    headers: Int64s
    first_batch: Int64s
    positions: Int64s

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def rows(self) -> int:
        """The number of records in all messages."""
        return int(self.layouts[:, at.ROWS].sum())

    @property
    def base_offset(self) -> int:
        """The first offset covered by the messages."""
        return int(self.headers[0, at.BASE_OFFSET])

    @property
    def next_offset(self) -> int:
        """The offset after the last one covered by the messages."""
        return int(self.headers[-1, at.BASE_OFFSET] + self.headers[-1, at.LAST_OFFSET_DELTA] + 1)

    @property
    def size_bytes(self) -> int:
        """The bytes of the messages in the file or, if larger because they were compressed, in memory."""
        here = int(self.layouts[:, at.FIRST_BUFFER + 1 :: 2].sum())
        return max(here, int(self.positions[-1] - self.positions[0]))

    def slice(self, first: int, last: int) -> MessageSet:
        """Return messages [first, last), sharing memory."""
        batches = self.first_batch[first : last + 1]
        return MessageSet(
            self.data,
            self.starts[first:last],
            self.layouts[first:last],
            self.headers[batches[0] : batches[-1]],
            batches - batches[0],
            self.positions[first : last + 1],
        )


@dataclass(slots=True, eq=False)
class Scan:
    """The result of `scan`: whole and verified messages, and the reason (`status`) why it stopped at byte `end`.

    `OK`: at the given end, or, after at least one message, at the decompression limit.
    """

    messages: MessageSet
    end: int
    status: int


@compiled("int64(view, int64, int64, int64[::1])", allocates=True)
def _count(data: Bytes, begin: int, end: int, found: Int64s) -> int:
    """Count whole messages (found[0]) and batches (found[1]), without checksums. Return the end and set found[2] to the status."""
    lengths = np.empty(3, dtype=np.int64)
    position = begin
    while position < end:
        status = check_frame(data, position, end, lengths)
        if status == OK and lengths[0] + lengths[1] > end - position:
            status = TORN
        found[2] = status
        if status != OK:
            break
        found[0] += 1
        found[1] += lengths[2]
        position += lengths[0] + lengths[1]
    return position


@compiled("int64(view, int64, int64[::1], int64)")
def _plain_bytes(data: Bytes, body: int, layout: Int64s, columns: int) -> int:
    """Return the decompressed bytes of the buffers of `columns`, padded to 8-byte boundaries, from their length prefixes."""
    plain = 0
    for column in range(at.COLUMNS):
        if (columns >> column) & 1:
            for buffer in range(at.COLUMN_FIRST_BUFFER[column], at.COLUMN_FIRST_BUFFER[column + 1]):
                length = layout[at.FIRST_BUFFER + 2 * buffer + 1]
                if length >= 8:
                    said = load_i64(data, body + layout[at.FIRST_BUFFER + 2 * buffer])
                    plain += (length - 8 if said == _RAW_BUFFER else max(said, 0)) + 7 & ~7
    return plain


@compiled(
    "int64(view, int64, int64, int64, int64, int64, int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1])",
    allocates=True,
)
def _fill(
    data: Bytes,
    begin: int,
    count: int,
    columns: int,
    plain_columns: int,
    plain_max: int,
    starts: Int64s,
    layouts: Int64s,
    headers: Int64s,
    first_batch: Int64s,
    positions: Int64s,
    codecs: Int64s,
    found: Int64s,
) -> int:
    """Verify `count` messages counted by `_count`. Return the number of valid ones and set found[2] to the fault of the next.

    found[2] is OK if, with the next one, `plain_columns` of compressed messages would take more than `plain_max` bytes.
    """
    lengths = np.empty(3, dtype=np.int64)
    sums = np.empty(6, dtype=np.int64)
    position = begin
    batch = 0
    plain = 0
    positions[0] = begin
    first_batch[0] = 0
    for m in range(count):
        check_frame(data, position, position + at.FIRST_HEADER, lengths)
        body = position + lengths[0]
        status = read_metadata(data, position, lengths, layouts[m], headers[batch : batch + lengths[2]], sums)
        if status == OK:
            status = check_columns(data, body, lengths[1], layouts[m], sums, columns)
        if status == OK:
            rows = 0
            for k in range(batch, batch + lengths[2]):
                rows += headers[k, at.RECORDS]
            if rows != layouts[m, at.ROWS]:
                status = BAD_METADATA
        if status != OK:
            found[2] = status
            return m
        if sums[5] != at.NO_CODEC:
            plain += _plain_bytes(data, body, layouts[m], plain_columns)
            if m > 0 and plain > plain_max:
                found[2] = OK
                return m
        codecs[m] = sums[5]
        starts[m] = body
        batch += lengths[2]
        first_batch[m + 1] = batch
        position = body + lengths[1]
        positions[m + 1] = position
    return count


def scan(
    data: Bytes,
    begin: int,
    end: int,
    columns: int = at.ALL_COLUMNS,
    *,
    plain_columns: int = at.ALL_COLUMNS,
    plain_bytes: int = PLAIN_BYTES,
) -> Scan:
    """Verify the messages in `data[begin:end]` (uint8), of their bodies the columns of bit mask `columns`, and return the scan.

    Stops at the first incomplete or damaged message. Of compressed messages, the columns in both `columns` and `plain_columns`
    are decompressed and the others become empty. After the first message the limit is `plain_bytes` in total. Arrays over a
    memory map are read only as needed.
    """
    found = np.zeros(3, dtype=np.int64)
    stop = int(_count(data, begin, end, found))
    count, batches, status = found.tolist()
    starts = np.empty(count, dtype=np.int64)
    layouts = np.empty((count, at.LAYOUT_SIZE), dtype=np.int64)
    headers = np.empty((batches, at.HEADER_FIELDS), dtype=np.int64)
    first_batch = np.empty(count + 1, dtype=np.int64)
    positions = np.empty(count + 1, dtype=np.int64)
    codecs = np.empty(count, dtype=np.int64)
    plain_columns &= columns
    right = int(
        _fill(
            data,
            begin,
            count,
            columns,
            plain_columns,
            plain_bytes,
            starts,
            layouts,
            headers,
            first_batch,
            positions,
            codecs,
            found,
        )
    )
    messages = MessageSet(data, starts, layouts, headers, first_batch, positions)
    if right < count:
        messages = messages.slice(0, right)
        stop, status = int(positions[right]), int(found[2])
    if (codecs[:right] != at.NO_CODEC).any():
        messages = _decompress(messages, codecs[:right], plain_columns)
    return Scan(messages, stop, status)


def to_arrow(messages: MessageSet, columns: int = at.ALL_COLUMNS) -> pa.RecordBatch:
    """Return all rows as one Arrow batch of the columns of bit mask `columns`, in the order of `SCHEMA`."""
    if len(messages) == 1:
        return body_to_arrow(messages.data[int(messages.starts[0]) :], messages.layouts[0], columns)
    out = np.empty(merged_bound(messages.layouts, columns), dtype=np.uint8)
    merged = np.empty(at.LAYOUT_SIZE, dtype=np.int64)
    merge_columns(messages.data, messages.starts, messages.layouts, columns, out, merged)
    return body_to_arrow(out, merged, columns)


def compress_body(body: Bytes, layout: Int64s, codec: int) -> tuple[Bytes, Int64s]:
    """Compress each buffer of an Arrow body in Arrow's `BodyCompression` format: int64 uncompressed length, then the bytes.

    Return the stored body and its layout. A buffer that does not get smaller stays raw, with length -1 before it.
    """
    parts: list[bytes] = []
    stored = layout.copy()
    position = 0
    for buffer in range(at.BUFFERS):
        offset, length = layout[at.FIRST_BUFFER + 2 * buffer : at.FIRST_BUFFER + 2 * buffer + 2].tolist()
        part = b""
        if length:
            raw = body[offset : offset + length].tobytes()
            packed = pa.compress(raw, codec=_NAMES[codec], asbytes=True)
            part = length.to_bytes(8, "little") + packed if len(packed) < length else b"\xff" * 8 + raw
        stored[at.FIRST_BUFFER + 2 * buffer] = position
        stored[at.FIRST_BUFFER + 2 * buffer + 1] = len(part)
        parts.append(part + bytes(-len(part) % 8))
        position += len(parts[-1])
    return np.frombuffer(b"".join(parts), dtype=np.uint8), stored


def _decompress(messages: MessageSet, codecs: Int64s, columns: int) -> MessageSet:
    """Return the messages with plain bodies in new memory. Columns not in `columns` become empty."""
    wanted = [
        buffer
        for column in range(at.COLUMNS)
        if (columns >> column) & 1
        for buffer in range(*at.COLUMN_FIRST_BUFFER[column : column + 2].tolist())
    ]
    parts: list[tuple[int, Bytes]] = []
    layouts = messages.layouts.copy()
    layouts[:, at.FIRST_BUFFER :] = 0
    starts = np.empty_like(messages.starts)
    position = 0
    for m, codec in enumerate(codecs.tolist()):
        starts[m] = position
        inner = 0
        for buffer in wanted:
            part = _plain_buffer(messages, m, buffer, codec)
            if len(part):
                layouts[m, at.FIRST_BUFFER + 2 * buffer] = inner
                layouts[m, at.FIRST_BUFFER + 2 * buffer + 1] = len(part)
                parts.append((position + inner, part))
                inner += len(part) + 7 & ~7
        position += inner
    data = np.empty(position, dtype=np.uint8)
    while parts:  # free each after its copy
        begin, part = parts.pop()
        data[begin : begin + len(part)] = part
    return MessageSet(data, starts, layouts, messages.headers, messages.first_batch, messages.positions)


def _plain_buffer(messages: MessageSet, m: int, buffer: int, codec: int) -> Bytes:
    """Return one buffer of message `m`, uncompressed. Its lengths are trusted because the checksum was verified."""
    offset, length = messages.layouts[m, at.FIRST_BUFFER + 2 * buffer : at.FIRST_BUFFER + 2 * buffer + 2].tolist()
    start = int(messages.starts[m]) + offset
    stored = messages.data[start : start + length]
    if codec == at.NO_CODEC or not length:
        return stored
    plain = int.from_bytes(stored[:8].tobytes(), "little", signed=True)
    if plain == _RAW_BUFFER:
        return stored[8:]
    packed = pa.py_buffer(stored[8:])
    return np.frombuffer(pa.decompress(packed, decompressed_size=plain, codec=_NAMES[codec]), dtype=np.uint8)
