"""ListConfigResources (74), versions 0-1: the resources that may have a configuration.

0: those of client metrics (type 16). 1: topics (2), brokers (4, their loggers 8) and groups (32)
too; no type means all.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.admin import client_metrics
from kafkalake.errors import ClusterAuthorizationError, UnsupportedVersionError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

_KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(request: Request[ListConfigResourcesRequest]) -> Generator[None, None, ListConfigResourcesResponse]:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return ListConfigResourcesResponse(error_code=ClusterAuthorizationError.code)
    wanted = request.body.resource_types or (_KINDS if request.version else (CLIENT_METRICS,))
    if any(kind not in _KINDS for kind in wanted):
        return ListConfigResourcesResponse(error_code=UnsupportedVersionError.code)
    broker = request.context.broker
    names = {
        TOPIC: broker.topics.names(),
        BROKER: [str(each) for each in broker.cluster.brokers],
        BROKER_LOGGER: [str(each) for each in broker.cluster.brokers],
        CLIENT_METRICS: client_metrics.names(broker.cluster.config),
        GROUP: broker.groups.settings.names(),
    }
    found = []
    for kind in dict.fromkeys(wanted):
        for name in names[kind]:
            found.append(ListedConfigResource(resource_name=name, resource_type=kind))
            yield
    return ListConfigResourcesResponse(config_resources=found)
