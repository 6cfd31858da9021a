"""Requests about committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups.

A commit is checked against its group, written, and answered when it is durable. Reads see only durable offsets. Results of
commits and deletions are one error class (None: none) per partition or group, which handlers copy into the shape of their
version. Source: Kafka protocol guide; KIP-447 (transactions), KIP-496 (OffsetDelete).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.groups.consumer import ConsumerGroup
from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.coordinator import GroupCoordinator
from kafkalake.broker.groups.journal_format import Record
from kafkalake.broker.groups.offsets import offset_bytes
from kafkalake.broker.groups.records import (
    NO_EPOCH,
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetRecord,
)
from kafkalake.broker.groups.requests import NO_GENERATION
from kafkalake.broker.groups.table import GroupEntry
from kafkalake.config.setting import LONG_MAX
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    KafkaError,
    MessageTooLargeError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafkalake.metadata.catalog import is_committed_to
from kafkalake.topic_partition import TopicPartition

PartitionErrors: TypeAlias = dict[TopicPartition, ErrorClass | None]
GroupErrors: TypeAlias = dict[str, ErrorClass | None]

OFFSETS_MAX = 10_000
"""Maximum number of offsets in one commit, which is one journal batch."""
RECORDS_PER_BATCH = 500
"""Maximum number of tombstones per journal batch, far below any message size limit."""


class OffsetToCommit(NamedTuple):
    """One partition of a commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    topic_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """OffsetCommit and TxnOffsetCommit (then with `producer`). `retention_ms` -1: the broker's.

    `generation_id` is a member epoch in groups of the consumer protocol. `knows_member_epochs`: the client speaks that protocol.
    """

    group_id: str
    offsets: Sequence[OffsetToCommit]
    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = NO_GENERATION
    retention_ms: int = -1
    producer: ProducerIdAndEpoch | None = None
    knows_member_epochs: bool = True


TopicOf: TypeAlias = Callable[[str], TopicOfGroup | None]
"""Function from a topic name to the current topic, or None if there is none."""


