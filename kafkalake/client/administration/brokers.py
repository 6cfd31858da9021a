"""Brokers: the cluster and its brokers, its quorum of controllers, their log directories; and who may lead partitions.

Broker errors are raised as the classes of `kafkalake.errors`, with the broker's message if it sends one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafkalake.client.administration.answers import find_result, raise_error, raise_result
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.arguments import BrokerId
from kafkalake.client.cluster import BrokerNode
from kafkalake.client.network.script import Script
from kafkalake.client.request_parts import cut
from kafkalake.client.requests import (
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    UNREGISTER_BROKER,
    A,
    ClientApi,
    Q,
)
from kafkalake.errors import KafkaError, UnsupportedVersionError
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.messages.cluster import (
    Cursor,
    DescribableLogDirTopic,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataResponse,
    TopicRequest,
)
from kafkalake.wire.messages.controller import (
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumReplicaState,
    QuorumTopic,
    UnregisterBrokerRequest,
)

_WITH_FENCED = 2
"""The version of DescribeCluster that describes fenced brokers too."""
_DESCRIBED_AT_ONCE = 2_000
"""Partitions in a response of DescribeTopicPartitions, as Kafka's client asks for."""
_QUORUM = QuorumTopic(topic_name="__cluster_metadata", partitions=(QuorumPartition(partition_index=0),))


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster: its id, its brokers, and the controller's broker id (-1: unknown)."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerNode, ...]


class EligibleLeaders(NamedTuple):
    """Replicas outside the ISR that have all acknowledged records (KIP-966), and those that had them before all were lost."""

    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A controller or an observer of the quorum. Times are ms since 1970, None if the leader does not say them."""

    replica_id: int
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum of the controllers, as its leader describes it (KIP-595)."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    """A replica in a log directory. is_future: it is on its way into this directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker and its replicas. Sizes in bytes, None if the broker's version lacks them."""

    path: str
    total_bytes: int | None
    usable_bytes: int | None
    replicas: Mapping[TopicPartition, LogDirReplica]


def ask_all_brokers(
    call: AdminCall, api: ClientApi[Q, A], message: Q, check: Callable[[A], None]
) -> Script[dict[int, A]]:
    """Ask all brokers of the cluster the same, again on retriable errors. check: raises the errors in a response."""

    def attempt() -> Script[dict[int, A]]:
        nodes = (yield from _ask_metadata(call)).brokers
        yield from call.find_brokers()
        answers = yield from call.request_all(api, {node.node_id: message for node in nodes})
        for answer in answers.values():
            check(answer)
        return answers

    return (yield from call.retrying(attempt))


def _ask_metadata(call: AdminCall) -> Script[MetadataResponse]:
    return (yield from call.request((yield from call.any_broker()), METADATA, MetadataRequest(topics=())))


def list_brokers(call: AdminCall) -> Script[list[BrokerNode]]:
    """Return the brokers that are not fenced, ordered by id."""
    answer = yield from call.retrying(lambda: _ask_metadata(call))
    brokers = [BrokerNode(each.node_id, each.host, each.port, each.rack) for each in answer.brokers]
    return sorted(brokers, key=lambda node: node.broker_id)


def cluster_id(call: AdminCall) -> Script[str | None]:
    """Return the id of the cluster."""
    return (yield from call.retrying(lambda: _ask_metadata(call))).cluster_id


