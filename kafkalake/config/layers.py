"""The layers of settings: topic over dynamic broker over static broker over default, as in Kafka.

A broker has a `BrokerConfig`, a topic a `TopicConfig`. Both are frozen. A change creates a new one. `Settings` creates them from
the layers and returns the source of each value for DescribeConfigs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import dropwhile
from typing import TypeVar

from kafkalake.config.broker import BROKER_SETTINGS, TOPIC_NAME_OF_BROKER_NAME, BrokerConfig
from kafkalake.config.membership import check_membership
from kafkalake.config.setting import Setting, Update, Value
from kafkalake.config.setting_texts import format_value, parse
from kafkalake.config.topics import TOPIC_SETTINGS, TopicConfig
from kafkalake.config.values import parse_broker_settings
from kafkalake.errors import ConfigurationError


class ConfigSource(IntEnum):
    """The source of a value, with its number in DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
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


def check_group_settings(config: BrokerConfig) -> None:
    """Raise `ConfigurationError` if settings of the consumer protocol contradict each other. The checks are Kafka's."""
    _check_order(config, "group.consumer.{}session.timeout.ms")
    _check_order(config, "group.consumer.{}heartbeat.interval.ms")
    if config.group_consumer_heartbeat_interval_ms >= config.group_consumer_session_timeout_ms:
        raise ConfigurationError(
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms"
        )


def _check_order(config: BrokerConfig, pattern: str) -> None:
    low_name, name, high_name = (pattern.format(part) for part in ("min.", "", "max."))
    low, value, high = (getattr(config, each.replace(".", "_")) for each in (low_name, name, high_name))
    if high < low:
        raise ConfigurationError(f"{high_name} must be greater than or equal to {low_name}")
    if value < low:
        raise ConfigurationError(f"{name} must be greater than or equal to {low_name}")
    if value > high:
        raise ConfigurationError(f"{name} must be less than or equal to {high_name}")


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
        check_group_settings(self.broker)
        check_membership(self.broker)

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

    def is_set(self, name: str) -> bool:
        """Return whether a broker setting was given a value, be it the default's."""
        return any(name in layer for layer in (self.dynamic, self.dynamic_default, self._static))

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
