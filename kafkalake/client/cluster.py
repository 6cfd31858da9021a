"""The brokers and topics of a cluster, as Metadata responses describe them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kafkalake.wire.messages.cluster import TopicMetadata


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker of the cluster, as it advertises itself. is_fenced: it leads nothing, and only its controller reaches it."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition. `leader` is -1 if it has none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its partitions, ordered by number."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


def topic_info(topic: TopicMetadata) -> TopicInfo:
    """Return a topic as a Metadata response describes it."""
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicInfo(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=bool(topic.is_internal),
        partitions=tuple(
            PartitionInfo(
                partition=partition.partition_index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(int(node) for node in partition.replica_nodes),
                isr=tuple(int(node) for node in partition.isr_nodes),
                offline_replicas=tuple(int(node) for node in partition.offline_replicas),
            )
            for partition in partitions
        ),
    )
