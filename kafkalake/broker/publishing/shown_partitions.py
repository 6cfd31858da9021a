"""The partitions of transactions as the controller knows them when it publishes: their leaders and last stable offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.publishing.lake_rows import LakeRows
from kafkalake.broker.publishing.reports import HeldWaves, PartitionReport
from kafkalake.broker.transactions.cut import EndedTransaction, Shown
from kafkalake.cluster.image import ClusterImage, PartitionRegistration
from kafkalake.internal_topics import INTERNAL, TRANSACTION_JOURNAL
from kafkalake.metadata.tables.schemas import PartitionRow
from kafkalake.topic_partition import TopicPartition


def leader_of(image: ClusterImage, topics: Topics, partition: TopicPartition) -> int | None:
    """Return the leader of a partition, None if there is no such partition."""
    found = _registration(image, topics, partition)
    return None if found is None else found.leader


def _registration(image: ClusterImage, topics: Topics, partition: TopicPartition) -> PartitionRegistration | None:
    name, index = partition
    topic = topics.find(name)
    return None if topic is None else image.partition((topic.topic_id, index))


def has_all_coordinators(image: ClusterImage, topics: Topics, held: Mapping[int, HeldWaves]) -> bool:
    """Return whether each partition of the transactions' journal is coordinated by a broker that holds its waves.

    A topic of the image whose name is not known here yet may be the journal.
    """
    topic = topics.find(TRANSACTION_JOURNAL)
    if topic is None:
        return all(topics.find_id(topic_id) is not None for topic_id in image.partitions)
    leaders = image.partitions.get(topic.topic_id, ())
    return all(each.leader in held and index in held[each.leader].coordinated for index, each in enumerate(leaders))


def shown_partitions(
    image: ClusterImage,
    topics: Topics,
    rows: LakeRows,
    reports: Sequence[PartitionReport],
    transactions: Iterable[EndedTransaction],
) -> dict[TopicPartition, Shown]:
    """Return the partitions of transactions, but for those that are gone and those of internal topics, which nobody queries.

    A broker that does not follow the newest image yet may have left out partitions that it leads by it. What one that does has
    left out is as published, if that is of the leader epoch: else it does not lead it yet, or no longer as its log has failed.
    """
    answered = {report.broker_id for report in reports if report.image_version >= image.version}
    reported = {(row.topic_id, row.partition, row.leader): row for report in reports for row in report.rows}
    found: dict[TopicPartition, Shown] = {}
    for partition in {each for transaction in transactions for each in transaction.ranges}:
        name, index = partition
        topic, registered = topics.find(name), _registration(image, topics, partition)
        if topic is None or registered is None or name in INTERNAL:
            continue
        topic_id, leader = str(topic.topic_id), registered.leader
        known = rows.find(topic_id, index)
        published = 0 if known is None else known.last_stable_offset
        row = reported.get((topic_id, index, leader), known)
        if row is None or leader not in answered or not _is_led(row, registered):
            found[partition] = Shown(published, published, None)
        else:
            stable = min(max(row.last_stable_offset, published), row.log_end_offset)
            found[partition] = Shown(max(published, row.log_start_offset), stable, row.log_end_offset)
    return found


def _is_led(row: PartitionRow, registered: PartitionRegistration) -> bool:
    """Return whether a row is of a partition's leader in its leader epoch."""
    return (row.leader, row.leader_epoch) == (registered.leader, registered.leader_epoch)
