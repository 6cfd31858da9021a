"""BrokerHeartbeat (63), versions 0-1: a broker's sign of life, and what it may do now. For the controller.

1: offline log directories, ignored here, and kafkalake's own tagged field of replicas without a log (`schemas`).
"""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.member_messages import heartbeat_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.membership import BrokerHeartbeatRequest, BrokerHeartbeatResponse


async def handle(request: Request[BrokerHeartbeatRequest]) -> BrokerHeartbeatResponse:
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        heartbeat = await request.in_turns(heartbeat_of(request.body))
        answer = await request.context.broker.controller.heartbeat(heartbeat)
    except KafkaError as error:
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(
        is_caught_up=answer.is_caught_up, is_fenced=answer.is_fenced, should_shut_down=answer.should_shut_down
    )
