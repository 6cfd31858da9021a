"""Delays that have a topic of their own: `delay.levels=5s,1m` of `orders` makes `orders-delay-5s` and `orders-delay-1m`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from kafkalake.config.setting import invalid_value
from kafkalake.errors import ConfigurationError

LEVELS_MAX = 100
"""Most levels of one topic."""
_LEVEL = re.compile(r"([1-9][0-9]{0,12})(ms|s|m|h|d)", re.ASCII)
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def level_ms(level: str) -> int:
    """Return a level such as 500ms, 5s, 10m, 1h or 2d in ms. Raise `ConfigurationError` if it is none."""
    found = _LEVEL.fullmatch(level)
    if found is None:
        raise ConfigurationError(f"a level is a number and a unit, as 500ms, 5s, 10m, 1h or 2d, not '{level}'")
    return int(found[1]) * UNITS_MS[found[2]]


def check_level(text: str) -> None:
    """Raise `ConfigurationError` if this is no level."""
    level_ms(text)


@lru_cache(maxsize=1_024)
def parse_levels(text: str) -> tuple[str, ...]:
    """Return the levels of a value of `delay.levels`. Raise `ConfigurationError` if one is none, or two are the same delay."""
    levels = tuple(each.strip() for each in text.split(",")) if text.strip() else ()
    if len(levels) > LEVELS_MAX:
        raise ConfigurationError(f"a topic has at most {LEVELS_MAX} levels")
    delays: dict[int, str] = {}
    for level in levels:
        other = delays.setdefault(level_ms(level), level)
        if other is not level:
            raise ConfigurationError(f"{other} and {level} are the same delay")
    return levels


def check_levels(text: str) -> None:
    """Raise `ConfigurationError` if this is no list of levels."""
    parse_levels(text)


def check_delays(settings: Mapping[str, object], max_ms: int) -> None:
    """Raise `ConfigurationError` if the settings of a topic contradict each other. max_ms: `delay.max.ms` where it is not set."""
    levels = str(settings.get("delay.levels") or "")
    if levels and settings.get("delay.level") is not None:
        raise invalid_value("delay.levels", levels, "all records of this topic have a delay already")
    longest = int(str(settings.get("delay.max.ms", max_ms)))
    for level in parse_levels(levels):
        if level_ms(level) > longest:
            raise invalid_value("delay.levels", levels, f"{level} is more than delay.max.ms={longest}")


def level_topic(topic: str, level: str) -> str:
    """Return the name of the topic whose records are delivered to `topic` after a level."""
    return f"{topic}-delay-{level}"