def describe_cluster(call: AdminCall) -> Script[ClusterDescription]:
    """Return the cluster with its brokers ordered by id, fenced ones too. Raise `KafkaError` if the broker refuses."""

    def attempt() -> Script[ClusterDescription]:
        yield from call.find_brokers()
        node_id = yield from call.any_broker()
        with_fenced = (yield from call.version(node_id, DESCRIBE_CLUSTER)) >= _WITH_FENCED
        message = DescribeClusterRequest(include_fenced_brokers=with_fenced)
        answer = yield from call.request(node_id, DESCRIBE_CLUSTER, message)
        raise_result(answer, "the cluster")
        brokers = [
            BrokerNode(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in answer.brokers
        ]
        brokers.sort(key=lambda node: node.broker_id)
        return ClusterDescription(answer.cluster_id, answer.controller_id, tuple(brokers))

    return (yield from call.retrying(attempt))


def describe_quorum(call: AdminCall) -> Script[QuorumDescription]:
    """Return the quorum of the controllers. Raise `ClusterAuthorizationError` and others."""
    message = DescribeQuorumRequest(topics=(_QUORUM,))
    answer = yield from call.ask(DESCRIBE_QUORUM, message, lambda answer: raise_result(answer, "the quorum"))
    partitions = [each for topic in answer.topics for each in topic.partitions]
    found = find_result(partitions, lambda each: True, "the quorum")
    raise_result(found, "the quorum")
    return QuorumDescription(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        tuple(map(_replica, found.current_voters)),
        tuple(map(_replica, found.observers)),
    )


def _replica(state: QuorumReplicaState) -> QuorumReplica:
    def time_ms(at: int) -> int | None:
        return None if at < 0 else at

    fetched, caught_up = time_ms(state.last_fetch_timestamp), time_ms(state.last_caught_up_timestamp)
    return QuorumReplica(state.replica_id, state.log_end_offset, fetched, caught_up)


def describe_log_dirs(
    call: AdminCall, broker_ids: Collection[BrokerId], partitions: Collection[TopicPartition] | None = None
) -> Script[dict[int, list[LogDir]]]:
    """Return the log directories of brokers, with their replicas of `partitions` (None: all).

    Raise `ClusterAuthorizationError`, `KafkaStorageError` for a directory that cannot be read, and `BrokerUnavailableError`.
    """
    messages = [DescribeLogDirsRequest(topics=None)]
    if partitions is not None:
        messages = [
            DescribeLogDirsRequest(
                topics=[DescribableLogDirTopic(topic=name, partitions=of) for name, of in by_topic(part).items()]
            )
            for part in cut(partitions)
        ]

    def attempt() -> Script[dict[int, list[LogDir]]]:
        yield from call.find_brokers()
        found: dict[int, list[LogDir]] = {broker_id: [] for broker_id in broker_ids}
        for message in messages:
            answers = yield from call.request_all(DESCRIBE_LOG_DIRS, dict.fromkeys(broker_ids, message))
            for broker_id, answer in answers.items():
                raise_error(answer.error_code, f"the log directories of broker {broker_id}")
                found[broker_id] = _joined(found[broker_id], map(_log_dir, answer.results))
        return found

    return (yield from call.retrying(attempt))


def _joined(before: Iterable[LogDir], others: Iterable[LogDir]) -> list[LogDir]:
    """Return log directories, each with the replicas of both descriptions."""
    found = {each.path: each for each in before}
    for each in others:
        earlier = found.get(each.path)
        found[each.path] = each if earlier is None else replace(each, replicas={**earlier.replicas, **each.replicas})
    return list(found.values())


def _log_dir(result: DescribeLogDirsResult) -> LogDir:
    raise_error(result.error_code, f"log directory {result.log_dir}")
    replicas = {
        (topic.name, each.partition_index): LogDirReplica(each.partition_size, each.offset_lag, each.is_future_key)
        for topic in result.topics
        for each in topic.partitions
    }
    total, usable = (None if size < 0 else size for size in (result.total_bytes, result.usable_bytes))
    return LogDir(result.log_dir, total, usable, replicas)


def unregister_broker(call: AdminCall, broker_id: BrokerId) -> Script[None]:
    """Unregister a broker that does not come back. Raise `BrokerIdNotRegisteredError` and others."""
    message = UnregisterBrokerRequest(broker_id=broker_id)
    answer = yield from call.ask_controller(UNREGISTER_BROKER, message, lambda answer: [answer])
    raise_result(answer, f"broker {broker_id}")


def eligible_leaders(call: AdminCall, topics: Sequence[str]) -> Script[dict[TopicPartition, EligibleLeaders]]:
    """Return for partitions of topics who may lead them beside the ISR. A broker that has no such replicas leaves them out."""
    found: dict[TopicPartition, EligibleLeaders] = {}
    for part in cut(sorted(topics)):
        found |= yield from _eligible_leaders(call, part)
    return found


def _eligible_leaders(call: AdminCall, names: Sequence[str]) -> Script[dict[TopicPartition, EligibleLeaders]]:
    """Return those of topics that one request may name, in the order of which the responses come."""
    found: dict[TopicPartition, EligibleLeaders] = {}
    cursor: Cursor | None = None
    while True:
        message = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=_DESCRIBED_AT_ONCE,
            cursor=cursor,
        )
        try:
            answer = yield from call.ask(DESCRIBE_TOPIC_PARTITIONS, message)
        except UnsupportedVersionError:
            return found
        for topic in answer.topics:
            for each in topic.partitions:
                if each.eligible_leader_replicas is not None:
                    elr, last_known = each.eligible_leader_replicas, each.last_known_elr or ()
                    found[topic.name or "", each.partition_index] = EligibleLeaders(tuple(elr), tuple(last_known))
        if answer.next_cursor is None:
            return found
        if cursor is not None and _place(answer.next_cursor) <= _place(cursor):
            raise KafkaError("the broker's response goes back to partitions that it has described")
        cursor = answer.next_cursor


def _place(cursor: Cursor) -> TopicPartition:
    return cursor.topic_name, cursor.partition_index
