"""The state of transactional ids as records of `__transaction_state`, in Kafka's own format.

`kafka-dump-log --transaction-log-decoder` and the console consumer's formatter work here. A key is an int16 version (0) and the
transactional id. A value is an int16 version and its fields. Version 1 is written (flexible; tags 0 and 1 are the producer ids
before and after a rotation, tag 2 is the client's transaction version), as by Kafka 4.1. Versions 0 and 1 are read.
Source: TransactionLogKey.json and TransactionLogValue.json of Kafka.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TypeAlias

from kafkalake.broker.coordination.fields import (
    FieldReader,
    JournalFormatError,
    compact_string,
    string,
    tagged,
    unsigned_varint,
)
from kafkalake.broker.coordination.journal import JournalRecord
from kafkalake.broker.coordination.journaled_coordinator import JournalFormat
from kafkalake.broker.transactions.states import BY_NUMBER, State
from kafkalake.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1

_KEY_VERSION = struct.pack(">h", 0)
_HEAD = struct.Struct(">hqhib")
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_TWO_INT64 = struct.Struct(">qq")
_VALUE_VERSION = 1
_PREVIOUS_TAG, _NEXT_TAG, _CLIENT_VERSION_TAG = 0, 1, 2


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The state of a transactional id. Times are wall clock, ms. `started_at_ms` -1: no transaction yet.

    `previous_producer_id` had its epochs used up and was replaced by `producer_id`. `next_producer_id` will replace it when the
    transaction is complete. `client_version` 2: the client gets a new epoch at each end of a transaction (KIP-890).
    `last_epoch`, the one before `epoch`, identifies a retried InitProducerId. It is not in the journal (and not compared).
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition] = frozenset()
    updated_at_ms: int = NO_TIMESTAMP
    started_at_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_epoch: int = field(default=NO_EPOCH, compare=False)


@dataclass(frozen=True, slots=True)
class TransactionTombstone:
    """The expiry of a transactional id."""

    transactional_id: str


Record: TypeAlias = TransactionRecord | TransactionTombstone


def encode(record: Record) -> JournalRecord:
    """Return the record's key and value."""
    key = _KEY_VERSION + string(record.transactional_id)
    return JournalRecord(key, None if isinstance(record, TransactionTombstone) else _value(record))


def decode(key: bytes, value: bytes | None) -> Record | None:
    """Return the decoded record, or None for a key version of a later Kafka. Raise `JournalFormatError` if it is malformed."""
    reader = FieldReader(key)
    if reader.int16() != 0:
        return None
    transactional_id = reader.string()
    reader.end()
    return TransactionTombstone(transactional_id) if value is None else _read(transactional_id, FieldReader(value))


def _value(record: TransactionRecord) -> bytes:
    tags = {
        tag: data.pack(value)
        for tag, value, default, data in (
            (_PREVIOUS_TAG, record.previous_producer_id, NO_PRODUCER_ID, _INT64),
            (_NEXT_TAG, record.next_producer_id, NO_PRODUCER_ID, _INT64),
            (_CLIENT_VERSION_TAG, record.client_version, 0, _INT16),
        )
        if value != default
    }
    return b"".join(
        (
            _HEAD.pack(_VALUE_VERSION, record.producer_id, record.epoch, record.timeout_ms, record.state.number),
            b"\x00" if record.state is State.EMPTY else _partitions(record.partitions),
            _TWO_INT64.pack(record.updated_at_ms, record.started_at_ms),
            tagged(tags),
        )
    )


def _partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [unsigned_varint(len(topics) + 1)]
    for topic, indexes in topics.items():
        parts += [compact_string(topic), unsigned_varint(len(indexes) + 1)]
        parts += [struct.pack(f">{len(indexes)}i", *indexes), b"\x00"]
    return b"".join(parts)


def _read(transactional_id: str, reader: FieldReader) -> TransactionRecord:
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION:
        raise JournalFormatError(f"value of version {version}; the newest known is {_VALUE_VERSION}")
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = BY_NUMBER.get(number := reader.int8())
    if state is None:
        raise JournalFormatError(f"transaction state {number}")
    partitions = _read_flexible_partitions(reader) if version >= 1 else _read_partitions(reader)
    updated_at_ms, started_at_ms = reader.int64(), reader.int64()
    tags = reader.tagged() if version >= 1 else {}
    reader.end()
    previous, after, client = (tags.get(tag) for tag in (_PREVIOUS_TAG, _NEXT_TAG, _CLIENT_VERSION_TAG))
    return TransactionRecord(
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        updated_at_ms,
        started_at_ms,
        NO_PRODUCER_ID if previous is None else FieldReader(previous).int64(),
        NO_PRODUCER_ID if after is None else FieldReader(after).int64(),
        0 if client is None else FieldReader(client).int16(),
    )


def _read_partitions(reader: FieldReader) -> frozenset[TopicPartition]:
    count = reader.int32()
    if count == -1:
        return frozenset()
    if count < 0:
        raise JournalFormatError(f"array of {count} topics")
    keys: set[TopicPartition] = set()
    for _ in range(count):
        topic = reader.string()
        keys.update((topic, reader.int32()) for _ in range(reader.count()))
    return frozenset(keys)


def _read_flexible_partitions(reader: FieldReader) -> frozenset[TopicPartition]:
    count = reader.unsigned_varint() - 1
    keys: set[TopicPartition] = set()
    for _ in range(count):
        topic = reader.compact_string()
        keys.update((topic, reader.int32()) for _ in range(reader.compact_count()))
        reader.tagged()
    return frozenset(keys)


def _is_limited(record: Record) -> bool:
    """Return whether the record may be too large for the journal: that of an open transaction, when partitions are added.

    The Prepare record has a few bytes more, and the limit may have been lowered meanwhile. A transaction that cannot be ended would
    hold up all readers of committed records.
    """
    return isinstance(record, TransactionRecord) and record.state is State.ONGOING


TRANSACTION_FORMAT: JournalFormat[Record] = JournalFormat(
    encode, decode, lambda key: True, TransactionTombstone(""), _is_limited
)
"""Delta has all of them: only the newest state of each id is ever needed."""
