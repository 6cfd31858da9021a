"""The records of `__delayed`, the journal of delayed delivery: what waits, and the notes on what became of it.

A **waiting record** is a record as its producer sent it, with its due time as its timestamp (ms since 1970). A **note** has no
key, no value and the timestamp -1. Everything else stands in one header, the first of each record: `HEADER`, with `FIELDS` (80
bytes, little-endian) and a tail:

    kind        timestamp  tail
    WAITING     due time   the delay id, or nothing
    CANCEL      -1         the delay id: records of this id, from the same source partition, of a lower order, are not delivered
    INTENT      -1         int64 offsets here of waiting records that are handed over, in this order, as the sequences from
                           `first_sequence` on of the journal's producer, in `producer_epoch`, at the target. `flags`: DEAD_LETTERED
                           if the target is the dead-letter topic, with Kafka's error code as `order`
    FINISHED    -1         int64 offsets here of waiting records that wait no longer (`flags`: why)
    SEQUENCES   -1         `SEQUENCE_FIELDS`: the next sequence of each target
    PRODUCERS   -1         `PRODUCER_FIELDS`: the newest batches of each producer of a source
    SETTLED     -1         nothing; all cancels below the offset `order` have been carried out

So a start, and readers of the lake, need the columns offset, timestamp and headers only, for any number of records at once.
`order` is the offset that the record would have had in its source's log. Records are delivered by (due time, order, offset here).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.build import HeaderColumns, build_columns, build_from_arrow
from kafkalake.record.compiled import compiled
from kafkalake.record.header_columns import NewHeader, change_headers
from kafkalake.record.memory import copy, load_i32
from kafkalake.record.schema import SCHEMA
from kafkalake.topic_partition import PartitionId

HEADER = "kafkalake-delayed"
"""The key of the first header of each record."""
NO_DUE_TIME = -1
"""The timestamp of a note."""
NO_SEQUENCE = -1
BATCHES_REMEMBERED = 5
"""Batches of a producer that a retry may repeat, as in `storage.producer_state`."""

FIELDS = np.dtype(
    [
        ("kind", "u1"),
        ("flags", "u1"),
        ("producer_epoch", "<i2"),
        ("target_partition", "<i4"),
        ("target_id", "V16"),
        ("source_id", "V16"),
        ("source_partition", "<i4"),
        ("first_sequence", "<i4"),
        ("order", "<i8"),
        ("original_timestamp", "<i8"),
        ("received_at", "<i8"),
        ("producer_id", "<i8"),
    ]
)
"""Topic ids as `UUID.bytes`. source: the partition that the producer wrote to. Of a batch without idempotence, producer id and
`first_sequence` are -1. Times in ms since 1970."""
FIELD_BYTES = FIELDS.itemsize
assert FIELD_BYTES == 80

SEQUENCE_FIELDS = np.dtype([("id", "V16"), ("partition", "<i4"), ("epoch", "<i2"), ("next", "<i4")])
PRODUCER_FIELDS = np.dtype(
    [
        ("id", "V16"),
        ("partition", "<i4"),
        ("epoch", "<i2"),
        ("producer_id", "<i8"),
        ("first", "<i4", BATCHES_REMEMBERED),
    ]
)
"""`first`: first sequences of the newest batches, oldest first, -1 before them."""

Fields = npt.NDArray[np.void]
_NAME = np.frombuffer(HEADER.encode(), dtype=np.uint8)


NOWHERE = UUID(int=0)
"""The target of notes that are of no target."""


class Kind(IntEnum):
    """The kinds of records. 0: a record that is not of this format."""

    WAITING = 1
    CANCEL = 2
    INTENT = 3
    FINISHED = 4
    SEQUENCES = 5
    PRODUCERS = 6
    SETTLED = 7


class Reason(IntEnum):
    """The reason why records wait no longer: the flags of a FINISHED note."""

    HANDED_OVER = 0
    CANCELLED = 1
    CARRIED = 2
    """A copy of each follows in the same batch."""
    DEAD_LETTERED = 3
    CARRIED_TWICE = 4
    """Other copies of the same records count."""


class Origin(NamedTuple):
    """The source and the target of the delayed records of one produced batch.

    target: the partition to deliver to. source: the partition that the batch was produced to, another one for topics of a level.
    first_sequence: of the whole batch, -1 without idempotence. base_offset: the offset of the batch in the source's log.
    """

    target: PartitionId[UUID]
    source: PartitionId[UUID]
    producer_id: int
    producer_epoch: int
    first_sequence: int
    base_offset: int
    is_transactional: bool = False


class HandInKey(NamedTuple):
    """The identity of the delayed records of one produced batch."""

    source: PartitionId[UUID]
    producer_id: int
    producer_epoch: int
    first_sequence: int

    @property
    def is_idempotent(self) -> bool:
        """Return whether the producer may send the batch again under this identity."""
        return self.producer_id >= 0 and self.first_sequence != NO_SEQUENCE


class Note(NamedTuple):
    """An INTENT or FINISHED note.

    epoch, first_sequence: of the hand-over, -1 where there is none. An INTENT without offsets withdraws the open one of its
    target. reason: of an INTENT HANDED_OVER or DEAD_LETTERED. error_code: why records are dead-lettered, Kafka's code.
    """

    kind: Kind
    target: PartitionId[UUID]
    epoch: int
    first_sequence: int
    offsets: Int64s
    reason: Reason = Reason.HANDED_OVER
    error_code: int = 0


def journal_partition(target: PartitionId[UUID], partitions: int) -> int:
    """Return the journal partition of a target."""
    topic_id, index = target
    return (topic_id.int % 0xFFFFFFFB * 31 + index) % partitions


# Writing


def encode(
    rows: pa.RecordBatch, due: Int64s, origin: Origin, delay_ids: pa.Array | None, received_at: int
) -> ProducerBatch:
    """Return the batch of the delayed records of one produced batch.

    rows: batch of `SCHEMA`, the records as sent; column `offset` counts in the produced batch. due: int64[rows], ms since 1970,
    `NO_DUE_TIME` for a cancel. delay_ids: binary[rows] with nulls. received_at: the time of the request in ms since 1970.
    """
    fields = np.zeros(len(rows), dtype=FIELDS)
    fields["kind"] = np.where(due == NO_DUE_TIME, Kind.CANCEL, Kind.WAITING)
    fields["producer_id"], fields["producer_epoch"] = origin.producer_id, origin.producer_epoch
    fields["first_sequence"] = origin.first_sequence
    fields["target_id"], fields["target_partition"] = np.void(origin.target[0].bytes), origin.target[1]
    fields["source_id"], fields["source_partition"] = np.void(origin.source[0].bytes), origin.source[1]
    fields["order"] = origin.base_offset + rows.column("offset").to_numpy()
    fields["original_timestamp"] = rows.column("timestamp").view(pa.int64()).to_numpy()
    fields["received_at"] = received_at
    own = NewHeader(HEADER, _values(fields, delay_ids))
    columns = with_columns(rows, due, change_headers(rows.column("headers"), before=[own]))
    return build_from_arrow(
        columns,
        producer_id=origin.producer_id if origin.is_transactional else -1,
        producer_epoch=origin.producer_epoch if origin.is_transactional else -1,
        transactional=origin.is_transactional,
    )


def with_columns(rows: pa.RecordBatch, timestamps: Int64s, headers: pa.ListArray) -> pa.RecordBatch:
    """Return records with the keys and values of `rows`, offsets from 0, and other timestamps (ms since 1970) and headers."""
    times = pa.array(timestamps).view(SCHEMA.field("timestamp").type)
    payload = [_from_start(rows.column("key")), _from_start(rows.column("value"))]
    return pa.RecordBatch.from_arrays([pa.array(np.arange(len(rows))), times, *payload, headers], schema=SCHEMA)


def _from_start(column: pa.Array) -> pa.Array:
    """Return a column whose buffers begin with its first value."""
    return pa.concat_arrays([column, column.slice(0, 0)]) if column.offset else column


def _values(fields: Fields, tails: pa.Array | None) -> pa.Array:
    """Return the header's values: binary[rows], the fields and the tail of each."""
    fixed = pa.Array.from_buffers(pa.binary(FIELD_BYTES), len(fields), [None, pa.py_buffer(fields.tobytes())])
    fixed = fixed.cast(pa.binary())
    if tails is None or tails.null_count == len(tails):
        return fixed
    return pc.binary_join_element_wise(fixed, tails.fill_null(b""), pa.scalar(b"", pa.binary()))


