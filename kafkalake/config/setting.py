"""What one setting is: its name, type, default, range and meaning. The settings themselves: `config/definitions.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = bool | int | float | str | None


class Kind(Enum):
    """The type of a setting; the value is the number that DescribeConfigs sends for it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Update(Enum):
    """When a broker setting may change, as Kafka's documentation calls it."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: how its value is read and checked, and what it means.

    `minimum` / `maximum` bound numbers, `choices` strings and the members of lists. `broker_name` (topic settings only) is the
    broker setting that gives the default, None where there is none. A list with
    `choices` is empty only where `allows_empty`. A `hidden` setting is described only where it is set. `option` is the one of the
    command line that gives the value, where nothing else does.
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
"""Behind the documentation of a setting of Kafka that is only taken, so that tools which set it work."""
