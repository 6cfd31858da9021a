"""Stored messages as a consumer gets them: which batches, how many bytes, rebuilt as their producers sent them."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from record_batches import arrow_rows, record_batch, rows_of, simple_batch
from wire_batches import ROWS, raw_batch, record, stored

from kafkalake.errors import (
    CorruptMessageError,
    InvalidRecordError,
    KafkaError,
    LakeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.message_set import MessageSet
from kafkalake.wire.record_batch import decode_fetched, decode_produced, encode_batch, encode_fetched

ALL = 2**62


def fetch(messages: MessageSet, start: int = 0, end: int = ALL, max_bytes: int = ALL) -> list[ProducerBatch]:
    return list(decode_fetched(encode_fetched(messages, start, end, max_bytes).records))


def base_offsets(batches: list[ProducerBatch]) -> list[int]:
    return [int(batch.header[at.BASE_OFFSET]) for batch in batches]


def ten_batches() -> MessageSet:
    """Offsets 100 to 129 in ten batches of three records, in four messages of 1, 2, 3 and 4 batches."""
    batches = [simple_batch([b"%d-%d" % (i, k) for k in range(3)]) for i in range(10)]
    return stored(batches[:1], batches[1:3], batches[3:6], batches[6:], first_offset=100, leader_epoch=4)


def test_batches_come_back_as_their_producers_sent_them() -> None:
    produced = [
        encode_batch(record_batch([(5, b"k", None, [("h", b"v"), ("n", None)])], producer_id=7, epoch=1, sequence=9)),
        encode_batch(simple_batch([b"", b"x" * 1_000])),
        encode_batch(record_batch([(-1, None, b"t", [])], producer_id=8, epoch=0, sequence=0, transactional=True)),
    ]
    messages = stored([decode_produced(each) for each in produced[:2]], [decode_produced(produced[2])], leader_epoch=3)
    expected = b"".join(
        offset.to_bytes(8, "big") + each[8:12] + (3).to_bytes(4, "big") + each[16:]
        for each, offset in zip(produced, (0, 1, 3), strict=True)
    )
    assert bytes(encode_fetched(messages, 0, ALL, ALL).records) == expected


@pytest.mark.exhaustive
@given(st.lists(st.lists(ROWS, min_size=1, max_size=3), min_size=1, max_size=3))
@examples(100)
def test_whatever_is_stored_is_fetched(groups: list) -> None:
    messages = stored(*([record_batch(rows) for rows in group] for group in groups), first_offset=1_000)
    fetched = [row for batch in fetch(messages) for row in arrow_rows(batch.to_arrow())]
    assert fetched == rows_of(messages)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (100, ALL, [100, 103, 106, 109, 112, 115, 118, 121, 124, 127]),
        (0, ALL, [100, 103, 106, 109, 112, 115, 118, 121, 124, 127]),
        (102, ALL, [100, 103, 106, 109, 112, 115, 118, 121, 124, 127]),
        (103, 110, [103, 106, 109]),
        (111, 112, [109]),
        (129, ALL, [127]),
        (130, ALL, []),
        (100, 100, []),
        (100, 101, [100]),
    ],
)
def test_batches_of_an_offset_range(start: int, end: int, expected: list[int]) -> None:
    assert base_offsets(fetch(ten_batches(), start, end)) == expected


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_batches_come_while_they_fit_and_the_first_one_always(codec: int) -> None:
    messages = ten_batches()
    messages.headers[:, at.ATTRIBUTES] = codec
    whole = bytes(encode_fetched(messages, 103, ALL, ALL).records)
    sizes = []
    position = 0
    while position < len(whole):
        sizes.append(12 + int.from_bytes(whole[position + 8 : position + 12], "big"))
        position += sizes[-1]
    assert len(sizes) == 9
    for count in range(1, 10):
        total = sum(sizes[:count])
        assert bytes(encode_fetched(messages, 103, ALL, total).records) == whole[:total]
        assert bytes(encode_fetched(messages, 103, ALL, total + sizes[0] // 2).records) == whole[:total] or count == 9
    assert bytes(encode_fetched(messages, 103, ALL, 0).records) == whole[: sizes[0]]
    assert bytes(encode_fetched(messages, 103, ALL, sizes[0] - 1).records) == whole[: sizes[0]]


def test_compressed_batches_are_packed_up_to_the_limit() -> None:
    """A limit on bytes is a limit on what is sent, not on what it holds: here 50 times more."""
    batches = [record_batch([(1, None, b"a" * 1_000, [])] * 20, attributes=4) for _ in range(100)]
    messages = stored(batches)
    one = len(encode_fetched(messages, 0, 1, ALL).records)
    assert len(base_offsets(fetch(messages, max_bytes=50 * one + 10))) == 50


def test_leader_epoch_and_append_time_are_the_logs() -> None:
    batch = simple_batch([b"a", b"b"], timestamp=1_000)
    batch.header[at.ATTRIBUTES] |= at.ATTRIBUTE_LOG_APPEND_TIME
    batch.header[at.MAX_TIMESTAMP] = 5_000
    (fetched,) = fetch(stored([batch], leader_epoch=11))
    assert fetched.header[at.LEADER_EPOCH] == 11
    assert fetched.header[at.ATTRIBUTES] == at.ATTRIBUTE_LOG_APPEND_TIME
    assert [row[0] for _, row in arrow_rows(fetched.to_arrow())] == [5_000, 5_000]


def test_a_compacted_batch_keeps_its_offset_range() -> None:
    """Offsets 10, 13 and 17 of a batch that covers 10 to 19 are left, and of the next batch nothing."""
    messages = stored([simple_batch([b"a", b"b", b"c"])], [simple_batch([b"z"])], first_offset=10)
    messages.headers[0, at.LAST_OFFSET_DELTA] = 9
    start = int(messages.starts[0] + messages.layouts[0, at.FIRST_BUFFER + 2 * at.OFFSET_DATA])
    data = messages.data.copy()
    data[start : start + 24].view(np.int64)[:] = [10, 13, 17]
    messages.data = data
    messages.headers[1, [at.BASE_OFFSET, at.LAST_OFFSET_DELTA, at.RECORDS]] = [20, 4, 0]
    messages.layouts[1, at.ROWS] = 0
    compacted, empty = fetch(messages)
    assert [offset for offset, _ in arrow_rows(compacted.to_arrow())] == [10, 13, 17]
    assert compacted.offsets == 10
    assert (empty.rows, empty.offsets, int(empty.header[at.BASE_OFFSET])) == (0, 5, 20)
    assert base_offsets(fetch(messages, start=18)) == [10, 20]


@pytest.mark.parametrize("control_type", [0, 1])
def test_a_control_batch_is_rebuilt_as_its_record(control_type: int) -> None:
    marker = record_batch([], producer_id=5, epoch=2)
    marker.header[at.LAST_OFFSET_DELTA] = 0
    marker.header[at.ATTRIBUTES] = at.ATTRIBUTE_CONTROL | at.ATTRIBUTE_TRANSACTIONAL
    marker.header[[at.CONTROL_TYPE, at.COORDINATOR_EPOCH]] = [control_type, 77]
    marker.header[[at.BASE_TIMESTAMP, at.MAX_TIMESTAMP]] = 1_000
    messages = stored([simple_batch([b"a"])], [marker], [simple_batch([b"b"])], first_offset=5)
    key, value = bytes([0, 0, 0, control_type]), b"\0\0" + (77).to_bytes(4, "big")
    expected = raw_batch(
        record(key=key, value=value), 1, base_offset=6, leader_epoch=0, attributes=0x30, producer_id=5, producer_epoch=2
    )
    assert bytes(encode_fetched(messages, 6, 7, ALL).records) == expected
    before, control, after = fetch(messages)
    assert [batch.rows for batch in (before, control, after)] == [1, 0, 1]
    assert control.header[[at.CONTROL_TYPE, at.COORDINATOR_EPOCH, at.RECORDS]].tolist() == [control_type, 77, 0]
    assert arrow_rows(after.to_arrow())[0][0] == 7


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    whole = bytes(encode_fetched(ten_batches(), 0, ALL, ALL).records)
    first = len(encode_fetched(ten_batches(), 0, ALL, 0).records)
    for length in (0, 1, 60, first - 1):
        assert list(decode_fetched(whole[:length])) == []
    for length in (first, first + 1, first + 61, 2 * first - 1):
        assert base_offsets(list(decode_fetched(whole[:length]))) == [100]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (raw_batch(record(), 1, magic=1), UnsupportedForMessageFormatError),
        (raw_batch(record(), 1)[:-1] + b"\1", CorruptMessageError),
        (raw_batch(record(), 1)[:8] + bytes(4) + raw_batch(record(), 1)[12:], CorruptMessageError),
        (raw_batch(record(5), 1), InvalidRecordError),
        (raw_batch(b"", 0, attributes=0x20, last_offset_delta=0), InvalidRecordError),
        (raw_batch(record(), 1, attributes=0x20), InvalidRecordError),
    ],
    ids=[
        "magic 1",
        "checksum",
        "length 0",
        "offset past the last",
        "empty control batch",
        "control record without a key",
    ],
)
def test_a_consumer_believes_no_broken_batch(data: bytes, error: type[KafkaError]) -> None:
    with pytest.raises(KafkaError) as raised:
        list(decode_fetched(data))
    assert type(raised.value) is error


@pytest.mark.exhaustive
@given(st.binary(max_size=300), st.binary(max_size=80), st.integers(0, 0x3F))
@examples(500)
def test_arbitrary_bytes_are_no_fetch_response(data: bytes, records: bytes, attributes: int) -> None:
    for each in (data, raw_batch(records, 3, attributes=attributes) + data):
        try:
            batches = list(decode_fetched(each, limit=1 << 20))
        except KafkaError:
            continue
        for batch in batches:
            batch.to_arrow().validate(full=True)


def test_a_projection_cannot_be_encoded() -> None:
    messages = ten_batches()
    messages.layouts[:, at.FIRST_BUFFER + 2 * at.VALUE_OFFSETS + 1] = 0
    with pytest.raises(LakeError):
        encode_fetched(messages, 0, ALL, ALL)


@pytest.mark.exhaustive
@given(st.lists(ROWS, min_size=1, max_size=3), st.data())
@examples(500)
def test_damaged_messages_are_refused_or_stay_inside_their_memory(groups: list, data: st.DataObject) -> None:
    """Checksums keep such messages away; should one slip through, it must not read or write beyond its buffers."""
    messages = stored([record_batch(rows) for rows in groups])
    body = messages.data.copy()
    for _ in range(data.draw(st.integers(0, 8))):
        position = data.draw(st.integers(0, len(body) // 4 - 1)) * 4
        body[position : position + 4].view(np.int32)[0] = data.draw(st.integers(-(2**31), 2**31 - 1))
    messages.data = body
    for array in (messages.layouts, messages.headers):
        for _ in range(data.draw(st.integers(0, 2))):
            column = data.draw(st.integers(0, array.shape[1] - 1))
            array[data.draw(st.integers(0, len(array) - 1)), column] = data.draw(st.integers(-(2**40), 2**40))
    try:
        encode_fetched(messages, 0, ALL, 1 << 20)
    except (LakeError, UnsupportedCompressionTypeError):
        return
