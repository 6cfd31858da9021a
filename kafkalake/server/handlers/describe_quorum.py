"""DescribeQuorum (55), versions 0-2: who decides about the cluster's metadata. Here the lake does: the one broker is the voter.

The high watermark is the version of the image that this broker serves.
"""

from __future__ import annotations

from collections.abc import Generator

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


def handle(request: Request[DescribeQuorumRequest]) -> Generator[None, None, DescribeQuorumResponse]:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return DescribeQuorumResponse(error_code=ClusterAuthorizationError.code)
    cluster, now_ms = request.context.broker.cluster, request.context.clock.now_ms()
    unknown = UnknownTopicOrPartitionError()
    topics = []
    for topic in request.body.topics:
        partitions = []
        for partition in topic.partitions:
            yield
            if topic.topic_name != METADATA_TOPIC or partition.partition_index != 0:
                partitions.append(
                    QuorumPartitionState(
                        partition_index=partition.partition_index,
                        error_code=unknown.code,
                        error_message=str(unknown) if request.version >= 2 else None,
                    )
                )
                continue
            voter = QuorumReplicaState(
                replica_id=cluster.controller_id,
                log_end_offset=cluster.version,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
            partitions.append(
                QuorumPartitionState(
                    leader_id=cluster.controller_id,
                    leader_epoch=0,
                    high_watermark=cluster.version,
                    current_voters=[voter],
                )
            )
        topics.append(QuorumTopicState(topic_name=topic.topic_name, partitions=partitions))
    nodes = [
        QuorumNode(
            node_id=each.broker_id, listeners=[QuorumListener(name="CONTROLLER", host=address.host, port=address.port)]
        )
        for each, address in cluster.reachable(request.listener)
    ]
    return DescribeQuorumResponse(topics=topics, nodes=nodes if request.version >= 2 else [])
