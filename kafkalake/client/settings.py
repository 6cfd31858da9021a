"""Settings of clients, by Kafka's names: each kind is a dataclass whose fields are defined as those of the broker are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kafkalake.client.arguments import check_text
from kafkalake.close_names import did_you_mean
from kafkalake.config.setting import Setting, by_name, invalid_value, settings_of
from kafkalake.config.setting_texts import parse
from kafkalake.errors import ConfigurationError

T = TypeVar("T")

_SECURITY = ("ssl.", "sasl.", "security.")


def settings_by_name(kind: type) -> dict[str, Setting]:
    """Return the settings that a dataclass defines, by Kafka's name."""
    return by_name(settings_of(kind))


def merged(settings: Mapping[str, object] | None, named: Mapping[str, object]) -> dict[str, object]:
    """Return settings by name and those given as keyword arguments in one mapping, in which the latter count.

    Raise `TypeError` if `settings` is no mapping.
    """
    if settings is not None and not isinstance(settings, Mapping):
        example = "{'bootstrap.servers': 'localhost:9092'}"
        raise TypeError(f"settings are a dictionary by name, as {example}, not {type(settings).__name__}")
    fields = {_field(name) for name in named}
    return {**{name: value for name, value in (settings or {}).items() if _field(name) not in fields}, **named}


def parse_settings(kind: type[T], given: Mapping[str, object]) -> T:
    """Return the settings `given` by Kafka's names, or with underscores for dots, and the defaults of the others.

    Values are of the setting's type or text. Raise `ConfigurationError` for a name that does not exist or an invalid value.
    """
    known = settings_by_name(kind)
    values: dict[str, object] = {_field(name): setting.default for name, setting in known.items()}
    set_by: dict[str, str] = {}
    for name, value in given.items():
        setting = known.get(name.replace("_", "."))
        if setting is None and name.replace("_", ".").startswith(_SECURITY):
            raise ConfigurationError(f"{name}: connections are PLAINTEXT; this client has neither TLS nor SASL")
        if setting is None:
            hint = did_you_mean(name, known)
            raise ConfigurationError(f"Unknown setting '{name}'" + (f"; {hint}" if hint else ""))
        if setting.name in set_by:
            raise ConfigurationError(f"{name} and {set_by[setting.name]} are the same setting")
        set_by[setting.name] = name
        values[_field(setting.name)] = _value(setting, value)
    return kind(**values)


def _field(name: str) -> str:
    return name.replace(".", "_")


def _value(setting: Setting, value: object) -> object:
    if value is None:
        if setting.nullable:
            return None
        raise invalid_value(setting.name, value, "it needs a value")
    if setting.nullable and not str(value).strip():
        raise invalid_value(setting.name, value, "String must be non-empty")
    if isinstance(value, bool):
        return parse(setting, str(value).lower())
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    try:
        check_text(text, "it is sent")
    except ValueError as error:
        raise invalid_value(setting.name, ascii(text), str(error)) from None
    return parse(setting, text)
