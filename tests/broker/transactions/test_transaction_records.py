"""Records of `__transaction_state`: Kafka's own bytes, round trips, and bytes that are no record."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.coordination.fields import JournalFormatError
from kafkalake.broker.transactions.records import Record, TransactionRecord, TransactionTombstone, decode, encode
from kafkalake.broker.transactions.states import State

# Read from the topic of an Apache Kafka 4.1.1: key, value, and what they say.
FROM_KAFKA: list[tuple[bytes, bytes | None, Record]] = [
    (
        b"\x00\x00\x00\x0ctx-bad_input",
        b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00\r\xbb\xa0\x00\x00\x00\x00\x01\xa1\xfdJd\r"
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x00",
        TransactionRecord("tx-bad_input", 6, 0, 900_000, State.EMPTY, updated_at_ms=0x1A1FD4A640D),
    ),
    (
        b"\x00\x00\x00\x0ftx-newer_client",
        b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01\x00\x00\xea`\x02\x02\x02t\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00"
        b"\x00\x00\x01\xa1\xfdJc\x1d\x00\x00\x01\xa1\xfdJc\x05\x01\x02\x02\x00\x02",
        TransactionRecord(
            "tx-newer_client",
            1,
            1,
            60_000,
            State.PREPARE_COMMIT,
            frozenset({("t", 0), ("t", 1)}),
            0x1A1FD4A631D,
            0x1A1FD4A6305,
            client_version=2,
        ),
    ),
    (
        b"\x00\x00\x00\x0ftx-newer_client",
        b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x04\x00\x00\xea`\x05\x01\x00\x00\x01\xa1\xfdJcd\x00\x00\x01\xa1\xfdJcb"
        b"\x01\x02\x02\x00\x02",
        TransactionRecord(
            "tx-newer_client",
            1,
            4,
            60_000,
            State.COMPLETE_ABORT,
            frozenset(),
            0x1A1FD4A6364,
            0x1A1FD4A6362,
            client_version=2,
        ),
    ),
    (b"\x00\x00\x00\x0ftx-newer_client", None, TransactionTombstone("tx-newer_client")),
]


@pytest.mark.parametrize(("key", "value", "record"), FROM_KAFKA)
def test_kafkas_bytes_are_read_and_written(key: bytes, value: bytes | None, record: Record) -> None:
    assert decode(key, value) == record
    assert encode(record) == (key, value)


def test_the_older_format_is_read() -> None:
    key = b"\x00\x00\x00\x02tx"
    head = b"\x00\x00" + (7).to_bytes(8, "big") + b"\x00\x03" + (60_000).to_bytes(4, "big")
    times = (20).to_bytes(8, "big") + (10).to_bytes(8, "big")
    partitions = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x05"
    assert decode(key, head + b"\x01" + partitions + times) == TransactionRecord(
        "tx", 7, 3, 60_000, State.ONGOING, frozenset({("t", 0), ("t", 5)}), 20, 10
    )
    assert decode(key, head + b"\x00" + b"\xff\xff\xff\xff" + times) == TransactionRecord(
        "tx", 7, 3, 60_000, State.EMPTY, frozenset(), 20, 10
    )


def test_a_key_of_a_later_kafka_is_passed_over() -> None:
    assert decode(b"\x00\x01\x00\x02tx", b"anything") is None


int64 = st.integers(-1, 2**63 - 1)
partitions = st.frozensets(st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=5)
records = st.builds(
    TransactionRecord,
    st.text(max_size=20),
    int64,
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from([state for state in State if state is not State.EMPTY]),
    partitions,
    int64,
    int64,
    int64,
    int64,
    st.integers(0, 2),
)


@given(records)
def test_what_is_written_is_read(record: TransactionRecord) -> None:
    assert decode(*encode(record)) == record


@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=80)))
def test_bytes_that_are_no_record_are_a_format_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(JournalFormatError):
        decode(key, value)


@given(records, st.integers(0, 200), st.binary(max_size=3))
def test_a_damaged_record_is_a_format_error_or_another_record(record: TransactionRecord, cut: int, more: bytes) -> None:
    key, value = encode(record)
    assert value is not None
    with contextlib.suppress(JournalFormatError):
        decode(key, value[: min(cut, len(value))] + more)
