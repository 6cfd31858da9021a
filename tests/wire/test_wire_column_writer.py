"""Arrow columns encoded directly: the broker's decoder reads back what was given."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalake.errors import CorruptMessageError
from kafkalake.record import layout as at
from kafkalake.wire.column_writer import ColumnWriter
from kafkalake.wire.producer_stamp import stamp_producer
from kafkalake.wire.record_batch import codec_of, decode_produced

MS = pa.timestamp("ms", tz="UTC")
BINARY = st.none() | st.binary(max_size=80)
ROWS = st.lists(st.tuples(BINARY, BINARY, st.integers(0, 2**41)), min_size=1, max_size=40)


def read_back(writer: ColumnWriter, largest: int, largest_record: int = 1 << 20) -> list[list[dict[str, object]]]:
    batches = []
    while writer.rows_left:
        data, count = writer.write(largest, largest_record)
        batch = decode_produced(bytes(data))
        assert batch.rows == count
        rows = batch.to_arrow()
        times = rows.column("timestamp").cast(pa.int64()).to_pylist()
        assert [batch.header[at.BASE_TIMESTAMP], batch.header[at.MAX_TIMESTAMP]] == [times[0], max(times)]
        assert rows.column("offset").to_pylist() == list(range(count))
        keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
        batches.append(list(zip(keys, values, times, strict=True)))
    return batches


@settings(deadline=None)
@given(
    rows=ROWS,
    skipped=st.integers(0, 9),
    largest=st.integers(61, 400),
    codec=st.sampled_from([0, 0, 2, 4]),
    as_columns=st.booleans(),
)
def test_rows_are_read_back(
    rows: list[tuple[bytes, bytes, int]], skipped: int, largest: int, codec: int, as_columns: bool
) -> None:
    keys, values = (pa.array([row[column] for row in rows], pa.binary()) for column in (0, 1))
    times = pa.array([row[2] for row in rows], pa.int64()).cast(MS)
    start = min(skipped, len(rows) - 1)  # slices do not begin at the start of their buffers
    writer = ColumnWriter(
        values[start:], keys[start:], times[start:], timestamp_ms=0, codec=codec, as_columns=as_columns
    )
    batches = read_back(writer, largest)
    assert [row for batch in batches for row in batch] == rows[start:]


def test_without_keys_and_timestamps() -> None:
    writer = ColumnWriter(pa.array([b"a", None]), None, None, timestamp_ms=7, transactional=True, codec=4)
    data, count = writer.write(1_000, 1_000)
    stamp_producer(data, 5, 1, 9)
    batch = decode_produced(bytes(data))
    assert [batch.header[each] for each in (at.PRODUCER_ID, at.PRODUCER_EPOCH, at.BASE_SEQUENCE)] == [5, 1, 9]
    assert count == 2 and codec_of(bytes(data)) == 4
    assert batch.header[at.ATTRIBUTES] & at.ATTRIBUTE_TRANSACTIONAL
    assert batch.to_arrow().column("key").to_pylist() == [None, None]


def test_batches_are_as_large_as_allowed_and_a_large_row_has_its_own() -> None:
    values = pa.array([bytes(50)] * 10 + [bytes(500)] + [b"x"])
    batches = read_back(ColumnWriter(values, None, None, timestamp_ms=7), 300)
    assert [len(batch) for batch in batches] == [4, 4, 2, 1, 1]


def test_a_row_that_is_too_large_is_refused() -> None:
    writer = ColumnWriter(pa.array([b"a", bytes(500)]), None, None, timestamp_ms=7)
    assert writer.write(100, 200)[1] == 1
    with pytest.raises(ValueError, match="row 1 is larger than 200 bytes"):
        writer.write(100, 200)


@pytest.mark.parametrize("as_columns", [False, True])
@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("size", [0, 11, 100, 12_288, 50_000])
def test_batches_of_many_bytes_have_the_checksum_of_all(size: int, codec: int, as_columns: bool) -> None:
    values = [b"%d" % n * (size // len(b"%d" % n)) for n in range(900_000 // (size + 20) + 1)]
    writer = ColumnWriter(pa.array(values), None, None, timestamp_ms=7, codec=codec, as_columns=as_columns)
    batches = read_back(writer, 1_000_000)
    assert [row[1] for batch in batches for row in batch] == values


STAMPS = st.just((-1, -1, -1)) | st.tuples(
    st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)
)


@settings(deadline=None)
@given(stamps=st.lists(STAMPS, min_size=1, max_size=4), rows=st.integers(1, 400), codec=st.sampled_from([0, 1]))
def test_a_batch_is_stamped_again_and_again(stamps: list[tuple[int, int, int]], rows: int, codec: int) -> None:
    data, _ = ColumnWriter(pa.array([b"value"] * rows), None, None, timestamp_ms=7, codec=codec).write(1_000_000, 100)
    for stamp in stamps:
        stamp_producer(data, *stamp)
        header = decode_produced(bytes(data)).header
        assert (header[at.PRODUCER_ID], header[at.PRODUCER_EPOCH], header[at.BASE_SEQUENCE]) == stamp


def test_a_stamp_does_not_hide_that_records_were_damaged() -> None:
    data, _ = ColumnWriter(pa.array([b"value"] * 10), None, None, timestamp_ms=7).write(1_000_000, 100)
    data[100] ^= 1
    stamp_producer(data, 5, 1, 9)
    with pytest.raises(CorruptMessageError):
        decode_produced(bytes(data))
