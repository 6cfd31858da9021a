"""The topics of delays: what `delay.levels` of the others asks for, against those that are there. Pure.

A topic of a delay has the settings `delay.level` and `delay.target`, which only the broker sets. It has as many partitions as its
target, and goes with it, or with the level. The controller follows each change of a topic with levels, and all of them when it
begins: so what a controller that was killed has left is made good by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalake.broker.partitions.new_topic import MorePartitions, NewTopic
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.config.delay_levels import level_topic, parse_levels
from kafkalake.config.setting import Value
from kafkalake.errors import InvalidConfigError, InvalidTopicError

LEVEL, LEVELS, TARGET = "delay.level", "delay.levels", "delay.target"


class LevelChanges(NamedTuple):
    """Topics to be created, those with too few partitions and how many they shall have, and those to be deleted."""

    missing: list[NewTopic]
    small: list[MorePartitions]
    gone: list[Topic]


def level_changes(topics: Topics) -> LevelChanges:
    """Return what makes the topics of delays fit the settings of the others."""
    changes = LevelChanges([], [], [])
    for topic in topics:
        if topic.config.delay_level is not None and not _is_wanted(topics, topic) and not topic.config.delete_protected:
            changes.gone.append(topic)
        for level in parse_levels(topic.config.delay_levels):
            name, partitions = level_topic(topic.name, level), len(topic.registrations)
            found = topics.find(name)
            if found is None and partitions:
                config = {LEVEL: level, TARGET: topic.name}
                factor = len(topic.registrations[0].replicas)
                changes.missing.append(NewTopic(name, partitions, factor, config=config, is_level=True))
            elif found is not None and is_level_of(found, topic.name) and len(found.registrations) < partitions:
                changes.small.append(MorePartitions(found, partitions))
    return changes


def is_level_of(topic: Topic, target: str) -> bool:
    """Return whether the records of a topic are delivered to `target`, all after the same delay."""
    return topic.config.delay_level is not None and topic.config.delay_target == target


def _is_wanted(topics: Topics, topic: Topic) -> bool:
    target = topics.find(topic.config.delay_target or "")
    return target is not None and topic.name in level_names(target.name, target.config.delay_levels)


def level_names(target: str, levels: str) -> list[str]:
    """Return the names of the topics that a value of `delay.levels` asks for."""
    return [level_topic(target, level) for level in parse_levels(levels)]


def check_not_level(topics: Topics, topic: Topic) -> None:
    """Raise `InvalidTopicError` if a topic belongs to another one: it is changed and deleted with that."""
    if topic.config.delay_level is not None and _is_wanted(topics, topic):
        target = topic.config.delay_target
        raise InvalidTopicError(f"Topic '{topic.name}' belongs to '{target}': change that one, or its {LEVELS}.")


def check_own_settings(before: Mapping[str, Value], after: Mapping[str, Value | None]) -> None:
    """Raise `InvalidConfigError` if settings that only the broker sets would change."""
    for name in (LEVEL, TARGET):
        if before.get(name) != after.get(name):
            raise InvalidConfigError(f"{name} is set by the broker alone: set {LEVELS} of the topic to deliver to.")


def wants_levels(config: Mapping[str, str | None] | None) -> bool:
    """Return whether settings of a topic ask for topics of delays."""
    return bool(config and config.get(LEVELS))