def encode_notes(notes: Sequence[bytes]) -> ProducerBatch:
    """Return one batch of notes, from `note`, `sequences_note`, ..."""
    count = len(notes)
    headers = HeaderColumns([1] * count, [HEADER.encode()] * count, list(notes))
    return build_columns([None] * count, [None] * count, [NO_DUE_TIME] * count, headers)


def note(of: Note) -> bytes:
    """Return an INTENT or FINISHED note."""
    fields = np.zeros(1, dtype=FIELDS)
    fields["kind"], fields["flags"] = of.kind, of.reason
    fields["target_id"], fields["target_partition"] = np.void(of.target[0].bytes), of.target[1]
    fields["producer_epoch"], fields["first_sequence"], fields["producer_id"] = of.epoch, of.first_sequence, -1
    fields["order"] = of.error_code
    return fields.tobytes() + of.offsets.astype("<i8").tobytes()


def settled_note(offset: int) -> bytes:
    """Return the note that all cancels below `offset` have been carried out."""
    return _state_note(Kind.SETTLED, b"", offset)


def sequences_note(sequences: Fields) -> bytes:
    """Return the note of the next sequences: `SEQUENCE_FIELDS`[targets]."""
    return _state_note(Kind.SEQUENCES, sequences.tobytes())


def producers_note(producers: Fields) -> bytes:
    """Return the note of the producers' newest batches: `PRODUCER_FIELDS`[producers]."""
    return _state_note(Kind.PRODUCERS, producers.tobytes())


