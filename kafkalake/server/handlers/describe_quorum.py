"""DescribeQuorum (55), versions 0-2: who decides about the cluster's metadata, and how far each follows.

The controller is the leader, its epoch the leader epoch, the version of the image the high watermark. Voters are the nodes that may
be elected, observers the other brokers. How far a broker follows is known from its heartbeats.
2: the addresses of the voters.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping

from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.quorum import Followed, directory_id, observers, voters
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
    known = {**followed, cluster.controller_id: Followed(cluster.version, 0, 0)}

    def states(nodes: Iterable[int]) -> list[QuorumReplicaState]:
        return [_state(cluster, node_id, known.get(node_id), now_ms) for node_id in nodes]

    return QuorumPartitionState(
        leader_id=cluster.controller_id,
        leader_epoch=cluster.controller_epoch,
        high_watermark=cluster.version,
        current_voters=states(voters(cluster)),
        observers=states(observers(cluster)),
    )


def _state(cluster: ClusterImage, node_id: int, followed: Followed | None, now_ms: int) -> QuorumReplicaState:
    return QuorumReplicaState(
        replica_id=node_id,
        replica_directory_id=directory_id(cluster, node_id),
        log_end_offset=_UNKNOWN if followed is None else followed.version,
        last_fetch_timestamp=_UNKNOWN if followed is None else now_ms - followed.heard_ms,
        last_caught_up_timestamp=_UNKNOWN if followed is None else now_ms - followed.caught_up_ms,
    )


def _nodes(cluster: ClusterImage, listener: str) -> Iterator[QuorumNode]:
    for node_id in voters(cluster):
        addresses = cluster.endpoints_of(node_id)
        address = next((each for each in addresses if each.listener == listener), None)
        if address is None and node_id in cluster.controllers:
            address = addresses[0]
        if address is not None:
            endpoint = QuorumListener(name="CONTROLLER", host=address.host, port=address.port)
            yield QuorumNode(node_id=node_id, listeners=[endpoint])


def refusal(body: DescribeQuorumRequest, code: int, message: str) -> DescribeQuorumResponse:
    """Return the response that refuses all of a request."""
    return DescribeQuorumResponse(error_code=code, error_message=message)
