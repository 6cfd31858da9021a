"""LeaveGroup (13), versions 0-5: members leave, or an administrator removes them.

3: several members, by member id or by `group_instance_id` alone (KIP-345); before, one member, with its error at the top level.
4: flexible. 5: the reason for leaving.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.groups.requests import LeavingMember
from kafkalake.errors import KafkaError
from kafkalake.server.group_lookup import check_group, code_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

_MEMBERS_A_STEP = 100


def handle(request: Request[LeaveGroupRequest]) -> Generator[None, None, LeaveGroupResponse]:
    body = request.body
    asked = body.members if request.version >= 3 else [MemberIdentity(member_id=body.member_id)]
    results = []
    try:
        check_group(request, body.group_id)
        for start in range(0, len(asked) or 1, _MEMBERS_A_STEP):
            some = asked[start : start + _MEMBERS_A_STEP]
            leaving = [LeavingMember(each.member_id, each.group_instance_id) for each in some]
            results += request.context.broker.groups.coordinator.leave_group(body.group_id, leaving)
            yield
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if request.version < 3:
        return LeaveGroupResponse(error_code=code_of(results[0].error))
    members = []
    for member_id, instance_id, refusal in results:
        members.append(MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code_of(refusal)))
        yield
    return LeaveGroupResponse(members=members)
