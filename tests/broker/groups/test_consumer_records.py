"""Records of the consumer protocol: the formats' bytes, round trips, and bytes that are no record."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.coordination.fields import JournalFormatError
from kafkalake.broker.groups.consumer_records import (
    ConsumerRecord,
    Current,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberState,
    Subscription,
    SubscriptionRecord,
    TargetEpochRecord,
    TargetRecord,
    decode,
    encode,
)
from kafkalake.broker.groups.records import decode as decode_classic

text = st.text(max_size=8)
maybe_text = st.one_of(st.none(), text)
int32 = st.integers(-2, 2**31 - 1)
partitions = st.frozensets(st.tuples(st.uuids(), st.integers(0, 2**31 - 1)), max_size=4)
records = st.one_of(
    st.builds(EpochRecord, text, st.one_of(st.none(), st.builds(GroupEpoch, int32, st.integers(-(2**63), 2**63 - 1)))),
    st.builds(TargetEpochRecord, text, st.one_of(st.none(), int32)),
    st.builds(TargetRecord, text, text, st.one_of(st.none(), partitions)),
    st.builds(
        CurrentRecord,
        text,
        text,
        st.one_of(st.none(), st.builds(Current, int32, int32, st.sampled_from(MemberState), partitions, partitions)),
    ),
    st.builds(
        SubscriptionRecord,
        text,
        text,
        st.one_of(
            st.none(),
            st.builds(
                Subscription,
                maybe_text,
                maybe_text,
                text,
                text,
                st.lists(text, max_size=3).map(tuple),
                st.one_of(st.none(), st.text(min_size=1, max_size=8)),
                int32,
                maybe_text,
            ),
        ),
    ),
)
TOPIC = uuid.UUID("11002def-1273-4640-a978-d73c5b462f16")
FOUR = frozenset((TOPIC, partition) for partition in range(4))
FIRST, LAST = FOUR - {(TOPIC, 2), (TOPIC, 3)}, FOUR - {(TOPIC, 0), (TOPIC, 1)}
TWO_BYTES = b"\x02" + TOPIC.bytes + b"\x03\x00\x00\x00%c\x00\x00\x00%c\x00"

# Read from the topic of an Apache Kafka 4.1.1: key, value, and what they say.
FROM_KAFKA: list[tuple[bytes, bytes | None, ConsumerRecord]] = [
    (
        b"\x00\x05\x00\x03grp\x00\x01a",
        b"\x00\x00\x02i\x00\x02c\x0b/127.0.0.1\x02\x02t\x01\x00\x00\xea`\x06range\x01\x00\x01\x00",
        SubscriptionRecord("grp", "a", Subscription("i", None, "c", "/127.0.0.1", ("t",), None, 60_000, "range")),
    ),
    (
        b"\x00\x03\x00\x03grp",
        b"\x00\x00\x00\x00\x00\x01\x01\x00\x08\x14\xff\x0c4\xc1\x81W\xf3",
        EpochRecord("grp", GroupEpoch(1, 0x14FF0C34C18157F3)),
    ),
    (b"\x00\x06\x00\x03grp", b"\x00\x00\x00\x00\x00\x02\x00", TargetEpochRecord("grp", 2)),
    (
        b"\x00\x07\x00\x03grp\x00\x01b",
        b"\x00\x00" + TWO_BYTES % (2, 3) + b"\x00",
        TargetRecord("grp", "b", LAST),
    ),
    (
        b"\x00\x08\x00\x03grp\x00\x01a",
        b"\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x01" + TWO_BYTES % (0, 1) + TWO_BYTES % (2, 3) + b"\x00",
        CurrentRecord("grp", "a", Current(1, 1, MemberState.UNREVOKED_PARTITIONS, FIRST, LAST)),
    ),
    (b"\x00\x08\x00\x03grp\x00\x01a", None, CurrentRecord("grp", "a", None)),
]


@given(records)
def test_what_is_written_is_read_and_is_no_record_of_the_classic_protocol(record: ConsumerRecord) -> None:
    key, value = encode(record)
    assert decode(key, value) == record
    assert decode_classic(key, value) is None


@given(records, st.integers(0, 100), st.binary(max_size=3))
def test_a_damaged_record_is_a_format_error_or_another_record(record: ConsumerRecord, cut: int, more: bytes) -> None:
    key, value = encode(record)
    with contextlib.suppress(JournalFormatError):
        decode(key, None if value is None else value[: min(cut, len(value))] + more)


@given(st.binary(max_size=40), st.one_of(st.none(), st.binary(max_size=60)))
def test_bytes_that_are_no_record_are_a_format_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(JournalFormatError):
        decode(key, value)


@pytest.mark.parametrize(("key", "value", "record"), FROM_KAFKA)
def test_kafkas_bytes_are_read_and_written(key: bytes, value: bytes | None, record: ConsumerRecord) -> None:
    assert decode(key, value) == record
    assert encode(record) == (key, value)


def test_types_that_are_not_kept_are_passed_over() -> None:
    assert decode(b"\x00\x04\x00\x01g", b"\x00\x00") is None
    assert decode(b"\x00\x10\x00\x01g\x00\x01x", uuid.uuid4().bytes) is None
