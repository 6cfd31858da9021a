"""Leader epochs that stand in the logs of a broker and not in the cluster's image, as in a lake without a control table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafkalake.cluster.election import with_partitions
from kafkalake.cluster.image import ClusterImage, TopicIdPartition


def raise_leader_epochs(image: ClusterImage, broker_id: int, least: Mapping[TopicIdPartition, int]) -> ClusterImage:
    """Return the next version, in which `broker_id` leads no partition with less than its least leader epoch."""
    changed = {}
    for of, epoch in least.items():
        partition = image.partition(of)
        if partition is not None and partition.leader == broker_id and partition.leader_epoch < epoch:
            changed[of] = replace(partition, leader_epoch=epoch, partition_epoch=partition.partition_epoch + 1)
    return with_partitions(image, changed)
