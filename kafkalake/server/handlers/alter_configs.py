"""AlterConfigs (33), versions 0-2: replace all settings of a topic (resource type 2), of brokers (4) or of a group (32).

Settings not in the request are reset to their default. IncrementalAlterConfigs has replaced this API in new clients.
"""

from __future__ import annotations

from collections import Counter

from kafkalake.broker.admin.config_admin import Change
from kafkalake.errors import InvalidRequestError, KafkaError
from kafkalake.server.config_changes import change_at_controller, change_resource
from kafkalake.server.config_resources import BROKER_LOGGER
from kafkalake.server.request import Request
from kafkalake.wire.messages.topics import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def _replacing(resource: AlterConfigsResource) -> Change:
    """Return the change to the resource's settings. Raise `InvalidRequestError` for a setting without a value."""
    for config in resource.configs:
        if config.value is None:
            raise InvalidRequestError(f"Null value not supported for : {config.name}")
    wanted = {config.name: config.value for config in resource.configs}
    return lambda present: wanted


async def handle(request: Request[AlterConfigsRequest]) -> AlterConfigsResponse:
    resources = request.body.resources
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    by_controller = await change_at_controller(request)
    answers = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        if (kind, name) in by_controller:
            answers.append(by_controller[kind, name])
            continue
        code, message = 0, None
        try:
            if times[kind, name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            if kind == BROKER_LOGGER:
                raise InvalidRequestError(f"Unsupported resource type: {kind}")
            await change_resource(request, kind, name, _replacing(resource), validate_only=request.body.validate_only)
        except KafkaError as error:
            code, message = error.code, request.error_text(error)
        answers.append(
            AlterConfigsResourceResponse(error_code=code, error_message=message, resource_type=kind, resource_name=name)
        )
        await request.turn()
    return AlterConfigsResponse(responses=answers)
