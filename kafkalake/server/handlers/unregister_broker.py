"""UnregisterBroker (64), version 0: remove the registration of a broker that is not coming back.

Its partitions keep it as a replica, and are led by it again if it registers after all.
"""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, InvalidRequestError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(request: Request[UnregisterBrokerRequest]) -> UnregisterBrokerResponse:
    try:
        await _unregister(request)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=request.error_text(error))
    return UnregisterBrokerResponse()


async def _unregister(request: Request[UnregisterBrokerRequest]) -> None:
    """Raise `InvalidRequestError` for a broker that is running, otherwise as `Controller.unregister`."""
    broker, broker_id = request.context.broker, request.body.broker_id
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorizationError()
    known = broker.cluster.brokers.get(broker_id)
    if known is not None and not known.is_fenced:
        raise InvalidRequestError(f"broker {broker_id} is running, and is unregistered after it has ended")
    await broker.controller.unregister(broker_id)


def refusal(body: UnregisterBrokerRequest, code: int, message: str) -> UnregisterBrokerResponse:
    """Return the response that refuses all of a request."""
    return UnregisterBrokerResponse(error_code=code, error_message=message)
