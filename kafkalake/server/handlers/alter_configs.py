"""AlterConfigs (33), versions 0-2: replace all settings of a topic (resource type 2), this broker (4) or a group (32).

Settings not in the request are reset to their default. IncrementalAlterConfigs has replaced this API in new clients.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kafkalake.errors import InvalidRequestError, KafkaError
from kafkalake.server.config_changes import Change, change_resource
from kafkalake.server.request import Request


def _replacing(resource: Any) -> Change:
    """Return the change to the resource's settings. Raise `InvalidRequestError` for a setting without a value."""
    for config in resource.configs:
        if config.value is None:
            raise InvalidRequestError(f"Null value not supported for : {config.name}")
    wanted = {config.name: config.value for config in resource.configs}
    return lambda present: wanted


async def handle(request: Request) -> dict[str, Any]:
    resources = request.body.resources
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    answers = []
    for resource in resources:
        answer = {
            "error_code": 0,
            "error_message": None,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            await change_resource(
                request,
                resource.resource_type,
                resource.resource_name,
                _replacing(resource),
                validate_only=request.body.validate_only,
            )
        except KafkaError as error:
            answer.update(error_code=error.code, error_message=request.error_text(error))
        answers.append(answer)
        await request.turn()
    return {"responses": answers}
