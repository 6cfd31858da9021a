"""JoinGroup (11), versions 0-9: join a group, or its next generation, answered when the group's members have joined.

- 0: the session timeout is the rebalance timeout too. 4: a first join without a member id gets MEMBER_ID_REQUIRED and one
  (KIP-394). 5: `group_instance_id` (KIP-345). 6: flexible. 7: the protocol's type in the response. 8: the reason for joining.
  9: a static member that leads again need not assign again (KIP-814).
- Only the leader gets the list of members.
- INVALID_REQUEST for a member with more than `PROTOCOLS_MAX` protocols.
"""

from __future__ import annotations

from kafkalake.broker.groups.requests import PROTOCOLS_MAX, GroupProtocol, JoinRequest, JoinResult
from kafkalake.errors import InvalidRequestError, KafkaError
from kafkalake.server.group_lookup import check_group, code_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.groups import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember


def handle(request: Request[JoinGroupRequest]) -> None:
    body = request.body

    def reply(result: JoinResult) -> None:
        _reply(request, result)

    try:
        check_group(request, body.group_id)
        if len(body.protocols) > PROTOCOLS_MAX:
            raise InvalidRequestError(f"more than {PROTOCOLS_MAX} protocols")
    except KafkaError as error:
        reply(JoinResult(type(error), body.member_id))
        return
    join = JoinRequest(
        member_id=body.member_id,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.address}",
        session_timeout_ms=body.session_timeout,
        rebalance_timeout_ms=body.rebalance_timeout if request.version >= 1 else body.session_timeout,
        protocol_type=body.protocol_type,
        protocols=tuple(GroupProtocol(each.name, bytes(each.metadata)) for each in body.protocols),
        group_instance_id=body.group_instance_id,
        member_id_required=request.version >= 4,
        can_skip_assignment=request.version >= 9,
    )
    request.forget_body()
    request.context.broker.groups.coordinator.join_group(body.group_id, join, request.guarded(reply))


def _reply(request: Request[JoinGroupRequest], result: JoinResult) -> None:
    protocol_name = result.protocol_name
    if protocol_name is None and request.version < 7:
        protocol_name = ""
    request.reply(
        JoinGroupResponse(
            error_code=code_of(result.error),
            generation_id=result.generation_id,
            protocol_type=result.protocol_type,
            protocol_name=protocol_name,
            leader=result.leader,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=[
                JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
                for member_id, instance_id, metadata in result.members
            ],
        )
    )
