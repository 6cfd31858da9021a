"""Records of `__consumer_offsets`: Kafka's own bytes, round trips, and bytes that are no record."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.coordination.fields import JournalFormatError
from kafkalake.broker.groups.records import (
    CommittedOffset,
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    Record,
    decode,
    encode,
)

COMMITTED_AT_MS = 1795247569439
MEMBER_ID = "inst-1-3ab4d95f-6b6a-43bd-bd41-a45de817bdd9"
SUBSCRIPTION = b"\x00\x03\x00\x00\x00\x01\x00\x02t1\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00"
ASSIGNMENT = b"\x00\x00\x00\x00\x00\x01\x00\x02t1\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00"

# Read from the topic of an Apache Kafka 4.1.1: key, value, and what they say.
FROM_KAFKA: list[tuple[bytes, bytes | None, Record]] = [
    (
        b"\x00\x01\x00\x02g3\x00\x02t1\x00\x00\x00\x00",
        b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff\xff\x06hello\x00\x00\x01\xa1\xfd\x17\xfa\x1f\x00",
        OffsetRecord("g3", "t1", 0, CommittedOffset(3, -1, "hello", COMMITTED_AT_MS)),
    ),
    (
        b"\x00\x01\x00\x02g1\x00\x02t1\x00\x00\x00\x01",
        b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x01\x00\x00\x01\xa1\xfd\x17\xf8z\x00",
        OffsetRecord("g1", "t1", 1, CommittedOffset(5, 0, "", 1795247569018)),
    ),
    (b"\x00\x01\x00\x02g1\x00\x02t1\x00\x00\x00\x01", None, OffsetRecord("g1", "t1", 1, None)),
    (
        b"\x00\x02\x00\x02g1",
        b"\x00\x03\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x01\xa1\xfd\x17\xf7k\x00\x00\x00\x00",
        GroupRecord("g1", "", 0, None, None, 1795247568747, ()),
    ),
    (
        b"\x00\x02\x00\x02g1",
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x01\x00\x05range\x00+"
        + MEMBER_ID.encode()
        + b"\x00\x00\x01\xa1\xfd\x17\xf7\x85\x00\x00\x00\x01\x00+"
        + MEMBER_ID.encode()
        + b"\x00\x06inst-1\x00\x07rdkafka\x00\n/127.0.0.1\x00\x04\x93\xe0\x00\x00\xaf\xc8\x00\x00\x00\x18"
        + SUBSCRIPTION
        + b"\x00\x00\x00\x1a"
        + ASSIGNMENT,
        GroupRecord(
            "g1",
            "consumer",
            1,
            "range",
            MEMBER_ID,
            1795247568773,
            (MemberRecord(MEMBER_ID, "inst-1", "rdkafka", "/127.0.0.1", 300_000, 45_000, SUBSCRIPTION, ASSIGNMENT),),
        ),
    ),
    (b"\x00\x02\x00\x02g1", None, GroupTombstone("g1")),
]


@pytest.mark.parametrize(("key", "value", "record"), FROM_KAFKA)
def test_kafkas_bytes_are_read_and_written(key: bytes, value: bytes | None, record: Record) -> None:
    assert decode(key, value) == record
    assert encode(record) == (key, value)


def test_the_oldest_offset_value_is_read() -> None:
    key = b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x07"
    value = b"\x00\x00" + (42).to_bytes(8, "big") + b"\x00\x01m" + (99).to_bytes(8, "big")
    assert decode(key, value) == OffsetRecord("g", "t", 7, CommittedOffset(42, -1, "m", 99))


def test_the_oldest_group_value_is_read() -> None:
    value = (
        b"\x00\x00\x00\x08consumer\x00\x00\x00\x05\x00\x05range\x00\x01m\x00\x00\x00\x01"
        b"\x00\x01m\x00\x01c\x00\x01h" + (10_000).to_bytes(4, "big") + b"\x00\x00\x00\x01s\x00\x00\x00\x01a"
    )
    member = MemberRecord("m", None, "c", "h", 10_000, 10_000, b"s", b"a")
    assert decode(b"\x00\x02\x00\x01g", value) == GroupRecord("g", "consumer", 5, "range", "m", -1, (member,))


def test_the_flexible_group_value_is_read() -> None:
    value = (
        b"\x00\x04\x09consumer\x00\x00\x00\x05\x06range\x02m" + (77).to_bytes(8, "big") + b"\x02"
        b"\x02m\x00\x02c\x02h" + (60_000).to_bytes(4, "big") + (10_000).to_bytes(4, "big") + b"\x02s\x02a\x00\x00"
    )
    member = MemberRecord("m", None, "c", "h", 60_000, 10_000, b"s", b"a")
    assert decode(b"\x00\x02\x00\x01g", value) == GroupRecord("g", "consumer", 5, "range", "m", 77, (member,))


@pytest.mark.parametrize("kind", [4, 9, 16, 32767, -1])
def test_types_of_other_features_are_passed_over(kind: int) -> None:
    assert decode(kind.to_bytes(2, "big", signed=True) + b"anything", b"anything") is None


@pytest.mark.parametrize(("key", "value", "record"), [one for one in FROM_KAFKA if one[1] is not None])
def test_a_truncated_or_longer_value_is_no_record(key: bytes, value: bytes, record: Record) -> None:
    for length in range(len(value)):
        with pytest.raises(JournalFormatError):
            decode(key, value[:length])
    with pytest.raises(JournalFormatError):
        decode(key, value + b"\x00")
    with pytest.raises(JournalFormatError):
        decode(key, b"\x00\x63" + value[2:])


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
plain_offsets = st.builds(
    CommittedOffset, int64s, int32s, texts, int64s, st.just(-1), st.none() | st.builds(uuid.uuid4)
)
expiring_offsets = st.builds(CommittedOffset, int64s, st.just(-1), texts, int64s, st.integers(0, 2**63 - 1))
members = st.builds(
    MemberRecord, texts, st.none() | texts, texts, texts, st.integers(0, 2**31 - 1), int32s, st.binary(), st.binary()
)
records = st.one_of(
    st.builds(OffsetRecord, texts, texts, int32s, st.none() | plain_offsets | expiring_offsets),
    st.builds(
        GroupRecord,
        texts,
        texts,
        int32s,
        st.none() | texts,
        st.none() | texts,
        int64s,
        st.lists(members, max_size=4).map(tuple),
    ),
    st.builds(GroupTombstone, texts),
)


@given(records)
def test_what_is_written_is_read_back(record: Record) -> None:
    assert decode(*encode(record)) == record


@given(st.binary(max_size=60), st.none() | st.binary(max_size=120))
def test_arbitrary_bytes_are_a_record_or_a_format_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(JournalFormatError):
        decode(key, value)


@given(records, st.data())
def test_a_damaged_record_is_another_record_or_a_format_error(record: Record, data: st.DataObject) -> None:
    key, value = encode(record)
    damaged = bytearray(key + (value or b""))
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(JournalFormatError):
        decode(bytes(damaged[: len(key)]), None if value is None else bytes(damaged[len(key) :]))


@given(st.integers(0, 4), st.binary(max_size=120))
def test_arbitrary_values_are_a_record_or_a_format_error(version: int, value: bytes) -> None:
    for key in (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x02\x00\x01g"):
        with contextlib.suppress(JournalFormatError):
            decode(key, version.to_bytes(2, "big") + value)
