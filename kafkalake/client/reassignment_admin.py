"""Administration of replicas: partitions move to other brokers (KIP-455), under a throttle (KIP-73), and leaders are elected.

Broker errors of a whole request are raised as the classes of `kafkalake.errors`, those of single partitions are returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from kafkalake.client import admin
from kafkalake.client.cluster import Cluster
from kafkalake.client.requests import ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS, LIST_PARTITION_REASSIGNMENTS
from kafkalake.errors import KafkaError
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.messages.controller import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
"""Settings of a broker: bytes a second that it sends to throttled replicas, and that its own ones fetch."""
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
"""Settings of a topic: the replicas throttled on the leader's and on the follower's side, as `PARTITION:BROKER,...`."""
_LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Election(Enum):
    """An election of leaders: of the first replica, or of any one where all replicas with all records are gone."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class Reassignment(NamedTuple):
    """A move of a partition that is under way: all its replicas, the new ones of them and those that it loses."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        """The replicas of before the move."""
        return tuple(each for each in self.replicas if each not in self.adding)


class Move(NamedTuple):
    """The replicas from which a partition is copied, and the new ones."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def list_reassignments(cluster: Cluster) -> dict[TopicPartition, Reassignment]:
    """Return the moves that are under way. Raise `ClusterAuthorizationError`, `UnsupportedVersionError` of an old broker."""
    request = ListPartitionReassignmentsRequest(timeout=admin.OPERATION_TIMEOUT_MS, topics=None)
    answer = admin.ask_controller(cluster, LIST_PARTITION_REASSIGNMENTS, request, lambda answer: [answer])
    admin.raise_result(answer, "the reassignments")
    return {
        (topic.name, each.partition_index): Reassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def alter_reassignments(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, KafkaError]:
    """Move partitions to other replicas, or None: back to those of before. Return the errors of those that do not move."""
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[ReassignablePartition(partition_index=each, replicas=wanted[name, each]) for each in of],
        )
        for name, of in by_topic(wanted).items()
    ]
    request = AlterPartitionReassignmentsRequest(timeout=admin.OPERATION_TIMEOUT_MS, topics=topics)
    answer = admin.ask_controller(cluster, ALTER_PARTITION_REASSIGNMENTS, request, lambda answer: [answer])
    admin.raise_result(answer, "the reassignment")
    found = {
        (topic.name, each.partition_index): admin.result_error(each, f"partition {topic.name}-{each.partition_index}")
        for topic in answer.responses
        for each in topic.partitions
    }
    return {partition: error for partition, error in found.items() if error is not None}


def elect_leaders(
    cluster: Cluster, election: Election, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    """Elect leaders of partitions (None: of all) and return the error of each, None if it has another leader now.

    `ElectionNotNeededError`: it is led by the one already. Of all partitions only those are returned that needed an election.
    """
    asked = [
        ElectLeadersTopicPartitions(topic=name, partitions=of)
        for name, of in by_topic(() if partitions is None else partitions).items()
    ]
    request = ElectLeadersRequest(
        topic_partitions=None if partitions is None else asked,
        timeout=admin.OPERATION_TIMEOUT_MS,
        election_type=list(Election).index(election),
    )
    answer = admin.ask_controller(cluster, ELECT_LEADERS, request, lambda answer: [answer])
    admin.raise_result(answer, "the election")
    return {
        (topic.topic, each.partition_id): admin.result_error(each, f"partition {topic.topic}-{each.partition_id}")
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


# Throttles


def plan_moves(
    ongoing: Mapping[TopicPartition, Reassignment],
    wanted: Mapping[TopicPartition, Sequence[int]],
    replicas: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """Return all moves once those that are `wanted` have begun. `replicas`: of the partitions wanted, as they are now."""
    moves = {partition: Move(each.sources, each.adding) for partition, each in ongoing.items()}
    for partition, target in wanted.items():
        sources = moves[partition].sources if partition in moves else tuple(replicas[partition])
        moves[partition] = Move(sources, tuple(each for each in target if each not in sources))
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, dict[str, str]]:
    """Return by topic the values of `LEADER_REPLICAS` and `FOLLOWER_REPLICAS` that throttle moves, and nothing else."""
    return {
        name: {
            LEADER_REPLICAS: _replica_list((index, each) for index in of for each in moves[name, index].sources),
            FOLLOWER_REPLICAS: _replica_list((index, each) for index in of for each in moves[name, index].destinations),
        }
        for name, of in by_topic(moves).items()
    }


def _replica_list(replicas: Iterable[tuple[int, int]]) -> str:
    return ",".join(sorted(f"{index}:{broker_id}" for index, broker_id in replicas))


def set_throttle(cluster: Cluster, moves: Mapping[TopicPartition, Move], rate: int) -> None:
    """Limit the replication of moves to `rate` bytes a second on each broker. Raise `InvalidConfigError` and others."""
    for topic, values in throttled_replicas(moves).items():
        admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, set_values=values)
    for broker_id in sorted({each for move in moves.values() for each in (*move.sources, *move.destinations)}):
        values = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
        admin.alter_configs(cluster, admin.BROKER_RESOURCE, str(broker_id), set_values=values)


def remove_throttles(cluster: Cluster, broker_ids: Iterable[int], topics: Iterable[str]) -> None:
    """Remove all throttles of replication from brokers and topics."""
    for broker_id in sorted(broker_ids):
        settings = (LEADER_RATE, FOLLOWER_RATE, _LOG_DIRS_RATE)
        admin.alter_configs(cluster, admin.BROKER_RESOURCE, str(broker_id), delete=settings)
    for topic in sorted(topics):
        admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, delete=(LEADER_REPLICAS, FOLLOWER_REPLICAS))
