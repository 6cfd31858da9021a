"""The records of `__delayed`: what is written is what is read, many at once, beside records that are of other formats."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pyarrow as pa
from record_batches import Row, record_batch

from kafkalake.delayed_journal import (
    FIELD_BYTES,
    HEADER,
    NO_DUE_TIME,
    Cancel,
    HandInKey,
    Kind,
    Note,
    Origin,
    Reason,
    cancels,
    delay_ids,
    encode,
    encode_notes,
    finished_offsets,
    hand_in_key,
    journal_partition,
    note,
    notes_of,
    read_fields,
    settled_note,
)

TARGET = UUID(int=1 << 127 | 5), 3
SOURCE = UUID(int=6), 4
ORIGIN = Origin(TARGET, SOURCE, producer_id=7, producer_epoch=1, first_sequence=40, base_offset=100)
ROWS: list[Row] = [
    (5, b"k", b"v", [("a", b"1"), ("b", None)]),
    (6, None, b"w", []),
    (7, b"x", None, [("kafkalake-delay-id", b"id")]),
]


def encoded() -> pa.RecordBatch:
    ids = pa.array([b"one", None, b"id"], pa.binary())
    return encode(record_batch(ROWS).to_arrow(), np.array([1_000, 2_000, NO_DUE_TIME]), ORIGIN, ids, 99).to_arrow()


def test_waiting_records_have_their_due_times_and_all_that_was_sent() -> None:
    batch = encoded()
    assert batch.column("timestamp").view(pa.int64()).to_pylist() == [1_000, 2_000, NO_DUE_TIME]
    assert batch.column("key").to_pylist() == [b"k", None, b"x"]
    assert batch.column("value").to_pylist() == [b"v", b"w", None]
    sent = [[(each["key"], each["value"]) for each in headers[1:]] for headers in batch.column("headers").to_pylist()]
    assert sent == [row[3] for row in ROWS]
    assert [headers[0]["key"] for headers in batch.column("headers").to_pylist()] == [HEADER] * 3


def test_fields_are_read_from_the_headers_alone() -> None:
    headers = encoded().column("headers")
    fields = read_fields(headers)
    assert fields["kind"].tolist() == [Kind.WAITING, Kind.WAITING, Kind.CANCEL]
    assert fields["order"].tolist() == [100, 101, 102]
    assert fields["original_timestamp"].tolist() == [5, 6, 7]
    assert UUID(bytes=fields[0]["target_id"].tobytes()) == TARGET[0]
    assert delay_ids(headers, fields).to_pylist() == [b"one", None, b"id"]
    assert read_fields(headers.slice(1))["order"].tolist() == [101, 102]
    assert delay_ids(headers.slice(1), fields[1:]).to_pylist() == [None, b"id"]


def test_a_batch_has_the_identity_of_the_one_that_was_produced() -> None:
    transactional = encode(
        record_batch(ROWS[:1]).to_arrow(), np.array([9]), ORIGIN._replace(is_transactional=True), None, 1
    )
    assert hand_in_key(transactional) == HandInKey(SOURCE, 7, 1, 40)
    assert transactional.header[3:7].tolist() == [7, 1, 0x10, -1]


def test_cancels_are_found_by_source_and_id() -> None:
    assert cancels(encoded()) == [Cancel(SOURCE, b"id", 102)]


def test_notes_are_read_among_other_records() -> None:
    intent = Note(Kind.INTENT, TARGET, 2, 8, np.array([5, 3], dtype=np.int64))
    finished = Note(Kind.FINISHED, SOURCE, -1, -1, np.array([7], dtype=np.int64), Reason.CANCELLED)
    batch = encode_notes([note(intent), note(finished), settled_note(12)]).to_arrow()
    headers = batch.column("headers")
    fields = read_fields(headers)
    assert batch.column("timestamp").view(pa.int64()).to_pylist() == [NO_DUE_TIME] * 3
    found = list(notes_of(headers, fields, Kind.INTENT, Kind.FINISHED))
    assert [each[:4] for each in found] == [intent[:4], finished[:4]]
    assert [each.offsets.tolist() for each in found] == [[5, 3], [7]]
    assert finished_offsets(batch).tolist() == [7]
    assert fields[2]["order"] == 12


def test_other_records_have_no_kind() -> None:
    others: list[Row] = [
        (1, None, None, []),
        (2, None, None, [("kafkalake-delayed", b"short")]),
        (3, None, None, [("kafkalake-delayeD", bytes(FIELD_BYTES))]),
        (4, None, None, [("x", b""), ("kafkalake-delayed", b"\1" * FIELD_BYTES)]),
        (5, None, None, [("kafkalake-delayed", None)]),
    ]
    headers = record_batch(others).to_arrow().column("headers")
    fields = read_fields(headers)
    assert fields["kind"].tolist() == [0] * 5
    assert delay_ids(headers, fields).to_pylist() == [None] * 5
    assert len(finished_offsets(record_batch(others).to_arrow())) == 0
    assert not read_fields(record_batch(others[:1]).to_arrow().column("headers"))["kind"].any()


def test_partitions_of_a_topic_are_spread_over_the_journal() -> None:
    assert len({journal_partition((TARGET[0], index), 50) for index in range(50)}) == 50
