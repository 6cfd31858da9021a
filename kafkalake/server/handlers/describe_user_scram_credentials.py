"""DescribeUserScramCredentials (50), version 0: the mechanisms and iterations of users' credentials, never their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

from kafkalake.broker.admin.scram_credentials import Credential, credentials, users
from kafkalake.errors import ClusterAuthorizationError, DuplicateResourceError, ResourceNotFoundError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
)


def handle(
    request: Request[DescribeUserScramCredentialsRequest],
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return DescribeUserScramCredentialsResponse(error_code=ClusterAuthorizationError.code)
    config = request.context.broker.cluster.config
    asked = Counter([user.name for user in request.body.users or ()] or users(config))
    answers = []
    for name, times in asked.items():
        answers.append(_answer(name, times, credentials(config, name)))
        yield
    return DescribeUserScramCredentialsResponse(results=answers)


def _answer(name: str, times: int, known: Sequence[Credential]) -> DescribeUserScramCredentialsResult:
    if times > 1:
        code = DuplicateResourceError.code
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not known:
        code = ResourceNotFoundError.code
        message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        infos = [ScramCredentialInfo(mechanism=each.mechanism, iterations=each.iterations) for each in known]
        return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)
