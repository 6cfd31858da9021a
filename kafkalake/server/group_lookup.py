"""Authorization of groups in requests, and error codes of groups."""

from __future__ import annotations

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.errors import GroupAuthorizationError
from kafkalake.server.authorizer import Resource
from kafkalake.server.request import Request


def check_group(request: Request[object], group_id: str) -> None:
    """Raise `GroupAuthorizationError` if the principal may not."""
    if not request.allows(Resource.GROUP, group_id):
        raise GroupAuthorizationError()


def code_of(error: ErrorClass | None) -> int:
    """Return the error's code, 0 for none."""
    return 0 if error is None else error.code
