"""The settings of one component as a part of the broker's or of a topic's."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from kafkalake.config.broker import BrokerConfig
from kafkalake.config.topics import TopicConfig

T = TypeVar("T")


def part_of(config: BrokerConfig | TopicConfig, kind: type[T], **changed: object) -> T:
    """Return the dataclass `kind` with the settings of the same names. `changed` are fields with other values.

    Fields that are neither keep their defaults: internal limits.
    """
    names = {field.name for field in fields(config)} & {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: getattr(config, name) for name in names} | changed)
