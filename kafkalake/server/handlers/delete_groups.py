"""DeleteGroups (42), versions 0-2: delete groups without members, with their committed offsets. 2: flexible."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.groups.offset_requests import GroupErrors
from kafkalake.errors import GroupAuthorizationError
from kafkalake.server.authorizer import Resource
from kafkalake.server.group_lookup import code_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

_GROUPS_A_STEP = 50


def handle(request: Request[DeleteGroupsRequest]) -> Generator[None, None, None]:
    names = list(dict.fromkeys(request.body.groups_names))
    allowed = [name for name in names if request.allows(Resource.GROUP, name)]
    results: GroupErrors = {}

    def deleted(errors: GroupErrors) -> None:
        results.update(errors)
        if len(results) == len(allowed):
            request.work(_answer(names, results))

    if not allowed:
        deleted({})
    for start in range(0, len(allowed), _GROUPS_A_STEP):
        some = allowed[start : start + _GROUPS_A_STEP]
        request.context.broker.groups.offsets.delete_groups(some, request.guarded(deleted))
        yield


def _answer(names: list[str], errors: GroupErrors) -> Generator[None, None, DeleteGroupsResponse]:
    results = []
    for name in names:
        results.append(
            DeletableGroupResult(group_id=name, error_code=code_of(errors.get(name, GroupAuthorizationError)))
        )
        yield
    return DeleteGroupsResponse(results=results)
