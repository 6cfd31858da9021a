"""The topics that a job's arguments name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kafkalake.close_names import did_you_mean
from kafkalake.errors import ConfigurationError, UnknownTopicOrPartitionError
from kafkalake.metadata.tables.schemas import TopicRow


def select_topics(topics: Sequence[TopicRow], names: str | None, pattern: str | None) -> list[TopicRow]:
    """Return topics by comma separated names, by a pattern for the whole name, or all (both None), sorted by name.

    Raise `UnknownTopicOrPartitionError` (suggesting a similar name) or `ConfigurationError` (names without one, invalid pattern).
    """
    by_name = {topic.topic: topic for topic in sorted(topics, key=lambda topic: topic.topic)}
    if names is not None:
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        if not wanted:
            raise ConfigurationError(f"topic is {names!r}, which names none: leave it out for all topics")
        for name in wanted:
            if name not in by_name:
                hint = did_you_mean(name, by_name, most=1) or f"its topics: {', '.join([*by_name][:10]) or 'none'}"
                raise UnknownTopicOrPartitionError(f"topic {name!r} is not in the lake; {hint}")
        return [by_name[name] for name in dict.fromkeys(wanted)]
    if pattern is not None:
        try:
            found = [topic for name, topic in by_name.items() if re.fullmatch(pattern, name)]
        except re.error as error:
            raise ConfigurationError(f"--pattern {pattern!r} is no regular expression: {error}") from None
        if not found:
            raise UnknownTopicOrPartitionError(f"no topic of the lake matches --pattern {pattern!r}")
        return found
    return list(by_name.values())
