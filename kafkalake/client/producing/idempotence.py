"""Sequence numbers of an idempotent producer: which batch has which, and what an error means for them. No socket, no clock.

Per partition the broker takes batches of a producer in the order of their sequence numbers, once each, as long as at most five are
in flight (KIP-98). If a batch is lost for good, the numbers behind it cannot be used: the producer's epoch is raised, and the
partition's batches in flight are numbered anew from 0 (KIP-360). Other partitions take over the new epoch once nothing of theirs is
in flight. *Different from Kafka:* the first batch of an epoch is alone in flight in its partition. A broker takes any number from a
producer that it does not know, so if the first one failed and the second did not, the first would be lost.
Source: `TransactionManager` and `TxnPartitionMap` of Apache Kafka 4.1.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalake.client.producing.batch import Batch
from kafkalake.errors import KafkaError, OutOfOrderSequenceError, UnknownProducerIdError
from kafkalake.record.sequences import advance_sequence, is_before
from kafkalake.topic_partition import TopicPartition

EPOCH_MAX = 2**15 - 1


class Identity(NamedTuple):
    """A producer's id and epoch, -1 each for none."""

    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def is_valid(self) -> bool:
        """Return whether there is one."""
        return self.producer_id >= 0


class _Partition:
    """The numbers of one partition. in_flight: batches with a number and no end, in their order."""

    __slots__ = ("identity", "in_flight", "is_unresolved", "last_acked", "last_offset", "next_sequence")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.next_sequence = 0
        self.last_acked = -1
        self.last_offset = -1
        self.in_flight: list[Batch] = []
        self.is_unresolved = False

    def number(self, batch: Batch) -> None:
        batch.stamp(*self.identity, self.next_sequence)
        self.next_sequence = _after(batch)
        self.in_flight.append(batch)

    def number_anew(self, identity: Identity) -> None:
        self.identity = identity
        self.next_sequence = 0
        self.last_acked = -1
        self.is_unresolved = False
        for batch in self.in_flight:
            batch.reset_sequence(*identity, self.next_sequence)
            self.next_sequence = _after(batch)

    def resume(self, identity: Identity) -> None:
        if not self.in_flight and self.identity != identity:
            self.number_anew(identity)

    def mark_unresolved(self, is_unresolved: bool) -> None:
        self.is_unresolved = is_unresolved

    def acknowledge(self, batch: Batch, offset: int) -> None:
        if batch.producer_id == self.identity.producer_id and batch.producer_epoch == self.identity.producer_epoch:
            last = advance_sequence(batch.base_sequence, batch.records - 1)
            if self.last_acked < 0 or is_before(self.last_acked, last):
                self.last_acked = last
        if offset >= 0:
            self.last_offset = max(self.last_offset, offset + batch.records - 1)


def _after(batch: Batch) -> int:
    """Return the sequence number after those of a batch."""
    return advance_sequence(batch.base_sequence, batch.records)


