"""Topics and settings of the cluster change, and blocks of producer ids are allocated: one version each."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from cluster_images import TOPIC, check_next, cluster, partition

from kafkalake.cluster.config_changes import add_config, alter_config
from kafkalake.cluster.image import ConfigResource, PartitionRegistration, ResourceKind
from kafkalake.cluster.producer_ids import BLOCK, allocate_producer_ids, raise_next_producer_id
from kafkalake.cluster.topic_changes import (
    add_partitions,
    change_topics,
    clear_eligible,
    create_topics,
    delete_topics,
    new_partitions,
)
from kafkalake.errors import InvalidReplicaAssignmentError, KafkaError, StaleBrokerEpochError

NEW = UUID(int=2)


def test_a_new_topic_is_led_by_its_first_active_replicas() -> None:
    image = cluster(unfenced="02", fenced="1", shutting_down="3")
    after = create_topics(image, {NEW: new_partitions(image, [(0, 1, 2), (1, 2), (3, 0)])}, 7)
    check_next(image, after)
    assert after.topics_version == 7
    assert after.partitions[NEW] == (
        PartitionRegistration(0, 0, (0, 1, 2), (0, 2)),
        PartitionRegistration(2, 0, (1, 2), (2,)),
        PartitionRegistration(0, 0, (3, 0), (0,)),
    )


def test_a_partition_without_an_active_replica_is_refused() -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match="for partition 1 are fenced or in controlled shutdown"):
        new_partitions(cluster(fenced="3"), [(0,), (3, 4)])


def test_partitions_are_added_behind_the_others() -> None:
    image = cluster(partition(1, "12", "12"))
    after = add_partitions(image, {TOPIC: new_partitions(image, [(2,)], first=1)}, 8)
    check_next(image, after)
    assert after.partitions[TOPIC] == (*image.partitions[TOPIC], PartitionRegistration(2, 0, (2,), (2,)))
    assert after.topics_version == 8
    assert add_partitions(after, {}, 9) is after
    with pytest.raises(InvalidReplicaAssignmentError, match="partition 1 "):
        new_partitions(image, [(9,)], first=1)


def test_topics_are_deleted() -> None:
    image = cluster(partition(1, "12", "12"))
    after = delete_topics(image, [TOPIC, NEW], 9)
    check_next(image, after)
    assert (after.partitions, after.topics_version) == ({}, 9)
    assert delete_topics(after, [TOPIC, NEW], 10) is after


def test_eligible_replicas_are_cleared() -> None:
    image = cluster(partition(1, "12", "1", elr="2"))
    after = clear_eligible(image, TOPIC)
    check_next(image, after)
    (before,) = image.partitions[TOPIC]
    assert after.partitions[TOPIC] == (replace(before, elr=(), partition_epoch=before.partition_epoch + 1),)
    assert clear_eligible(after, TOPIC) is after


def test_another_default_of_the_least_isr_clears_eligible_replicas() -> None:
    """With a lower one the high watermark moves without them."""
    image = cluster(partition(1, "12", "1", elr="2"))
    of_all = ConfigResource(ResourceKind.BROKER, "")
    other = alter_config(image, {of_all: {"log.retention.ms": "1000"}})
    assert other.partitions == image.partitions
    after = alter_config(other, {of_all: {"min.insync.replicas": "1"}})
    check_next(other, after)
    assert [each.elr for each in after.partitions[TOPIC]] == [()]
    assert alter_config(after, {of_all: {"min.insync.replicas": "1"}}) is after


def test_settings_of_topics_are_a_version_of_their_table() -> None:
    image = cluster()
    after = change_topics(image, 3)
    assert (after.version, after.topics_version) == (image.version + 1, 3)
    assert change_topics(after, 3) is after


def test_settings_of_a_resource_are_set_and_removed() -> None:
    image = cluster()
    default, group = ConfigResource(ResourceKind.BROKER, ""), ConfigResource(ResourceKind.GROUP, "g")
    after = alter_config(image, {default: {"log.retention.ms": "5", "num.partitions": "2"}})
    assert alter_config(after, {default: {"num.partitions": "2", "log.retention.ms": "5"}}) is after
    assert alter_config(after, {group: {}}) is after
    more = alter_config(after, {group: {"consumer.session.timeout.ms": "7000"}})
    last = alter_config(more, {default: {}})
    assert (last.config, last.version) == ({group: {"consumer.session.timeout.ms": "7000"}}, image.version + 3)


def test_settings_that_a_broker_has_kept_do_not_replace_those_of_the_cluster() -> None:
    default, own = ConfigResource(ResourceKind.BROKER, ""), ConfigResource(ResourceKind.BROKER, "0")
    image = alter_config(cluster(), {default: {"log.retention.ms": "5"}})
    after = add_config(image, {default: {"log.retention.ms": "6", "log.roll.ms": "7"}, own: {"log.level": "debug"}})
    assert after.version == image.version + 1
    assert after.config == {default: {"log.retention.ms": "5", "log.roll.ms": "7"}, own: {"log.level": "debug"}}
    assert add_config(after, {default: {"log.roll.ms": "8"}}) is after


def test_the_next_producer_id_is_raised_and_never_lowered() -> None:
    image = cluster()
    raised = raise_next_producer_id(image, 5)
    assert (raised.next_producer_id, raised.version) == (5, image.version + 1)
    assert raise_next_producer_id(raised, 4) is raised


def test_each_block_of_producer_ids_is_allocated_once() -> None:
    image = cluster()
    first = allocate_producer_ids(image, 0, 0)
    second = allocate_producer_ids(first, 1, 10)
    assert [each.next_producer_id for each in (image, first, second)] == [0, BLOCK, 2 * BLOCK]
    check_next(first, second)
    with pytest.raises(StaleBrokerEpochError):
        allocate_producer_ids(image, 0, 1)
    with pytest.raises(KafkaError, match="Exhausted all producerIds"):
        allocate_producer_ids(replace(image, next_producer_id=2**63 - BLOCK), 0, 0)
