"""Settings of topics and brokers that are given as text by name.

`ConfigurationError` has the setting, the value and the fault. The Kafka API returns it as InvalidConfigError.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalake.config.accepted import reason_for_refusal
from kafkalake.config.broker import BROKER_SETTINGS
from kafkalake.config.setting import Value
from kafkalake.config.setting_texts import parse
from kafkalake.config.topics import TOPIC_SETTINGS
from kafkalake.errors import ConfigurationError


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
        parsed[name] = parse(setting, text)
    return parsed
