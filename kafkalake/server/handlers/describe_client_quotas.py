"""DescribeClientQuotas (48), versions 0-1: none. Clients are not throttled, and AlterClientQuotas is not served."""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import DescribeClientQuotasRequest, DescribeClientQuotasResponse


def handle(request: Request[DescribeClientQuotasRequest]) -> DescribeClientQuotasResponse:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return DescribeClientQuotasResponse(error_code=ClusterAuthorizationError.code, entries=None)
    return DescribeClientQuotasResponse()
