"""ControllerVote (10004, kafkalake's own), version 0: whether this broker reaches the controller that the sender does not reach.

Answered once this broker has tried, within about a second.
"""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.member_messages import code_of_vote
from kafkalake.server.request import Request
from kafkalake.wire.messages.membership import ControllerVoteRequest, ControllerVoteResponse


async def handle(request: Request[ControllerVoteRequest]) -> ControllerVoteResponse:
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        vote = await request.context.broker.membership.vote(request.body.controller_epoch)
    except KafkaError as error:
        return ControllerVoteResponse(error_code=error.code)
    return ControllerVoteResponse(vote=code_of_vote(vote))
