"""Configurations of topics, brokers, groups and other resources: describe, and alter incrementally (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafkalake.client.administration.answers import find_result, no_result, raise_result
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.arguments import checked_broker_name
from kafkalake.client.network.script import Script
from kafkalake.client.request_parts import CONFIGS_AT_ONCE, cut
from kafkalake.client.requests import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, A, ClientApi, Q
from kafkalake.wire.messages.topics import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32
SET_CONFIG, DELETE_CONFIG, APPEND_CONFIG, SUBTRACT_CONFIG = 0, 1, 2, 3

CONFIG_SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Sources of a setting's value, as named by `kafka-configs`."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a topic or a broker. `source` is one of `CONFIG_SOURCES`' values."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Return whether the value is the built-in default."""
        return self.source in ("DEFAULT_CONFIG", "UNKNOWN")


def describe_configs(
    call: AdminCall, resource_type: int, names: Sequence[str], *, documentation: bool = False
) -> Script[dict[str, list[ConfigEntry]]]:
    """Return settings of topics (`TOPIC_RESOURCE`) or brokers (`BROKER_RESOURCE`, names are ids), by resource, ordered by name.

    Each broker is asked about its own ones.
    """
    parts = [[name] for name in names] if resource_type == BROKER_RESOURCE else cut(names, CONFIGS_AT_ONCE)
    found: dict[str, list[ConfigEntry]] = {}
    for part in parts:
        found |= yield from _describe(call, resource_type, part, documentation)
    return found


def _describe(
    call: AdminCall, resource_type: int, names: Sequence[str], documentation: bool
) -> Script[dict[str, list[ConfigEntry]]]:
    """Return settings of the resources of one request."""
    resources = [
        DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
        for name in names
    ]
    message = DescribeConfigsRequest(resources=resources, include_documentation=documentation)
    answer = yield from _ask(call, resource_type, names, DESCRIBE_CONFIGS, message)
    found = {}
    for result in answer.results:
        raise_result(result, f"'{result.resource_name}'")
        entries = [
            ConfigEntry(
                name=entry.name,
                value=entry.value,
                source=CONFIG_SOURCES.get(entry.config_source, "UNKNOWN"),
                read_only=bool(entry.read_only),
                sensitive=bool(entry.is_sensitive),
                documentation=entry.documentation,
            )
            for entry in result.configs
        ]
        found[str(result.resource_name)] = sorted(entries, key=lambda entry: entry.name)
    for name in names:
        if name not in found:
            raise no_result(f"'{name}'")
    return found


def alter_configs(
    call: AdminCall,
    resource_type: int,
    name: str,
    *,
    set_values: Mapping[str, str] | None = None,
    delete: Sequence[str] = (),
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> Script[None]:
    """Set some settings of a topic or broker, reset others to their default, append to lists and subtract from them.

    Raise `InvalidConfigError` and others.
    """
    operations = ((SET_CONFIG, set_values), (APPEND_CONFIG, append), (SUBTRACT_CONFIG, subtract))
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for operation, values in operations
        for key, value in (values or {}).items()
    ]
    configs += [AlterableConfig(name=key, config_operation=DELETE_CONFIG, value=None) for key in delete]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    message = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = yield from _ask(call, resource_type, [name], INCREMENTAL_ALTER_CONFIGS, message)
    result = find_result(answer.responses, lambda each: each.resource_name == name, f"'{name}'")
    raise_result(result, f"'{name}'")


def _ask(call: AdminCall, resource_type: int, names: Sequence[str], api: ClientApi[Q, A], message: Q) -> Script[A]:
    """Ask the broker itself about its own settings, any broker about others."""
    if resource_type == BROKER_RESOURCE and names and names[0]:
        return (yield from call.ask_broker(checked_broker_name(names[0]), api, message))
    return (yield from call.ask(api, message))
