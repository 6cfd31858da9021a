"""The fields that `kafkalake consume` shows, of topics whose schema is changed meanwhile."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kafkalake.cli.record_fields import RecordFields
from kafkalake.config.topic_values import TopicValues, topic_values
from kafkalake.reader.avro_records import avro_records

FIRST = topic_values({"value.format": "avro", "value.schema": "user STRING"})
SECOND = topic_values({"value.format": "avro", "value.schema": "user STRING, n INT"})
OTHER = topic_values(
    {
        "value.format": "avro",
        "value.schema": json.dumps(
            {
                "type": "record",
                "name": "r",
                "fields": [{"name": "user", "type": "string"}, {"name": "id", "type": "long"}],
            }
        ),
    }
)


def written(values: TopicValues, **fields: object) -> bytes:
    assert values.avro is not None
    rows = pa.RecordBatch.from_pylist([fields], pa.schema([(name, _type(each)) for name, each in fields.items()]))
    found: bytes = avro_records(rows, values.avro, None).column("value")[0].as_py()
    return found


def _type(value: object) -> pa.DataType:
    return pa.string() if isinstance(value, str) else pa.int32()


class Topic:
    """A topic whose schema is asked for."""

    def __init__(self, values: TopicValues | None) -> None:
        self.values = values
        self.asked = 0

    def now(self) -> TopicValues | None:
        self.asked += 1
        return self.values


def texts(fields: RecordFields, *values: bytes | None) -> list[bytes | None]:
    return fields.texts(pa.array(values, pa.binary()))


def test_values_with_a_new_field_are_read_with_the_schema_that_the_topic_has_since() -> None:
    topic = Topic(FIRST)
    fields = RecordFields(FIRST, topic.now)
    old, new = written(FIRST, user="ann"), written(SECOND, user="bob", n=2)
    assert texts(fields, old, None) == [b'{"user":"ann"}', None]
    assert topic.asked == 0
    topic.values = SECOND
    assert texts(fields, old, new, None) == [b'{"user":"ann"}', b'{"user":"bob","n":2}', None]
    assert texts(fields, new) == [b'{"user":"bob","n":2}']
    assert topic.asked == 1
    assert fields.names == ["user"]
    assert fields.cells(pa.array([new], pa.binary())) == [["bob"]]


def test_values_that_do_not_fit_the_new_schema_are_read_with_the_one_before() -> None:
    topic = Topic(OTHER)
    fields = RecordFields(FIRST, topic.now)
    old, new = written(FIRST, user="ann"), written(OTHER, user="bob", id=2)
    shown = [b'{"user":"ann"}', b'{"user":"bob","id":2}', None]
    assert texts(fields, old, new, b"none") == shown
    assert texts(fields, b"none", old, new) == [shown[2], *shown[:2]]


@pytest.mark.parametrize("values", [None, topic_values({"value.schema": "user STRING"}), FIRST])
def test_values_stay_broken_where_the_topic_tells_of_no_newer_schema(values: TopicValues | None) -> None:
    fields = RecordFields(FIRST, Topic(values).now)
    assert texts(fields, written(FIRST, user="ann"), b"none") == [b'{"user":"ann"}', None]
