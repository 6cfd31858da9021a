"""One Arrow message: what is written is read back, by us and by any Arrow reader, and no damaged byte passes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.ipc
import pytest
from arrow_messages import BATCHES, ROW, as_array, message_of
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from record_batches import Row, arrow_rows, record_batch, rows_of, simple_batch

from kafkalake.record import layout as at
from kafkalake.record.message import OK, TORN
from kafkalake.record.message_set import scan, to_arrow
from kafkalake.record.schema import END_OF_STREAM, PREAMBLE, SCHEMA, footer

CODECS = [at.NO_CODEC, at.LZ4, at.ZSTD]
SOME_ROWS: list[Row] = [
    (1, b"key", b"value", [("a", b"1"), ("b", None)]),
    (2, None, b"", []),
    (3, b"", None, [("", b"")]),
]


def numbered(batches: list[list[Row]], base_offset: int) -> list[tuple[int, Row]]:
    return list(enumerate((row for rows in batches for row in rows), base_offset))


@pytest.mark.exhaustive
@pytest.mark.parametrize("codec", CODECS)
@given(batches=BATCHES, base_offset=st.integers(0, 2**60))
@examples(60)
def test_rows_are_read_back_by_us_and_by_pyarrow(codec: int, batches: list[list[Row]], base_offset: int) -> None:
    message = message_of([record_batch(rows) for rows in batches], base_offset, codec)
    expected = numbered(batches, base_offset)
    found = scan(as_array(message), 0, len(message))
    assert (found.status, found.end, len(found.messages)) == (OK, len(message), 1)
    assert rows_of(found.messages) == expected
    stream = pa.ipc.open_stream(pa.py_buffer(PREAMBLE[8:] + message + END_OF_STREAM))
    assert stream.schema.equals(SCHEMA)
    table = stream.read_all()
    table.validate(full=True)
    assert arrow_rows(table.combine_chunks().to_batches()[0]) == expected


@given(rows=st.lists(ROW, min_size=1, max_size=40))
@examples(40)
def test_a_batch_alone_shows_its_rows(rows: list[Row]) -> None:
    batch = record_batch(rows)
    assert (batch.rows, batch.offsets) == (len(rows), len(rows))
    assert arrow_rows(batch.to_arrow()) == list(enumerate(rows))


@given(batches=BATCHES)
@examples(40)
def test_headers_are_read_back(batches: list[list[Row]]) -> None:
    given_batches = [
        record_batch(rows, producer_id=2**62 - n, epoch=2**15 - 1, sequence=2**31 - 1 - n, transactional=n % 2 == 0)
        for n, rows in enumerate(batches)
    ]
    message = message_of(given_batches, 2**62)
    headers = scan(as_array(message), 0, len(message)).messages.headers
    assert headers.tolist() == [batch.header.tolist() for batch in given_batches]


def test_log_append_time_replaces_the_timestamps_of_its_batch_only() -> None:
    stamped = record_batch(SOME_ROWS, attributes=at.ATTRIBUTE_LOG_APPEND_TIME)
    stamped.header[at.MAX_TIMESTAMP] = 999
    message = message_of([record_batch(SOME_ROWS), stamped])
    found = rows_of(scan(as_array(message), 0, len(message)).messages)
    assert [row[0] for _, row in found] == [1, 2, 3, 999, 999, 999]


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ (1 << (position % 8))]) + data[position + 1 :]


@pytest.mark.parametrize("codec", CODECS)
def test_every_byte_is_under_a_checksum(codec: int) -> None:
    message = message_of([record_batch(SOME_ROWS), record_batch(SOME_ROWS * 20)], 5, codec)
    for position in range(len(message)):
        damaged = flip(message, position)
        found = scan(as_array(damaged), 0, len(damaged))
        assert found.status != OK, position
        assert len(found.messages) == 0


def test_every_length_but_the_whole_one_is_torn() -> None:
    message = message_of([record_batch(SOME_ROWS)])
    for length in range(1, len(message)):
        found = scan(as_array(message[:length]), 0, length)
        assert (found.status, len(found.messages), found.end) == (TORN, 0, 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("column", range(at.COLUMNS))
def test_a_projection_gives_its_column_and_looks_at_no_other(codec: int, column: int) -> None:
    message = message_of([record_batch(SOME_ROWS * 10)], 5, codec)
    mask = 1 << column
    whole = to_arrow(scan(as_array(message), 0, len(message)).messages)
    name = SCHEMA.field(column).name
    for data in (message, *(flip(message, position) for position in range(len(message) - 1, 1_000, -7))):
        found = scan(as_array(data), 0, len(data), mask)
        if found.status != OK:
            continue
        projected = to_arrow(found.messages, mask)
        assert projected.schema.names == [name]
        assert projected.column(name).equals(whole.column(name))


@pytest.mark.parametrize("codec", CODECS)
def test_many_messages_are_joined_in_one(codec: int) -> None:
    batches = [[(n, b"k%d" % n, b"v" * n, [("h", None)] * (n % 3))] * (1 + n % 4) for n in range(50)]
    data, offset = b"", 0
    for rows in batches:
        data += message_of([record_batch(rows)], offset, codec)
        offset += len(rows)
    messages = scan(as_array(data), 0, len(data)).messages
    expected = numbered(batches, 0)
    assert (len(messages), messages.rows, messages.base_offset, messages.next_offset) == (50, offset, 0, offset)
    assert rows_of(messages) == expected
    part = messages.slice(10, 20)
    assert rows_of(part) == [row for row in expected if part.base_offset <= row[0] < part.next_offset]
    for mask in (0b00001, 0b01000, 0b11010):
        joined = to_arrow(messages, mask)
        assert joined.equals(to_arrow(messages).select(joined.schema.names))


def test_a_scan_stops_at_the_first_message_that_is_wrong() -> None:
    parts = [message_of([simple_batch([b"%d" % n])], n) for n in range(4)]
    parts[2] = flip(parts[2], len(parts[2]) - 9)
    data = b"".join(parts)
    found = scan(as_array(data), 0, len(data))
    assert (len(found.messages), found.end) == (2, len(parts[0]) + len(parts[1]))
    assert found.status not in (OK, TORN)


def test_a_message_with_no_rows_still_has_its_header() -> None:
    batch = record_batch([])
    batch.header[at.LAST_OFFSET_DELTA] = 0
    message = message_of([batch], 7)
    messages = scan(as_array(message), 0, len(message)).messages
    assert (messages.rows, messages.base_offset, messages.next_offset) == (0, 7, 8)
    assert pa.ipc.open_stream(pa.py_buffer(PREAMBLE[8:] + message + END_OF_STREAM)).read_all().num_rows == 0


@given(data=st.binary(max_size=3_000))
@examples(200)
def test_arbitrary_bytes_are_no_messages(data: bytes) -> None:
    found = scan(as_array(data), 0, len(data))
    assert len(found.messages) == 0
    assert found.end == 0


@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4))
@examples(300)
def test_a_message_with_bytes_written_over_is_read_as_it_was_or_not_at_all(changes: list[tuple[int, bytes]]) -> None:
    message = message_of([record_batch(SOME_ROWS), record_batch(SOME_ROWS)])
    damaged = bytearray(message)
    for position, patch in changes:
        position %= len(message)
        damaged[position : position + len(patch)] = patch[: len(message) - position]
    found = scan(as_array(bytes(damaged)), 0, len(damaged))
    if bytes(damaged) == message:
        assert found.status == OK
    else:
        assert found.status != OK
        assert len(found.messages) == 0


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_sealed_file_is_an_arrow_file(count: int) -> None:
    data, blocks, offset = PREAMBLE, [], 0
    for _ in range(count):
        message = message_of([record_batch(SOME_ROWS), record_batch(SOME_ROWS)], offset)
        metadata = 8 + int.from_bytes(message[4:8], "little")
        blocks.append((len(data), metadata, len(message) - metadata))
        data += message
        offset += 6
    reader = pa.ipc.open_file(pa.py_buffer(data + footer(blocks)))
    assert reader.schema.equals(SCHEMA)
    assert reader.num_record_batches == count
    assert reader.read_all().num_rows == offset
    for number in range(count):
        reader.get_batch(number).validate(full=True)
        assert reader.get_batch(number).column("offset")[0].as_py() == 6 * number


def test_the_pinned_schema_is_the_schema() -> None:
    assert pa.ipc.read_schema(pa.py_buffer(PREAMBLE[8:])).equals(SCHEMA, check_metadata=True)
    assert len(PREAMBLE) % 8 == 0