def _state_note(kind: Kind, tail: bytes, order: int = 0) -> bytes:
    fields = np.zeros(1, dtype=FIELDS)
    fields["kind"], fields["order"], fields["producer_id"] = kind, order, -1
    return fields.tobytes() + tail


# Reading


def read_fields(headers: pa.ListArray) -> Fields:
    """Return `FIELDS`[rows] of a column `headers`. The kind is 0 where the first header is not this format's."""
    rows = len(headers)
    found = np.zeros(rows, dtype=FIELDS)
    keys, values = headers.values.field("key"), headers.values.field("value")
    if rows and len(keys):
        lists = headers.offsets.to_numpy().astype(np.int32)
        _gather(_bytes_of(lists), *_binary(keys), *_binary(values), _NAME, rows, found.view(np.uint8).reshape(rows, -1))
    return found


@compiled("int64(view, view, view, view, view, view, int64, uint8[:, ::1])")
def _gather(
    lists: Bytes, key_ends: Bytes, keys: Bytes, value_ends: Bytes, values: Bytes, name: Bytes, rows: int, out: Bytes
) -> int:
    """Copy the fields of each row's first header to `out`, and return the number of rows that have it."""
    count = 0
    for row in range(rows):
        first = load_i32(lists, 4 * row)
        if load_i32(lists, 4 * row + 4) == first:
            continue
        begin = load_i32(key_ends, 4 * first)
        is_own = load_i32(key_ends, 4 * first + 4) - begin == len(name)
        if is_own:
            for i in range(len(name)):
                is_own = is_own and keys[begin + i] == name[i]
        begin = load_i32(value_ends, 4 * first)
        if is_own and load_i32(value_ends, 4 * first + 4) - begin >= out.shape[1]:
            copy(out, row * out.shape[1], values, begin, out.shape[1])
            count += 1
    return count


def _bytes_of(array: npt.NDArray[Any]) -> Bytes:
    return array.view(np.uint8)


