"""Builds and reads batches of keys and values written by the broker itself (its coordinators' journals).

The columns are joined with numpy, without Arrow arrays or the wire format: about 20 us for a batch of one record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.batch import RecordBatch
from kafkalake.record.message_set import MessageSet, to_arrow

Pair = tuple[bytes | None, bytes | None]


def build_batch(
    pairs: Sequence[Pair],
    timestamp_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> RecordBatch:
    """Return one batch of (key, value) records without headers, all with one timestamp (ms since 1970). None is null."""
    rows = len(pairs)
    assert rows, "a batch holds records"
    layout = np.zeros(at.LAYOUT_SIZE, dtype=np.int64)
    layout[at.ROWS] = rows
    body = bytearray()

    def put(index: int, data: bytes) -> None:
        layout[at.FIRST_BUFFER + 2 * index], layout[at.FIRST_BUFFER + 2 * index + 1] = len(body), len(data)
        body.extend(data)
        body.extend(bytes(-len(data) % 8))

    def put_binary(values: list[bytes | None], validity: int, nulls: int) -> None:
        missing = values.count(None)
        layout[nulls] = missing
        put(
            validity,
            np.packbits([each is not None for each in values], bitorder="little").tobytes() if missing else b"",
        )
        offsets = np.zeros(rows + 1, dtype="<i4")
        np.cumsum([0 if each is None else len(each) for each in values], out=offsets[1:])
        put(validity + 1, offsets.tobytes())
        put(validity + 2, b"".join(each for each in values if each is not None))

    put(at.OFFSET_DATA, np.arange(rows, dtype="<i8").tobytes())
    put(at.TIMESTAMP_DATA, np.full(rows, timestamp_ms, dtype="<i8").tobytes())
    put_binary([key for key, _ in pairs], at.KEY_VALIDITY, at.KEY_NULLS)
    put_binary([value for _, value in pairs], at.VALUE_VALIDITY, at.VALUE_NULLS)
    put(at.HEADERS_OFFSETS, bytes(4 * (rows + 1)))
    put(at.HEADER_KEY_OFFSETS, bytes(4))
    put(at.HEADER_VALUE_OFFSETS, bytes(4))
    header = np.zeros(at.HEADER_FIELDS, dtype=np.int64)
    header[at.LAST_OFFSET_DELTA] = rows - 1
    header[at.LEADER_EPOCH] = header[at.BASE_SEQUENCE] = header[at.CONTROL_TYPE] = -1
    header[at.PRODUCER_ID], header[at.PRODUCER_EPOCH] = producer_id, producer_epoch
    header[at.ATTRIBUTES] = at.ATTRIBUTE_TRANSACTIONAL if transactional else 0
    header[at.BASE_TIMESTAMP] = header[at.MAX_TIMESTAMP] = timestamp_ms
    header[at.RECORDS] = rows
    return RecordBatch(np.frombuffer(body, dtype=np.uint8), layout, header)


class ReadBatch(NamedTuple):
    """A decoded batch. `producer_id` -1: not transactional. `committed`: outcome of a transaction marker (no pairs), else None."""

    base_offset: int
    pairs: list[Pair]
    producer_id: int
    producer_epoch: int
    committed: bool | None


def read_batches(messages: MessageSet) -> Iterator[ReadBatch]:
    """Yield the batches of `messages` in order, with copied keys and values. Batches must have a record for each offset."""
    table = to_arrow(messages, at.KEY_COLUMN | at.VALUE_COLUMN)
    pairs = list(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))
    begin = 0
    for header in messages.headers.tolist():
        end = begin + header[at.RECORDS]
        attributes = header[at.ATTRIBUTES]
        yield ReadBatch(
            base_offset=header[at.BASE_OFFSET],
            pairs=pairs[begin:end],
            producer_id=header[at.PRODUCER_ID] if attributes & at.ATTRIBUTE_TRANSACTIONAL else -1,
            producer_epoch=header[at.PRODUCER_EPOCH],
            committed=header[at.CONTROL_TYPE] == 1 if attributes & at.ATTRIBUTE_CONTROL else None,
        )
        begin = end
