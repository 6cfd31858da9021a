"""A topic as `kafkalake topics describe` shows it: as Kafka's tool prints it, as JSON, drawn."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from kafkalake.cli.output import console, table
from kafkalake.printable import printable
from kafkalake.uuid_text import encode_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from kafkalake.client.administration.brokers import EligibleLeaders
    from kafkalake.client.administration.configs import ConfigEntry
    from kafkalake.client.administration.reassignments import Reassignment
    from kafkalake.client.cluster import PartitionInfo, TopicInfo
    from kafkalake.topic_partition import TopicPartition

    Eligible = Mapping[TopicPartition, EligibleLeaders]
    Moving = Mapping[TopicPartition, Reassignment]


class PartitionState(Enum):
    """The states by which partitions are selected, by the options of `kafka-topics --describe`."""

    UNDER_REPLICATED = "--under-replicated-partitions"
    UNDER_MIN_ISR = "--under-min-isr-partitions"
    AT_MIN_ISR = "--at-min-isr-partitions"
    UNAVAILABLE = "--unavailable-partitions"


def is_in_state(
    partition: PartitionInfo,
    state: PartitionState,
    *,
    min_isr: int,
    brokers: Container[int],
    moving: Reassignment | None = None,
) -> bool:
    """Return whether `kafka-topics --describe` lists a partition of this state. `brokers`: those that live.

    Replicas that a reassignment adds need not be in the ISR.
    """
    has_leader = partition.leader >= 0
    match state:
        case PartitionState.UNDER_REPLICATED:
            return len(partition.isr) < len(partition.replicas) - (0 if moving is None else len(moving.adding))
        case PartitionState.UNDER_MIN_ISR:
            return not has_leader or len(partition.isr) < min_isr
        case PartitionState.AT_MIN_ISR:
            return len(partition.isr) == min_isr
        case PartitionState.UNAVAILABLE:
            return not has_leader or partition.leader not in brokers


def kafka_uuid(identifier: UUID | None) -> str | None:
    """Return a topic id in the format of Kafka's tools: URL-safe base64 without padding."""
    return None if identifier is None else encode_uuid(identifier)


def description_lines(
    topic: TopicInfo, configs: Sequence[ConfigEntry], eligible: Eligible, moving: Moving
) -> list[str]:
    """Return a topic as `kafka-topics --describe` prints it, including tabs."""
    head = [
        f"Topic: {topic.name}",
        f"TopicId: {kafka_uuid(topic.topic_id)}",
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {replication_factor(topic)}",
        f"Configs: {','.join(f'{entry.name}={entry.value}' for entry in configs)}",
    ]
    return ["\t".join(head), *(partition_line(topic.name, each, eligible, moving) for each in topic.partitions)]


def partition_line(topic: str, partition: PartitionInfo, eligible: Eligible, moving: Moving) -> str:
    """Return a partition as `kafka-topics --describe` prints it, including tabs."""
    others, move = eligible.get((topic, partition.partition)), moving.get((topic, partition.partition))
    parts = [
        f"Topic: {topic}",
        f"Partition: {partition.partition}",
        f"Leader: {_leader(partition)}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
        *(
            []
            if move is None
            else [f"Adding Replicas: {_ids(move.adding)}", f"Removing Replicas: {_ids(move.removing)}"]
        ),
        f"Elr: {'N/A' if others is None else _ids(others.elr)}",
        f"LastKnownElr: {'N/A' if others is None else _ids(others.last_known_elr)}",
    ]
    return "\t" + "\t".join(parts)


def description(
    topic: TopicInfo, configs: Sequence[ConfigEntry], eligible: Eligible, moving: Moving
) -> dict[str, object]:
    """Return a topic for JSON. Replicas that a broker does not tell are null."""
    return {
        "topic": topic.name,
        "topicId": kafka_uuid(topic.topic_id),
        "partitionCount": len(topic.partitions),
        "replicationFactor": replication_factor(topic),
        "internal": topic.is_internal,
        "configs": {entry.name: entry.value for entry in configs},
        "partitions": [partition_description(topic.name, each, eligible, moving) for each in topic.partitions],
    }


def partition_description(
    topic: str, partition: PartitionInfo, eligible: Eligible, moving: Moving
) -> dict[str, object]:
    """Return a partition for JSON. Replicas that a broker does not tell are null."""
    elr, last_known = eligible.get((topic, partition.partition), (None, None))
    found = {
        "partition": partition.partition,
        "leader": partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": elr,
        "lastKnownElr": last_known,
    }
    move = moving.get((topic, partition.partition))
    return found if move is None else found | {"adding": list(move.adding), "removing": list(move.removing)}


def draw(topic: TopicInfo, configs: Sequence[ConfigEntry], eligible: Eligible) -> None:
    """Draw a topic on the terminal."""
    from rich.text import Text

    head = Text.assemble(
        ("Topic: ", "dim"),
        (printable(topic.name), "bold"),
        ("  TopicId: ", "dim"),
        str(kafka_uuid(topic.topic_id)),
        ("  PartitionCount: ", "dim"),
        str(len(topic.partitions)),
        ("  ReplicationFactor: ", "dim"),
        str(replication_factor(topic)),
    )
    printer = console()
    printer.print(head)
    for entry in configs:
        printer.print(Text.assemble(("  Config: ", "dim"), printable(f"{entry.name}={entry.value}")))
    rows = [_row(topic.name, each, eligible)[1:] for each in topic.partitions]
    table(None, _COLUMNS[1:], rows, right=["Partition", "Leader"])


_COLUMNS = ("Topic", "Partition", "Leader", "Replicas", "Isr", "Elr")


def draw_partitions(partitions: Iterable[tuple[str, PartitionInfo]], eligible: Eligible) -> None:
    """Draw partitions of several topics on the terminal."""
    rows = [_row(topic, each, eligible) for topic, each in partitions]
    table(None, _COLUMNS, rows, right=["Partition", "Leader"])


def _row(topic: str, partition: PartitionInfo, eligible: Eligible) -> tuple[object, ...]:
    found = eligible.get((topic, partition.partition))
    elr = () if found is None else found.elr
    replicas = (_ids(each) for each in (partition.replicas, partition.isr, elr))
    return topic, partition.partition, _leader(partition), *replicas


def _leader(partition: PartitionInfo) -> int | str:
    return partition.leader if partition.leader >= 0 else "none"


def _ids(nodes: Iterable[int]) -> str:
    return ",".join(str(node) for node in nodes)


def replication_factor(topic: TopicInfo) -> int:
    """Return the number of replicas of the first partition, 0 without one."""
    return len(topic.partitions[0].replicas) if topic.partitions else 0
