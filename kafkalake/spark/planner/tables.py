"""Topics as tables: their names, columns and properties."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from kafkalake.close_names import did_you_mean
from kafkalake.config.avro_schema import is_avro
from kafkalake.config.topic_values import VALUE_SCHEMA, TopicValues, topic_values
from kafkalake.errors import LakeError, UnknownTopicOrPartitionError
from kafkalake.internal_topics import INTERNAL
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.reader.columns import DDL, kafka_ddl, metadata_columns
from kafkalake.reader.lake_broker import located
from kafkalake.reader.option_names import LAKE
from kafkalake.reader.read_options import ReadOptions, Use, parse_options, typed_note
from kafkalake.reader.snapshot import take_snapshot, wanted_partitions
from kafkalake.spark.planner.lakes import open_lake
from kafkalake.spark.planner.question import Question
from kafkalake.spark.planner.task_json import avro_answer
from kafkalake.uuid_text import encode_uuid

PARTITIONS, REPLICATION = "partitions", "replication"
"""Properties of a table that are no settings of its topic: how many partitions it has, and how many replicas each of them."""
TOPIC_ID_NOTE = "__topicid"
"""The id of a table's topic, among the options of its scans."""


def list_tables(question: Question) -> list[str]:
    """Return the names of the lake's topics, without the broker's own."""
    return [name for name in open_lake(question["lake"]).topic_names() if name not in INTERNAL]


def load_table(question: Question) -> dict[str, Any]:
    """Return the columns, metadata columns, properties and id of a topic.

    columns: their names, types (in SQL) and comments. metadata: Kafka's columns that they are, by name, with their types. typed:
    a note for the options of reads and writes, if the columns are fields of the values. avro: how values are read that are not
    JSON.
    topic_id: None for a topic that is read as of the past.

    With `version` or `as_of_ms` raise `LakeError` if the lake cannot be read as of then, or has the topic only later. Raise
    `UnknownTopicOrPartitionError` if there is no such topic.
    """
    lake, name = question["lake"], question["topic"]
    version, as_of_ms = question.get("version"), question.get("as_of_ms")
    store = open_lake(lake)
    topic = store.find_topic(name)
    is_past = version is not None or as_of_ms is not None
    if is_past:
        try:
            take_snapshot(ReadOptions(lake, topics=(name,), version=version, as_of_ms=as_of_ms), store)
        except UnknownTopicOrPartitionError:
            if topic is None:
                raise
            raise _not_yet(topic, version) from None
    elif topic is None:
        hint = did_you_mean(name, store.topic_names())
        raise UnknownTopicOrPartitionError(f"no topic {name!r} in {lake}" + (f"; {hint}" if hint else ""))
    values = TopicValues() if topic is None else topic_values(topic.config)
    metadata = metadata_columns([field.name for field in values.fields] or DDL)
    return {
        "columns": _columns(values),
        "typed": typed_note(topic.config) if topic is not None and values.fields else None,
        "avro": avro_answer(values.avro),
        "metadata": {name: {"source": source, "type": DDL[source]} for name, source in metadata.items()},
        "properties": {} if topic is None else _properties(topic, store),
        "topic_id": None if topic is None or is_past else encode_uuid(UUID(topic.topic_id)),
    }


def _columns(values: TopicValues) -> list[dict[str, str | None]]:
    if not values.fields:
        return [{"name": name, "type": kind} for name, kind in DDL.items()]
    return [{"name": field.name, "type": field.type.sql, "comment": field.comment} for field in values.fields]


def _not_yet(topic: TopicRow, version: int | None) -> LakeError:
    created = datetime.fromtimestamp(topic.created_at_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    then = "at the time asked for" if version is None else f"in version {version}"
    return LakeError(
        f"topic {topic.topic} was not there {then}: it was created at {created}, and its versions are in {topic.topic}.history"
    )


def lake_of(question: Question) -> str:
    """Return the lake of `options` that name brokers. Raise the errors of `located`."""
    return next(value for name, value in located(question["options"]).items() if name.lower() == LAKE)


def schema_of(question: Question) -> str:
    """Return the columns (DDL) of a data frame with `options`. Raise the errors of `located` and `parse_options`."""
    options = parse_options(located(question["options"]), Use.SCHEMA)
    return kafka_ddl(headers=options.headers, value_schema=options.value_schema, topic_id=options.topic_id)


def require_topics(question: Question) -> str:
    """Return the lake of `options`, which name topics that are there. A pattern may match topics that are created later.

    Raise `ConfigurationError`, `LakeError` or `UnknownTopicOrPartitionError` if they name none.
    """
    options = parse_options(located(question["options"]), Use.SCHEMA)
    topics = open_lake(options.lake).load_topics()
    if options.pattern is None:
        wanted_partitions(options, topics)
    return options.lake


def id_of(lake: str, name: str) -> str | None:
    """Return the id of the topic that has this name now, in Kafka's format, or None."""
    topic = open_lake(lake).find_topic(name)
    return None if topic is None else encode_uuid(UUID(topic.topic_id))


def require_same(name: str, wanted: str | None, found: str | None) -> None:
    """Raise `LakeError` if the topic that has this name now, `found`, is not the one of a data frame's table, `wanted`."""
    if None not in (wanted, found) and wanted != found:
        raise LakeError(
            f"topic {name} was deleted and created again since this data frame was made: make it again, and it reads the new topic"
        )


def _properties(topic: TopicRow, store: DeltaMetadataStore) -> dict[str, str]:
    """Return the properties of a topic as a table, without `value.schema`, which its columns are, unless it says more: in Avro.

    `replication` is that of its first partition; it is left out where no broker has given the topic replicas yet.
    """
    registered = store.newest_image().partitions.get(UUID(topic.topic_id), ())
    replication = {REPLICATION: str(len(registered[0].replicas))} if registered else {}
    return {
        **{name: text for name, text in topic.config.items() if name != VALUE_SCHEMA or is_avro(text)},
        PARTITIONS: str(topic.partitions),
        **replication,
    }
