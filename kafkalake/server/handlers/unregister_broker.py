"""UnregisterBroker (64), version 0: remove a broker that is not coming back. The only broker is the one that answers."""

from __future__ import annotations

from kafkalake.errors import BrokerIdNotRegisteredError, ClusterAuthorizationError, InvalidRequestError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(request: Request[UnregisterBrokerRequest]) -> UnregisterBrokerResponse:
    broker_id = request.body.broker_id
    error: KafkaError
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        error = ClusterAuthorizationError()
    elif broker_id in request.context.broker.cluster.brokers:
        error = InvalidRequestError(f"broker {broker_id} is running, and is unregistered after it has ended")
    else:
        error = BrokerIdNotRegisteredError(f"Broker ID {broker_id} is not currently registered")
    return UnregisterBrokerResponse(error_code=error.code, error_message=request.error_text(error))


def refusal(body: UnregisterBrokerRequest, code: int, message: str) -> UnregisterBrokerResponse:
    """Return the response that refuses all of a request."""
    return UnregisterBrokerResponse(error_code=code, error_message=message)
