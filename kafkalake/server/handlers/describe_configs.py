"""DescribeConfigs (32), versions 1-4: the settings of topics (resource type 2), this broker (4), its loggers (8), groups (32).

Subscriptions to metrics of clients (16) too.

- 1: sources and synonyms. 3: types and documentation. 4: flexible.
- No keys means all settings. Unknown keys are ignored, as in Kafka.
- A broker is named by its id. The empty name stands for the cluster's default.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.admin import client_metrics
from kafkalake.config.layers import ConfigEntry
from kafkalake.errors import ClusterAuthorizationError, InvalidRequestError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kafkalake.server.group_lookup import check_group
from kafkalake.server.logger_levels import describe_loggers
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_described_topic
from kafkalake.wire.messages.topics import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    DescribedConfig,
)

_DYNAMIC_BROKER_LOGGER = 6
"""The source of a logger's level."""


def handle(request: Request[DescribeConfigsRequest]) -> Generator[None, None, DescribeConfigsResponse]:
    answers = []
    for each in {(each.resource_type, each.resource_name): each for each in request.body.resources}.values():
        answers.append(_describe(request, each))
        yield
    return DescribeConfigsResponse(results=answers)


def _describe(request: Request[DescribeConfigsRequest], resource: DescribeConfigsResource) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        if kind == BROKER_LOGGER:
            return DescribeConfigsResult(resource_type=kind, resource_name=name, configs=_levels(request, resource))
        entries = _entries(request, kind, name)
    except KafkaError as error:
        message = request.error_text(error)
        return DescribeConfigsResult(
            error_code=error.code, error_message=message, resource_type=kind, resource_name=name
        )
    keys, body = _keys(resource), request.body
    configs = [
        _entry(entry, synonyms=body.include_synonyms, documentation=body.include_documentation)
        for entry in entries
        if not keys or entry.setting.name in keys
    ]
    return DescribeConfigsResult(resource_type=kind, resource_name=name, configs=configs)


def _keys(resource: DescribeConfigsResource) -> frozenset[str]:
    """Return the settings that are asked for, none for all."""
    return frozenset(resource.configuration_keys or ())


def _entries(request: Request[DescribeConfigsRequest], resource_type: int, name: str) -> list[ConfigEntry]:
    settings = request.context.broker.settings.current
    if resource_type == TOPIC:
        topic = find_described_topic(request, name)
        return settings.describe_topic(topic.overrides)
    if resource_type == BROKER:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        if not name:
            return settings.describe_cluster_default()
        check_broker_name(request, name)
        return settings.describe_broker()
    if resource_type == GROUP:
        check_group(request, name)
        return request.context.broker.groups.settings.describe(name)
    if resource_type == CLIENT_METRICS:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        return client_metrics.describe(request.context.broker.cluster.config, name)
    raise InvalidRequestError(f"Unsupported resource type: {resource_type}")


def _levels(request: Request[DescribeConfigsRequest], resource: DescribeConfigsResource) -> list[DescribedConfig]:
    """Return the levels of this broker's loggers."""
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorizationError()
    check_broker_name(request, resource.resource_name)
    keys = _keys(resource)
    return [
        DescribedConfig(name=logger, value=level, config_source=_DYNAMIC_BROKER_LOGGER)
        for logger, level in describe_loggers().items()
        if not keys or logger in keys
    ]


def check_broker_name(request: Request[object], name: str) -> int:
    """Return the broker's id that is `name`. Raise `InvalidRequestError` if it is not that of this broker.

    In a forwarded request it is that of any broker: the one that forwarded it has checked its own.
    """
    broker_id = request.context.broker.broker_id
    try:
        named = int(name)
    except ValueError:
        raise InvalidRequestError(f"Broker id must be an integer, but it is: {name}") from None
    if named != broker_id and not request.connection.is_forwarded:
        raise InvalidRequestError(f"Unexpected broker id, expected {broker_id} or empty string, but received {name}")
    return named


def _entry(entry: ConfigEntry, *, synonyms: bool, documentation: bool) -> DescribedConfig:
    return DescribedConfig(
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=int(each.source)) for each in entry.synonyms
        ]
        if synonyms
        else [],
        config_type=entry.setting.kind.value,
        documentation=entry.setting.documentation if documentation else None,
    )
