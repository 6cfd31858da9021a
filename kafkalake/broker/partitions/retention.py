"""Retention by the broker: every `log.retention.check.interval.ms` each log drops segments its topic's settings no longer keep.

`storage.retention` holds the one rule for the broker and the retention job. As in Kafka, records unread by a group are removed
too, unless the topic has `retention.groups.guard=block`: then all coordinators are asked what their groups have committed, and its
retention waits while one does not answer. What comes after they were asked stays until the next time: a group may have begun
meanwhile. The guard `warn` is handled by the job. The active segment is rolled and removed once all its records have expired. The
coordinators trim their journals themselves.

A job may enforce retention concurrently: both only advance the log start, and removing a removed segment changes nothing.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from kafkalake.broker.partitions.partition import Partition
from kafkalake.config.topics import TopicConfig
from kafkalake.errors import KafkaLakeError
from kafkalake.internal_topics import INTERNAL
from kafkalake.storage.retention import BLOCK, OFF, RetentionRule
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kafkalake.broker.broker import Broker

logger = logging.getLogger(__name__)


async def enforce_retention(broker: Broker) -> None:
    """Enforce retention on every log. A failure in one partition is logged and retried the next time."""
    blocked = {topic.name for topic in broker.topics if topic.config.retention_groups_guard == BLOCK}
    ends: dict[Partition, int] = {}
    committed: dict[TopicPartition, dict[str, int]] = {}
    if blocked:
        asked = [each for each in broker.topics.partitions() if each.topic.name in blocked]
        before = {each: each.log.high_watermark for each in asked}
        try:
            committed = await broker.groups.committed.lowest(blocked)
            ends = before
        except KafkaLakeError as error:
            logger.warning(
                "retention of topics with retention.groups.guard=block waits: offsets of groups are not known topics=%s error=%s",
                sorted(blocked),
                error,
            )
    for partition in list(broker.topics.partitions()):
        rule = rule_of(partition.topic.config)
        if partition.topic.name in INTERNAL or not rule.has_limit or partition.removed:
            continue
        if rule.guard == BLOCK and partition not in ends:
            continue  # nothing is known of groups, or it came, or its topic's guard, after they were asked
        of_groups, end = committed.get((partition.topic.name, partition.index), {}), ends.get(partition)
        try:
            enforce = partial(partition.log.enforce_retention, rule, of_groups, end)
            removed = await partition.change_log(broker.run_blocking, enforce)
        except Exception as error:
            logger.error("retention failed partition=%s error=%s", partition.name, error)
            continue
        if removed.segments:
            _removed(broker, partition)
            logger.info(
                "segments removed partition=%s segments=%d bytes=%d log_start=%d by_time=%d by_size=%d",
                partition.name,
                len(removed.segments),
                removed.bytes,
                removed.log_start_offset,
                removed.reasons.count("time"),
                removed.reasons.count("size"),
            )


def rule_of(config: TopicConfig) -> RetentionRule:
    """Return the broker's retention rule for a topic."""
    guard = BLOCK if config.retention_groups_guard == BLOCK else OFF
    return RetentionRule(config.deletes, config.retention_ms, config.retention_bytes, guard)


def _removed(broker: Broker, partition: Partition) -> None:
    if not partition.removed:
        broker.moved(partition)
