"""DeleteGroups (42), versions 0-2: groups without members go, with their committed offsets. 2: flexible."""

from __future__ import annotations

from kafkalake.broker.groups.offset_requests import GroupErrors
from kafkalake.errors import GroupAuthorizationError
from kafkalake.server.authorizer import Operation
from kafkalake.server.group_lookup import allows_group, code_of
from kafkalake.server.request import Request


def handle(request: Request) -> None:
    names = list(dict.fromkeys(request.body.groups_names))
    allowed = [name for name in names if allows_group(request, Operation.DELETE, name)]

    def reply(errors: GroupErrors) -> None:
        request.reply(
            {
                "results": [
                    {"group_id": name, "error_code": code_of(errors.get(name, GroupAuthorizationError))}
                    for name in names
                ]
            }
        )

    request.context.broker.groups.offsets.delete_groups(allowed, request.guarded(reply))
