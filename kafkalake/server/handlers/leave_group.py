"""LeaveGroup (13), versions 0-5: members leave, or are sent away by an administrator.

3: several members, by member id or by `group_instance_id` alone (KIP-345); before, one member, whose error is the answer's.
4: flexible. 5: why they leave.
"""

from __future__ import annotations

from typing import Any

from kafkalake.broker.groups.requests import LeavingMember
from kafkalake.errors import KafkaError
from kafkalake.server.authorizer import Operation
from kafkalake.server.group_lookup import check_group, code_of
from kafkalake.server.request import Request


def handle(request: Request) -> dict[str, Any]:
    body = request.body
    if request.version >= 3:
        leaving = [LeavingMember(each.member_id, each.group_instance_id) for each in body.members]
    else:
        leaving = [LeavingMember(body.member_id)]
    try:
        check_group(request, Operation.READ, body.group_id)
        results = request.context.broker.groups.coordinator.leave_group(body.group_id, leaving)
    except KafkaError as error:
        return {"error_code": error.code}
    if request.version < 3:
        return {"error_code": code_of(results[0].error)}
    return {
        "error_code": 0,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": code_of(error)}
            for member_id, instance_id, error in results
        ],
    }
