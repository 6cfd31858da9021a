"""ListGroups (16), versions 0-5: the groups of this broker. 3: flexible. 4: their states, and a filter (KIP-518).

5: their types, "classic" or "consumer", and a filter (KIP-848).
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.server.authorizer import Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(request: Request[ListGroupsRequest]) -> Generator[None, None, ListGroupsResponse]:
    body = request.body
    coordinator = request.context.broker.groups.coordinator
    listed = []
    for group in (yield from coordinator.list_groups(body.states_filter, body.types_filter)):
        if request.allows(Resource.GROUP, group.group_id):
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
            )
        yield
    return ListGroupsResponse(groups=listed)
