"""The definition of a setting: name, type, default, range and meaning. The settings themselves: `config/definitions.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
    described only if set. `option` is the only command line option that sets the value, if the setting cannot be set by name.
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
    option: str | None = None


NO_EFFECT = " Accepted for Kafka's tools; changes nothing here yet."
"""A suffix for the documentation of Kafka settings without effect, accepted so that tools that set them work."""
