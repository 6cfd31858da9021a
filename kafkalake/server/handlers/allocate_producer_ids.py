"""AllocateProducerIds (67), version 0: a block of producer ids for one broker. For the controller."""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.membership import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def handle(request: Request[AllocateProducerIdsRequest]) -> AllocateProducerIdsResponse:
    body = request.body
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        ids = await request.context.broker.controller.allocate_producer_ids(body.broker_id, body.broker_epoch)
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=ids.start, producer_id_len=len(ids))
