"""What statements do to topics, by requests to the lake's broker: a statement is done to the topic, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalake.client import admin
from kafkalake.errors import ConfigurationError, UnknownTopicOrPartitionError
from kafkalake.reader.columns import arrow_schema, project
from kafkalake.reader.lake_broker import connect
from kafkalake.spark.planner.tables import PARTITIONS, TOPIC_ID

REPLICATION = "replication"
_OF_SPARK = ("provider", "owner", "comment", "location", "external", "is_managed_location", "collation", "path")
"""Properties of a table that Spark sets by itself."""


def create_table(question: Mapping[str, Any]) -> None:
    """Create a topic with the settings in `properties`.

    Raise `ConfigurationError` for columns that a topic cannot have, `TopicAlreadyExistsError`, `InvalidConfigError` and others.
    """
    project(arrow_schema(question["columns"]), json_values=False)
    properties = _settings(question["properties"])
    partitions, replication = (_whole(name, properties.pop(name, None)) for name in (PARTITIONS, REPLICATION))
    with connect(_lake(question)) as cluster:
        admin.create_topic(
            cluster, question["topic"], partitions=partitions, replication_factor=replication, config=properties
        )


def alter_table(question: Mapping[str, Any]) -> None:
    """Set the settings in `set` and return those in `unset` to their defaults. Raise `InvalidConfigError` and others."""
    name, properties = question["topic"], _settings(question["set"])
    partitions = _whole(PARTITIONS, properties.pop(PARTITIONS, None))
    fixed = next((name for name in (*properties, *question["unset"]) if name in (REPLICATION, TOPIC_ID)), None)
    if fixed is not None or PARTITIONS in question["unset"]:
        raise ConfigurationError(f"{fixed or PARTITIONS} is no setting of a topic that can be changed so")
    with connect(_lake(question)) as cluster:
        if properties or question["unset"]:
            admin.alter_configs(
                cluster, admin.TOPIC_RESOURCE, name, set_values=properties, delete=tuple(question["unset"])
            )
        if partitions > 0:
            admin.create_partitions(cluster, name, partitions)


def drop_table(question: Mapping[str, Any]) -> bool:
    """Delete the topic and return True, or return False if there is none. Raise `KafkaError` if the broker refuses."""
    name = question["topic"]
    with connect(_lake(question)) as cluster:
        error = admin.delete_topics(cluster, [name]).get(name)
    if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
        raise error
    return error is None


def delete_records(question: Mapping[str, Any]) -> None:
    """Delete all records, or those with an offset below that of their partition in `before` (-1: all of the partition)."""
    name = question["topic"]
    with connect(_lake(question)) as cluster:
        before = {int(partition): offset for partition, offset in question["before"].items()}
        before = before or dict.fromkeys(range(len(cluster.topic(name).partitions)), -1)
        ends = admin.list_offsets(cluster, name, dict.fromkeys(before, admin.LATEST))
        admin.delete_records(
            cluster, name, {each: -1 if offset > ends[each].offset else offset for each, offset in before.items()}
        )


def _settings(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in properties.items() if name not in _OF_SPARK and not name.startswith("option.")}


def _whole(name: str, text: str | None) -> int:
    """Return a number of at least 1, or -1 for None, which is the broker's default."""
    if text is None:
        return -1
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise ConfigurationError(f"{name} is {text!r}: give a whole number of at least 1")
    return int(text)


def _lake(question: Mapping[str, Any]) -> Path:
    return Path(question["lake"]).absolute()
