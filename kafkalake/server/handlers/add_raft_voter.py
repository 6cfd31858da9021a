"""AddRaftVoter (80), version 0: refused, see `server/raft_voters.py`."""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.raft_voters import refuse_addition
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import AddRaftVoterRequest, AddRaftVoterResponse


def handle(request: Request[AddRaftVoterRequest]) -> AddRaftVoterResponse:
    error: KafkaError = ClusterAuthorizationError()
    if request.allows(Resource.CLUSTER, CLUSTER_NAME):
        error = refuse_addition(request.context.broker.cluster, request.body.voter_id)
    return AddRaftVoterResponse(error_code=error.code, error_message=request.error_text(error))


def refusal(body: AddRaftVoterRequest, code: int, message: str) -> AddRaftVoterResponse:
    """Return the response that refuses the request."""
    return AddRaftVoterResponse(error_code=code, error_message=message)
