"""Batches from producers: what is taken, byte by byte, and what is refused with which error."""

from __future__ import annotations

import struct

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from record_batches import arrow_rows, record_batch
from wire_batches import ROWS, raw_batch, record, varint, with_right_checksum

from kafkalake.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from kafkalake.record import layout as at
from kafkalake.wire.record_batch import (
    BatchLimits,
    codec_of,
    decode_produced,
    encode_batch,
    is_as_stored,
)
from kafkalake.wire.record_faults import NAMED_MAX

WORKED_EXAMPLE = bytes.fromhex(
    "0000000000000000"  # base offset 0
    "00000051"  # batch length 81: what follows
    "ffffffff"  # leader epoch -1
    "02"  # magic
    "c9b668e1"  # CRC32C of all that follows
    "0000"  # attributes: no compression, CreateTime
    "00000001"  # last offset delta
    "0000018bcfe56800"  # base timestamp 2023-11-14 22:13:20 UTC
    "0000018bcfe573b8"  # largest timestamp
    "000000000000002a"  # producer id 42
    "0003"  # producer epoch
    "00000007"  # base sequence
    "00000002"  # number of records
    "2a"  # 21 bytes
    "00 00 00"  # attributes, timestamp delta 0, offset delta 0
    "02 61"  # key "a"
    "04 6869"  # value "hi"
    "04"  # two headers
    "0a 7472616365 04 0102"  # "trace": 01 02
    "02 78 01"  # "x": null
    "12"  # 9 bytes
    "00 f02e 02"  # attributes, timestamp delta 3,000, offset delta 1
    "01"  # key null
    "04 efbe 00"  # value ef be, no headers
)


def test_a_batch_is_read_as_its_bytes_say() -> None:
    batch = decode_produced(WORKED_EXAMPLE)
    assert arrow_rows(batch.to_arrow()) == [
        (0, (1_700_000_000_000, b"a", b"hi", [("trace", b"\x01\x02"), ("x", None)])),
        (1, (1_700_000_003_000, None, b"\xef\xbe", [])),
    ]
    header = batch.header
    assert header[at.PRODUCER_ID] == 42
    assert header[at.PRODUCER_EPOCH] == 3
    assert header[at.BASE_SEQUENCE] == 7
    assert header[at.RECORDS] == 2
    assert header[at.LAST_OFFSET_DELTA] == 1
    assert header[at.BASE_TIMESTAMP] == 1_700_000_000_000
    assert header[at.MAX_TIMESTAMP] == 1_700_000_003_000
    assert header[at.CONTROL_TYPE] == -1
    assert batch.to_arrow().validate(full=True) is None


def test_a_batch_is_written_as_its_bytes_say() -> None:
    assert encode_batch(decode_produced(WORKED_EXAMPLE)) == WORKED_EXAMPLE


@pytest.mark.exhaustive
@given(ROWS)
@examples(300)
def test_what_is_encoded_is_decoded_again(rows: list) -> None:
    batch = record_batch(rows)
    again = decode_produced(encode_batch(batch))
    assert arrow_rows(again.to_arrow()) == arrow_rows(batch.to_arrow()) == list(enumerate(rows))
    assert again.to_arrow().validate(full=True) is None
    assert again.header.tolist() == batch.header.tolist()


def test_the_largest_timestamp_is_taken_from_the_records() -> None:
    records = record(0, timestamp=5) + record(1, timestamp=9) + record(2, timestamp=-1)
    batch = decode_produced(raw_batch(records, 3, base_timestamp=1_000, max_timestamp=77))
    assert batch.header[at.MAX_TIMESTAMP] == 1_009


def test_records_without_a_timestamp_keep_none() -> None:
    batch = decode_produced(raw_batch(record(), 1, base_timestamp=-1, max_timestamp=-1))
    assert batch.header[at.MAX_TIMESTAMP] == -1
    assert arrow_rows(batch.to_arrow())[0][1][0] == -1


def test_attribute_bits_that_mean_nothing_are_dropped() -> None:
    batch = decode_produced(raw_batch(record(), 1, attributes=0x7F80))
    assert batch.header[at.ATTRIBUTES] == 0


