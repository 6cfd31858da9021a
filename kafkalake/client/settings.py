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
_WITHOUT = frozenset(
    {
        "bootstrap.controllers", "check.crcs", "client.dns.lookup", "compression.gzip.level", "compression.lz4.level",
        "compression.zstd.level", "connections.max.idle.ms", "enable.metrics.push", "exclude.internal.topics",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
        "metrics.sample.window.ms", "receive.buffer.bytes", "send.buffer.bytes", "transaction.two.phase.commit.enable",
    }
)  # fmt: skip
"""Settings of Kafka's Java clients that have no counterpart here."""


def settings_by_name(kind: type) -> dict[str, Setting]:
    """Return the settings that a dataclass defines, by Kafka's name."""
    return by_name(settings_of(kind))


def merged(settings: Mapping[str, object] | None, named: Mapping[str, object]) -> dict[str, object]:
    """Return settings by name and those given as keyword arguments in one mapping, in which the latter count.

    Raise `TypeError` if `settings` is no mapping by name.
    """
    if settings is not None and not isinstance(settings, Mapping):
        example = "{'bootstrap.servers': 'localhost:9092'}"
        raise TypeError(f"settings are a dictionary by name, as {example}, not {type(settings).__name__}")
    fields = {_field(name) for name in named}
    given = settings or {}
    if wrong := [name for name in given if not isinstance(name, str)]:
        raise TypeError(f"settings are named by str, not {type(wrong[0]).__name__}")
    return {**{name: value for name, value in given.items() if _field(name) not in fields}, **named}


def parse_settings(kind: type[T], given: Mapping[str, object], arguments: Mapping[str, str] | None = None) -> T:
    """Return the settings `given` by Kafka's names, or with underscores for dots, and the defaults of the others.

    Values are of the setting's type or text. arguments: of the client, by the settings that give the same in Kafka. Raise
    `ConfigurationError` for a name that does not exist or an invalid value.
    """
    known = settings_by_name(kind)
    values: dict[str, object] = {_field(name): setting.default for name, setting in known.items()}
    set_by: dict[str, str] = {}
    for name, value in given.items():
        setting = known.get(name.replace("_", "."))
        if setting is None:
            raise ConfigurationError(_unknown(name, known, arguments or {}))
        if setting.name in set_by:
            raise ConfigurationError(f"{name} and {set_by[setting.name]} are the same setting")
        set_by[setting.name] = name
        values[_field(setting.name)] = _value(setting, value)
    return kind(**values)


def _unknown(name: str, known: Mapping[str, Setting], arguments: Mapping[str, str]) -> str:
    dotted = name.replace("_", ".")
    if dotted.startswith(_SECURITY):
        return f"{name}: connections are PLAINTEXT; this client has neither TLS nor SASL"
    if dotted in arguments:
        return f"{name}: give an object as the argument {arguments[dotted]}"
    if dotted in _WITHOUT:
        return f"{name}: this client has no such setting of Kafka's"
    hint = did_you_mean(name, known)
    return f"Unknown setting '{name}'" + (f"; {hint}" if hint else "")


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
