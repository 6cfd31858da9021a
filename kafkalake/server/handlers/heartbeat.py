"""Heartbeat (12), versions 0-4: renew a member's session, and signal a rebalance. 3: `group_instance_id`. 4: flexible."""

from __future__ import annotations

from kafkalake.errors import KafkaError
from kafkalake.server.group_lookup import check_group
from kafkalake.server.request import Request
from kafkalake.wire.messages.groups import HeartbeatRequest, HeartbeatResponse


def handle(request: Request[HeartbeatRequest]) -> HeartbeatResponse:
    body = request.body
    try:
        check_group(request, body.group_id)
        request.context.broker.groups.coordinator.heartbeat(
            body.group_id, body.member_id, body.generation_id, body.group_instance_id
        )
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse()