def test_many_headers_need_more_room_than_the_first_guess() -> None:
    headers = varint(2_000) + (varint(0) + varint(-1)) * 2_000
    batch = decode_produced(raw_batch(record(headers=headers), 1))
    assert arrow_rows(batch.to_arrow())[0][1][3] == [("", None)] * 2_000


def header_key_batch(key: bytes) -> bytes:
    return raw_batch(record(headers=varint(1) + varint(len(key)) + key + varint(1) + b"v"), 1)


REFUSED = {
    "nothing": (b"", InvalidRecordError),
    "less than a header": (raw_batch(b"", 0)[:60], CorruptMessageError),
    "magic 0": (raw_batch(record(), 1, magic=0), InvalidRecordError),
    "magic 1": (raw_batch(record(), 1, magic=1), InvalidRecordError),
    "magic 3": (raw_batch(record(), 1, magic=3), CorruptMessageError),
    "a batch cut short": (raw_batch(record(), 1)[:-1], InvalidRecordError),
    "two batches": (raw_batch(record(), 1) * 2, InvalidRecordError),
    "bytes after the batch": (raw_batch(record(), 1) + b"\0", InvalidRecordError),
    "a length below the header's": (
        raw_batch(record(), 1)[:8] + struct.pack(">i", 40) + raw_batch(record(), 1)[12:],
        CorruptMessageError,
    ),
    "a negative length": (
        raw_batch(record(), 1)[:8] + struct.pack(">i", -1) + raw_batch(record(), 1)[12:],
        CorruptMessageError,
    ),
    "a wrong checksum": (raw_batch(record(), 1)[:-1] + b"\1", CorruptMessageError),
    "a base offset": (raw_batch(record(), 1, base_offset=5), InvalidRecordError),
    "no records": (raw_batch(b"", 0), InvalidRecordError),
    "a negative count": (raw_batch(record(), 1, claimed=-1), InvalidRecordError),
    "a last offset delta that is not count - 1": (raw_batch(record(), 1, last_offset_delta=1), InvalidRecordError),
    "more records claimed than there are": (
        raw_batch(record(), 1, claimed=2**31 - 1, last_offset_delta=2**31 - 2),
        InvalidRecordError,
    ),
    "fewer records claimed than there are": (
        raw_batch(record() + record(1), 2, claimed=1, last_offset_delta=0),
        InvalidRecordError,
    ),
    "a control batch": (raw_batch(record(key=bytes(4), value=bytes(6)), 1, attributes=0x30), InvalidRecordError),
    "log append time": (raw_batch(record(), 1, attributes=0x08), InvalidTimestampError),
    "a producer id without a sequence": (
        raw_batch(record(), 1, producer_id=1, producer_epoch=0, base_sequence=-1),
        InvalidRecordError,
    ),
    "a producer id without an epoch": (
        raw_batch(record(), 1, producer_id=1, producer_epoch=-1, base_sequence=0),
        InvalidRecordError,
    ),
    "a producer id below -1": (raw_batch(record(), 1, producer_id=-2), InvalidRecordError),
    "a transaction without a producer id": (raw_batch(record(), 1, attributes=0x10), InvalidRecordError),
    "codec 5": (raw_batch(record(), 1, attributes=5), UnsupportedCompressionTypeError),
    "codec 7": (raw_batch(record(), 1, attributes=7), UnsupportedCompressionTypeError),
    "offsets that do not count up": (raw_batch(record(0) + record(2), 2), InvalidRecordError),
    "offsets that go back": (raw_batch(record(1) + record(0), 2), InvalidRecordError),
    "a record of negative length": (raw_batch(varint(-1) + bytes(20), 1), InvalidRecordError),
    "a record of length 0": (raw_batch(varint(0) + bytes(20), 1), InvalidRecordError),
    "a record longer than the batch": (raw_batch(varint(100) + bytes(20), 1), InvalidRecordError),
    "a record longer than its content": (raw_batch(varint(8) + record()[1:] + b"\0", 1), InvalidRecordError),
    "a record shorter than its content": (raw_batch(varint(6) + record()[1:], 1), InvalidRecordError),
    "bytes after the last record": (raw_batch(record() + b"\0", 1), InvalidRecordError),
    "a key of length -2": (raw_batch(varint(6) + b"\0\0\0" + varint(-2) + b"\0\0", 1), InvalidRecordError),
    "a key longer than the record": (raw_batch(varint(6) + b"\0\0\0" + varint(50) + b"\0\0", 1), InvalidRecordError),
    "a value longer than the record": (raw_batch(varint(6) + b"\0\0\0\1" + varint(50) + b"\0", 1), InvalidRecordError),
    "a value of 2 GiB": (
        raw_batch(varint(10) + b"\0\0\0\1" + varint(2**31 - 1) + b"\0", 1),
        InvalidRecordError,
    ),
    "a varint of six bytes": (
        raw_batch(varint(12) + b"\0\0\0" + b"\x80" * 5 + b"\0" + b"\1\0\0", 1),
        InvalidRecordError,
    ),
    "a varint that never ends": (raw_batch(b"\xff" * 30, 1), InvalidRecordError),
    "a timestamp varint of eleven bytes": (
        raw_batch(varint(15) + b"\0" + b"\x80" * 10 + b"\0" + b"\0\1\1\0", 1),
        InvalidRecordError,
    ),
    "a negative number of headers": (raw_batch(record(headers=varint(-1)), 1), InvalidRecordError),
    "more headers than bytes": (raw_batch(record(headers=varint(1_000_000)), 1), InvalidRecordError),
    "a header without a key": (raw_batch(record(headers=varint(1) + varint(-1) + varint(-1)), 1), InvalidRecordError),
    "a header key past the record": (
        raw_batch(record(headers=varint(1) + varint(90) + varint(-1)), 1),
        InvalidRecordError,
    ),
    "a header value of length -2": (
        raw_batch(record(headers=varint(1) + varint(0) + varint(-2)), 1),
        InvalidRecordError,
    ),
    "a timestamp beyond microseconds": (
        raw_batch(record(), 1, base_timestamp=2**63 - 1, max_timestamp=2**63 - 1),
        InvalidTimestampError,
    ),
    "a timestamp before microseconds": (raw_batch(record(), 1, base_timestamp=-(2**63)), InvalidTimestampError),
    "the last timestamp before microseconds": (
        raw_batch(record(), 1, base_timestamp=-(2**63 // 1000) - 1),
        InvalidTimestampError,
    ),
    "compressed records that are none": (raw_batch(b"nothing", 1, attributes=1), InvalidRecordError),
}


@pytest.mark.parametrize(("data", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_a_producer_is_refused(data: bytes, error: type[KafkaError]) -> None:
    with pytest.raises(KafkaError) as raised:
        decode_produced(data)
    assert type(raised.value) is error


def test_a_refused_record_is_named_by_its_index() -> None:
    with pytest.raises(InvalidRecordError, match=r"record 2\b"):
        decode_produced(raw_batch(record(0) + record(1) + record(5), 3))


def test_every_flipped_bit_is_found() -> None:
    for position in range(8, len(WORKED_EXAMPLE)):
        if 12 <= position < 16:
            continue  # the leader epoch is the broker's to set
        for bit in range(8):
            damaged = bytearray(WORKED_EXAMPLE)
            damaged[position] ^= 1 << bit
            with pytest.raises(KafkaError):
                decode_produced(bytes(damaged))


def test_every_truncation_is_found() -> None:
    for length in range(len(WORKED_EXAMPLE)):
        with pytest.raises(KafkaError):
            decode_produced(WORKED_EXAMPLE[:length])


def test_a_batch_larger_than_the_limit_is_too_large() -> None:
    data = raw_batch(record(value=bytes(1_000)), 1)
    decode_produced(data, BatchLimits(max_message_bytes=len(data)))
    with pytest.raises(MessageTooLargeError):
        decode_produced(data, BatchLimits(max_message_bytes=len(data) - 1))


def test_a_compacted_topic_asks_for_keys() -> None:
    limits = BatchLimits(key_required=True)
    decode_produced(raw_batch(record(key=b""), 1), limits)
    with pytest.raises(InvalidRecordError, match="key"):
        decode_produced(raw_batch(record(0, key=b"k") + record(1), 2), limits)


@pytest.mark.parametrize(
    ("timestamps", "accepted"),
    [((1_000,), True), ((400,), False), ((499, -1), False), ((-1,), True), ((500, 1_100), True), ((500, 1_101), False)],
)
def test_timestamps_are_held_against_the_limits(timestamps: tuple[int, ...], accepted: bool) -> None:
    limits = BatchLimits(timestamp_before_max_ms=500, timestamp_after_max_ms=100)
    records = b"".join(record(i, timestamp=each) for i, each in enumerate(timestamps))
    data = raw_batch(records, len(timestamps), base_timestamp=0)
    decode_produced(data, limits)
    if accepted:
        decode_produced(data, limits, now_ms=1_000)
    else:
        with pytest.raises(InvalidTimestampError):
            decode_produced(data, limits, now_ms=1_000)


@pytest.mark.exhaustive
def test_a_batch_full_of_faulty_records_has_a_small_answer() -> None:
    rows = 40_000
    with pytest.raises(InvalidRecordError) as raised:
        decode_produced(
            raw_batch(b"".join(map(record, range(rows))), rows), BatchLimits(key_required=True, max_message_bytes=2**30)
        )
    assert [index for index, _ in raised.value.record_errors] == list(range(NAMED_MAX))
    assert sum(len(sentence or "") for _, sentence in raised.value.record_errors) < 10_000
    assert f"{rows} record errors" in str(raised.value)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_taken_in_any_buffer(kind: type) -> None:
    assert decode_produced(kind(WORKED_EXAMPLE)).rows == 2
    assert codec_of(kind(WORKED_EXAMPLE)) == 0


@pytest.mark.parametrize(
    ("attributes", "largest", "as_stored"),
    [(0, 1_002, True), (0, 9_999, False), (0x40, 1_002, False), (0x100, 1_002, False)],
)
def test_bytes_that_say_something_else_than_the_log_are_not_for_consumers(
    attributes: int, largest: int, as_stored: bool
) -> None:
    records = record(0, timestamp=1_000) + record(1, timestamp=1_002)
    data = raw_batch(records, 2, base_timestamp=0, attributes=attributes, max_timestamp=largest)
    assert is_as_stored(data, decode_produced(data)) is as_stored


KEYS = [
    b"plain",
    "grün ✓ 🎉".encode(),
    b"\xff",
    b"a\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x8f\xbf\xbf",
    b"\xf4\x8f\xbe",
    b"\xc0\x80",
    b"",
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_header_key_keeps_its_bytes_and_is_utf8_in_arrow(key: bytes) -> None:
    batch = decode_produced(header_key_batch(key))
    arrow = batch.to_arrow()
    arrow.validate(full=True)
    text = arrow.to_pylist()[0]["headers"][0]["key"]
    if key in KEYS[:2]:
        assert text.encode() == key
    assert encode_batch(batch) == header_key_batch(key)


@pytest.mark.exhaustive
@given(st.binary(max_size=12) | st.lists(st.sampled_from(KEYS), max_size=5).map(b"".join))
@examples(500)
def test_any_header_key_comes_back(key: bytes) -> None:
    batch = decode_produced(header_key_batch(key))
    batch.to_arrow().validate(full=True)
    assert encode_batch(batch) == header_key_batch(key)


@pytest.mark.exhaustive
@given(st.binary(max_size=300))
@examples(500)
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(KafkaError):
        decode_produced(data)


@pytest.mark.exhaustive
@given(st.binary(max_size=200), st.integers(1, 2**31 - 1) | st.integers(1, 20), st.sampled_from([0, 1, 2, 3, 4]))
@examples(1_000)
def test_arbitrary_records_give_an_error_or_a_right_batch(records: bytes, count: int, codec: int) -> None:
    take(raw_batch(records, count, attributes=codec))


@pytest.mark.exhaustive
@given(ROWS, st.data())
@examples(1_000)
def test_damaged_records_give_an_error_or_a_right_batch(rows: list, data: st.DataObject) -> None:
    """The checksum is made to fit, so that the damage reaches the parser of the records."""
    raw = bytearray(encode_batch(record_batch(rows)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(21, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(61, len(raw))) :]
    take(with_right_checksum(bytes(raw)))


def take(raw: bytes) -> None:
    """Decode; where that succeeds, all that was read must be sound."""
    try:
        batch = decode_produced(raw, BatchLimits(max_decompressed_bytes=1 << 20))
    except KafkaError:
        return
    batch.to_arrow().validate(full=True)
    again = decode_produced(encode_batch(batch))
    assert arrow_rows(again.to_arrow()) == arrow_rows(batch.to_arrow())
