"""The records that are handed over: read from the journal in passes, and made a batch for their target.

Reading is by arrays. A pass reads each message once, from the first wanted offset on, and takes the wanted rows of it. So records
that are due together cost one pass, wherever they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.broker.delayed.due_runs import Entries
from kafkalake.broker.delayed.hand_overs import Target
from kafkalake.delayed_headers import DELAY_MS, DELIVER_AT, ORIGINAL_TIMESTAMP
from kafkalake.delayed_journal import Fields, Kind, Note, read_fields, target_of, with_columns
from kafkalake.errors import KafkaLakeError
from kafkalake.record.arrays import Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.build import build_from_arrow
from kafkalake.record.header_columns import NewHeader, change_headers, find_keys, starts_of
from kafkalake.record.message_set import MessageSet, to_arrow

DEAD_LETTER_REASON = "kafkalake-dead-letter-reason"
DEAD_LETTER_TOPIC_ID = "kafkalake-dead-letter-topic-id"
DEAD_LETTER_PARTITION = "kafkalake-dead-letter-partition"

READ_BYTES = 1 << 20


class ReadableLog(Protocol):
    """The part of a log that a pass needs, see `LogReader`."""

    def read(self, offset: int, max_bytes: int, end_offset: int | None = None) -> MessageSet: ...


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """Waiting records of the journal: a batch of `SCHEMA` with the journal's offsets and headers, and their fields."""

    batch: pa.RecordBatch
    fields: Fields

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def offsets(self) -> Int64s:
        """int64[rows], their offsets in the journal."""
        found: Int64s = self.batch.column("offset").to_numpy()
        return found

    @property
    def due_ms(self) -> Int64s:
        """int64[rows], their due times in ms since 1970."""
        found: Int64s = self.batch.column("timestamp").view(pa.int64()).to_numpy()
        return found

    @property
    def entries(self) -> Entries:
        """int64[rows, 3], as the index has them."""
        order: Int64s = self.fields["order"].astype(np.int64)
        found: Entries = np.stack((self.due_ms, order, self.offsets), axis=1)
        return found

    @property
    def held_bytes(self) -> int:
        """The bytes in memory."""
        return int(self.batch.nbytes) + self.fields.nbytes

    @classmethod
    def concat(cls, parts: Sequence[WaitingRows]) -> Self:
        """Return the records of several parts, at least one, behind each other."""
        if len(parts) == 1:
            return cls(parts[0].batch, parts[0].fields)
        batch = pa.Table.from_batches([each.batch for each in parts]).combine_chunks().to_batches()[0]
        return cls(batch, np.concatenate([each.fields for each in parts]))

    def take(self, rows: Int64s) -> WaitingRows:
        """Return some of the records, in the order of their places in `rows`."""
        return WaitingRows(self.batch.take(pa.array(rows)), self.fields[rows])

    def slice(self, begin: int, end: int) -> WaitingRows:
        """Return the records [begin, end), sharing memory."""
        return WaitingRows(self.batch.slice(begin, end - begin), self.fields[begin:end])

    def by_target(self) -> Iterator[tuple[Target, WaitingRows]]:
        """Yield the records of each target, in their order."""
        targets = np.zeros(len(self.fields), dtype=[("id", "V16"), ("partition", "<i4")])
        targets["id"], targets["partition"] = self.fields["target_id"], self.fields["target_partition"]
        words = np.ascontiguousarray(targets).view(np.uint32).reshape(len(targets), -1)
        order = np.lexsort(words.T)
        parts = np.split(order, np.flatnonzero(np.diff(words[order], axis=0).any(axis=1)) + 1)
        for part in parts:
            yield target_of(self.fields[part[0]]), self if len(parts) == 1 else self.take(part)

    @property
    def sizes(self) -> Int64s:
        """int64[rows], about the bytes of each record in a batch."""
        keys = pc.fill_null(pc.binary_length(self.batch.column("key")), 0).to_numpy(zero_copy_only=False)
        values = pc.fill_null(pc.binary_length(self.batch.column("value")), 0).to_numpy(zero_copy_only=False)
        headers = self.batch.column("headers")
        starts = starts_of(headers)
        inner = pc.fill_null(pc.binary_length(headers.values.field("value")), 0).to_numpy(zero_copy_only=False)
        sums = np.concatenate(([0], np.cumsum(inner + pc.binary_length(headers.values.field("key")).to_numpy())))
        found: Int64s = keys.astype(np.int64) + values + (sums[starts[1:]] - sums[starts[:-1]]) + 32
        return found


