"""ControllerRegistration (70), version 0: a node that is a controller only joins the cluster (KIP-919). For the controller.

A node sends it as its sign of life, too. One that is a broker as well registers as a broker. Features are ignored, as for that.
"""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.member_messages import controller_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.membership import ControllerRegistrationRequest, ControllerRegistrationResponse


async def handle(request: Request[ControllerRegistrationRequest]) -> ControllerRegistrationResponse:
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        await request.context.broker.controller.register_controller(controller_of(request.body))
    except KafkaError as error:
        return ControllerRegistrationResponse(error_code=error.code, error_message=request.error_text(error))
    return ControllerRegistrationResponse()
