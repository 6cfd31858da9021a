"""LeaveGroup (13), versions 0-5: members leave, or an administrator removes them.

3: several members, by member id or by `group_instance_id` alone (KIP-345); before, one member, with its error at the top level.
4: flexible. 5: the reason for leaving.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kafkalake.broker.coordination.waiting import wait_for_call
from kafkalake.broker.groups.requests import LeaveResult, LeavingMember
from kafkalake.errors import FencedInstanceIdError, KafkaError, UnknownMemberIdError
from kafkalake.server.group_lookup import check_group, code_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

_MEMBERS_A_STEP = 100


async def handle(request: Request[LeaveGroupRequest]) -> LeaveGroupResponse:
    body = request.body
    asked = body.members if request.version >= 3 else [MemberIdentity(member_id=body.member_id)]
    results: list[LeaveResult] = []
    try:
        check_group(request, body.group_id)
        for start in range(0, len(asked) or 1, _MEMBERS_A_STEP):
            some = asked[start : start + _MEMBERS_A_STEP]
            leaving = [LeavingMember(each.member_id, each.group_instance_id) for each in some]
            results += await _leave(request, leaving)
            await request.turn()
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if request.version < 3:
        return LeaveGroupResponse(error_code=code_of(results[0].error))
    members = []
    for member_id, instance_id, refusal in results:
        members.append(MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code_of(refusal)))
        await request.turn()
    return LeaveGroupResponse(members=members)


async def _leave(request: Request[LeaveGroupRequest], leaving: Sequence[LeavingMember]) -> list[LeaveResult]:
    """Return the results once the journal has them. Raise the error if that failed, as clients expect it of the whole request."""
    leave = request.context.broker.groups.coordinator.leave_group
    results: list[LeaveResult] = await wait_for_call(partial(leave, request.body.group_id, leaving))
    for each in results:
        if each.error not in (None, UnknownMemberIdError, FencedInstanceIdError):
            raise each.error
    return results
