"""SyncGroup (14), versions 0-5: the leader sends all assignments, and each member gets its own, answered when it is available.

3: `group_instance_id`. 4: flexible. 5: the protocol's type and name, checked if given (KIP-559).
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.groups.requests import SyncRequest, SyncResult
from kafkalake.errors import KafkaError
from kafkalake.server.group_lookup import check_group, code_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.groups import SyncGroupRequest, SyncGroupResponse


def handle(request: Request[SyncGroupRequest]) -> Generator[None, None, None]:
    body = request.body

    def reply(result: SyncResult) -> None:
        request.reply(
            SyncGroupResponse(
                error_code=code_of(result.error),
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    try:
        check_group(request, body.group_id)
    except KafkaError as error:
        reply(SyncResult(type(error)))
        return
    assignments = {}
    for each in body.assignments:
        assignments[each.member_id] = bytes(each.assignment)
        if request.body_is_kept:  # else the request is small, and its memory is reused after the first turn
            yield
    sync = SyncRequest(
        member_id=body.member_id,
        generation_id=body.generation_id,
        assignments=assignments,
        group_instance_id=body.group_instance_id,
        protocol_type=body.protocol_type,
        protocol_name=body.protocol_name,
    )
    request.forget_body()
    request.context.broker.groups.coordinator.sync_group(body.group_id, sync, request.guarded(reply))
