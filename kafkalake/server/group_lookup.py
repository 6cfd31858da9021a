"""Groups as requests name them, and errors of groups as answers show them."""

from __future__ import annotations

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.errors import GroupAuthorizationError
from kafkalake.server.authorizer import Operation, Resource
from kafkalake.server.request import Request


def allows_group(request: Request, operation: Operation, group_id: str) -> bool:
    """Whether the request's principal may do this to the group."""
    return request.context.authorizer.allows(request.connection.principal, operation, Resource.GROUP, group_id)


def check_group(request: Request, operation: Operation, group_id: str) -> None:
    """Raise `GroupAuthorizationError` where the principal may not."""
    if not allows_group(request, operation, group_id):
        raise GroupAuthorizationError()


def code_of(error: ErrorClass | None) -> int:
    """The error's code; 0 for none."""
    return 0 if error is None else error.code
