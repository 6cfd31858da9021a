"""ListPartitionReassignments (46), version 0: none, as every reassignment is reached at once."""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


def handle(request: Request[ListPartitionReassignmentsRequest]) -> ListPartitionReassignmentsResponse:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return ListPartitionReassignmentsResponse(error_code=ClusterAuthorizationError.code)
    return ListPartitionReassignmentsResponse()
