"""Batches of columns: the same rows as records leave the same bytes in the log, and bytes that are no columns are refused."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import random
import struct
from collections.abc import Sequence
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from wire_batches import OPTIONAL_BYTES, raw_batch

from kafkalake.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
)
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.message_set import OK, scan
from kafkalake.storage.message_writer import write_message
from kafkalake.wire import column_batch
from kafkalake.wire.column_writer import ColumnWriter
from kafkalake.wire.producer_stamp import stamp_producer
from kafkalake.wire.record_batch import BatchLimits, decode_fetched, decode_produced, is_as_stored, records_of_columns

COLUMNS = 100
"""The magic of a batch of columns."""
TIMES = pa.timestamp("ms", tz="UTC")
ROWS = st.lists(st.tuples(OPTIONAL_BYTES, OPTIONAL_BYTES, st.integers(-1, 2**52)), min_size=1, max_size=40)
Rows = Sequence[tuple[bytes | None, bytes | None, int]]


def encoded(rows: Rows, *, as_columns: bool, codec: int = 0, has_keys: bool = True, has_times: bool = True) -> bytes:
    keys, values = (pa.array([row[column] for row in rows], pa.binary()) for column in (0, 1))
    times = pa.array([row[2] for row in rows], pa.int64()).cast(TIMES)
    writer = ColumnWriter(
        values,
        keys if has_keys else None,
        times if has_times else None,
        timestamp_ms=5,
        codec=codec,
        as_columns=as_columns,
    )
    data, count = writer.write(1 << 20, 1 << 20)
    assert count == len(rows)
    stamp_producer(data, 7, 1, 30)
    return bytes(data)


def columns(key_nulls: int, value_nulls: int, has_times: int, *buffers: bytes, reserved: int = 0) -> bytes:
    return struct.pack("<4i", key_nulls, value_nulls, has_times, reserved) + b"".join(buffers)


def ends(*positions: int) -> bytes:
    return struct.pack(f"<{len(positions)}i", *positions)


def checked(data: bytes) -> bytes:
    """The bytes with the length and the checksum that they should have."""
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def assert_equal(left: ProducerBatch, right: ProducerBatch) -> None:
    assert left.body.tobytes() == right.body.tobytes()
    assert left.layout.tolist() == right.layout.tolist()
    assert left.header.tolist() == right.header.tolist()


@examples(100)
@given(rows=ROWS, codec=st.integers(0, 4), has_keys=st.booleans(), has_times=st.booleans())
def test_the_same_rows_leave_the_same_bytes_in_the_log(rows: Rows, codec: int, has_keys: bool, has_times: bool) -> None:
    as_columns, as_records = (
        encoded(rows, as_columns=form, codec=codec, has_keys=has_keys, has_times=has_times) for form in (True, False)
    )
    batch = decode_produced(as_columns)
    assert_equal(batch, decode_produced(as_records))
    batch.to_arrow().validate(full=True)
    (consumed,) = decode_fetched(records_of_columns(as_columns, codec))
    assert_equal(consumed, batch)
    assert not is_as_stored(as_columns, batch)


@examples(100)
@given(groups=st.lists(st.tuples(ROWS, st.booleans(), st.integers(0, 4)), min_size=1, max_size=4), stored=st.booleans())
def test_values_that_stay_where_they_were_received_leave_the_same_bytes(
    groups: list[tuple[Rows, bool, int]], stored: bool
) -> None:
    whole, apart = [], []
    with mock.patch.object(column_batch, "APART_FROM_BYTES", 0):
        for rows, as_columns, codec in groups:
            data = encoded(rows, as_columns=as_columns, codec=codec)
            whole.append(decode_produced(data))
            apart.append(decode_produced(data, is_kept=True))
            assert (apart[-1].values is not None) == as_columns
            assert apart[-1].size == whole[-1].size or as_columns
            assert_equal(apart[-1].whole(), whole[-1])
            assert apart[-1].to_arrow().equals(whole[-1].to_arrow())
    codec = at.ZSTD if stored else at.NO_CODEC
    expected = b"".join(write_message(whole, codec).parts)
    message = write_message(apart, codec)
    assert b"".join(message.parts) == expected
    assert message.size == len(expected)
    found = scan(np.frombuffer(expected, dtype=np.uint8), 0, len(expected))
    assert found.status == OK


def outcome(data: bytes, limits: BatchLimits) -> tuple[type[KafkaError], str, object] | None:
    try:
        decode_produced(data, limits, 1_000_000)
    except KafkaError as error:
        return type(error), str(error), error.record_errors
    return None


@examples(100)
@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.just(b"k"), OPTIONAL_BYTES, st.integers(999_000, 1_001_000) | st.integers(-(2**62), 2**62)
        ),
        min_size=1,
        max_size=9,
    ),
    before=st.none() | st.just(500),
    after=st.none() | st.just(500),
    key_required=st.booleans(),
)
def test_limits_refuse_what_they_refuse_of_records(
    rows: Rows, before: int | None, after: int | None, key_required: bool
) -> None:
    limits = BatchLimits(timestamp_before_max_ms=before, timestamp_after_max_ms=after, key_required=key_required)
    assert outcome(encoded(rows, as_columns=True), limits) == outcome(encoded(rows, as_columns=False), limits)


@pytest.mark.parametrize(("value_bytes", "rows"), [(0, 2_000), (1, 2_000), (300, 60)])
def test_max_message_bytes_counts_what_consumers_get_and_what_came(value_bytes: int, rows: int) -> None:
    data = encoded([(None, bytes(value_bytes), 1)] * rows, as_columns=True)
    records = len(records_of_columns(data, 0))
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
        decode_produced(data, BatchLimits(max_message_bytes=min(len(data), 61 + rows * (7 + value_bytes)) - 1))
    decode_produced(data, BatchLimits(max_message_bytes=max(len(data), records)))
    packed = encoded([(None, bytes(value_bytes), 1)] * rows, as_columns=True, codec=4)
    decode_produced(packed, BatchLimits(max_message_bytes=len(packed)))  # as of records, its size as it came
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
        decode_produced(packed, BatchLimits(max_message_bytes=len(packed) - 1))


TWO = columns(2, 0, 0, ends(1, 3), b"abc")
"""The values a and bc, without keys."""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "do not fit"),
        (TWO[:15], "do not fit"),
        (columns(2, 0, 0), "do not fit"),
        (TWO + b"x", "do not fit"),
        (columns(2, 0, 0, ends(1, 4), b"abc"), "ends of a column"),
        (columns(2, 0, 0, ends(1, 2), b"abc"), "do not fit"),
        (columns(2, 0, 0, ends(3, 1), b"abc"), "ends of a column"),
        (columns(2, 0, 0, ends(-1, 3), b"abc"), "ends of a column"),
        (columns(2, 0, 0, ends(3, -1), b"abc"), "ends of a column"),
        (columns(2, 0, 0, ends(1, 2**31 - 1), b"abc"), "ends of a column"),
        (columns(2, 0, 0, ends(1, 3), b"abc", reserved=1), "do not fit"),
        (columns(2, 0, 2, ends(1, 3), b"abc"), "do not fit"),
        (columns(2, 0, -1, ends(1, 3), b"abc"), "do not fit"),
        (columns(2, 0, 1, ends(1, 3), b"abc"), "do not fit"),
        (columns(3, 0, 0, ends(1, 3), b"abc"), "do not fit"),
        (columns(-1, 0, 0, ends(1, 3), b"abc"), "do not fit"),
        (columns(2, 3, 0, b"\0", ends(0, 0)), "do not fit"),
        (columns(2, -1, 0, ends(1, 3), b"abc"), "do not fit"),
        (columns(0, 0, 0, ends(1, 3), b"abc"), "do not fit"),  # keys, but no values
        (columns(2, 1, 0, b"\3", ends(1, 3), b"abc"), "nulls of a column"),
        (columns(2, 1, 0, b"\0", ends(1, 3), b"abc"), "nulls of a column"),
        (columns(2, 1, 0, b"\1", ends(1, 3), b"abc"), "nulls of a column"),  # the null has two bytes
        (columns(2, 1, 0, b"\2", ends(1, 3), b"abc"), "nulls of a column"),
    ],
)
def test_columns_that_contradict_themselves_are_refused(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        decode_produced(raw_batch(body, 2, magic=COLUMNS))


def test_a_batch_is_read_as_its_bytes_say() -> None:
    times = struct.pack("<3q", 1_000, -1, 3)
    body = columns(1, 1, 1, times, b"\xfd", ends(1, 1, 2), b"xy", b"\x03", ends(1, 2, 2), b"vw")
    batch = decode_produced(raw_batch(body, 3, magic=COLUMNS))
    rows = batch.to_arrow()
    rows.validate(full=True)
    assert rows.column("key").to_pylist() == [b"x", None, b"y"]
    assert rows.column("value").to_pylist() == [b"v", b"w", None]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [1_000, -1, 3]
    assert rows.column("headers").to_pylist() == [[], [], []]
    bitmap = batch.layout[at.FIRST_BUFFER + 2 * at.KEY_VALIDITY]
    assert batch.body[bitmap] == 0b101  # bits behind the last row are cleared


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({"attributes": 0x20}, InvalidRecordError),
        ({"attributes": 0x08}, InvalidTimestampError),
        ({"attributes": 0x10}, InvalidRecordError),  # transactional, without a producer
        ({"base_offset": 1}, InvalidRecordError),
        ({"last_offset_delta": 5}, InvalidRecordError),
        ({"claimed": 0, "last_offset_delta": -1}, InvalidRecordError),
        ({"claimed": -5, "last_offset_delta": -6}, InvalidRecordError),
        ({"claimed": 2**31 - 1, "last_offset_delta": 2**31 - 2}, InvalidRecordError),
        ({"producer_id": 5}, InvalidRecordError),
        ({"producer_id": 5, "base_sequence": 0}, InvalidRecordError),
        ({"attributes": 5}, KafkaError),
        ({"attributes": 1}, InvalidRecordError),  # no gzip
        ({"magic": 101}, CorruptMessageError),
        ({"base_timestamp": 2**63 - 1}, InvalidTimestampError),
    ],
)
def test_the_header_is_checked_as_that_of_records(header: dict[str, int], error: type[KafkaError]) -> None:
    decode_produced(raw_batch(TWO, 2, magic=COLUMNS))
    with pytest.raises(error):
        decode_produced(raw_batch(TWO, 2, **{"magic": COLUMNS, **header}))


def test_a_wrong_checksum_and_wrong_lengths_are_refused() -> None:
    data = raw_batch(TWO, 2, magic=COLUMNS)
    for position in range(21, len(data)):
        with pytest.raises(CorruptMessageError):
            decode_produced(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
    for length in range(len(data)):
        with pytest.raises((CorruptMessageError, InvalidRecordError)):
            decode_produced(data[:length])
        if length >= 61:
            with pytest.raises((CorruptMessageError, InvalidRecordError)):
                decode_produced(checked(data[:length]))


def test_consumers_never_take_columns_for_records() -> None:
    with pytest.raises(KafkaError, match="magic 2"):
        list(decode_fetched(raw_batch(TWO, 2, magic=COLUMNS)))


def guarded(length: int) -> tuple[mmap.mmap, int]:
    """Memory whose last byte is followed by a page that cannot be read. Return it and where `length` bytes must begin."""
    size = (length // mmap.PAGESIZE + 2) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    last = ctypes.c_void_p(address + size - mmap.PAGESIZE)
    assert ctypes.CDLL(None).mprotect(last, mmap.PAGESIZE, 0) == 0
    return memory, size - mmap.PAGESIZE - length


@pytest.mark.exhaustive
def test_no_byte_behind_the_batch_is_read() -> None:
    """Changed and cut batches end where memory does: a read behind their end kills this process."""
    chance = random.Random(1)
    kept = []
    for _ in range(2_000):
        pool: list[bytes | None] = [None, b"", b"value", bytes(60)]
        rows = [(chance.choice(pool), chance.choice(pool), chance.randrange(9)) for _ in range(chance.randint(1, 20))]
        data = bytearray(
            encoded(rows, as_columns=True, has_keys=chance.random() < 0.7, has_times=chance.random() < 0.5)
        )
        for _ in range(chance.randint(0, 3)):
            position = chance.choice([*range(57, 85)] * 3 + [*range(61, len(data))])
            if position < len(data):
                data[position] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        if chance.random() < 0.3:
            del data[chance.randint(61, len(data)) :]
        count_of_records = struct.unpack_from(">i", data, 57)[0]
        struct.pack_into(">i", data, 23, max(count_of_records - 1, -(2**31)))
        whole = checked(bytes(data))
        memory, begin = guarded(len(whole))
        memory[begin : begin + len(whole)] = whole
        view = memoryview(memory)[begin : begin + len(whole)]
        with contextlib.suppress(InvalidRecordError, InvalidTimestampError, CorruptMessageError):
            decode_produced(view).to_arrow().validate(full=True)
        kept.append(memory)  # the next one is elsewhere
        del kept[:-50]
