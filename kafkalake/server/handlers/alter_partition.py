"""AlterPartition (56), versions 2-3: the ISRs that leaders propose. For the controller.

Each partition has its own outcome. 3: the epochs of the brokers in an ISR (KIP-903).
"""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.member_messages import isr_changes_of, isr_response
from kafkalake.server.request import Request
from kafkalake.wire.messages.membership import AlterPartitionRequest, AlterPartitionResponse


async def handle(request: Request[AlterPartitionRequest]) -> AlterPartitionResponse:
    body = request.body
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        changes = await request.in_turns(isr_changes_of(body))
        outcomes = await request.context.broker.controller.alter_partition(body.broker_id, body.broker_epoch, changes)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
    return await request.in_turns(isr_response(changes, outcomes))
