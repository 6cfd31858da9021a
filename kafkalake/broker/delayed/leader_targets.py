"""Appends records that are due to their topics: to the logs that this broker leads, and through the leaders of the others.

A batch has the producer and the sequence of its journal's partition, so that one that is sent again is a duplicate.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from kafkalake.broker.admin.topic_admin import TopicAdmin
from kafkalake.broker.callbacks import Done
from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.delayed.delayed_peers import DelayedPeers, DeliveryRequest
from kafkalake.broker.delayed.hand_overs import hand_over_producer_ids
from kafkalake.broker.delayed.sent_batches import SentBatches
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.batch_checks import check_batch, uncompressed_bytes_max
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.image import NO_LEADER
from kafkalake.config.broker import BrokerConfig
from kafkalake.config.topic_rules import TopicRules
from kafkalake.errors import (
    InvalidProducerIdMappingError,
    InvalidRecordError,
    KafkaError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    as_value,
)
from kafkalake.internal_topics import DELAYED_JOURNAL, INTERNAL
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.topic_partition import PartitionId

DEAD_LETTERS = "__delayed_dead_letter"
"""The topic of records that cannot be delivered."""
MESSAGE_BYTES_MAX = (1 << 31) - 1
"""`max.message.bytes` of the topics that take any record."""


class HandOverHost(Protocol):
    """The parts of a broker that hand-overs need."""

    broker_id: int
    topics: Topics
    topic_admin: TopicAdmin
    append_queue: AppendQueue

    @property
    def timers(self) -> Timers: ...

    @property
    def config(self) -> BrokerConfig: ...


class LeaderTargets:
    """The `Targets` of a broker's coordinator. Runs on the event loop's thread."""

    def __init__(self, host: HandOverHost, peers: DelayedPeers) -> None:
        self._host = host
        self._sent = SentBatches(peers.deliver, host.timers)

    def stop(self) -> None:
        """Send nothing more to other brokers."""
        self._sent.stop()

    def append(self, target: PartitionId[UUID], batch: ProducerBatch, done: Done) -> None:
        """Append a batch, wherever its partition is led. Call `done` once, when all replicas in sync have it, or with the error."""
        try:
            leader = self._leader_id(target)
        except KafkaError as error:
            done(as_value(error))
            return
        if leader == self._host.broker_id:
            self.append_here(target, batch, done)
        elif leader == NO_LEADER:
            done(LeaderNotAvailableError())
        else:
            self._sent.send(leader, DeliveryRequest(target, batch), len(batch.body), done)

    def append_here(self, target: PartitionId[UUID], batch: ProducerBatch, done: Done) -> None:
        """Append a batch to a partition that this broker leads, also from another broker. `done` as in `append`."""
        try:
            pending = PendingAppend(self._prepared(target, batch), batch, None)
        except KafkaError as error:
            done(as_value(error))
            return

        def settled() -> None:
            result = pending.result
            done(NotLeaderOrFollowerError() if result is None else result if isinstance(result, KafkaError) else None)

        self._host.append_queue.add(pending, settled)

    def _prepared(self, target: PartitionId[UUID], batch: ProducerBatch) -> Partition:
        topic = self._host.topics.topic_by_id(target[0])
        if topic.name in INTERNAL:
            raise InvalidRecordError(f"no records are delivered to {topic.name}")
        self._check_producer(int(batch.header[at.PRODUCER_ID]))
        partition = topic.leader(target[1])
        rules = TopicRules.of(topic.config)
        # What is there already was allowed, whatever the settings are now.
        if partition.log.find_repeated(batch) is None:
            # Its records came in batches that may have been compressed.
            check_batch(rules, batch, uncompressed_bytes_max(rules, self._host.config))
        batch.header[at.ATTRIBUTES] = rules.codec or 0
        return partition

    def _check_producer(self, producer_id: int) -> None:
        """Raise `InvalidProducerIdMappingError` for an id of no journal partition: logs remember those for ever."""
        journal = self._host.topics.find(DELAYED_JOURNAL)
        if journal is None:
            raise LeaderNotAvailableError(f"there is no {DELAYED_JOURNAL} yet")
        if producer_id not in hand_over_producer_ids(journal.topic_id, len(journal.registrations)):
            raise InvalidProducerIdMappingError(f"{producer_id} is the id of no partition of {DELAYED_JOURNAL}")

    def _leader_id(self, target: PartitionId[UUID]) -> int:
        topic_id, index = target
        registrations = self._host.topics.topic_by_id(topic_id).registrations
        if index >= len(registrations):
            raise UnknownTopicOrPartitionError()
        return registrations[index].leader

    def exists(self, target: PartitionId[UUID]) -> bool:
        """Return whether there is such a partition."""
        topic = self._host.topics.find_id(target[0])
        return topic is not None and target[1] < len(topic.registrations)

    async def dead_letter(self) -> PartitionId[UUID]:
        """Return the partition for records that cannot be delivered. Create its topic if need be. Raise `KafkaError`."""
        topic = self._host.topics.find(DEAD_LETTERS)
        if topic is None:
            new = NewTopic(DEAD_LETTERS, 1, config={"max.message.bytes": str(MESSAGE_BYTES_MAX), "retention.ms": "-1"})
            try:
                topic = await self._host.topic_admin.create(new, timeout_ms=self._host.config.request_timeout_ms)
            except TopicAlreadyExistsError:
                topic = self._host.topics.topic(DEAD_LETTERS)
        return topic.topic_id, 0
