"""DescribeCluster (60), versions 0-2: the brokers of the cluster. 1: endpoint type. 2: fenced brokers.

At a listener of `controller.listener.names` the controllers are described (endpoint type 2), with the elected one, at every other
one the brokers (1). The other type gets MISMATCHED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalake.cluster.image import ClusterImage, Endpoint
from kafkalake.cluster.quorum import voters
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.forwarding import entrance_to_controller
from kafkalake.server.handlers.metadata import NOT_ASKED, operation_bits
from kafkalake.server.request import Request
from kafkalake.wire.messages.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

_BROKERS, _CONTROLLERS = 1, 2
_MISMATCHED_ENDPOINT_TYPE, _UNSUPPORTED_ENDPOINT_TYPE = 114, 115


def handle(request: Request[DescribeClusterRequest]) -> DescribeClusterResponse:
    body = request.body
    endpoint_type = body.endpoint_type
    is_for_controllers = request.connection.listener.is_for_controllers
    if endpoint_type != (_CONTROLLERS if is_for_controllers else _BROKERS):
        known = endpoint_type in (_BROKERS, _CONTROLLERS)
        return DescribeClusterResponse(
            error_code=_MISMATCHED_ENDPOINT_TYPE if known else _UNSUPPORTED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of the wrong type."
            if known
            else f"Unsupported endpoint type {endpoint_type}",
            endpoint_type=endpoint_type,
        )
    cluster = request.context.broker.cluster
    operations = NOT_ASKED
    if body.include_cluster_authorized_operations:
        operations = operation_bits(request, Resource.CLUSTER, CLUSTER_NAME)
    return DescribeClusterResponse(
        endpoint_type=endpoint_type,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id if is_for_controllers else entrance_to_controller(request.context),
        brokers=list(_controllers(request, cluster) if is_for_controllers else _brokers(request, cluster)),
        cluster_authorized_operations=operations,
    )


def _brokers(request: Request[DescribeClusterRequest], cluster: ClusterImage) -> Iterator[DescribeClusterBroker]:
    for _, each in sorted(cluster.brokers.items()):
        if (request.body.include_fenced_brokers or not each.is_fenced) and (
            address := each.endpoint(request.listener)
        ) is not None:
            yield _described(each.broker_id, address, each.rack, is_fenced=each.is_fenced)


def _controllers(request: Request[DescribeClusterRequest], cluster: ClusterImage) -> Iterator[DescribeClusterBroker]:
    for node_id in voters(cluster):
        endpoints = cluster.endpoints_of(node_id)
        if address := next((each for each in endpoints if each.listener == request.listener), None):
            yield _described(node_id, address, None, is_fenced=False)


def _described(node_id: int, address: Endpoint, rack: str | None, *, is_fenced: bool) -> DescribeClusterBroker:
    return DescribeClusterBroker(
        broker_id=node_id, host=address.host, port=address.port, rack=rack, is_fenced=is_fenced
    )
