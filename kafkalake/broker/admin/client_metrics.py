"""Subscriptions to metrics of clients (KIP-714) as settings of resources of type 16.

They are kept and shown as in an Apache Kafka without a plugin that receives the metrics: clients are not asked for any.
Source: Apache Kafka 4.1, "Client Metrics".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafkalake.cluster.image import ConfigOf, ConfigResource, ResourceKind
from kafkalake.config.layers import ConfigEntry, ConfigSource, Synonym
from kafkalake.config.setting import Kind, Setting
from kafkalake.config.setting_texts import check_length, format_value, members_of, parse
from kafkalake.errors import ConfigurationError, InvalidConfigError, InvalidRequestError

INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"
_INTERVAL_MIN_MS, _INTERVAL_MAX_MS = 100, 3_600_000
_MATCHED = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

CLIENT_METRICS_SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            name=INTERVAL, kind=Kind.INT, default=300_000, documentation="How often clients are to send their metrics."
        ),
        Setting(name=MATCH, kind=Kind.LIST, default="", documentation="The clients that are meant, name=pattern each."),
        Setting(
            name=METRICS, kind=Kind.LIST, default="", documentation="Beginnings of the names of the metrics, * for all."
        ),
    )
}


def names(config: ConfigOf) -> list[str]:
    """Return the subscriptions, sorted."""
    return sorted(resource.name for resource in config if resource.kind is ResourceKind.CLIENT_METRICS)


def describe(config: ConfigOf, name: str) -> list[ConfigEntry]:
    """Return all settings of a subscription. Raise `InvalidRequestError` for the empty name."""
    if not name:
        raise InvalidRequestError("Client metrics subscription name must not be empty")
    own = config.get(ConfigResource(ResourceKind.CLIENT_METRICS, name), {})
    entries = []
    for setting in CLIENT_METRICS_SETTINGS.values():
        default = Synonym(setting.name, format_value(setting.default), ConfigSource.DEFAULT)
        first = default
        if setting.name in own:
            first = Synonym(setting.name, own[setting.name], ConfigSource.CLIENT_METRICS)
        entries.append(ConfigEntry(setting, first.value, first.source, False, (first,)))
    return entries


def check_subscription(name: str, settings: Mapping[str, str | None]) -> dict[str, str]:
    """Return the settings of a subscription as they are kept. Raise `InvalidRequestError` or `InvalidConfigError`."""
    if not name:
        raise InvalidRequestError("Subscription name can't be empty")
    checked = {}
    for key, text in settings.items():
        setting = CLIENT_METRICS_SETTINGS.get(key)
        if setting is None:
            raise InvalidRequestError(f"Unknown client metrics configuration: {key}")
        if text is None:
            raise InvalidRequestError(f"Null value not supported for : {key}")
        try:
            check_length(key, text)
            checked[key] = format_value(parse(setting, text)) or ""
        except ConfigurationError as error:
            raise InvalidConfigError(str(error)) from None
    _check_interval(checked)
    for pattern in members_of(checked.get(MATCH, "")):
        _check_pattern(pattern)
    return checked


def _check_interval(checked: Mapping[str, str]) -> None:
    if INTERVAL in checked and not _INTERVAL_MIN_MS <= int(checked[INTERVAL]) <= _INTERVAL_MAX_MS:
        raise InvalidRequestError(
            f"Invalid value {checked[INTERVAL]} for {INTERVAL}, interval must be between 100 and 3600000 (1 hour)"
        )


def _check_pattern(pattern: str) -> None:
    parts = pattern.split("=")
    try:
        if len(parts) == 2 and parts[0].strip() in _MATCHED and re.compile(parts[1].strip()):
            return
    except (re.error, OverflowError, RecursionError):  # a count that is too large, too many groups in one another
        pass
    raise InvalidConfigError(f"Illegal client matching pattern: {pattern}")