class OffsetRequests:
    """Requests about the committed offsets of the coordinator's groups."""

    def __init__(self, coordinator: GroupCoordinator, topic_of: TopicOf) -> None:
        self._coordinator = coordinator
        self._table = coordinator.table
        self._config = coordinator.config
        self._topic_of = topic_of
        self._committing: dict[str, int] = {}
        """Group id -> number of its commits that are being written to the journal."""

    # Committing

    def commit(self, request: CommitRequest, reply: Callable[[PartitionErrors], None]) -> None:
        """Commit the valid offsets. Partitions that do not exist or whose metadata is too long are refused individually.

        If the group does not exist, a member's commit fails with `GroupIdNotFoundError` (OffsetCommit before version 9:
        `IllegalGenerationError`). Any other commit creates the group.
        """
        if len(request.offsets) > OFFSETS_MAX:
            reply({(one.topic, one.partition): InvalidCommitOffsetSizeError for one in request.offsets})
            return
        refused = {(one.topic, one.partition): self._refusal(one) for one in request.offsets}
        accepted = [one for one in request.offsets if refused[one.topic, one.partition] is None]
        if not accepted:
            reply(refused)
            return

        def written(error: ErrorClass | None) -> None:
            if error is MessageTooLargeError:
                error = InvalidCommitOffsetSizeError
            reply({key: error if refusal is None else refusal for key, refusal in refused.items()})

        try:
            partition = self._table.check(request.group_id, may_be_empty=True)
            self._check_group(request)
            self._check_memory(request, accepted)
        except KafkaError as error:
            written(type(error))
            return
        committing, group_id = self._committing, request.group_id
        committing[group_id] = committing.get(group_id, 0) + 1

        def settled(error: ErrorClass | None) -> None:
            left = committing[group_id] - 1
            if left:
                committing[group_id] = left
            else:
                del committing[group_id]
            written(error)

        self._coordinator.write(partition, self._records(request, accepted), settled, request.producer)

    def _refusal(self, one: OffsetToCommit) -> ErrorClass | None:
        if not self._exists(one.topic, one.partition):
            return UnknownTopicOrPartitionError
        if len(one.metadata) > self._config.offset_metadata_max_bytes:
            return OffsetMetadataTooLargeError
        return None

    def _exists(self, name: str, partition: int) -> bool:
        topic = self._topic_of(name)
        return topic is not None and 0 <= partition < topic.partitions

    def _check_group(self, request: CommitRequest) -> None:
        entry = self._table.find(request.group_id)
        transactional = request.producer is not None
        if entry is not None:
            if isinstance(entry.group, ConsumerGroup) and not transactional and not request.knows_member_epochs:
                entry.group.check_not_member(request.member_id)
            entry.group.check_commit(
                request.member_id, request.group_instance_id, request.generation_id, transactional=transactional
            )
            self._coordinator.effects.run(entry)
        elif request.generation_id >= 0:
            raise IllegalGenerationError if transactional else GroupIdNotFoundError
        else:
            self._coordinator.check_room(request.group_id)

    def _check_memory(self, request: CommitRequest, offsets: Iterable[OffsetToCommit]) -> None:
        """Raise `CoordinatorNotAvailableError` if these grow the offsets of all groups beyond their limit.

        One that replaces another goes on, also in a transaction if no other one may change it.
        """
        used = self._table.offset_memory.bytes
        most = self._config.group_coordinator_offsets_max_bytes
        if used + sum(offset_bytes(one.topic, one.metadata) for one in offsets) <= most:
            return
        entry = self._table.find(request.group_id)
        producer_id = None if request.producer is None else request.producer.producer_id
        for one in offsets:
            known = None if entry is None else entry.offsets.replaced_by((one.topic, one.partition), producer_id)
            if known is None or len(one.metadata) > len(known.committed.metadata):
                raise CoordinatorNotAvailableError("too many committed offsets (group.coordinator.offsets.max.bytes)")

    def _records(self, request: CommitRequest, offsets: Iterable[OffsetToCommit]) -> list[OffsetRecord]:
        now_ms = self._coordinator.clock.now_ms()
        expires_at_ms = NO_TIMESTAMP if request.retention_ms < 0 else min(now_ms + request.retention_ms, LONG_MAX)
        return [
            OffsetRecord(
                request.group_id,
                one.topic,
                one.partition,
                CommittedOffset(
                    one.offset,
                    one.leader_epoch,
                    one.metadata,
                    now_ms,
                    expires_at_ms,
                    one.topic_id or self._id_of(one.topic),
                ),
            )
            for one in offsets
        ]

    def _id_of(self, name: str) -> uuid.UUID | None:
        topic = self._topic_of(name)
        return None if topic is None else topic.topic_id

    # Reading

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        require_stable: bool,
        member: tuple[str | None, int] = (None, -1),
    ) -> dict[TopicPartition, CommittedOffset | ErrorClass | None]:
        """Return the committed offsets of `partitions`, or None where there is none.

        With `require_stable`, a partition that an open transaction may change gets `UnstableOffsetCommitError`. `member`: id and
        epoch of the requesting member, if any (consumer protocol). Raise errors of the group as a whole. A group that does not
        exist has no offsets.
        """
        self._table.check(group_id, may_be_empty=True)
        entry = self._table.find(group_id)
        if entry is None:
            return dict.fromkeys(partitions)
        if isinstance(entry.group, ConsumerGroup):
            entry.group.check_fetch(*member)
        found: dict[TopicPartition, CommittedOffset | ErrorClass | None] = {}
        for key in partitions:
            try:
                committed = entry.offsets.fetch(key, require_stable=require_stable)
                found[key] = None if committed is None or self.is_stale(key[0], committed) else committed
            except KafkaError as error:
                found[key] = type(error)
        return found

    def committed_in(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions of which a group has committed offsets. There may be as many as in the lake."""
        entry = self._table.find(group_id)
        return [] if entry is None else entry.offsets.committed_keys()

    # Deleting

    def delete(
        self, group_id: str, partitions: Iterable[TopicPartition], reply: Callable[[PartitionErrors], None]
    ) -> None:
        """Handle OffsetDelete. Partitions without an offset are no error. Subscribed topics are.

        Raise `GroupIdNotFoundError`, `NonEmptyGroupError` and other errors of the group as a whole.
        """
        partition = self._table.check(group_id, may_be_empty=True)
        entry = self._table.find(group_id)
        if entry is None:
            raise GroupIdNotFoundError
        group = entry.group
        group.check_offset_delete()
        results: PartitionErrors = {
            key: GroupSubscribedToTopicError
            if group.reads(key[0])
            else (None if self._exists(*key) else UnknownTopicOrPartitionError)
            for key in partitions
        }
        gone = [key for key, error in results.items() if error is None and entry.offsets.get(key) is not None]

        def written(error: ErrorClass | None) -> None:
            reply({key: error if refusal is None else refusal for key, refusal in results.items()})

        self._write_all(partition, tombstones(entry, gone), written)

    def delete_groups(self, group_ids: Sequence[str], reply: Callable[[GroupErrors], None]) -> None:
        """Handle DeleteGroups: delete empty groups with all their offsets."""
        results: GroupErrors = {}
        waiting = len(set(group_ids))

        def done(group_id: str, error: ErrorClass | None) -> None:
            results[group_id] = error
            if len(results) == waiting:
                reply(results)

        if not waiting:
            reply(results)
        for group_id in dict.fromkeys(group_ids):
            try:
                self._table.check(group_id, may_be_empty=True)
                entry = self._table.find(group_id)
                if entry is None:
                    raise GroupIdNotFoundError
                entry.group.check_delete()
            except KafkaError as error:
                done(group_id, type(error))
                continue
            self.delete_group(entry, partial(done, group_id))

    # For `OffsetRemoval`

    def is_stale(self, name: str, committed: CommittedOffset) -> bool:
        """Return whether an offset belongs to an earlier topic of that name."""
        return not is_committed_to(committed, self._topic_of(name))

    def is_committing(self, group_id: str) -> bool:
        """Return whether offsets of the group are on their way to the journal."""
        return group_id in self._committing

    def delete_group(self, entry: GroupEntry, written: Callable[[ErrorClass | None], None]) -> None:
        """Delete a group. It accepts no requests meanwhile and is restored if the write fails."""

        def deleted(error: ErrorClass | None) -> None:
            if error is not None:
                entry.group.revive()
            written(error)

        entry.group.die(CoordinatorNotAvailableError)
        self._coordinator.effects.run(entry)
        offsets = (_tombstone(entry, key) for key in entry.offsets.known_keys())
        self._write_all(entry.partition, chain[Record](offsets, entry.group.tombstones()), deleted)

    def _write_all(
        self, partition: int, records: Iterable[Record], written: Callable[[ErrorClass | None], None]
    ) -> None:
        """Write in as many batches as needed. `written` gets the result of the last one, or the first error."""
        batches, shard = _batches(records), self._table.shard(partition)

        def next_batch(error: ErrorClass | None) -> None:
            if error is None and self._table.shard(partition) is not shard:
                error = NotCoordinatorError  # unloaded meanwhile
            batch = None if error is not None else next(batches, None)
            if batch is None:
                written(error)
            else:
                self._coordinator.write(partition, batch, next_batch)

        next_batch(None)


def tombstones(entry: GroupEntry, keys: Iterable[TopicPartition]) -> list[OffsetRecord]:
    """Return the records that remove a group's offsets."""
    return [_tombstone(entry, key) for key in keys]


def _tombstone(entry: GroupEntry, key: TopicPartition) -> OffsetRecord:
    return OffsetRecord(entry.group.group_id, *key, None)


def _batches(records: Iterable[Record]) -> Iterator[Sequence[Record]]:
    """Yield the records in batches. Each is made when it is asked for: a group may have a million offsets."""
    left = iter(records)
    return iter(lambda: list(islice(left, RECORDS_PER_BATCH)), [])
