"""The journal of a coordinator: the part of an internal topic's interface that a coordinator needs.

A coordinator appends batches and is called back when each is durable. At start it reads every batch again, in order. Its state
always equals the journal, so a response is sent only after its batch is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    KafkaStorageError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)

NO_PRODUCER_ID = -1

_INT32_MIN = -(1 << 31)
_CACHED_CHARACTERS_MAX = 256


class JournalRecord(NamedTuple):
    """One record of a journal. `value` None is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """The producer of a transactional batch."""

    producer_id: int
    epoch: int


Appended = Callable[[int, KafkaError | None], None]
"""Callback, called once with (offset of the batch's first record, None) when it is durable, or (-1, the error) if it failed."""


class Journal(Protocol):
    """The partitions of one internal topic that this broker leads."""

    @property
    def partitions(self) -> int:
        """The topic's number of partitions."""
        ...

    def append(
        self,
        partition: int,
        records: Sequence[JournalRecord],
        timestamp_ms: int,
        producer: ProducerIdAndEpoch | None,
        done: Appended,
        *,
        is_limited: bool = True,
    ) -> None:
        """Append one batch (transactional if there is a `producer`). Batches of a partition become durable in order.

        is_limited: whether a batch of more than `max.message.bytes` is refused with `MessageTooLargeError`.

        `done` may be called before this returns. A failed batch leaves no records.
        """
        ...


class Timers(Protocol):
    """Deadlines, as `broker.purgatory.Timers` keeps them on its timing wheel."""

    def schedule(self, delay_ms: int, action: Callable[[], None]) -> Any:
        """Call `action` once after `delay_ms`, never before this returns. Return the argument for `cancel`."""
        ...

    def cancel(self, timeout: Any) -> None:
        """Cancel the call. It is no error if it has happened."""
        ...


def journal_partition(name: str, partitions: int) -> int:
    """Return the journal partition of a group or transactional id, from Java's String.hashCode as in Kafka."""
    value = _hash_code(name) if len(name) > _CACHED_CHARACTERS_MAX else _cached_hash_code(name)
    signed = value - (1 << 32) if value & 0x80000000 else value
    return 0 if signed == _INT32_MIN else abs(signed) % partitions


def _hash_code(name: str) -> int:
    """Return `_cached_hash_code` of a long name: the sum of c[i] * 31^(n-1-i) over the UTF-16 units, modulo 2^32."""
    units = np.frombuffer(name.encode("utf-16-be", "surrogatepass"), dtype=">u2").astype(np.uint32)
    powers = np.full(len(units), 31, dtype=np.uint32)
    powers[:1] = 1
    return int((units * np.cumprod(powers, dtype=np.uint32)[::-1]).sum(dtype=np.uint32))


@lru_cache(maxsize=10_000)
def _cached_hash_code(name: str) -> int:
    value = 0
    data = name.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (value * 31 + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return value


_UNAVAILABLE = (
    UnknownTopicOrPartitionError,
    NotEnoughReplicasError,
    NotEnoughReplicasAfterAppendError,
    RequestTimedOutError,
)


def coordinator_error(error: KafkaError) -> ErrorClass:
    """Return the client's error for a failed journal append: mostly one after which it looks up the coordinator again."""
    if isinstance(error, _UNAVAILABLE):
        return CoordinatorNotAvailableError
    if isinstance(error, NotLeaderOrFollowerError | KafkaStorageError):
        return NotCoordinatorError
    return type(error)
