"""DescribeGroups (15), versions 0-6: state, protocol and members of groups of the classic protocol.

3: authorized operations (KIP-430). 4: `group_instance_id`. 5: flexible. 6: GROUP_ID_NOT_FOUND with a message for a missing
group, described as a group in state Dead before (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.groups.requests import MemberDescription
from kafkalake.errors import GroupIdNotFoundError, KafkaError
from kafkalake.made_array import made_from
from kafkalake.server.authorizer import Resource
from kafkalake.server.group_lookup import check_group
from kafkalake.server.handlers.metadata import NOT_ASKED, operation_bits
from kafkalake.server.request import Request
from kafkalake.wire.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(request: Request[DescribeGroupsRequest]) -> Generator[None, None, DescribeGroupsResponse]:
    answers = []
    for each in dict.fromkeys(request.body.groups):
        answers.append(_describe(request, each))
        yield
    return DescribeGroupsResponse(groups=answers)


def _describe(request: Request[DescribeGroupsRequest], group_id: str) -> DescribedGroup:
    try:
        check_group(request, group_id)
        group = request.context.broker.groups.coordinator.describe_group(group_id)
    except GroupIdNotFoundError as error:
        code = error.code if request.version >= 6 else 0
        return DescribedGroup(
            group_id=group_id, group_state="Dead", error_code=code, error_message=request.error_text(error)
        )
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    operations = NOT_ASKED
    if request.body.include_authorized_operations:
        operations = operation_bits(request, Resource.GROUP, group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=made_from(group.members, _member),
        authorized_operations=operations,
    )


def _member(member: MemberDescription) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