class Sequences:
    """See the module. `identity` is what new batches get."""

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.identity = Identity()
        self._is_transactional = is_transactional
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._to_renumber: set[TopicPartition] = set()
        self._unresolved: set[TopicPartition] = set()
        """Those with batches that were given up since they were numbered anew."""

    def begin(self, identity: Identity) -> None:
        """Take over a new identity, from which all partitions are numbered anew."""
        self.identity = identity
        if self._is_transactional:
            self._partitions.clear()
            self._unresolved.clear()

    def may_send(self, batch: Batch) -> bool:
        """Return whether a batch may be sent now: in order behind what is in flight, and with a valid identity."""
        if not self.identity.is_valid:
            return False
        state = self._partitions.get((batch.topic, batch.partition))
        if state is None:
            return True
        if batch.has_sequence:
            return not state.in_flight or state.in_flight[0] is batch
        if state.in_flight and (state.last_acked < 0 or state.identity != self.identity):
            return False
        return not state.is_unresolved

    def number(self, batch: Batch) -> None:
        """Give a batch its sequence number, unless it has one."""
        if not batch.has_sequence:
            state = self._state(batch)
            state.resume(self.identity)
            state.number(batch)

    def acknowledged(self, batch: Batch, offset: int) -> None:
        """Take the news that a batch was written, at `offset` if that is known."""
        state = self._state(batch)
        state.acknowledge(batch, offset)
        self._remove(state, batch)

    def failed(self, batch: Batch, *, can_renumber: bool) -> None:
        """Take the news that a batch is lost for good.

        can_renumber: it was not sent as often as it may be. Of one that was, the broker may have it or not.
        """
        if not batch.has_sequence:
            return
        state = self._state(batch)
        self._remove(state, batch)
        if not self._is_transactional:
            if can_renumber:
                self._to_renumber.add((batch.topic, batch.partition))
            else:
                self._mark_unresolved(state, batch)
        elif can_renumber:
            _close_gap(state, batch)

    def expired(self, batch: Batch) -> None:
        """Take the news that a batch which was sent is given up, so that the broker may have it or not."""
        state = self._state(batch)
        self._remove(state, batch)
        self._mark_unresolved(state, batch)

    def replaced(self, batch: Batch, parts: list[Batch]) -> None:
        """Take the news that a batch was cut into parts, which take its numbers."""
        if not batch.has_sequence:
            return
        state = self._state(batch)
        place = state.in_flight.index(batch) if batch in state.in_flight else 0
        self._remove(state, batch)
        sequence = batch.base_sequence
        for part in parts:
            part.stamp(batch.producer_id, batch.producer_epoch, sequence)
            sequence = _after(part)
        state.in_flight[place:place] = parts

    def can_retry(self, batch: Batch, error: KafkaError, log_start_offset: int) -> bool:
        """Return whether a batch is to be sent again after an error, with new numbers if it takes them."""
        if isinstance(error, UnknownProducerIdError):
            return self._can_retry_unknown(batch, log_start_offset)
        if isinstance(error, OutOfOrderSequenceError):
            state = self._state(batch)
            is_next = batch.base_sequence == advance_sequence(state.last_acked, 1)
            if not state.is_unresolved and (batch.sequence_was_reset or not is_next):
                return True
            return self._renumber(batch)
        return error.retriable

    def raise_epoch(self) -> bool:
        """Raise the epoch if partitions must be numbered anew. Return whether a new producer id is needed instead."""
        if not self._to_renumber or not self.identity.is_valid:
            return False
        if self.identity.producer_epoch >= EPOCH_MAX:
            self.identity = Identity()
            return True
        self.identity = Identity(self.identity.producer_id, self.identity.producer_epoch + 1)
        self._renumber_all()
        return False

    def renew(self, identity: Identity) -> None:
        """Take over a new producer id, and number with it what waits for that."""
        self.identity = identity
        self._renumber_all()

    def resolve(self) -> bool:
        """Check the partitions with batches that were given up, once nothing is in flight there.

        Return whether acknowledged numbers show a gap that a transaction cannot close. Others are numbered anew.
        """
        has_gap = False
        for partition in list(self._unresolved):
            state = self._partitions[partition]
            if state.is_unresolved and state.in_flight:
                continue
            self._unresolved.discard(partition)
            if not state.is_unresolved:  # numbered anew meanwhile
                continue
            state.mark_unresolved(False)
            if state.next_sequence != advance_sequence(state.last_acked, 1):
                has_gap = True
                self._to_renumber.add(partition)
        if has_gap and self._is_transactional:
            self._to_renumber.clear()
            return True
        return False

    def _state(self, batch: Batch) -> _Partition:
        key = batch.topic, batch.partition
        state = self._partitions.get(key)
        if state is None:
            state = self._partitions[key] = _Partition(self.identity)
        return state

    def _remove(self, state: _Partition, batch: Batch) -> None:
        if batch in state.in_flight:
            state.in_flight.remove(batch)

    def _mark_unresolved(self, state: _Partition, batch: Batch) -> None:
        state.mark_unresolved(True)
        self._unresolved.add((batch.topic, batch.partition))

    def _renumber(self, batch: Batch) -> bool:
        """Number the batch's partition anew with the next epoch, if that is possible outside of the coordinator."""
        if self._is_transactional:
            return False
        self._to_renumber.add((batch.topic, batch.partition))
        return True

    def _renumber_all(self) -> None:
        for key in self._to_renumber:
            self._partitions.setdefault(key, _Partition(self.identity)).number_anew(self.identity)
        self._to_renumber.clear()

    def _can_retry_unknown(self, batch: Batch, log_start_offset: int) -> bool:
        """Decide on an id that the broker has forgotten: because its records are deleted, or because they are lost."""
        if log_start_offset < 0 or batch.sequence_was_reset:
            return True
        state = self._state(batch)
        if state.last_offset < log_start_offset:
            state.number_anew(self.identity)
            return True
        return self._renumber(batch)


def _close_gap(state: _Partition, lost: Batch) -> None:
    """Move the numbers behind a lost batch up. The broker has none of them: it takes no batch before an earlier one."""
    if state.identity != (lost.producer_id, lost.producer_epoch):
        return
    for batch in state.in_flight:
        if is_before(lost.base_sequence, batch.base_sequence):
            moved = advance_sequence(batch.base_sequence, -lost.records)
            batch.reset_sequence(batch.producer_id, batch.producer_epoch, moved)
    state.next_sequence = advance_sequence(state.next_sequence, -lost.records)
