"""The answer to requests about access control lists: there is no authorizer, and therefore no list."""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError, SecurityDisabledError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request


def refusal(request: Request[object], message: str) -> KafkaError:
    """Return the error: SECURITY_DISABLED with `message`, or that the principal may not even ask."""
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return ClusterAuthorizationError()
    return SecurityDisabledError(message)
