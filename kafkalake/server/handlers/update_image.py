"""UpdateImage (10002, kafkalake's own), version 0: the controller has made a version of the cluster's image.

Answered when this broker has applied that version or a newer one, or after `timeout` ms with REQUEST_TIMED_OUT, with the version
that it has. The image itself is in the control store: whoever misses this request finds the version there.
"""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError, RequestTimedOutError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.membership import UpdateImageRequest, UpdateImageResponse

_TIMEOUT_MS_MAX = 60_000


async def handle(request: Request[UpdateImageRequest]) -> UpdateImageResponse:
    broker, version = request.context.broker, request.body.version
    code = 0
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        await broker.membership.follow(version, min(max(request.body.timeout, 0), _TIMEOUT_MS_MAX))
        if broker.cluster.version < version:
            raise RequestTimedOutError()
    except KafkaError as error:
        code = error.code
    return UpdateImageResponse(error_code=code, version=broker.cluster.version)
