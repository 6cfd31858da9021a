"""Queries whose topic has got another schema of its values since they were made: streams that run, data frames that are kept.

Nothing in an Avro value tells the schema that it was written with, and a reader finds the end of a value only by all of its fields.
After ALTER TABLE ... ADD COLUMN, a query that reads with the fields it knows would take each new value for a broken one, so it
reads with those that the topic has now. One that writes values without the new fields writes what readers take for older ones.
"""

from __future__ import annotations

from kafkalake.config.avro_schema import parse_avro_schema
from kafkalake.config.topic_values import (
    KEY,
    SCHEMA_ID,
    VALUE_FORMAT,
    VALUE_SCHEMA,
    AvroFormat,
    TopicValues,
    topic_values,
)
from kafkalake.errors import LakeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.read_options import ReadOptions


def evolved_avro(options: ReadOptions, tables: DeltaMetadataStore) -> AvroFormat | None:
    """Return how the values of the topic are read now, or None if that is as `options.typed` says.

    Call it after the end of the read is known: values before that end have at most these fields. Raise `LakeError` if the topic has
    another format, or in Avro not all of the query's fields any more. Fields in JSON are found by their names.
    """
    typed = options.typed
    if typed is None or options.topics is None:
        return None
    (name,) = options.topics
    values = _values_now(name, typed, tables)
    _refuse(name, _changed_format(typed, values))
    if values.avro == typed.avro:
        return None
    _refuse(name, _lost_field(typed, values))
    return values.avro


def require_values(name: str, typed: TopicValues, tables: DeltaMetadataStore) -> None:
    """Raise `LakeError` if values and keys that are written as `typed` says are not those of the topic any more."""
    values = _values_now(name, typed, tables)
    changed = _changed_format(typed, values) or _lost_field(typed, values)
    if changed is None and typed.avro is not None and values.avro is not None:
        if not _is_continued(typed.avro.schema, values.avro.schema):
            changed = VALUE_SCHEMA
        elif typed.avro.schema_id != values.avro.schema_id:
            changed = SCHEMA_ID
    if changed is None and typed.key != values.key:
        changed = KEY
    _refuse(name, changed)


def _values_now(name: str, typed: TopicValues, tables: DeltaMetadataStore) -> TopicValues:
    """Return the values of a topic; those that a query knows where there is none, which the query finds by itself."""
    topic = tables.find_topic(name)
    return typed if topic is None else topic_values(topic.config)


def _changed_format(typed: TopicValues, values: TopicValues) -> str | None:
    return None if (typed.avro is None) == (values.avro is None) else VALUE_FORMAT


def _lost_field(typed: TopicValues, values: TopicValues) -> str | None:
    """Return the first field that is no longer there, or of another type."""
    types = {field.name: field.type for field in values.fields}
    return next((f"field {field.name}" for field in typed.fields if types.get(field.name) != field.type), None)


def _is_continued(before: str, after: str) -> bool:
    """Return whether a value written with a schema is one of a later schema, that ends before its last fields."""
    written, fields = parse_avro_schema(before).fields, parse_avro_schema(after).fields
    same = [(each.name, each.type) for each in written] == [(each.name, each.type) for each in fields[: len(written)]]
    return same and all(each.is_optional for each in fields[len(written) :])


def _refuse(name: str, changed: str | None) -> None:
    """Raise `LakeError` for what was changed, unless that is None."""
    if changed is not None:
        raise LakeError(
            f"{changed} of topic {name} was changed since this query was made: make it again, or start the stream again"
        )
