"""Compiled walks over the messages that a follower got from its leader: one verifies them, one makes their index entries."""

from __future__ import annotations

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.compiled import compiled
from kafkalake.record.crc32c import START, extend, finish
from kafkalake.record.memory import load_i64, store_i32, store_i64
from kafkalake.record.message import BAD_METADATA, OK, TORN, check_columns, check_frame, read_metadata
from kafkalake.storage.segment_kernels import NO_TIMESTAMP

ELSEWHERE, OUT_OF_ORDER, EPOCH_DECREASES = -20, -21, -22
"""Faults beside those of a message: the first offset is another, an offset does not follow, an epoch is below the one before."""

(MESSAGES, BATCHES, RECORDS, END, NEXT_OFFSET, LEADER_EPOCH, SMALLEST, LARGEST, LARGEST_AT, ABORTS, COMPRESSED) = range(
    11
)
"""Numbers that `verify_messages` fills: of messages, of batches in `headers`, of records; position and next offset at its end;
newest epoch; smallest and largest timestamp and the base offset of the latter's batch; whether there are abort markers, and
compressed messages, whose timestamps are not in SMALLEST."""
NUMBERS = 11


@compiled()
def _smallest(data: Bytes, position: int, rows: int, smallest: int) -> int:
    for i in range(rows):
        smallest = min(smallest, load_i64(data, position + 8 * i))
    return smallest


@compiled()
def _largest(batches: Int64s) -> int:
    """Return the largest timestamp (ms) of batches that have records, or -1."""
    largest: int = -1
    for k in range(len(batches)):
        if batches[k, at.RECORDS] > 0:
            largest = max(largest, batches[k, at.MAX_TIMESTAMP])
    return largest


@compiled(allocates=True)
def _follow_batches(batches: Int64s, headers: Int64s, numbers: Int64s) -> int:
    """Verify that batches of one message continue `numbers` (NEXT_OFFSET, LEADER_EPOCH), and count them there. Return OK or their
    fault. Batches with a producer id or a new epoch are appended to `headers`."""
    for k in range(len(batches)):
        epoch = batches[k, at.LEADER_EPOCH]
        if batches[k, at.BASE_OFFSET] != numbers[NEXT_OFFSET] or batches[k, at.LAST_OFFSET_DELTA] < 0:
            return OUT_OF_ORDER
        if epoch < numbers[LEADER_EPOCH]:
            return EPOCH_DECREASES
        if batches[k, at.PRODUCER_ID] >= 0 or epoch > numbers[LEADER_EPOCH]:
            headers[numbers[BATCHES]] = batches[k]
            numbers[BATCHES] += 1
        if batches[k, at.ATTRIBUTES] & at.ATTRIBUTE_CONTROL and batches[k, at.CONTROL_TYPE] == 0:
            numbers[ABORTS] = 1
        numbers[LEADER_EPOCH] = epoch
        numbers[NEXT_OFFSET] += batches[k, at.LAST_OFFSET_DELTA] + 1
        numbers[RECORDS] += batches[k, at.RECORDS]
        if batches[k, at.RECORDS] > 0 and batches[k, at.MAX_TIMESTAMP] > numbers[LARGEST]:
            numbers[LARGEST] = batches[k, at.MAX_TIMESTAMP]
            numbers[LARGEST_AT] = batches[k, at.BASE_OFFSET]
    return OK


@compiled("int64(view, int64, int64, int64[::1], int64[::1], int64[::1], int64[:,::1], int64[::1])", allocates=True)
def verify_messages(
    data: Bytes,
    offset: int,
    epoch: int,
    positions: Int64s,
    bases: Int64s,
    tops: Int64s,
    headers: Int64s,
    numbers: Int64s,
) -> int:
    """Verify whole messages that begin with `offset`, in `epoch` or later: all checksums, offsets that continue, epochs.

    Fills for message m its position, first offset and largest timestamp (ms, -1: none), headers int64[N, HEADER_FIELDS] of the
    batches that have a producer id or begin a leader epoch, and `numbers`. Return OK, or the fault of the message at numbers[END].
    """
    lengths = np.empty(3, dtype=np.int64)
    layout = np.empty(at.LAYOUT_SIZE, dtype=np.int64)
    sums = np.empty(6, dtype=np.int64)
    batches = np.empty((16, at.HEADER_FIELDS), dtype=np.int64)
    position = 0
    message = 0
    records = 0
    smallest: int = NO_TIMESTAMP
    numbers[:] = 0
    numbers[LARGEST] = numbers[LARGEST_AT] = -1
    numbers[NEXT_OFFSET], numbers[LEADER_EPOCH] = offset, epoch
    while position < len(data):
        numbers[END] = position
        status = check_frame(data, position, len(data), lengths)
        if status == OK and lengths[0] + lengths[1] > len(data) - position:
            status = TORN
        if status != OK:
            return int(status)
        if lengths[2] > len(batches):
            batches = np.empty((lengths[2], at.HEADER_FIELDS), dtype=np.int64)
        status = read_metadata(data, position, lengths, layout, batches[: lengths[2]], sums)
        body = position + lengths[0]
        if status == OK:
            status = check_columns(data, body, lengths[1], layout, sums, at.ALL_COLUMNS)
        if status != OK:
            return int(status)
        if message == 0 and batches[0, at.BASE_OFFSET] != offset:
            numbers[NEXT_OFFSET] = batches[0, at.BASE_OFFSET]
            return ELSEWHERE
        positions[message] = position
        bases[message] = batches[0, at.BASE_OFFSET]
        status = _follow_batches(batches[: lengths[2]], headers, numbers)
        if status != OK:
            return int(status)
        rows = numbers[RECORDS] - records
        records = numbers[RECORDS]
        if rows != layout[at.ROWS]:
            return BAD_METADATA
        if sums[5] != at.NO_CODEC:
            numbers[COMPRESSED] = 1
        else:
            smallest = _smallest(data, body + layout[at.FIRST_BUFFER + 2 * at.TIMESTAMP_DATA], rows, smallest)
        tops[message] = _largest(batches[: lengths[2]])
        message += 1
        position = body + lengths[1]
    positions[message] = position
    numbers[MESSAGES], numbers[END], numbers[SMALLEST] = message, position, smallest
    return OK


@compiled()
def _store_entry(out: Bytes, position: int, key: int, value: int) -> None:
    store_i64(out, position, key)
    store_i32(out, position + 8, value)
    store_i32(out, position + 12, np.int64(finish(extend(START, out, position, position + 12))))


@compiled("int64(int64[::1], int64[::1], int64[::1], int64, int64, int64, int64, int64, uint8[:,::1])")
def index_entries(
    positions: Int64s,
    bases: Int64s,
    tops: Int64s,
    origin: int,
    segment_base: int,
    indexed_at: int,
    largest: int,
    interval: int,
    entries: Bytes,
) -> int:
    """Write the entries of messages at `origin` + positions in their segment: uint8[2, 16 N], of the offset and the time index.

    indexed_at: position of the last entry. largest: largest timestamp (ms, -1: none) before the messages. interval: bytes between
    entries. Return the number of entries.
    """
    count = 0
    for m in range(len(bases)):
        position = origin + positions[m]
        if position - indexed_at >= interval:
            _store_entry(entries[0], 16 * count, bases[m], position)
            _store_entry(entries[1], 16 * count, largest, bases[m] - segment_base)
            indexed_at = position
            count += 1
        largest = max(largest, tops[m])
    return count
