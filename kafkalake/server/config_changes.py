"""Changes of a resource's settings, shared by AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kafkalake.broker.admin.config_admin import CHANGES_MAX, Change
from kafkalake.broker.partitions.topics import Topic
from kafkalake.cluster.image import ConfigResource, ResourceKind
from kafkalake.errors import (
    ClusterAuthorizationError,
    InvalidRequestError,
    KafkaError,
    NotControllerError,
    UnknownTopicOrPartitionError,
    as_value,
)
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kafkalake.server.forwarding import find_out_if_replaced, forward
from kafkalake.server.group_lookup import check_group
from kafkalake.server.handlers.describe_configs import check_broker_name
from kafkalake.server.logger_levels import change_levels, own_levels
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_described_topic
from kafkalake.wire.messages.topics import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

_Resources = TypeVar("_Resources", bound=AlterConfigsRequest)


async def change_resources(
    request: Request[_Resources], change_of: Callable[[AlterConfigsResource], Change]
) -> list[AlterConfigsResourceResponse]:
    """Change each resource of a request and return the answers. `change_of` returns a change or raises a `KafkaError`.

    Topics are changed together, in one commit, and those whose settings are in the cluster's image, in few versions.
    """
    resources = request.body.resources
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    by_controller = await _change_at_controller(request, resources)
    changes: dict[ConfigResource, Change] = {}
    of_topics: dict[Topic, Change] = {}
    outcomes: list[AlterConfigsResourceResponse | ConfigResource | Topic | KafkaError | None] = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        if (kind, name) in by_controller:
            outcomes.append(by_controller[kind, name])
            continue
        try:
            if times[kind, name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            if kind == BROKER_LOGGER:
                _check_loggers(request, name)
            change, found = change_of(resource), _find_resource(request, kind, name)
            if isinstance(found, Topic):
                of_topics[found] = change
            elif found is not None:
                changes[found] = change
            else:
                _change_loggers(kind, change, validate_only=request.body.validate_only)
            outcomes.append(found)
        except KafkaError as error:
            outcomes.append(as_value(error))
        await request.turn()
    topics_refused = await _change_topics(request, of_topics)
    refused = await _change_together(request, changes)
    answers = []
    for resource, outcome in zip(resources, outcomes, strict=True):
        if isinstance(outcome, AlterConfigsResourceResponse):
            answers.append(outcome)
        else:
            if isinstance(outcome, Topic):
                why = topics_refused.get(outcome)
            else:
                why = refused.get(outcome) if isinstance(outcome, ConfigResource) else outcome
            answers.append(_answer(request, resource, why))
        await request.turn()
    return await _with_newest(request, answers)


def _answer(
    request: Request[_Resources], resource: AlterConfigsResource, error: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else request.error_text(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


async def _change_topics(request: Request[_Resources], changes: Mapping[Topic, Change]) -> dict[Topic, KafkaError]:
    """Change topics' settings. Return the errors."""
    admin, validate_only = request.context.broker.topic_admin, request.body.validate_only
    try:
        return await admin.alter_configs(changes, changed_by=request.caller, validate_only=validate_only)
    except KafkaError as error:
        return dict.fromkeys(changes, as_value(error))


async def _change_together(
    request: Request[_Resources], changes: Mapping[ConfigResource, Change]
) -> dict[ConfigResource, KafkaError]:
    """Change resources of the cluster's image, as many in one version as there may be. Return the errors."""
    admin = request.context.broker.config_admin
    errors: dict[ConfigResource, KafkaError] = {}
    asked = list(changes.items())
    for first in range(0, len(asked), CHANGES_MAX):
        some = dict(asked[first : first + CHANGES_MAX])
        try:
            errors |= await admin.alter_all(some, changed_by=request.caller, validate_only=request.body.validate_only)
        except KafkaError as error:
            errors |= dict.fromkeys(some, as_value(error))
    return errors


async def _with_newest(
    request: Request[_Resources], answers: list[AlterConfigsResourceResponse]
) -> list[AlterConfigsResourceResponse]:
    """Return the answers, those of the next controller where this broker has found that it is the controller no more."""
    late = [each.error_code == NotControllerError.code for each in answers]
    if request.connection.is_forwarded or not any(late):
        return answers
    changed = await _change_at_controller(
        request, [each for each, is_late in zip(request.body.resources, late, strict=True) if is_late]
    )
    return [changed.get((each.resource_type, each.resource_name), each) for each in answers]


def _find_resource(request: Request[object], resource_type: int, name: str) -> ConfigResource | Topic | None:
    """Return the topic, or the resource of the cluster's image, None if it is neither. Raise the errors of the lookup."""
    if resource_type == TOPIC:
        if not name:
            raise InvalidRequestError("Default topic resources are not allowed.")
        try:
            return find_described_topic(request, name)
        except UnknownTopicOrPartitionError:
            raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.") from None
    if resource_type == GROUP:
        check_group(request, name)
        return ConfigResource(ResourceKind.GROUP, name)
    if resource_type in (BROKER, CLIENT_METRICS) and not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorizationError()
    if resource_type == BROKER:
        return ConfigResource(ResourceKind.BROKER, str(check_broker_name(request, name)) if name else "")
    return ConfigResource(ResourceKind.CLIENT_METRICS, name) if resource_type == CLIENT_METRICS else None


def refuse_nulls(names: Iterable[str]) -> None:
    """Raise `InvalidRequestError` if there are settings that are to be set to null."""
    if nulls := ", ".join(names):
        raise InvalidRequestError(f"Null value not supported for : {nulls}")


def _check_loggers(request: Request[object], name: str) -> None:
    """Raise the error of a resource of loggers that are not this broker's, or not the principal's to change."""
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorizationError()
    check_broker_name(request, name)


def _change_loggers(resource_type: int, change: Change, *, validate_only: bool) -> None:
    """Apply `change` to the levels of this broker's loggers.

    Raise `InvalidConfigError`, `InvalidRequestError`, also for any other type of resource.
    """
    if resource_type != BROKER_LOGGER:
        raise InvalidRequestError(f"Unknown resource type {resource_type}")
    change_levels(change(own_levels()), validate_only=validate_only)


async def _change_at_controller(
    request: Request[_Resources], resources: Sequence[AlterConfigsResource]
) -> dict[tuple[int, str], AlterConfigsResourceResponse]:
    """Return the controller's answers, if it is another broker, for those of the resources that are no loggers.

    A broker that is named in the request is this one: it refuses others itself.
    """
    body, broker = request.body, request.context.broker
    asked = [each for each in resources if is_controllers(request, each.resource_type, each.resource_name)]
    with contextlib.suppress(KafkaError):  # a change that is made then says what the matter is
        await find_out_if_replaced(request.context)
    if broker.controller.is_active or not asked:
        return {}
    part = type(body)(resources=asked, validate_only=body.validate_only)
    answer = await forward(request, part, refusal)
    await broker.config_admin.catch_up()
    return {(each.resource_type, each.resource_name): each for each in answer.responses}


def is_controllers(request: Request[object], resource_type: int, name: str) -> bool:
    """Return whether the controller changes the settings of a resource, if this broker does not refuse it."""
    if resource_type == BROKER and name:
        return name == str(request.context.broker.broker_id)
    return resource_type in (TOPIC, BROKER, CLIENT_METRICS, GROUP)


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
