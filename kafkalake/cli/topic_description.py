"""A topic as `kafkalake topics describe` shows it: as Kafka's tool prints it, as JSON, drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkalake.cli.output import console, table
from kafkalake.printable import printable
from kafkalake.uuid_text import encode_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from kafkalake.client.admin import ConfigEntry
    from kafkalake.client.broker_admin import EligibleLeaders
    from kafkalake.client.cluster import TopicInfo
    from kafkalake.topic_partition import TopicPartition

    Eligible = Mapping[TopicPartition, EligibleLeaders]


def kafka_uuid(identifier: UUID | None) -> str | None:
    """Return a topic id in the format of Kafka's tools: URL-safe base64 without padding."""
    return None if identifier is None else encode_uuid(identifier)


def description_lines(topic: TopicInfo, configs: Sequence[ConfigEntry], eligible: Eligible) -> list[str]:
    """Return a topic as `kafka-topics --describe` prints it, including tabs."""
    head = [
        f"Topic: {topic.name}",
        f"TopicId: {kafka_uuid(topic.topic_id)}",
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {replication_factor(topic)}",
        f"Configs: {','.join(f'{entry.name}={entry.value}' for entry in configs)}",
    ]
    lines = ["\t".join(head)]
    for partition in topic.partitions:
        others = eligible.get((topic.name, partition.partition))
        parts = [
            f"Topic: {topic.name}",
            f"Partition: {partition.partition}",
            f"Leader: {partition.leader if partition.leader >= 0 else 'none'}",
            f"Replicas: {_ids(partition.replicas)}",
            f"Isr: {_ids(partition.isr)}",
            f"Elr: {'N/A' if others is None else _ids(others.elr)}",
            f"LastKnownElr: {'N/A' if others is None else _ids(others.last_known_elr)}",
        ]
        lines.append("\t" + "\t".join(parts))
    return lines


def description(topic: TopicInfo, configs: Sequence[ConfigEntry], eligible: Eligible) -> dict[str, Any]:
    """Return a topic for JSON. Replicas that a broker does not tell are null."""
    unknown = None, None
    return {
        "topic": topic.name,
        "topicId": kafka_uuid(topic.topic_id),
        "partitionCount": len(topic.partitions),
        "replicationFactor": replication_factor(topic),
        "internal": topic.is_internal,
        "configs": {entry.name: entry.value for entry in configs},
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "leaderEpoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "elr": elr,
                "lastKnownElr": last_known,
            }
            for partition in topic.partitions
            for elr, last_known in (eligible.get((topic.name, partition.partition), unknown),)
        ],
    }


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
    table(
        None,
        ["Partition", "Leader", "Replicas", "Isr", "Elr"],
        [
            (
                partition.partition,
                partition.leader if partition.leader >= 0 else "none",
                _ids(partition.replicas),
                _ids(partition.isr),
                _ids(found.elr if (found := eligible.get((topic.name, partition.partition))) else ()),
            )
            for partition in topic.partitions
        ],
        right=["Partition", "Leader"],
    )


def _ids(nodes: Iterable[int]) -> str:
    return ",".join(str(node) for node in nodes)


def replication_factor(topic: TopicInfo) -> int:
    """Return the number of replicas of the first partition, 0 without one."""
    return len(topic.partitions[0].replicas) if topic.partitions else 0
