"""AlterUserScramCredentials (51), version 0: set and remove credentials of users, as Kafka on a cluster without SASL listeners.

They are kept in the cluster's image (`broker/admin/scram_credentials.py`). Of one user only one credential a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kafkalake.broker.admin.config_admin import Change, check_number
from kafkalake.broker.admin.scram_credentials import credential_text, mechanism_name, user_resource
from kafkalake.cluster.image import ConfigResource
from kafkalake.errors import (
    ClusterAuthorizationError,
    DuplicateResourceError,
    KafkaError,
    ResourceNotFoundError,
    as_value,
)
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)


async def handle(request: Request[AlterUserScramCredentialsRequest]) -> AlterUserScramCredentialsResponse:
    body = request.body
    asked: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*body.deletions, *body.upsertions]
    times: Counter[str] = Counter()
    for each in asked:
        times[each.name] += 1
        await request.turn()
    refused: KafkaError | None = None
    errors: dict[str, KafkaError] = {}
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        check_number(len(times))
        errors = await _alter(request, asked, times)
    except KafkaError as error:
        refused = as_value(error)
    results = []
    for user in times:
        results.append(_result(request, user, refused or errors.get(user)))
        await request.turn()
    return AlterUserScramCredentialsResponse(results=results)


async def _alter(
    request: Request[AlterUserScramCredentialsRequest],
    asked: Iterable[ScramCredentialDeletion | ScramCredentialUpsertion],
    times: Mapping[str, int],
) -> dict[str, KafkaError]:
    """Alter what is valid and return the errors of the other users."""
    errors: dict[str, KafkaError] = {}
    changes: dict[ConfigResource, Change] = {}
    for each in asked:
        try:
            if times[each.name] > 1:
                raise DuplicateResourceError("A user credential cannot be altered twice in the same request")
            resource = user_resource(each.name)
            changes[resource] = _deletion(each) if isinstance(each, ScramCredentialDeletion) else _upsertion(each)
        except KafkaError as error:
            errors[each.name] = as_value(error)
        await request.turn()
    admin = request.context.broker.config_admin
    failed = await admin.alter_all(changes, changed_by=request.caller, validate_only=False)
    return errors | {resource.name: error for resource, error in failed.items()}


def _result(request: Request[object], user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user)
    return AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=request.error_text(error))


def _deletion(deletion: ScramCredentialDeletion) -> Change:
    name = mechanism_name(deletion.mechanism)

    def change(present: dict[str, str]) -> Mapping[str, str | None]:
        if name not in present:
            raise ResourceNotFoundError("Attempt to delete a user credential that does not exist")
        return {mechanism: text for mechanism, text in present.items() if mechanism != name}

    return change


def _upsertion(upsertion: ScramCredentialUpsertion) -> Change:
    name = mechanism_name(upsertion.mechanism)
    text = credential_text(name, upsertion.iterations, bytes(upsertion.salt), bytes(upsertion.salted_password))
    return lambda present: {**present, name: text}


def refusal(body: AlterUserScramCredentialsRequest, code: int, message: str) -> AlterUserScramCredentialsResponse:
    """Return the response that refuses all of a request."""
    users = dict.fromkeys([*(each.name for each in body.deletions), *(each.name for each in body.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message) for user in users]
    )
