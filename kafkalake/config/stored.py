"""Reads settings stored in a lake, possibly by another release. Invalid ones are dropped and reported.

New settings, from the command line or a client, are rejected if invalid. Settings accepted earlier must not prevent a broker from
starting or a job from running.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalake.config.setting import Value
from kafkalake.config.values import parse_broker_settings, parse_topic_overrides
from kafkalake.errors import ConfigurationError, as_value

_NAMES_NOW = {"segment.bytes": "internal.segment.bytes"}
"""Stored name -> current name. Releases before 0.2 accepted a `segment.bytes` below Kafka's minimum. Such topics keep it."""


def parse_stored_overrides(stored: Mapping[str, str]) -> tuple[dict[str, Value], list[ConfigurationError]]:
    """Return a topic's own valid settings, and the errors of the dropped ones."""
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
    """Return a broker's valid settings, unparsed, and the errors of the others."""
    usable: dict[str, str] = {}
    problems: list[ConfigurationError] = []
    for name, text in stored.items():
        try:
            parse_broker_settings({name: text})
            usable[name] = text
        except ConfigurationError as error:
            problems.append(as_value(error))
    return usable, problems
