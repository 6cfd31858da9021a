"""Other people's encoders and decoders of record batches on the other side: aiokafka's and kafka-python's."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from examples import examples
from hypothesis import given
from kafka.record import MemoryRecords as PythonRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder
from record_batches import Row, arrow_rows, record_batch
from wire_batches import ROWS, stored

from kafkalake.wire.record_batch import decode_produced, encode_batch, encode_fetched

CODECS = [0, 1, 2, 3, 4]


def build(kind: type, rows: list[Row], codec: int, producer_id: int, epoch: int, sequence: int) -> bytes:
    builder = kind(2, codec, 0, producer_id, epoch, sequence, 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        builder.append(offset, max(timestamp, 0), key, value, headers)
    return bytes(builder.build())


def read(kind: type, data: bytes) -> list[tuple[int, Row]]:
    records = kind(data)
    rows = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        rows += [
            (each.offset, (each.timestamp, each.key, each.value, [(k, v) for k, v in each.headers])) for each in batch
        ]
    return rows


def with_timestamps(rows: list[Row]) -> list[Row]:
    return [(max(timestamp, 0), key, value, headers) for timestamp, key, value, headers in rows]


@pytest.mark.exhaustive
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [AioBuilder, PythonBuilder], ids=["aiokafka", "kafka-python"])
@given(rows=ROWS)
@examples(25)
def test_what_they_encode_we_decode(kind: type, codec: int, rows: list[Row]) -> None:
    batch = decode_produced(build(kind, rows, codec, 4_000, 3, 17))
    assert arrow_rows(batch.to_arrow()) == list(enumerate(with_timestamps(rows)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [AioRecords, PythonRecords], ids=["aiokafka", "kafka-python"])
@given(rows=ROWS)
@examples(25)
def test_what_we_encode_they_decode(kind: type, codec: int, rows: list[Row]) -> None:
    rows = with_timestamps(rows)
    assert read(kind, encode_batch(record_batch(rows), codec)) == list(enumerate(rows))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [AioRecords, PythonRecords], ids=["aiokafka", "kafka-python"])
def test_what_they_produce_they_fetch(kind: type, codec: int) -> None:
    rows: list[Row] = [
        (1_700_000_000_000 + i, b"k" * (i % 3), b"v" * (i * 7 % 500), [("h", None)] * (i % 2)) for i in range(300)
    ]
    produced = [decode_produced(build(AioBuilder, rows[i : i + 100], codec, -1, -1, -1)) for i in range(0, 300, 100)]
    data = bytes(encode_fetched(stored(produced[:2], produced[2:]), 0, 300, 1 << 30).records)
    assert read(kind, data) == list(enumerate(rows))


def test_uncompressed_batches_are_the_same_bytes() -> None:
    rows: list[Row] = [(1_700_000_000_000 + i, None, b"v" * i, [("h", b"1")]) for i in range(200)]
    assert encode_batch(record_batch(rows)) == build(AioBuilder, rows, 0, -1, -1, -1)
