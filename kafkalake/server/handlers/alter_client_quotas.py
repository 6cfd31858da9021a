"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, client ids and addresses. 1: flexible.

The controller keeps them in the cluster's image; every broker enforces them (`server/throttling.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafkalake.broker.admin.client_quotas import resource_of
from kafkalake.broker.admin.config_admin import Change
from kafkalake.cluster.image import ConfigResource
from kafkalake.errors import ClusterAuthorizationError, InvalidRequestError, KafkaError, as_value
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredClientQuota,
    AlteredClientQuotaResult,
)


async def handle(request: Request[AlterClientQuotasRequest]) -> AlterClientQuotasResponse:
    body, errors = request.body, {}
    changes: dict[ConfigResource, Change] = {}
    resources: list[ConfigResource | KafkaError] = []
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        for entry in body.entries:
            resources.append(_resource(entry, changes))
            await request.turn()
        admin = request.context.broker.config_admin
        errors = await admin.alter_all(changes, changed_by=request.caller, validate_only=body.validate_only)
    except KafkaError as error:
        return refusal(body, error.code, request.error_text(error))
    answers = []
    for entry, resource in zip(body.entries, resources, strict=True):
        failed = resource if isinstance(resource, KafkaError) else errors.get(resource)
        code, message = (0, None) if failed is None else (failed.code, request.error_text(failed))
        answers.append(AlteredClientQuotaResult(error_code=code, error_message=message, entity=entry.entity))
        await request.turn()
    return AlterClientQuotasResponse(entries=answers)


def _resource(entry: AlteredClientQuota, changes: dict[ConfigResource, Change]) -> ConfigResource | KafkaError:
    """Return the resource of an entry, whose change is added to `changes`, or why it has none."""
    try:
        resource = resource_of([(each.entity_type, each.entity_name) for each in entry.entity])
        keys = Counter(each.key for each in entry.ops)
        if len(keys) < len(entry.ops):
            raise InvalidRequestError(
                f"Duplicate quota key {keys.most_common(1)[0][0]} not updating quota for this entity"
            )
        if resource in changes:
            raise InvalidRequestError("Ignoring duplicate entity")
    except KafkaError as error:
        return as_value(error)

    def change(present: dict[str, str]) -> Mapping[str, str | None]:
        changed: dict[str, str | None] = dict(present)
        for each in entry.ops:
            if each.remove:
                changed.pop(each.key, None)
            else:
                changed[each.key] = repr(each.value)
        return changed

    changes[resource] = change
    return resource


def refusal(body: AlterClientQuotasRequest, code: int, message: str) -> AlterClientQuotasResponse:
    """Return the response that refuses all of a request."""
    return AlterClientQuotasResponse(
        entries=[
            AlteredClientQuotaResult(error_code=code, error_message=message, entity=each.entity)
            for each in body.entries
        ]
    )
