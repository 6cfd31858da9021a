"""DescribeQuorum (55), versions 0-2: who decides about the cluster's metadata, and how far each follows.

The controller is the leader, its epoch the leader epoch, the version of the image the high watermark. Every registered broker has a
vote. How far another one follows is known from its heartbeats.
2: the addresses of the voters.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from kafkalake.cluster.image import NO_CONTROLLER, ClusterImage
from kafkalake.cluster.quorum import Followed, directory_id
from kafkalake.errors import ClusterAuthorizationError, UnknownTopicOrPartitionError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartitionState,
    QuorumReplicaState,
    QuorumTopicState,
)

METADATA_TOPIC = "__cluster_metadata"
_UNKNOWN = -1


def handle(request: Request[DescribeQuorumRequest]) -> Generator[None, None, DescribeQuorumResponse]:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return DescribeQuorumResponse(error_code=ClusterAuthorizationError.code)
    cluster = request.context.broker.cluster
    followed = request.context.broker.controller.followed()
    metadata_partition = _metadata_partition(cluster, followed, request.context.clock.now_ms())
    topics = []
    for topic in request.body.topics:
        partitions = []
        for partition in topic.partitions:
            yield
            if topic.topic_name == METADATA_TOPIC and partition.partition_index == 0:
                partitions.append(metadata_partition)
            else:
                error = UnknownTopicOrPartitionError()
                message = request.error_text(error) if request.version >= 2 else None
                partitions.append(
                    QuorumPartitionState(
                        partition_index=partition.partition_index, error_code=error.code, error_message=message
                    )
                )
        topics.append(QuorumTopicState(topic_name=topic.topic_name, partitions=partitions))
    nodes = list(_nodes(cluster, request.listener)) if request.version >= 2 else []
    return DescribeQuorumResponse(topics=topics, nodes=nodes)


def _metadata_partition(cluster: ClusterImage, followed: Mapping[int, Followed], now_ms: int) -> QuorumPartitionState:
    leader = Followed(cluster.version, 0, 0)
    voters = []
    for broker_id in sorted({cluster.controller_id, *cluster.brokers} - {NO_CONTROLLER}):
        each = leader if broker_id == cluster.controller_id else followed.get(broker_id)
        voters.append(
            QuorumReplicaState(
                replica_id=broker_id,
                replica_directory_id=directory_id(cluster, broker_id),
                log_end_offset=_UNKNOWN if each is None else each.version,
                last_fetch_timestamp=_UNKNOWN if each is None else now_ms - each.heard_ms,
                last_caught_up_timestamp=_UNKNOWN if each is None else now_ms - each.caught_up_ms,
            )
        )
    return QuorumPartitionState(
        leader_id=cluster.controller_id,
        leader_epoch=cluster.controller_epoch,
        high_watermark=cluster.version,
        current_voters=voters,
    )


def _nodes(cluster: ClusterImage, listener: str) -> Iterator[QuorumNode]:
    for broker_id, broker in sorted(cluster.brokers.items()):
        if (address := broker.endpoint(listener)) is not None:
            endpoint = QuorumListener(name="CONTROLLER", host=address.host, port=address.port)
            yield QuorumNode(node_id=broker_id, listeners=[endpoint])


def refusal(body: DescribeQuorumRequest, code: int, message: str) -> DescribeQuorumResponse:
    """Return the response that refuses all of a request."""
    return DescribeQuorumResponse(error_code=code, error_message=message)
