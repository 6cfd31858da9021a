"""RemoveRaftVoter (81), version 0: refused, see `server/raft_voters.py`."""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.raft_voters import refuse_removal
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import RemoveRaftVoterRequest, RemoveRaftVoterResponse


def handle(request: Request[RemoveRaftVoterRequest]) -> RemoveRaftVoterResponse:
    error: KafkaError = ClusterAuthorizationError()
    if request.allows(Resource.CLUSTER, CLUSTER_NAME):
        error = refuse_removal(request.context.broker.cluster, request.body.voter_id)
    return RemoveRaftVoterResponse(error_code=error.code, error_message=request.error_text(error))


def refusal(body: RemoveRaftVoterRequest, code: int, message: str) -> RemoveRaftVoterResponse:
    """Return the response that refuses the request."""
    return RemoveRaftVoterResponse(error_code=code, error_message=message)
