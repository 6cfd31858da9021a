"""DescribeCluster (60), versions 0-2: the brokers of the cluster. 1: endpoint type. 2: fenced brokers.

Only brokers are described (endpoint type 1). Controllers (2) have no endpoint of their own here: MISMATCHED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from typing import Any

from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.handlers.metadata import operation_bits
from kafkalake.server.request import Request

_BROKERS, _CONTROLLERS = 1, 2
_MISMATCHED_ENDPOINT_TYPE, _UNSUPPORTED_ENDPOINT_TYPE = 114, 115


def handle(request: Request) -> dict[str, Any]:
    body = request.body
    endpoint_type = getattr(body, "endpoint_type", _BROKERS)
    if endpoint_type != _BROKERS:
        known = endpoint_type == _CONTROLLERS
        return {
            "error_code": _MISMATCHED_ENDPOINT_TYPE if known else _UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": "The request was sent to an endpoint of the wrong type."
            if known
            else f"Unsupported endpoint type {endpoint_type}",
            "endpoint_type": endpoint_type,
            "cluster_id": "",
        }
    cluster = request.context.broker.cluster
    operations = -(2**31)
    if body.include_cluster_authorized_operations:
        operations = operation_bits(request, Resource.CLUSTER, CLUSTER_NAME)
    return {
        "error_code": 0,
        "endpoint_type": _BROKERS,
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "brokers": [
            {"broker_id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack, "is_fenced": False}
            for each in cluster.brokers.values()
        ],
        "cluster_authorized_operations": operations,
    }
