"""How the values of a topic are read and written as rows: the topic settings about it, and what they must be together.

value.schema           the fields: Spark's DDL, or an Avro schema in JSON
value.format           json or avro
value.avro.schema.id   values begin with Confluent's header, five bytes: zero, and the id of a schema in a registry
key                    the field that is each record's key

There is no registry to ask, so of values that are read any id is taken, and those that are written have the id of the setting. Avro
has nothing in its values that tells the schema with which they were written. All are read with the one that the topic has now; it
may have got more fields at its end, whose default is null: values that end before these are older, and have null there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalake.close_names import did_you_mean
from kafkalake.config.avro_schema import avro_fields, avro_schema_of, is_avro, parse_avro_schema, with_avro_fields
from kafkalake.config.setting import invalid_value
from kafkalake.config.value_schema import ValueField, parse_value_schema, value_schema_sql
from kafkalake.errors import ConfigurationError

VALUE_SCHEMA, VALUE_FORMAT, SCHEMA_ID, KEY = "value.schema", "value.format", "value.avro.schema.id", "key"
"""Names of the settings."""
JSON, AVRO = "json", "avro"
SCHEMA_ID_MAX = 2**31 - 1

_KEY_TYPES = ("STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "DATE")
"""Types whose values have one text, that of Java's `toString` and thus of a key written by Kafka's StringSerializer."""


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Values in Avro's binary encoding. schema: its JSON. schema_id: of their header; None: they have no header."""

    schema: str
    schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class TopicValues:
    """The values of a topic. fields: none if they have no schema. avro: None if they are JSON. key: the field that is the key."""

    fields: tuple[ValueField, ...] = ()
    avro: AvroFormat | None = None
    key: str | None = None


def topic_values(settings: Mapping[str, object]) -> TopicValues:
    """Return how the values of a topic with these settings are read and written. Raise `ConfigurationError`."""
    text = str(settings.get(VALUE_SCHEMA) or "")
    key = None if settings.get(KEY) is None else str(settings[KEY])
    if not text:
        return TopicValues()
    if settings.get(VALUE_FORMAT, JSON) != AVRO:
        if is_avro(text):
            raise ConfigurationError(f"this is an Avro schema, and the topic has {VALUE_FORMAT}={JSON}: set {AVRO}")
        return TopicValues(parse_value_schema(text), key=key)
    schema_id = settings.get(SCHEMA_ID)
    number = None if schema_id is None else int(str(schema_id))
    if is_avro(text):
        return TopicValues(avro_fields(parse_avro_schema(text)), AvroFormat(text, number), key)
    fields = parse_value_schema(text, has_bytes=True)
    return TopicValues(fields, AvroFormat(avro_schema_of(fields), number), key)


def with_fields(settings: Mapping[str, object], more: str) -> str:
    """Return the schema of a topic with the fields of the DDL `more` behind its own; those that it has already stay as they are.

    Raise `ConfigurationError` if there is no schema, or it cannot have one of these fields beside its own.
    """
    text = str(settings.get(VALUE_SCHEMA) or "")
    if not text:
        raise ConfigurationError(f"{VALUE_SCHEMA} has fields to add to only where it is set")
    values = topic_values(settings)
    added = [
        field for field in parse_value_schema(more, has_bytes=values.avro is not None) if field not in values.fields
    ]
    schema = with_avro_fields(text, added) if is_avro(text) else value_schema_sql((*values.fields, *added))
    topic_values({**settings, VALUE_SCHEMA: schema})  # no name twice
    return schema


def check_schema(text: str) -> None:
    """Raise `ConfigurationError` if this is the schema of no format."""
    if is_avro(text):
        parse_avro_schema(text)
    else:
        parse_value_schema(text, has_bytes=True)


def check_values(settings: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` if the settings of a topic contradict each other."""
    try:
        fields = {field.name: field for field in topic_values(settings).fields}
    except ConfigurationError as error:
        raise invalid_value(VALUE_SCHEMA, settings[VALUE_SCHEMA], str(error)) from None
    if settings.get(VALUE_FORMAT) == AVRO:
        if not fields:
            raise invalid_value(
                VALUE_FORMAT, AVRO, f"values in Avro are read with {VALUE_SCHEMA}, and the topic has none"
            )
    elif SCHEMA_ID in settings:
        raise invalid_value(SCHEMA_ID, settings[SCHEMA_ID], f"the topic has not {VALUE_FORMAT}={AVRO}")
    key = settings.get(KEY)
    if key is not None:
        _check_key(settings, fields.get(str(key)), fields)


def _check_key(settings: Mapping[str, object], field: ValueField | None, fields: Mapping[str, ValueField]) -> None:
    """Raise `ConfigurationError` if the setting `key`, which is `field`, cannot be a record's key."""
    if not fields:
        raise invalid_value(KEY, settings[KEY], f"it names a field of {VALUE_SCHEMA}, and the topic has none")
    if field is None:
        hint = did_you_mean(str(settings[KEY]), fields) or f"there are {', '.join(fields)}"
        raise invalid_value(KEY, settings[KEY], f"{VALUE_SCHEMA} has no such field; {hint}")
    if field.type.name not in _KEY_TYPES:
        raise invalid_value(
            KEY,
            settings[KEY],
            f"a {field.type.name} has no one text that would be the key; {', '.join(_KEY_TYPES)} have",
        )
