"""BrokerRegistration (62), versions 0-4: a broker's incarnation joins the cluster, and gets its epoch. For the controller.

- 3: the epoch that the broker noted when it had closed its logs in order (KIP-966). 4: kafkalake's own tagged fields (`schemas`).
- Features are those of this release on every broker, and log directories are not told apart: both are ignored.
"""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, InconsistentClusterIdError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.member_messages import registration_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.membership import BrokerRegistrationRequest, BrokerRegistrationResponse


async def handle(request: Request[BrokerRegistrationRequest]) -> BrokerRegistrationResponse:
    broker, body = request.context.broker, request.body
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        if body.cluster_id != broker.cluster.cluster_id:
            raise InconsistentClusterIdError(f"this is a broker of cluster {broker.cluster.cluster_id}")
        epoch = await broker.controller.register(
            registration_of(body), previous_epoch=body.previous_broker_epoch, is_cut=body.is_cut
        )
    except KafkaError as error:
        return BrokerRegistrationResponse(error_code=error.code)
    return BrokerRegistrationResponse(broker_epoch=epoch)
