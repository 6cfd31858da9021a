"""ListGroups (16), versions 0-5: the groups of this broker. 3: flexible. 4: their states, and a filter (KIP-518).

5: their types, "classic" or "consumer", and a filter (KIP-848).
"""

from __future__ import annotations

from typing import Any

from kafkalake.server.authorizer import Operation
from kafkalake.server.group_lookup import allows_group
from kafkalake.server.request import Request


def handle(request: Request) -> dict[str, Any]:
    body = request.body
    groups = request.context.broker.groups.coordinator.list_groups(
        getattr(body, "states_filter", ()), getattr(body, "types_filter", ())
    )
    return {
        "error_code": 0,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.group_type,
            }
            for group in groups
            if allows_group(request, Operation.DESCRIBE, group.group_id)
        ],
    }
