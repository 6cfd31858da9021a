"""Heartbeat (12), versions 0-4: renew a member's session, and signal a rebalance. 3: `group_instance_id`. 4: flexible."""

from __future__ import annotations

from typing import Any

from kafkalake.errors import KafkaError
from kafkalake.server.authorizer import Operation
from kafkalake.server.group_lookup import check_group
from kafkalake.server.request import Request


def handle(request: Request) -> dict[str, Any]:
    body = request.body
    try:
        check_group(request, Operation.READ, body.group_id)
        request.context.broker.groups.coordinator.heartbeat(
            body.group_id, body.member_id, body.generation_id, getattr(body, "group_instance_id", None)
        )
    except KafkaError as error:
        return {"error_code": error.code}
    return {"error_code": 0}
