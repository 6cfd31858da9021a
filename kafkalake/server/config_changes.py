"""Changes of a resource's settings, shared by AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from kafkalake.errors import ClusterAuthorizationError, InvalidRequestError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.forwarding import forward
from kafkalake.server.group_lookup import check_group
from kafkalake.server.handlers.describe_configs import BROKER, BROKER_LOGGER, GROUP, TOPIC, check_broker_name
from kafkalake.server.logger_levels import change_levels, own_levels
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic
from kafkalake.wire.messages.topics import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse

_Resources = TypeVar("_Resources", bound=AlterConfigsRequest)
Change = Callable[[dict[str, str]], Mapping[str, str | None]]
"""Maps the current settings to the new ones."""


async def change_resource(
    request: Request[object], resource_type: int, name: str, change: Change, *, validate_only: bool
) -> None:
    """Apply `change` to the settings of a topic, of the broker, of its loggers or of a group.

    Raise `InvalidConfigError`, `InvalidRequestError` or the errors of the lookup.
    """
    broker = request.context.broker
    if resource_type == TOPIC:
        if not name:
            raise InvalidRequestError("Default topic resources are not allowed.")
        topic = find_topic(request, name)
        await broker.topic_admin.alter_config(topic, change, changed_by=request.caller, validate_only=validate_only)
    elif resource_type == BROKER:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        if name:
            check_broker_name(request, name)
        settings = broker.settings
        changed = change(settings.layer(cluster_default=not name))
        settings.change(changed, cluster_default=not name, changed_by=request.caller, validate_only=validate_only)
    elif resource_type == BROKER_LOGGER:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        check_broker_name(request, name)
        change_levels(change(own_levels()), validate_only=validate_only)
    elif resource_type == GROUP:
        check_group(request, name)
        groups = broker.groups.settings
        changed = change(groups.layer(name))
        groups.change(name, changed, changed_by=request.caller, validate_only=validate_only)
    else:
        raise InvalidRequestError(f"Unsupported resource type: {resource_type}")


async def change_at_controller(request: Request[_Resources]) -> dict[tuple[int, str], AlterConfigsResourceResponse]:
    """Return the controller's answers, if it is another broker: for topics, and for the settings of all brokers.

    Settings of one broker, of its loggers and of groups are changed where they are.
    """
    body = request.body
    asked = [each for each in body.resources if is_controllers(each.resource_type, each.resource_name)]
    if request.context.broker.controller.is_active or not asked:
        return {}
    part = type(body)(resources=asked, validate_only=body.validate_only)
    answer = await forward(request, part, refusal)
    return {(each.resource_type, each.resource_name): each for each in answer.responses}


def is_controllers(resource_type: int, name: str) -> bool:
    """Return whether the controller keeps the settings of a resource."""
    return resource_type == TOPIC or (resource_type == BROKER and not name)


def refusal(body: AlterConfigsRequest, code: int, message: str) -> AlterConfigsResponse:
    """Return the response that refuses all of a request."""
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in body.resources
        ]
    )
