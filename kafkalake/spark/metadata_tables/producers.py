"""`producers` and `transactions`: who writes to a topic with idempotence, and in which transactions."""

from __future__ import annotations

from collections import defaultdict

from kafkalake.metadata.catalog import segments_by_id
from kafkalake.metadata.tables.schemas import TransactionRow
from kafkalake.reader.live_partitions import LivePartitions
from kafkalake.reader.producers import producers_of
from kafkalake.spark.metadata_tables.subject import Rows, Subject, micros
from kafkalake.storage.producer_state import NO_OFFSET, ProducerStateEntry
from kafkalake.topic_partition import TopicPartition

PRODUCER_COLUMNS = (
    "partition INT, producer_id BIGINT, producer_epoch INT, transactional_id STRING, last_sequence INT, last_offset BIGINT, "
    "last_timestamp TIMESTAMP, coordinator_epoch INT, transaction_start_offset BIGINT"
)
"""transaction_start_offset: null without an open transaction. last_*: null for a producer whose batches have no sequences."""

TRANSACTION_COLUMNS = (
    "transactional_id STRING, state STRING, partitions ARRAY<INT>, producer_id BIGINT, producer_epoch INT, "
    "started_at TIMESTAMP, updated_at TIMESTAMP, timeout_ms BIGINT"
)
"""partitions: of the topic, in an open transaction. state: Kafka's name; the states that begin with Complete have ended."""


def producers(subject: Subject) -> Rows:
    """Yield the producers that the partitions remember, by topic, partition and producer id."""
    ids = {row.producer_id: row.transactional_id for row in subject.store.load_transactions().rows}
    for (topic, partition), found in _by_partition(subject).items():
        for producer_id, entry in sorted(found.items()):
            last = entry.batches[-1] if entry.batches else None
            yield (
                topic,
                partition,
                producer_id,
                entry.epoch,
                ids.get(producer_id),
                None if last is None else last.last_sequence,
                None if last is None else last.last_offset,
                micros(None if last is None or last.timestamp < 0 else last.timestamp),
                entry.coordinator_epoch,
                None if entry.transaction_offset == NO_OFFSET else entry.transaction_offset,
            )


def transactions(subject: Subject) -> Rows:
    """Yield the transactional ids with an open transaction in a topic, or whose last one the topic's partitions remember."""
    writers: dict[str, set[int]] = defaultdict(set)
    for (topic, _), found in _by_partition(subject).items():
        writers[topic] |= found.keys()
    rows = subject.store.load_transactions(subject.as_of_ms).rows
    for topic in sorted(subject.names):
        for row in rows:
            partitions = [partition for name, partition in row.partitions if name == topic]
            if partitions or row.producer_id in writers[topic]:
                yield topic, *_transaction(row, partitions)


def _transaction(row: TransactionRow, partitions: list[int]) -> tuple[object, ...]:
    return (
        row.transactional_id,
        row.state,
        partitions,
        row.producer_id,
        row.producer_epoch,
        micros(row.started_at_ms),
        micros(row.updated_at_ms),
        row.timeout,
    )


def _by_partition(subject: Subject) -> dict[TopicPartition, dict[int, ProducerStateEntry]]:
    sealed = segments_by_id(subject.store.load_segments(subject.topic))
    live = LivePartitions(subject.lake, subject.store.load_partitions(), subject.store.newest_image)
    return {
        (topic.topic, number): dict(
            producers_of(
                subject.lake, live.of(topic, number), sealed.get((topic.topic_id, number), []), subject.now_ms
            ).items()
        )
        for topic in subject.topics
        for number in range(topic.partitions)
    }
