"""Topics as tables: their names, columns and properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kafkalake.close_names import did_you_mean
from kafkalake.errors import UnknownTopicOrPartitionError
from kafkalake.internal_topics import INTERNAL
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.reader.columns import kafka_ddl
from kafkalake.reader.read_options import ReadOptions
from kafkalake.reader.snapshot import take_snapshot
from kafkalake.spark.planner.lakes import open_lake
from kafkalake.uuid_text import encode_uuid

PARTITIONS, TOPIC_ID = "partitions", "topic.id"
"""Properties of a table that are no settings of its topic."""


def list_tables(question: Mapping[str, Any]) -> list[str]:
    """Return the names of the lake's topics, without the broker's own."""
    return [topic.topic for topic in open_lake(question["lake"]).load_topics() if topic.topic not in INTERNAL]


def load_table(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns (DDL) and properties of a topic.

    With `version` or `as_of_ms` raise `LakeError` if the lake cannot be read as of then. Raise `UnknownTopicOrPartitionError` if
    there is no such topic.
    """
    lake, name = question["lake"], question["topic"]
    version, as_of_ms = question.get("version"), question.get("as_of_ms")
    store = open_lake(lake)
    topics = {topic.topic: topic for topic in store.load_topics()}
    if version is not None or as_of_ms is not None:
        take_snapshot(ReadOptions(lake, topics=(name,), version=version, as_of_ms=as_of_ms), store)
    elif name not in topics:
        hint = did_you_mean(name, topics)
        raise UnknownTopicOrPartitionError(f"no topic {name!r} in {lake}" + (f"; {hint}" if hint else ""))
    topic = topics.get(name)
    return {
        "columns": kafka_ddl(headers=True, value_schema=None),
        "properties": {} if topic is None else _properties(topic),
    }


def id_of(lake: str, name: str) -> str | None:
    """Return the id of the topic that has this name now, in Kafka's format, or None."""
    found = (topic.topic_id for topic in open_lake(lake).load_topics() if topic.topic == name)
    topic_id = next(found, None)
    return None if topic_id is None else encode_uuid(UUID(topic_id))


def _properties(topic: TopicRow) -> dict[str, str]:
    return {
        **topic.config,
        PARTITIONS: str(topic.partitions),
        TOPIC_ID: encode_uuid(UUID(topic.topic_id)),
    }
