"""What statements do to topics, by requests to the lake's broker: a statement is done to the topic, or refused in one sentence."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalake.client.administration.blocking import Admin
from kafkalake.client.administration.configs import TOPIC_RESOURCE
from kafkalake.client.administration.partition_offsets import LATEST
from kafkalake.close_names import did_you_mean, unknown_setting_hint
from kafkalake.config.topic_values import AVRO, VALUE_FORMAT, VALUE_SCHEMA, topic_values
from kafkalake.config.topics import TOPIC_SETTINGS
from kafkalake.config.value_schema import ValueField, value_field, value_schema_sql
from kafkalake.errors import (
    ConfigurationError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    KafkaLakeError,
    LakeError,
    PolicyViolationError,
    UnknownTopicIdError,
    as_value,
    with_clause,
)
from kafkalake.internal_topics import INTERNAL
from kafkalake.metadata import paths
from kafkalake.reader.columns import DDL, arrow_schema, project
from kafkalake.reader.lake_broker import connect
from kafkalake.spark.planner.lakes import lake_path, open_lake
from kafkalake.spark.planner.process import IS_WITHDRAWN
from kafkalake.spark.planner.question import Question
from kafkalake.spark.planner.tables import PARTITIONS, REPLICATION, id_of
from kafkalake.storage.partition_metadata import read_topic_id
from kafkalake.storage.retired_directories import remove_directories, retired_directories
from kafkalake.uuid_text import decode_uuid

PROTECTED = "delete.protected"
_PURGE_WAIT_S = 5.0
_LOOK_AGAIN_S = 0.02
PROVIDER = "kafkalake"
_BINARY_COLLATION = " COLLATE UTF8_BINARY"
"""Of every STRING, which SHOW CREATE TABLE says."""
_OF_SPARK = ("provider", "owner", "external", "is_managed_location", "collation", "path")
"""Properties of a table that Spark sets by itself."""


def create_table(question: Question) -> None:
    """Create a topic with the settings in `properties`, typed if `columns` are others than Kafka's.

    Raise `ConfigurationError` for what a topic cannot have, `TopicAlreadyExistsError`, `InvalidConfigError` and others.
    """
    provider = question["properties"].get("provider", PROVIDER)
    if provider != PROVIDER:
        raise ConfigurationError(
            f"a table of a lake is a topic, and cannot be one of {provider}; a stream that creates the table that it writes says "
            'writeStream.format("kafkalake").toTable(...)'
        )
    if question["properties"].get("external") == "true":
        raise ConfigurationError("a table of a lake is its topic, which DROP TABLE deletes, and cannot be EXTERNAL")
    properties = _settings(question["properties"])
    fields = _value_fields(question["columns"], has_bytes=properties.get(VALUE_FORMAT) == AVRO)
    if VALUE_SCHEMA not in properties:
        properties |= {VALUE_SCHEMA: value_schema_sql(fields)} if fields else {}
    elif question["columns"] and topic_values(properties).fields != fields:
        raise ConfigurationError(f"the table has columns, and {VALUE_SCHEMA} names others: give one of them")
    partitions, replication = (_whole(name, properties.pop(name, None)) for name in (PARTITIONS, REPLICATION))
    with connect(lake_path(question["lake"])) as admin, _suggested(properties):
        admin.create_topic(
            named_topic(question), partitions=partitions, replication_factor=replication, config=properties
        )


def alter_table(question: Question) -> None:
    """Set the settings in `set`, return those in `unset` to their defaults, and add the columns in `add`.

    The broker adds columns to those that are there by then, so that nobody's are lost. What it refuses is not done in part, but
    settings and partitions are two changes: no request of Kafka's carries both. The settings are first, as they can be changed
    back. An error between the changes says that the settings are changed. Repeated, the statement does what is left to do, also
    after it was killed.

    Raise `ConfigurationError`, `InvalidConfigError`, `InvalidPartitionsError` and others.
    """
    name, properties, unset = named_topic(question), _settings(question["set"]), tuple(question["unset"])
    partitions = _whole(PARTITIONS, properties.pop(PARTITIONS, None))
    fixed = next((name for name in (*properties, *unset) if name == REPLICATION), None)
    if fixed is not None or PARTITIONS in unset:
        raise ConfigurationError(f"{fixed or PARTITIONS} is no setting of a topic that can be changed so")
    with connect(lake_path(question["lake"])) as admin, _suggested(properties):
        added = {VALUE_SCHEMA: _added_fields(admin, name, question["add"])} if question["add"] else {}
        has_settings = bool(properties or unset or added)
        for validate_only in (True, False):
            if has_settings:
                admin.alter_configs(
                    TOPIC_RESOURCE,
                    name,
                    set_values=properties,
                    delete=unset,
                    append=added,
                    validate_only=validate_only,
                )
            try:
                _have_partitions(admin, name, partitions, validate_only=validate_only)
            except KafkaLakeError as error:
                if validate_only or not has_settings:
                    raise
                raise with_clause(as_value(error), f"the settings of topic {name} are changed") from None


def require_settings(question: Question) -> None:
    """Raise `ConfigurationError` if one of `names` is no setting of a topic: a broker takes its deletion for done."""
    name, names = question["topic"], _settings(dict.fromkeys(question["names"], ""))
    topic = open_lake(question["lake"]).find_topic(name)
    known = {*TOPIC_SETTINGS, PARTITIONS, REPLICATION, *(() if topic is None else topic.config)}
    unknown = [each for each in names if each not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known)
        raise ConfigurationError(f"topic {name} has no setting {unknown[0]!r}" + (f"; {hint}" if hint else ""))


def _have_partitions(admin: Admin, topic: str, count: int, *, validate_only: bool) -> None:
    """Add partitions until there are `count` (-1: any number). Raise `InvalidPartitionsError` if there are more."""
    try:
        if count > 0:
            admin.create_partitions(topic, count, validate_only=validate_only)
    except InvalidPartitionsError:
        if len(admin.describe_topic(topic).partitions) != count:
            raise


def drop_table(question: Question) -> bool:
    """Delete the topic `topic_id` and return True, or return False if it is gone. With `purge` its files go at once.

    A statement that is asked again deletes no topic that has its name by then. Raise `PolicyViolationError` if the topic is
    protected, `KafkaError` if the broker refuses for another reason.
    """
    lake, name, topic_id = lake_path(question["lake"]), named_topic(question), question["topic_id"]
    topic = open_lake(question["lake"]).find_topic(name)
    with connect(lake) as admin:
        is_deleted = _delete(admin, topic_id)
    if question["purge"]:
        _purge(lake, name, decode_uuid(topic_id), 0 if topic is None else topic.partitions)
    return is_deleted


def _purge(lake: Path, topic: str, topic_id: UUID, partitions: int) -> None:
    """Remove the files of a deleted topic once the brokers have let them go.

    What a broker that does not run, or is slow, has left goes after `file.delete.delay.ms`, as without a purge.
    """
    deadline_s = time.monotonic() + _PURGE_WAIT_S
    places = [path for number in range(partitions) for path in paths.partition_paths(lake, topic, number).values()]
    while time.monotonic() < deadline_s and any(read_topic_id(path) == topic_id for path in places):
        time.sleep(_LOOK_AGAIN_S)
    remove_directories(retired_directories(lake / paths.LOG_DIRECTORY, topic_id))


def undo_create(question: Question) -> bool:
    """Delete the topic that a statement has just made, protected or not; return False if that one, `topic_id`, is gone already."""
    name, topic_id = named_topic(question), question["topic_id"]
    with connect(lake_path(question["lake"])) as admin:
        try:
            return _delete(admin, topic_id)
        except PolicyViolationError:
            if id_of(question["lake"], name) != topic_id:
                return False
            admin.alter_configs(TOPIC_RESOURCE, name, delete=[PROTECTED])
            return _delete(admin, topic_id)


def _delete(admin: Admin, topic_id: str) -> bool:
    try:
        admin.delete_topic(decode_uuid(topic_id))
    except UnknownTopicIdError:
        return False
    return True


def delete_records(question: Question) -> None:
    """Delete the records of topic `topic_id` that are there now, in `partitions` (None: all), below offset `before` (None: any).

    Raise `LakeError` if the statement was withdrawn, or another topic has the name by then: partitions that are done are done.
    """
    name, chosen, before = named_topic(question), question["partitions"], question["before"]
    topic_id = decode_uuid(question["topic_id"])
    with connect(lake_path(question["lake"])) as admin:
        found = admin.describe_topic(name)
        require_topic(name, topic_id, found.topic_id)
        partitions = [each for each in range(len(found.partitions)) if chosen is None or each in chosen]
        ends = admin.list_offsets(dict.fromkeys([(name, each) for each in partitions], LATEST))
        limits = {each: end.offset if before is None else min(before, end.offset) for (_, each), end in ends.items()}
        # Not Kafka's -1 for all: it would take along what is appended meanwhile.
        for each, limit in limits.items():
            if question[IS_WITHDRAWN]():
                raise LakeError(f"the statement was cancelled before partition {each} of topic {name}")
            if limit > 0:
                # Kafka's DeleteRecords names the topic: its id is looked at right before.
                require_topic(name, topic_id, admin.describe_topic(name).topic_id)
                admin.delete_records({(name, each): limit})


def require_topic(name: str, wanted: UUID, found: UUID | None) -> None:
    """Raise `LakeError` if the topic that has this name now, `found`, is not the one of which a statement deletes records."""
    if found != wanted:
        raise LakeError(f"topic {name} was deleted and created again meanwhile: nothing of the new one is deleted")


def _value_fields(columns: Sequence[Mapping[str, Any]], *, has_bytes: bool) -> tuple[ValueField, ...]:
    """Return the fields that the columns of a new table are; none if they are Kafka's. Raise `ConfigurationError`."""
    if not all(column["name"] in DDL for column in columns):
        return tuple(
            value_field(column["name"], column["type"], column["comment"], has_bytes=has_bytes) for column in columns
        )
    try:
        types = {column["name"]: column["type"].replace(_BINARY_COLLATION, "") for column in columns}
        project(arrow_schema(types), json_values=False)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}; fields of such names stand in the property {VALUE_SCHEMA}") from None
    if any(column["comment"] is not None for column in columns):
        raise ConfigurationError("the columns of Kafka's records have no comments")
    return ()


