"""DescribeClientQuotas (48), versions 0-1: the quotas of the entities that a filter finds. 1: flexible."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.admin.client_quotas import Entity, FilterPart, Quotas, find_entities
from kafkalake.errors import ClusterAuthorizationError, KafkaError
from kafkalake.made_array import MadeArray
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    ClientQuotaEntityData,
    ClientQuotaEntryData,
    ClientQuotaValueData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


def handle(request: Request[DescribeClientQuotasRequest]) -> Generator[None, None, DescribeClientQuotasResponse]:
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        parts = [FilterPart(each.entity_type, each.match_type, each.match) for each in request.body.components]
        found = yield from find_entities(request.context.broker.cluster.config, parts, strict=request.body.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=request.error_text(error), entries=None
        )
    return DescribeClientQuotasResponse(entries=MadeArray(lambda number: _entry(*found[number]), range(len(found))))


def _entry(entity: Entity, quotas: Quotas) -> ClientQuotaEntryData:
    return ClientQuotaEntryData(
        entity=[ClientQuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        values=[ClientQuotaValueData(key=key, value=value) for key, value in quotas.items()],
    )
