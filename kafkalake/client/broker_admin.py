"""Administration of brokers: the cluster and its brokers, those that do not come back, and who may lead partitions.

Broker errors are raised as the classes of `kafkalake.errors`, with the broker's message if it sends one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kafkalake.client.cluster import BrokerNode, Cluster
from kafkalake.client.coordinators import raise_error
from kafkalake.client.requests import DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, UNREGISTER_BROKER
from kafkalake.errors import UnsupportedVersionError, error_for_code
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.cluster import (
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from kafkalake.wire.messages.controller import UnregisterBrokerRequest, UnregisterBrokerResponse

_WITH_FENCED = 2
"""The version of DescribeCluster that describes fenced brokers too."""
_PARTITIONS_AT_ONCE = 2_000


@dataclass(frozen=True)
class ClusterDescription:
    """The cluster: its id, its brokers, and the controller's broker id (-1: unknown)."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerNode, ...]


class EligibleLeaders(NamedTuple):
    """Replicas outside the ISR that have all acknowledged records (KIP-966), and those that had them before all were lost."""

    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]


def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """Return the cluster with its brokers ordered by id, fenced ones too. Raise `KafkaError` if the broker refuses."""

    def ask() -> ClusterDescription:
        connection = cluster.any_broker()
        with_fenced = connection.version(DESCRIBE_CLUSTER) >= _WITH_FENCED
        answer = connection.request(DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=with_fenced))
        raise_error(answer.error_code, "the cluster")
        brokers = [
            BrokerNode(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in answer.brokers
        ]
        brokers.sort(key=lambda node: node.broker_id)
        return ClusterDescription(answer.cluster_id, answer.controller_id, tuple(brokers))

    return cluster.retrying(ask)


def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Unregister a broker that does not come back. Raise `BrokerIdNotRegisteredError` and others."""

    def ask() -> UnregisterBrokerResponse:
        answer = cluster.controller().request(UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=broker_id))
        if answer.error_code and answer.error_message:
            raise error_for_code(answer.error_code, answer.error_message)
        raise_error(answer.error_code, f"broker {broker_id}")
        return answer

    cluster.retrying(ask)


def eligible_leaders(cluster: Cluster, topics: Sequence[str]) -> dict[TopicPartition, EligibleLeaders]:
    """Return for partitions of topics who may lead them beside the ISR. A broker that has no such replicas leaves them out."""
    found: dict[TopicPartition, EligibleLeaders] = {}
    cursor: Cursor | None = None
    while True:
        try:
            answer = cluster.retrying(partial(_describe, cluster, topics, cursor))
        except UnsupportedVersionError:
            return found
        for topic in answer.topics:
            for each in topic.partitions:
                if each.eligible_leader_replicas is not None:
                    elr, last_known = each.eligible_leader_replicas, each.last_known_elr or ()
                    found[topic.name or "", each.partition_index] = EligibleLeaders(tuple(elr), tuple(last_known))
        cursor = answer.next_cursor
        if cursor is None:
            return found


def _describe(cluster: Cluster, topics: Sequence[str], cursor: Cursor | None) -> DescribeTopicPartitionsResponse:
    names = [TopicRequest(name=name) for name in sorted(topics)]
    request = DescribeTopicPartitionsRequest(topics=names, response_partition_limit=_PARTITIONS_AT_ONCE, cursor=cursor)
    return cluster.any_broker().request(DESCRIBE_TOPIC_PARTITIONS, request)
