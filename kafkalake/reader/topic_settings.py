"""Reads the effective settings of topics from disk, so that jobs have them while no broker runs.

A topic's own settings are in the Delta table `topics`. The defaults come from its broker: dynamic settings from the table
`cluster`, those of its command line from `broker-settings-static.json` beside its logs, which it writes at each start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafkalake.cluster.image import ConfigOf, ConfigResource, ResourceKind
from kafkalake.config.layers import Settings
from kafkalake.config.providers import resolvable
from kafkalake.config.stored import parse_stored_overrides, usable_broker_settings
from kafkalake.config.topic_values import TopicValues, topic_values
from kafkalake.config.topics import TopicConfig
from kafkalake.errors import ConfigurationError, LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.reader.read_options import ReadOptions


def broker_settings(lake: Path, config: ConfigOf) -> Settings:
    """Return the settings of the lake's broker (the one with the smallest id, if there are several), or the defaults.

    `config`: the dynamic settings of the cluster's newest image. Raise `LakeError` if a file is damaged.
    """
    directories = sorted(
        (path for path in (lake / paths.LOG_DIRECTORY).glob("*") if path.name.isdecimal()), key=lambda p: int(p.name)
    )
    if not directories:
        return Settings()
    static = resolvable(_read(directories[0] / paths.STATIC_SETTINGS_FILE))
    layers = [config.get(ConfigResource(ResourceKind.BROKER, name), {}) for name in ("", directories[0].name)]
    try:
        return Settings(*(usable_broker_settings(each)[0] for each in (static, *layers)))
    except ConfigurationError as error:
        raise LakeError(f"the settings in {directories[0]} cannot be used: {error}") from error


def topic_configs(lake: Path, config: ConfigOf, topics: Iterable[TopicRow]) -> dict[str, TopicConfig]:
    """Return the settings of topics by name. Raise as `broker_settings`."""
    settings = broker_settings(lake, config)
    return {topic.topic: settings.topic(parse_stored_overrides(topic.config)[0]) for topic in topics}


def values_of(options: ReadOptions, topics: Iterable[TopicRow]) -> TopicValues:
    """Return how the values of the one topic that `options` name are read; no fields for several topics, or one that is not there.

    Raise `ConfigurationError` if this release cannot read them.
    """
    if options.topics is None or len(options.topics) != 1:
        return TopicValues()
    return next((topic_values(topic.config) for topic in topics if topic.topic == options.topics[0]), TopicValues())


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise LakeError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise LakeError(f"{path} is not what it should be")
    return content
