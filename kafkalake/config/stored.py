"""Settings as a lake keeps them, which another release may have written: what cannot be used any more is left out, and named.

A setting that is given now, on the command line or by a client, is refused where it is wrong. One that was accepted once must not
keep a broker from starting, nor a job from running.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalake.config.broker import parse_broker_settings, parse_topic_overrides
from kafkalake.config.definitions import Value
from kafkalake.errors import ConfigurationError, as_value

_NAMES_NOW = {"segment.bytes": "internal.segment.bytes"}
"""Releases before 0.2 took a `segment.bytes` below Kafka's minimum. Such a topic keeps the size of its segments."""


def parse_stored_overrides(stored: Mapping[str, str]) -> tuple[dict[str, Value], list[ConfigurationError]]:
    """Return a topic's own settings, and what is wrong with those that were left out."""
    parsed: dict[str, Value] = {}
    problems: list[ConfigurationError] = []
    for name, text in stored.items():
        problem: ConfigurationError | None = None
        for candidate in (name, _NAMES_NOW.get(name, name)):
            try:
                parsed |= parse_topic_overrides({candidate: text})
                break
            except ConfigurationError as error:
                problem = problem or as_value(error)
        else:
            assert problem is not None
            problems.append(problem)
    return parsed, problems


def usable_broker_settings(stored: Mapping[str, str]) -> tuple[dict[str, str], list[ConfigurationError]]:
    """Return those of a broker's settings that are valid, as they were given, and what is wrong with the others."""
    usable: dict[str, str] = {}
    problems: list[ConfigurationError] = []
    for name, text in stored.items():
        try:
            parse_broker_settings({name: text})
            usable[name] = text
        except ConfigurationError as error:
            problems.append(as_value(error))
    return usable, problems
