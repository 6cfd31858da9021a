"""The definition of a setting: name, type, default, range and meaning.

A setting is a field of a dataclass: `BrokerConfig` (`config/broker.py`) or `TopicConfig` (`config/topics.py`). `define` gives the
field its definition, its annotation is the type of the setting, and an instance has the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from kafkalake.errors import ConfigurationError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = bool | int | float | str | None


class Kind(Enum):
    """The type of a setting, with its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Update(Enum):
    """The update mode of a broker setting, with its name in Kafka's documentation."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its validation and its meaning.

    `minimum` / `maximum` bound numbers, `choices` strings and the members of lists. `broker_name` (topic settings only) is the
    broker setting with the default, if any. A list with `choices` may be empty only if `allows_empty`. A `hidden` setting is
    described only if set. `check` raises `ConfigurationError` with the reason why a text is no value of the setting.
    """

    name: str
    kind: Kind
    default: Value
    documentation: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    update: Update = Update.READ_ONLY
    broker_name: str | None = None
    nullable: bool = False
    hidden: bool = False
    allows_empty: bool = False
    check: Callable[[str], object] | None = None

    @property
    def has_effect(self) -> bool:
        """Return whether the setting changes anything here, see `NO_EFFECT`."""
        return not self.documentation.endswith(NO_EFFECT)


_SHOWN_MAX = 120

NO_EFFECT = " Accepted for Kafka's tools and files; changes nothing here."
"""A suffix for the documentation of Kafka settings without effect, accepted so that tools that set them work."""


Short = int
Int = int
Long = int
Names = str
"""Annotations of settings beside bool, str and float. Names: a LIST, its members joined with commas."""

_KINDS = {
    "bool": Kind.BOOLEAN,
    "str": Kind.STRING,
    "Int": Kind.INT,
    "Short": Kind.SHORT,
    "Long": Kind.LONG,
    "float": Kind.DOUBLE,
    "Names": Kind.LIST,
}


def invalid_value(name: str, value: object, reason: str) -> ConfigurationError:
    """Return the error of a setting with a value that it cannot have. Of a long one, as of a schema, the beginning is shown."""
    text = str(value)
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
    return ConfigurationError(f"Invalid value {shown} for configuration {name}: {reason}")


def define(default: Value, documentation: str, **others: object) -> Any:
    """Return a dataclass field with the definition of a setting. `others` are further fields of `Setting`."""
    return field(metadata={"default": default, "documentation": documentation, **others})


def settings_of(kind: type, update: Update = Update.READ_ONLY) -> Iterator[Setting]:
    """Yield the settings that the fields of a dataclass define. `update` is the update mode of those that define none."""
    for each in fields(kind):
        type_name, _, none = str(each.type).partition(" | ")
        name = each.name.replace("_", ".")
        yield Setting(name=name, kind=_KINDS[type_name], nullable=bool(none), **{"update": update, **each.metadata})


def by_name(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Return settings by name, in the order of their names. Raise `ValueError` if a name is defined twice."""
    found: dict[str, Setting] = {}
    for setting in sorted(settings, key=lambda each: each.name):
        if setting.name in found:
            raise ValueError(f"{setting.name} is defined twice")
        found[setting.name] = setting
    return found
