"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to or subtract from single settings (KIP-339). 1: flexible.

- Append and subtract are for lists (`cleanup.policy`) only, INVALID_CONFIG for others; but fields may be appended to
  `value.schema`, kafkalake's own, so that two clients who add fields at once have both. Deleting an unset or unknown setting
  changes nothing.
- Those of subscriptions to metrics are only set and deleted: as in Kafka no lists to append to, though they have several values.
- A setting named twice for one resource, or an unknown operation, gets INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from kafkalake.broker.admin.config_admin import Change
from kafkalake.broker.groups.group_settings import GROUP_SETTINGS
from kafkalake.config.broker import BROKER_SETTINGS
from kafkalake.config.setting import Kind, Setting
from kafkalake.config.setting_texts import format_value, members_of
from kafkalake.config.topic_values import VALUE_SCHEMA, with_fields
from kafkalake.config.topics import TOPIC_SETTINGS
from kafkalake.errors import ConfigurationError, InvalidConfigError, InvalidRequestError
from kafkalake.server.config_changes import change_resources, refuse_nulls
from kafkalake.server.config_resources import BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kafkalake.server.logger_levels import check_logger
from kafkalake.server.request import Request
from kafkalake.wire.messages.topics import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_LISTS: Mapping[int, Mapping[str, Setting]] = {TOPIC: TOPIC_SETTINGS, GROUP: GROUP_SETTINGS, CLIENT_METRICS: {}}
"""The settings among which lists can be appended to, by type of resource."""


async def handle(request: Request[IncrementalAlterConfigsRequest]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=await change_resources(request, _change_of))


def _change_of(resource: AlterConfigsResource) -> Change:
    _check(resource)
    return partial(_apply, resource)


def _check(resource: AlterConfigsResource) -> None:
    names = Counter(config.name for config in resource.configs)
    for config in resource.configs:
        if not config.name:
            raise InvalidRequestError("Resource name cannot be empty")
        if names[config.name] > 1:
            raise InvalidRequestError("Error due to duplicate config keys")
        if config.config_operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise InvalidRequestError(f"Unknown alter config operation {config.config_operation}")
        if resource.resource_type == BROKER_LOGGER:
            _check_level(config)
    refuse_nulls(each.name for each in resource.configs if each.value is None and each.config_operation != DELETE)


def _check_level(config: AlterableConfig) -> None:
    if config.config_operation in (APPEND, SUBTRACT):
        operation = "APPEND" if config.config_operation == APPEND else "SUBTRACT"
        raise InvalidRequestError(f"{operation} operation is not allowed for the BROKER_LOGGER resource")
    check_logger(config.name)


def _apply(resource: AlterConfigsResource, present: dict[str, str]) -> Mapping[str, str | None]:
    """Return the settings after the changes. `present` are the current ones."""
    settings = _LISTS.get(resource.resource_type, BROKER_SETTINGS)
    changed: dict[str, str | None] = dict(present)
    for config in resource.configs:
        name = config.name
        if config.config_operation == SET:
            changed[name] = config.value
        elif config.config_operation == DELETE:
            changed.pop(name, None)
        elif name == VALUE_SCHEMA and config.config_operation == APPEND:
            changed[name] = _with_fields(changed, config.value or "")
        else:
            setting = settings.get(name)
            if setting is None or setting.kind is not Kind.LIST:
                operation = "APPEND" if config.config_operation == APPEND else "SUBTRACT"
                raise InvalidConfigError(f"Can't {operation} to key {name} because its type is not LIST.")
            members = members_of(present.get(name, format_value(setting.default) or ""))
            given = members_of(config.value or "") or [""]
            altered = _appended if config.config_operation == APPEND else _without
            changed[name] = ",".join(altered(members, given))
    return changed


def _appended(members: list[str], given: list[str]) -> list[str]:
    """Return a list with the members that it lacks, each once."""
    known = set(members)
    return members + [each for each in dict.fromkeys(given) if each not in known]


def _without(members: list[str], given: list[str]) -> list[str]:
    """Return a list without members. Of one that it has several times, as many are removed as are given, the first ones."""
    left = Counter(given)
    kept = []
    for each in members:
        if left[each]:
            left[each] -= 1
        else:
            kept.append(each)
    return kept


def _with_fields(present: Mapping[str, str | None], more: str) -> str:
    try:
        return with_fields(present, more)
    except ConfigurationError as invalid:
        raise InvalidConfigError(str(invalid)) from None
