"""DescribeUserScramCredentials (50), version 0: none. No listener asks for a password, and none can be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from kafkalake.errors import ClusterAuthorizationError, DuplicateResourceError, ResourceNotFoundError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    request: Request[DescribeUserScramCredentialsRequest],
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return DescribeUserScramCredentialsResponse(error_code=ClusterAuthorizationError.code)
    asked = Counter(user.name for user in request.body.users or ())
    answers = []
    for name, times in asked.items():
        answers.append(_answer(name, times))
        yield
    return DescribeUserScramCredentialsResponse(results=answers)


def _answer(name: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        code = DuplicateResourceError.code
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    else:
        code = ResourceNotFoundError.code
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)