def _added_fields(admin: Admin, topic: str, columns: Sequence[Mapping[str, Any]]) -> str:
    """Return the schema of these columns. Raise `ConfigurationError` if the topic has no fields to which they could be added."""
    entries = admin.describe_configs(TOPIC_RESOURCE, [topic])[topic]
    values = topic_values({entry.name: entry.value for entry in entries})
    if not values.fields:
        raise ConfigurationError(
            f"the columns of topic {topic} are those of Kafka's records, and are not altered: "
            f"SET TBLPROPERTIES ('{VALUE_SCHEMA}' = ...) names the fields of its values"
        )
    has_bytes = values.avro is not None
    return value_schema_sql(
        value_field(each["name"], each["type"], each["comment"], has_bytes=has_bytes) for each in columns
    )


def named_topic(question: Question) -> str:
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


@contextmanager
def _suggested(names: Iterable[str]) -> Iterator[None]:
    """Add a suggestion to the error for settings of which one is unknown."""
    try:
        yield
    except InvalidConfigError as error:
        hint = unknown_setting_hint(names, (*TOPIC_SETTINGS, PARTITIONS, REPLICATION))
        if hint is None:
            raise
        raise with_clause(as_value(error), hint) from None


def _whole(name: str, text: str | None) -> int:
    """Return a number of at least 1, or -1 for None, which is the broker's default."""
    if text is None:
        return -1
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise ConfigurationError(f"{name} is {text!r}: give a whole number of at least 1")
    return int(text)
