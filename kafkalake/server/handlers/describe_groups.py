"""DescribeGroups (15), versions 0-6: state, protocol and members of groups of the classic protocol.

3: authorized operations (KIP-430). 4: `group_instance_id`. 5: flexible. 6: GROUP_ID_NOT_FOUND with a message for a missing
group, described as a group in state Dead before (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafkalake.errors import GroupIdNotFoundError, KafkaError
from kafkalake.server.authorizer import Operation, Resource
from kafkalake.server.group_lookup import check_group
from kafkalake.server.handlers.metadata import operation_bits
from kafkalake.server.request import Request

_NOT_ASKED = -(2**31)


def handle(request: Request) -> Generator[None, None, dict[str, Any]]:
    answers = []
    for each in dict.fromkeys(request.body.groups):
        answers.append(_describe(request, each))
        yield
    return {"groups": answers}


def _describe(request: Request, group_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"error_code": 0, "group_id": group_id, "authorized_operations": _NOT_ASKED}
    try:
        check_group(request, Operation.DESCRIBE, group_id)
        group = request.context.broker.groups.coordinator.describe_group(group_id)
    except GroupIdNotFoundError as error:
        answer["group_state"] = "Dead"
        if request.version >= 6:
            answer.update(error_code=error.code, error_message=request.error_text(error))
        return answer
    except KafkaError as error:
        answer["error_code"] = error.code
        return answer
    if getattr(request.body, "include_authorized_operations", False):
        answer["authorized_operations"] = operation_bits(request, Resource.GROUP, group_id)
    answer.update(
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
    )
    return answer
