"""The settings of a coordinator as a part of the broker's."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from kafkalake.config.broker import BrokerConfig

T = TypeVar("T")


def part_of(config: BrokerConfig, kind: type[T], **changed: Any) -> T:
    """Return the dataclass `kind` with the broker's settings of the same names. `changed` are fields with other values.

    Fields that are neither keep their defaults: internal limits.
    """
    names = {field.name for field in fields(config)} & {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: getattr(config, name) for name in names} | changed)
