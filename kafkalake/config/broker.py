"""Parses and validates settings, under Kafka's own names.

A broker has a `BrokerConfig`, a topic a `TopicConfig`. Both are frozen. A change creates a new one. The definitions (type,
default, range, meaning) are data in `config/definitions.py`. This module parses text by them, resolves the layers (topic over
dynamic broker over static broker over default, as in Kafka) and returns the source of each value for DescribeConfigs.

`ConfigurationError` has the setting, the value and the fault. The Kafka API returns it as InvalidConfigError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import dropwhile
from typing import TypeVar

from kafkalake.config.accepted import reason_for_refusal
from kafkalake.config.definitions import (
    BROKER_SETTINGS,
    INT_MAX,
    LONG_MAX,
    TOPIC_NAME_OF_BROKER_NAME,
    TOPIC_SETTINGS,
    Kind,
    Setting,
    Update,
    Value,
)
from kafkalake.config.listener import parse_listener
from kafkalake.errors import ConfigurationError

_RANGES = {
    Kind.SHORT: (-(2**15), 2**15 - 1),
    Kind.INT: (-INT_MAX - 1, INT_MAX),
    Kind.LONG: (-LONG_MAX - 1, LONG_MAX),
}


class ConfigSource(IntEnum):
    """The source of a value, with its number in DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """One layer of a setting, effective or overridden: its name in that layer, the value as text, the source."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting as in DescribeConfigs. `synonyms` are its layers, the effective one first."""

    setting: Setting
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[Synonym, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The broker's own settings. Fields are Kafka's names with underscores. See `BROKER_SETTINGS` for units and meaning."""

    advertised_listeners: str | None
    auto_create_topics_enable: bool
    auto_create_topics_partitions_per_second: int
    broker_rack: str | None
    connection_max_unfinished_ms: int
    connections_max_idle_ms: int
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    fetch_wire_cache_bytes: int
    group_consumer_assignors: str
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_append_linger_ms: int
    group_coordinator_groups_max: int
    group_coordinator_metadata_max_bytes: int
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_member_metadata_max_bytes: int
    group_metadata_max_bytes: int
    group_min_session_timeout_ms: int
    lake_umask: str | None
    lease_duration_ms: int
    lease_wait_ms: int
    log_initial_task_delay_ms: int
    log_level: str
    log_retention_check_interval_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_incremental_fetch_session_cache_slots: int
    max_incremental_fetch_session_partitions: int
    max_message_uncompressed_bytes: int
    max_partitions: int
    max_request_partition_size_limit: int
    max_request_response_bytes: int
    metadata_maintenance_interval_ms: int
    metadata_publish_interval_ms: int
    metadata_retention_ms: int
    num_partitions: int
    offset_metadata_max_bytes: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_segment_bytes: int
    open_files_max: int
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    queued_max_response_bytes: int
    request_timeout_ms: int
    shutdown_timeout_ms: int
    socket_listen_backlog_size: int
    socket_request_max_bytes: int
    staged_append_max_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    transactional_ids_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of a topic, with defaults filled in. Fields are Kafka's names with underscores."""

    cleanup_policy: str
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_groups_guard: str
    retention_ms: int
    segment_bytes: int
    segment_compression: str
    segment_ms: int


def parse(setting: Setting, text: str) -> Value:
    """Return the setting's value parsed from `text`. Raise `ConfigurationError` if it is malformed or out of range."""
    value = _convert(setting, text.strip())
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if setting.minimum is not None and value < setting.minimum:
            raise _invalid(setting, text, f"Value must be at least {setting.minimum}")
        if setting.maximum is not None and value > setting.maximum:
            raise _invalid(setting, text, f"Value must be no more than {setting.maximum}")
    if setting.choices and isinstance(value, str):
        members = [value] if setting.kind is not Kind.LIST else members_of(value)
        for member in members or ([] if setting.allows_empty else [""]):
            if member not in setting.choices:
                raise _invalid(setting, member, f"String must be one of: {', '.join(setting.choices)}")
    return value


def members_of(text: str) -> list[str]:
    """Return the members of a comma-separated list, none if the text is empty."""
    return [member.strip() for member in text.split(",")] if text.strip() else []


def _convert(setting: Setting, text: str) -> Value:
    if setting.kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise _invalid(setting, text, "Expected value to be either true or false")
        return text.lower() == "true"
    if setting.kind in _RANGES:
        try:
            number = int(text)
        except ValueError:
            raise _invalid(setting, text, f"Not a number of type {setting.kind.name}") from None
        low, high = _RANGES[setting.kind]
        if not low <= number <= high:
            raise _invalid(setting, text, f"Not a number of type {setting.kind.name}")
        return number
    if setting.kind is Kind.LIST:
        return ",".join(members_of(text))
    if setting.kind is Kind.DOUBLE:
        try:
            real = float(text)
        except ValueError:
            real = math.nan
        if math.isnan(real):
            raise _invalid(setting, text, "Not a number of type DOUBLE")
        return real
    return text


def _invalid(setting: Setting, text: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"Invalid value {text} for configuration {setting.name}: {reason}")


def format_value(value: Value) -> str | None:
    """Return a value as Kafka formats it, None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def check_group_settings(config: BrokerConfig) -> None:
    """Raise `ConfigurationError` if settings of the consumer protocol contradict each other. The checks are Kafka's."""
    name = "group.consumer.{}session.timeout.ms".format
    low, value, high = (
        config.group_consumer_min_session_timeout_ms,
        config.group_consumer_session_timeout_ms,
        config.group_consumer_max_session_timeout_ms,
    )
    _check_order(name("min."), low, name(""), value, name("max."), high)
    name = "group.consumer.{}heartbeat.interval.ms".format
    low, interval, high = (
        config.group_consumer_min_heartbeat_interval_ms,
        config.group_consumer_heartbeat_interval_ms,
        config.group_consumer_max_heartbeat_interval_ms,
    )
    _check_order(name("min."), low, name(""), interval, name("max."), high)
    if interval >= value:
        raise ConfigurationError(
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms"
        )


def _check_order(low_name: str, low: int, name: str, value: int, high_name: str, high: int) -> None:
    if high < low:
        raise ConfigurationError(f"{high_name} must be greater than or equal to {low_name}")
    if value < low:
        raise ConfigurationError(f"{name} must be greater than or equal to {low_name}")
    if value > high:
        raise ConfigurationError(f"{name} must be less than or equal to {high_name}")


def parse_topic_overrides(overrides: Mapping[str, str | None]) -> dict[str, Value]:
    """Return a topic's own settings by name. Raise `ConfigurationError` if a name is unknown or a value is null or invalid."""
    parsed: dict[str, Value] = {}
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise ConfigurationError(f"Unknown topic config name: {name}")
        if text is None:
            raise ConfigurationError(f"Null value not supported for topic configs: {name}")
        parsed[name] = parse(setting, text)
    return parsed


def parse_broker_settings(settings: Mapping[str, str]) -> dict[str, Value]:
    """Return broker settings by Kafka's name. A topic setting's name means its broker default.

    Raise `ConfigurationError` if a name is unknown or rejected, or a value is invalid.
    """
    parsed: dict[str, Value] = {}
    for given, text in settings.items():
        name = given
        topic_setting = TOPIC_SETTINGS.get(given)
        if given not in BROKER_SETTINGS and topic_setting is not None and topic_setting.broker_name is not None:
            name = topic_setting.broker_name
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            raise ConfigurationError(reason_for_refusal(given))
        if setting.option is not None:
            raise ConfigurationError(f"The broker config {given} cannot be set: it is given with {setting.option}")
        parsed[name] = parse(setting, text)
    return parsed


Config = TypeVar("Config", BrokerConfig, TopicConfig)


def _build(kind: type[Config], values: Mapping[str, Value]) -> Config:
    return kind(**{field.name: values[field.name.replace("_", ".")] for field in fields(kind)})  # type: ignore[arg-type]


def changed_values(
    before: Iterable[ConfigEntry], after: Iterable[ConfigEntry]
) -> list[tuple[str, str | None, str | None]]:
    """Return (name, old value, new value) of the settings whose value or source changed, by name."""
    old = {entry.setting.name: (entry.value, entry.source) for entry in before}
    new = {entry.setting.name: (entry.value, entry.source) for entry in after}
    nothing = (None, ConfigSource.DEFAULT)
    return [
        (name, old.get(name, nothing)[0], new.get(name, nothing)[0])
        for name in sorted(old.keys() | new.keys())
        if old.get(name, nothing) != new.get(name, nothing)
    ]


def _without_hidden(entries: Iterable[ConfigEntry]) -> list[ConfigEntry]:
    return [entry for entry in entries if entry.value is not None or not entry.setting.hidden]


class Settings:
    """All settings of one broker in their layers: static (command line), dynamic default, dynamic for this broker.

    Immutable. `with_dynamic` creates the next one. All values are validated.
    """

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic: Mapping[str, str] | None = None,
        *,
        given: Mapping[str, str] | None = None,
    ) -> None:
        """Validate all layers. `given`: values from command line options. Raise `ConfigurationError` if any value is invalid."""
        self.given = dict(given or {})
        self.static = parse_broker_settings(static or {})
        self._static = self.static | {name: parse(BROKER_SETTINGS[name], text) for name, text in self.given.items()}
        self.dynamic_default = parse_broker_settings(dynamic_default or {})
        self.dynamic = parse_broker_settings(dynamic or {})
        self.broker = _build(BrokerConfig, {name: self._value(name) for name in BROKER_SETTINGS})
        self._topic_defaults = {name: self._topic_default(setting) for name, setting in TOPIC_SETTINGS.items()}
        parse_listener("localhost", 0, self.broker.advertised_listeners)
        check_group_settings(self.broker)
        if self.broker.default_replication_factor not in (1, -1):
            raise ConfigurationError(
                "Invalid value for configuration default.replication.factor: one broker holds one replica"
            )

    def with_dynamic(self, dynamic_default: Mapping[str, str], dynamic: Mapping[str, str]) -> Settings:
        """Return the settings with other dynamic layers. Raise `ConfigurationError` as the constructor."""
        static = {name: text for name, value in self.static.items() if (text := format_value(value)) is not None}
        return Settings(static, dynamic_default, dynamic, given=self.given)

    def with_given(self, given: Mapping[str, str]) -> Settings:
        """Return the settings with other values from command line options."""
        static = {name: text for name, value in self.static.items() if (text := format_value(value)) is not None}
        layers = (
            {name: format_value(value) or "" for name, value in layer.items()}
            for layer in (self.dynamic_default, self.dynamic)
        )
        return Settings(static, *layers, given=given)

    def topic(self, overrides: Mapping[str, Value]) -> TopicConfig:
        """Return the settings of a topic with these (parsed) overrides."""
        values = {**self._topic_defaults, **overrides}
        internal = values["internal.segment.bytes"]
        if internal is not None and ("segment.bytes" not in overrides or "internal.segment.bytes" in overrides):
            values["segment.bytes"] = internal
        return _build(TopicConfig, values)

    def describe_broker(self) -> list[ConfigEntry]:
        """Return all broker settings with their values and layers, by name."""
        return _without_hidden(self._describe_broker_setting(setting) for setting in BROKER_SETTINGS.values())

    def describe_cluster_default(self) -> list[ConfigEntry]:
        """Return the settings of the cluster's dynamic default."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        return [
            ConfigEntry(
                BROKER_SETTINGS[name], format_value(value), source, False, (Synonym(name, format_value(value), source),)
            )
            for name, value in self.dynamic_default.items()
        ]

    def describe_topic(self, overrides: Mapping[str, Value]) -> list[ConfigEntry]:
        """Return all topic settings with their values and layers, by name."""
        return _without_hidden(self._describe_topic_setting(setting, overrides) for setting in TOPIC_SETTINGS.values())

    def _value(self, name: str) -> Value:
        for layer in (self.dynamic, self.dynamic_default, self._static):
            if name in layer:
                return layer[name]
        return BROKER_SETTINGS[name].default

    def _topic_default(self, setting: Setting) -> Value:
        if setting.broker_name is None:
            return setting.default
        value = self._value(setting.broker_name)
        if value is not None:
            return value
        return _coarser_default(setting.name, self._value)

    def _layers(self, topic_name: str, name: str) -> list[Synonym]:
        """Return the layers of a broker setting, the effective one first.

        As in Kafka a coarser setting is listed only after the finer one, if that is set, and not in its place.
        """
        names = (name, *_COARSER.get(topic_name, ()))
        layers = (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._static, ConfigSource.STATIC_BROKER),
        )
        found = [
            Synonym(each, format_value(layer[each]), source)
            for layer, source in layers
            for each in names
            if each in layer
        ]
        defaults = ((each, BROKER_SETTINGS[each].default) for each in names)
        found += [
            Synonym(each, format_value(value), ConfigSource.DEFAULT) for each, value in defaults if value is not None
        ]
        return list(dropwhile(lambda layer: layer.name != name, found))

    def _describe_broker_setting(self, setting: Setting) -> ConfigEntry:
        layers = self._layers(TOPIC_NAME_OF_BROKER_NAME.get(setting.name, ""), setting.name)
        source = layers[0].source if layers else ConfigSource.DEFAULT
        return ConfigEntry(
            setting,
            format_value(self._value(setting.name)),
            source,
            setting.update is Update.READ_ONLY,
            tuple(layers),
        )

    def _describe_topic_setting(self, setting: Setting, overrides: Mapping[str, Value]) -> ConfigEntry:
        layers: list[Synonym] = []
        if setting.name in overrides:
            layers.append(Synonym(setting.name, format_value(overrides[setting.name]), ConfigSource.DYNAMIC_TOPIC))
            value = overrides[setting.name]
        else:
            value = self._topic_defaults[setting.name]
        if setting.broker_name is not None:
            layers += self._layers(setting.name, setting.broker_name)
        source = layers[0].source if layers else ConfigSource.DEFAULT
        return ConfigEntry(setting, format_value(value), source, False, tuple(layers))


# The broker settings that apply if the one in milliseconds is absent, and the milliseconds of their units.
_COARSER = {
    "retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "segment.ms": ("log.roll.hours",),
    "flush.ms": ("log.flush.scheduler.interval.ms",),
}
_UNIT_MS = {"minutes": 60_000, "hours": 3_600_000, "ms": 1}


def _coarser_default(topic_name: str, value_of: Callable[[str], Value]) -> Value:
    for name in _COARSER.get(topic_name, ()):
        value = value_of(name)
        if isinstance(value, int):
            return value if value < 0 else value * _UNIT_MS[name.rsplit(".", 1)[1]]
    return TOPIC_SETTINGS[topic_name].default
