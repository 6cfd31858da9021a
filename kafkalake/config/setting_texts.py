"""Values of settings as text: parses and validates them by their definitions, formats them as Kafka does.

`ConfigurationError` has the setting, the value and the fault. The Kafka API returns it as InvalidConfigError.
"""

from __future__ import annotations

import math

from kafkalake.config.setting import INT_MAX, LONG_MAX, Kind, Setting, Value, invalid_value
from kafkalake.errors import ConfigurationError

_RANGES = {
    Kind.SHORT: (-(2**15), 2**15 - 1),
    Kind.INT: (-INT_MAX - 1, INT_MAX),
    Kind.LONG: (-LONG_MAX - 1, LONG_MAX),
}

TEXT_MAX = 32_767
"""The most characters of a value, and bytes of the name of a resource, in a request.

In Kafka no string of a request or a record has more bytes; a file's may.
"""


def check_length(name: str, text: str) -> None:
    """Raise `ConfigurationError` if a value is longer than a request may give it."""
    if len(text) > TEXT_MAX:
        raise invalid_value(name, text, f"Value must have at most {TEXT_MAX} characters, and has {len(text)}")


def parse(setting: Setting, text: str) -> Value:
    """Return the setting's value parsed from `text`. Raise `ConfigurationError` if it is malformed or out of range."""
    value = _convert(setting, text.strip())
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if setting.minimum is not None and value < setting.minimum:
            raise invalid_value(setting.name, text, f"Value must be at least {setting.minimum}")
        if setting.maximum is not None and value > setting.maximum:
            raise invalid_value(setting.name, text, f"Value must be no more than {setting.maximum}")
    if setting.choices and isinstance(value, str):
        members = [value] if setting.kind is not Kind.LIST else members_of(value)
        for member in members or ([] if setting.allows_empty else [""]):
            if member not in setting.choices:
                raise invalid_value(setting.name, member, f"String must be one of: {', '.join(setting.choices)}")
    if setting.check is not None and isinstance(value, str):
        try:
            setting.check(value)
        except ConfigurationError as error:
            shown = f"[{', '.join(members_of(value))}]" if setting.kind is Kind.LIST else text
            raise invalid_value(setting.name, shown, str(error)) from None
    return value


def members_of(text: str) -> list[str]:
    """Return the members of a comma-separated list, none if the text is empty."""
    return [member.strip() for member in text.split(",")] if text.strip() else []


def _convert(setting: Setting, text: str) -> Value:
    if setting.kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise invalid_value(setting.name, text, "Expected value to be either true or false")
        return text.lower() == "true"
    if setting.kind in _RANGES:
        try:
            number = int(text)
        except ValueError:
            raise invalid_value(setting.name, text, f"Not a number of type {setting.kind.name}") from None
        low, high = _RANGES[setting.kind]
        if not low <= number <= high:
            raise invalid_value(setting.name, text, f"Not a number of type {setting.kind.name}")
        return number
    if setting.kind is Kind.LIST:
        return ",".join(members_of(text))
    if setting.kind is Kind.DOUBLE:
        try:
            real = float(text)
        except ValueError:
            real = math.nan
        if math.isnan(real):
            raise invalid_value(setting.name, text, "Not a number of type DOUBLE")
        return real
    return text


def format_value(value: Value) -> str | None:
    """Return a value as Kafka formats it, None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