def read_waiting(log: ReadableLog, offsets: Int64s, end_offset: int) -> WaitingRows:
    """Return the waiting records at `offsets`, in this order, reading each message of the log once. Blocks.

    Raise `KafkaLakeError` if they cannot be read: `OffsetOutOfRangeError`, `CorruptSegmentError`, `KafkaStorageError`, ...
    """
    order = np.argsort(offsets, kind="stable")
    parts: list[pa.RecordBatch] = []
    begin = 0
    while begin < len(order):
        wanted = offsets[order[begin:]]
        messages = log.read(int(wanted[0]), READ_BYTES, end_offset)
        count = int(np.searchsorted(wanted, messages.next_offset)) if len(messages) else 0
        if not count:
            raise KafkaLakeError(f"the journal of delayed delivery has no record at offset {int(wanted[0])}")
        parts.append(_taken(to_arrow(messages), wanted[:count]))
        begin += count
    batch = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    batch = batch.take(pa.array(back))
    fields = read_fields(batch.column("headers"))
    if (fields["kind"] != Kind.WAITING).any():
        raise KafkaLakeError("the journal of delayed delivery has other records where some waited")
    return WaitingRows(batch, fields)


def waiting_rows(messages: MessageSet, offsets: Int64s) -> WaitingRows:
    """Return the waiting records at these offsets, ascending, of messages."""
    batch = _taken(to_arrow(messages), offsets)
    return WaitingRows(batch, read_fields(batch.column("headers")))


def _taken(table: pa.RecordBatch, wanted: Int64s) -> pa.RecordBatch:
    """Return the rows at these offsets, ascending, in memory of their own."""
    offsets = table.column("offset").to_numpy()
    rows = np.minimum(np.searchsorted(offsets, wanted), len(offsets) - 1)
    if not np.array_equal(offsets[rows], wanted):
        raise KafkaLakeError("the journal of delayed delivery has no record where one waited")
    return table.take(pa.array(rows))


def delivered_batch(rows: WaitingRows, intent: Note, producer_id: int, now_ms: int, reason: str = "") -> ProducerBatch:
    """Return the batch that is appended to the target of an intent, with its sequences.

    A record is as sent, with the time of its delivery as timestamp, and its original timestamp and its delay as headers. reason:
    why records of a dead-letter topic are there.
    """
    headers, starts = rows.batch.column("headers"), starts_of(rows.batch.column("headers"))
    dropped = find_keys(headers, [DELIVER_AT, DELAY_MS])
    dropped[starts[:-1]] = True  # the journal's own
    after = [
        NewHeader(ORIGINAL_TIMESTAMP, _decimal(rows.fields["original_timestamp"])),
        NewHeader(DELAY_MS, _decimal(np.maximum(rows.due_ms - rows.fields["received_at"], 0))),
    ]
    if reason:
        after += _dead_letter_headers(rows, reason)
    times = np.full(len(rows), now_ms, dtype=np.int64)
    return build_from_arrow(
        with_columns(rows.batch, times, change_headers(headers, after=after, dropped=dropped)),
        producer_id=producer_id,
        producer_epoch=intent.epoch,
        base_sequence=intent.first_sequence,
    )


def carried_rows(rows: WaitingRows) -> pa.RecordBatch:
    """Return the records as they are in the journal, to be appended to it again."""
    return with_columns(rows.batch, rows.due_ms, change_headers(rows.batch.column("headers")))


def _dead_letter_headers(rows: WaitingRows, reason: str) -> list[NewHeader]:
    ids = [target_of(each)[0] for each in rows.fields]
    return [
        NewHeader(DEAD_LETTER_REASON, pa.repeat(pa.scalar(reason.encode(), pa.binary()), len(rows))),
        NewHeader(DEAD_LETTER_TOPIC_ID, pa.array([str(each).encode() for each in ids], pa.binary())),
        NewHeader(DEAD_LETTER_PARTITION, _decimal(rows.fields["target_partition"].astype(np.int64))),
    ]


def _decimal(numbers: Int64s) -> pa.Array:
    return pa.array(np.ascontiguousarray(numbers)).cast(pa.string()).cast(pa.binary())
