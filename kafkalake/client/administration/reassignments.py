"""Replicas: partitions move to other brokers (KIP-455), under a throttle (KIP-73), and leaders are elected.

Broker errors of a whole request are raised as the classes of `kafkalake.errors`, those of single partitions are returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from kafkalake.client.administration.answers import missing_partitions, raise_result, result_error
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.administration.configs import BROKER_RESOURCE, TOPIC_RESOURCE, alter_configs
from kafkalake.client.administration.several_requests import ask_in_parts
from kafkalake.client.arguments import BrokerId
from kafkalake.client.network.script import Script
from kafkalake.client.request_parts import cut
from kafkalake.client.requests import ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS, LIST_PARTITION_REASSIGNMENTS
from kafkalake.errors import KafkaError, KafkaLakeError
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


def list_reassignments(call: AdminCall) -> Script[dict[TopicPartition, Reassignment]]:
    """Return the moves that are under way. Raise `ClusterAuthorizationError`, `UnsupportedVersionError` of an old broker."""
    request = ListPartitionReassignmentsRequest(timeout=call.work_ms, topics=None)
    answer = yield from call.ask_controller(LIST_PARTITION_REASSIGNMENTS, request, lambda answer: [answer])
    raise_result(answer, "the reassignments")
    return {
        (topic.name, each.partition_index): Reassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def alter_reassignments(
    call: AdminCall, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> Script[dict[TopicPartition, KafkaLakeError]]:
    """Move partitions to other replicas, or None: back to those of before. Return the errors of those that do not move.

    Very many are named in several requests. An error of a later request as a whole is that of the partitions left by then.
    """
    parts = cut(sorted(wanted), elements=lambda each: 1 + len(wanted[each] or ()))
    found = yield from ask_in_parts(parts, lambda part: _alter(call, {each: wanted[each] for each in part}))
    return {partition: error for partition, error in found.items() if error is not None}


def _alter(
    call: AdminCall, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> Script[dict[TopicPartition, KafkaError | None]]:
    """Move partitions in one request."""
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[ReassignablePartition(partition_index=each, replicas=wanted[name, each]) for each in of],
        )
        for name, of in by_topic(wanted).items()
    ]
    request = AlterPartitionReassignmentsRequest(timeout=call.work_ms, topics=topics)
    answer = yield from call.ask_controller(ALTER_PARTITION_REASSIGNMENTS, request, lambda answer: [answer])
    raise_result(answer, "the reassignment")
    found = {
        (topic.name, each.partition_index): result_error(each, f"partition {topic.name}-{each.partition_index}")
        for topic in answer.responses
        for each in topic.partitions
    }
    return found | missing_partitions(wanted, found)


def elect_leaders(
    call: AdminCall, election: Election, partitions: Iterable[TopicPartition] | None = None
) -> Script[dict[TopicPartition, KafkaLakeError | None]]:
    """Elect leaders of partitions (None: of all) and return the error of each, None if it has another leader now.

    `ElectionNotNeededError`: it is led by the one already. Of all partitions only those are returned that needed an election.
    Very many are named in several requests. An error of a later request as a whole is that of the partitions left by then.
    """
    if partitions is None:
        return dict((yield from _elect(call, election, None)))
    parts = cut(sorted(set(partitions)))
    return (yield from ask_in_parts(parts, lambda part: _elect(call, election, part)))


def _elect(
    call: AdminCall, election: Election, wanted: Sequence[TopicPartition] | None
) -> Script[dict[TopicPartition, KafkaError | None]]:
    """Elect leaders in one request."""
    asked = [ElectLeadersTopicPartitions(topic=name, partitions=of) for name, of in by_topic(wanted or ()).items()]
    request = ElectLeadersRequest(
        topic_partitions=None if wanted is None else asked,
        timeout=call.work_ms,
        election_type=list(Election).index(election),
    )
    answer = yield from call.ask_controller(ELECT_LEADERS, request, lambda answer: [answer])
    raise_result(answer, "the election")
    found = {
        (topic.topic, each.partition_id): result_error(each, f"partition {topic.topic}-{each.partition_id}")
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }
    return found | missing_partitions(wanted or (), found)


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


def set_throttle(call: AdminCall, moves: Mapping[TopicPartition, Move], rate: int) -> Script[None]:
    """Limit the replication of moves to `rate` bytes a second on each broker. Raise `InvalidConfigError` and others."""
    for topic, values in throttled_replicas(moves).items():
        yield from alter_configs(call, TOPIC_RESOURCE, topic, set_values=values)
    for broker_id in sorted({each for move in moves.values() for each in (*move.sources, *move.destinations)}):
        values = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
        yield from alter_configs(call, BROKER_RESOURCE, str(broker_id), set_values=values)


def remove_throttles(call: AdminCall, broker_ids: Iterable[BrokerId], topics: Iterable[str]) -> Script[None]:
    """Remove all throttles of replication from brokers and topics."""
    for broker_id in sorted(broker_ids):
        settings = (LEADER_RATE, FOLLOWER_RATE, _LOG_DIRS_RATE)
        yield from alter_configs(call, BROKER_RESOURCE, str(broker_id), delete=settings)
    for topic in sorted(topics):
        yield from alter_configs(call, TOPIC_RESOURCE, topic, delete=(LEADER_REPLICAS, FOLLOWER_REPLICAS))
