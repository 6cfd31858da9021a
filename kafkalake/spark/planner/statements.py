"""What statements do to topics, by requests to the lake's broker: a statement is done to the topic, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalake.client import admin
from kafkalake.errors import ConfigurationError, InvalidTopicError, UnknownTopicOrPartitionError
from kafkalake.internal_topics import INTERNAL
from kafkalake.reader.columns import arrow_schema, project
from kafkalake.reader.lake_broker import connect
from kafkalake.spark.planner.lakes import lake_path
from kafkalake.spark.planner.tables import PARTITIONS, TOPIC_ID, id_of

REPLICATION = "replication"
PROVIDER = "kafkalake"
_OF_SPARK = ("provider", "owner", "external", "is_managed_location", "collation", "path")
"""Properties of a table that Spark sets by itself."""


def create_table(question: Mapping[str, Any]) -> None:
    """Create a topic with the settings in `properties`.

    Raise `ConfigurationError` for what a topic cannot have, `TopicAlreadyExistsError`, `InvalidConfigError` and others.
    """
    project(arrow_schema(question["columns"]), json_values=False)
    provider = question["properties"].get("provider", PROVIDER)
    if provider != PROVIDER:
        raise ConfigurationError(
            f"a table of a lake is a topic, and cannot be one of {provider}; a stream that creates the table that it writes says "
            'writeStream.format("kafkalake").toTable(...)'
        )
    properties = _settings(question["properties"])
    partitions, replication = (_whole(name, properties.pop(name, None)) for name in (PARTITIONS, REPLICATION))
    with connect(lake_path(question["lake"])) as cluster:
        admin.create_topic(
            cluster, _topic(question), partitions=partitions, replication_factor=replication, config=properties
        )


def alter_table(question: Mapping[str, Any]) -> None:
    """Set the settings in `set` and return those in `unset` to their defaults, all or none.

    Raise `ConfigurationError`, `InvalidConfigError`, `InvalidPartitionsError` and others.
    """
    name, properties, unset = _topic(question), _settings(question["set"]), tuple(question["unset"])
    partitions = _whole(PARTITIONS, properties.pop(PARTITIONS, None))
    fixed = next((name for name in (*properties, *unset) if name in (REPLICATION, TOPIC_ID)), None)
    if fixed is not None or PARTITIONS in unset:
        raise ConfigurationError(f"{fixed or PARTITIONS} is no setting of a topic that can be changed so")
    with connect(lake_path(question["lake"])) as cluster:
        for validate_only in (True, False):
            if properties or unset:
                admin.alter_configs(
                    cluster,
                    admin.TOPIC_RESOURCE,
                    name,
                    set_values=properties,
                    delete=unset,
                    validate_only=validate_only,
                )
            if partitions > 0:
                admin.create_partitions(cluster, name, partitions, validate_only=validate_only)


def drop_table(question: Mapping[str, Any]) -> bool:
    """Delete the topic and return True, or return False if there is none, or it has another id than `topic_id` (None: any).

    Raise `KafkaError` if the broker refuses.
    """
    name, topic_id = _topic(question), question.get("topic_id")
    with connect(lake_path(question["lake"])) as cluster:
        if topic_id is not None and id_of(question["lake"], name) != topic_id:
            return False
        error = admin.delete_topics(cluster, [name]).get(name)
    if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
        raise error
    return error is None


def delete_records(question: Mapping[str, Any]) -> None:
    """Delete the records that are there now, in `partitions` (None: all), and below the offset `before` (None: any)."""
    name, chosen, before = _topic(question), question["partitions"], question["before"]
    with connect(lake_path(question["lake"])) as cluster:
        partitions = [each for each in range(len(cluster.topic(name).partitions)) if chosen is None or each in chosen]
        ends = admin.list_offsets(cluster, name, dict.fromkeys(partitions, admin.LATEST))
        limits = {each: ends[each].offset if before is None else min(before, ends[each].offset) for each in partitions}
        # Not Kafka's -1 for all: it would take along what is appended meanwhile.
        admin.delete_records(cluster, name, {each: limit for each, limit in limits.items() if limit > 0})


def _topic(question: Mapping[str, Any]) -> str:
    """Return the topic of a statement. Raise `InvalidTopicError` for one of the broker's own."""
    name: str = question["topic"]
    if name in INTERNAL:
        raise InvalidTopicError(f"topic {name} is the broker's own, and is only read")
    return name


def _settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a topic among a table's properties. Raise `ConfigurationError` for those that no topic has."""
    for name in ("comment", "location"):
        if name in properties:
            raise ConfigurationError(f"a topic has no {name}")
    return {name: text for name, text in properties.items() if name not in _OF_SPARK and not name.startswith("option.")}


def _whole(name: str, text: str | None) -> int:
    """Return a number of at least 1, or -1 for None, which is the broker's default."""
    if text is None:
        return -1
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise ConfigurationError(f"{name} is {text!r}: give a whole number of at least 1")
    return int(text)
