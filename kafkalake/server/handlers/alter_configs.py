"""AlterConfigs (33), versions 0-2: replace all settings of a topic (resource type 2), of brokers (4) or of a group (32).

Settings not in the request are reset to their default. A setting named twice for one resource gets INVALID_REQUEST.
IncrementalAlterConfigs has replaced this API in new clients.
"""

from __future__ import annotations

from kafkalake.broker.admin.config_admin import Change
from kafkalake.errors import InvalidRequestError
from kafkalake.server.config_changes import change_resources, refuse_nulls
from kafkalake.server.config_resources import BROKER_LOGGER
from kafkalake.server.request import Request
from kafkalake.wire.messages.topics import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)


async def handle(request: Request[AlterConfigsRequest]) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=await change_resources(request, _replacing))


def _replacing(resource: AlterConfigsResource) -> Change:
    """Return the change to the resource's settings. Raise `InvalidRequestError` for a setting without a value."""
    if resource.resource_type == BROKER_LOGGER:
        raise InvalidRequestError(f"Unsupported resource type: {BROKER_LOGGER}")
    wanted = {config.name: config.value for config in resource.configs}
    if len(wanted) < len(resource.configs):
        raise InvalidRequestError("Error due to duplicate config keys")
    refuse_nulls(config.name for config in resource.configs if config.value is None)
    return lambda present: wanted