def _binary(array: pa.Array) -> tuple[Bytes, Bytes]:
    """Return the offsets (int32, as bytes) and the data of a binary or string array."""
    _, ends, data = array.buffers()
    every = np.frombuffer(ends, dtype=np.uint8)[4 * array.offset : 4 * (array.offset + len(array) + 1)]
    return every, np.frombuffer(data if data is not None else b"", dtype=np.uint8)


def read_tail(headers: pa.ListArray, row: int) -> bytes:
    """Return what follows the fields in the header of a row of this format."""
    first = headers.offsets[row].as_py()
    tail: bytes = headers.values.field("value")[first].as_py()[FIELD_BYTES:]
    return tail


def read_note(fields: np.void, tail: bytes) -> Note:
    """Return an INTENT or FINISHED note from its fields and tail."""
    return Note(
        Kind(int(fields["kind"])),
        target_of(fields),
        int(fields["producer_epoch"]),
        int(fields["first_sequence"]),
        np.frombuffer(tail, dtype="<i8"),
        Reason(int(fields["flags"])),
        int(fields["order"]),
    )


def target_of(fields: np.void) -> PartitionId[UUID]:
    """Return the target in a row's fields."""
    return UUID(bytes=fields["target_id"].tobytes()), int(fields["target_partition"])


def source_of(fields: np.void) -> PartitionId[UUID]:
    """Return the source in a row's fields."""
    return UUID(bytes=fields["source_id"].tobytes()), int(fields["source_partition"])


def hand_in_key_of(fields: np.void) -> HandInKey:
    """Return the identity of a hand-in from the fields of one of its rows."""
    return HandInKey(
        source_of(fields), int(fields["producer_id"]), int(fields["producer_epoch"]), int(fields["first_sequence"])
    )


def hand_in_key(batch: ProducerBatch) -> HandInKey:
    """Return the identity of a batch that `encode` has made."""
    return hand_in_key_of(read_fields(batch.to_arrow().column("headers").slice(0, 1))[0])


def notes_of(headers: pa.ListArray, fields: Fields, *kinds: Kind) -> Iterator[Note]:
    """Yield the INTENT or FINISHED notes of these kinds among rows, in order."""
    for row in np.flatnonzero(np.isin(fields["kind"], kinds)).tolist():
        yield read_note(fields[row], read_tail(headers, row))


def finished_offsets(batch: pa.RecordBatch) -> Int64s:
    """Return the offsets of the waiting records that wait no longer by the notes among the rows of a batch with `headers`."""
    headers = batch.column("headers")
    found = [each.offsets for each in notes_of(headers, read_fields(headers), Kind.FINISHED)]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


class Cancel(NamedTuple):
    """A cancel: of the waiting records from `source` with this id and a lower order."""

    source: PartitionId[UUID]
    delay_id: bytes
    order: int


def cancels(batch: pa.RecordBatch) -> list[Cancel]:
    """Return the cancels among the rows of a batch with a column `headers`, in order."""
    headers = batch.column("headers")
    fields = read_fields(headers)
    return [
        Cancel(source_of(fields[row]), read_tail(headers, row), int(fields[row]["order"]))
        for row in np.flatnonzero(fields["kind"] == Kind.CANCEL).tolist()
    ]


def delay_ids(headers: pa.ListArray, fields: Fields) -> pa.Array:
    """Return the delay ids of waiting records and cancels: binary[rows], null without one."""
    ids: list[bytes | None] = [None] * len(fields)
    rows = np.flatnonzero(np.isin(fields["kind"], (Kind.WAITING, Kind.CANCEL)))
    values = headers.values.field("value").take(pa.array(headers.offsets.to_numpy()[rows]))
    longer = pc.binary_length(values).to_numpy(zero_copy_only=False) > FIELD_BYTES
    for row, value in zip(rows[longer].tolist(), values.filter(pa.array(longer)).to_pylist(), strict=True):
        ids[row] = value[FIELD_BYTES:]
    return pa.array(ids, pa.binary())
