"""Avro values as columns and back, against fastavro; schemas as columns; what of them is refused."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from avro_documents import DDL, ROWS, SCHEMA, TEXT, damaged, decoded, encoded
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.admin.topic_plans import parse_overrides
from kafkalake.config.avro_schema import with_avro_fields
from kafkalake.config.setting_texts import TEXT_MAX
from kafkalake.config.topic_values import AvroFormat, topic_values
from kafkalake.config.value_schema import ValueType, parse_value_schema, value_schema_sql
from kafkalake.errors import ConfigurationError, InvalidConfigError, InvalidRecordError
from kafkalake.reader.avro_of_json import AvroOfJson
from kafkalake.reader.avro_records import avro_records
from kafkalake.reader.avro_values import parse_avro
from kafkalake.reader.value_types import value_arrow_schema

FORMAT = AvroFormat(TEXT)
SETTINGS = {"value.format": "avro", "value.schema": TEXT}
COLUMNS = value_arrow_schema(topic_values(SETTINGS).fields)


def rows(values: list[bytes | None], format: AvroFormat = FORMAT, columns: pa.Schema = COLUMNS) -> list[dict[str, Any]]:
    arrays = parse_avro(pa.array(values, pa.binary()), columns, format)
    return pa.RecordBatch.from_arrays(arrays, schema=columns).to_pylist(maps_as_pydicts="strict")


def test_the_columns_of_a_schema_are_those_of_its_ddl() -> None:
    fields = topic_values(SETTINGS).fields
    expected = parse_value_schema(DDL, has_bytes=True)
    assert value_schema_sql(fields) == value_schema_sql(expected).replace(
        "`b` STRING", r"`b` STRING COMMENT 'it\'s a text'"
    )


@pytest.mark.exhaustive
@examples(60)
@given(st.lists(ROWS, max_size=5))
def test_values_come_back_as_fastavro_reads_them(written: list[dict[str, Any]]) -> None:
    values = [encoded(row) for row in written]
    assert shown(rows([*values, None])[:-1]) == shown([decoded(value) for value in values])
    batch = pa.RecordBatch.from_arrays(parse_avro(pa.array(values, pa.binary()), COLUMNS, FORMAT), schema=COLUMNS)
    records = avro_records(batch, AvroFormat(TEXT, schema_id=258), "a")
    written_again = [decoded(value[5:]) for value in records["value"].to_pylist()]
    assert shown(written_again) == shown([decoded(value) for value in values])
    assert all(value[:5] == b"\0\0\0\1\2" for value in records["value"].to_pylist())
    assert records["key"].to_pylist() == [str(row["a"]).encode() for row in written]
    some = pa.schema([COLUMNS.field("s"), COLUMNS.field("b")])
    assert rows(values, columns=some) == [{name: row[name] for name in some.names} for row in rows(values)]


@pytest.mark.exhaustive
@examples(40)
@given(ROWS, st.randoms(use_true_random=True))
def test_fields_are_the_same_whichever_are_passed_over(row: dict[str, Any], randomness: Random) -> None:
    values = pa.array([encoded(row), *(damaged(encoded(row), randomness) for _ in range(20))], pa.binary())
    for field, column in zip(COLUMNS, parse_avro(values, COLUMNS, FORMAT), strict=True):
        (alone,) = parse_avro(values, pa.schema([field]), FORMAT)
        # Columns with NaN do not equal themselves.
        assert alone.is_valid().equals(column.is_valid()) if field.name in "cf" else alone.equals(column), field.name


def shown(found: list[dict[str, Any]]) -> str:
    """Return the text of rows, in which NaN equals NaN, and UTC is UTC."""
    return repr(found).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


ROW: dict[str, Any] = {
    "a": 1,
    "b": "x",
    "c": [],
    "d": None,
    "e": {},
    "f": None,
    "g": True,
    "h": Decimal("1.25"),
    "i": 5,
    "j": None,
    "k": 7,
    "l": "RED",
    "m": b"mm",
    "n": Decimal(3),
    "o": 2**40,
    "p": b"p",
    "q": [],
    "r": b"rr",
    "s": [],
}
NONE = dict.fromkeys(COLUMNS.names)


def test_a_value_that_is_no_record_is_a_row_of_nulls_and_an_older_one_lacks_its_last_fields() -> None:
    whole = encoded(ROW)
    lacking = {len(whole): rows([whole])[0], len(whole) - 2: rows([whole])[0] | {"s": None}}
    lacking[len(whole) - 5] = lacking[len(whole) - 2] | {"r": None}
    for end in range(len(whole)):
        assert rows([whole[:end]]) == [lacking.get(end, NONE)], end
    assert rows([whole + b"\0", b"", None, b"text"]) == [NONE] * 4
    header = AvroFormat(TEXT, schema_id=3)
    given_values = [b"\0\0\0\0\7" + whole, whole, b"\1\0\0\0\3" + whole, b"\0\0\0"]
    assert rows(given_values, header) == [lacking[len(whole)], NONE, NONE, NONE], "any id is taken"


def test_a_field_that_does_not_fit_is_null_and_leaves_the_others() -> None:
    loose = json.loads(TEXT)
    kinds = {"b": ["null", "bytes"], "h": "bytes", "k": "long", "l": "long", "o": ["null", "long", "long"]}
    kinds |= {"d": ["null", {**SCHEMA["fields"][3]["type"][1]}], "c": {"type": "array", "items": ["double", "null"]}}
    kinds["q"] = {"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "long"}}}
    for field in loose["fields"]:
        field["type"] = kinds.get(field["name"], field["type"])
    loose["fields"][3]["type"][1]["fields"][0]["type"] = "long"
    wrong = {"b": b"\xff", "h": b"\x7f" * 9, "k": 2**40, "l": 2, "d": {"x": 2**40, "y": ["t"]}}
    (found,) = rows([encoded(ROW | wrong, fastavro.parse_schema(loose))])
    expected = rows([encoded(ROW)])[0] | {"b": None, "h": None, "k": None, "l": None, "d": {"x": None, "y": ["t"]}}
    assert found == expected


def test_rows_that_the_schema_does_not_let_be_are_refused() -> None:
    (good,) = rows([encoded(ROW)])
    for wrong, said in (
        ({"a": None}, "column a is null in a row"),
        ({"d": {"x": None, "y": []}}, r"column d\.x is null"),
        ({"d": {"x": 1, "y": [None]}}, r"column d\.y\[\] is null"),
        ({"l": "BLUE"}, "column l is 'BLUE' in a row, and in Avro one of RED, GREEN"),
        ({"m": b"long"}, "column m has not 2 bytes"),
    ):
        with pytest.raises(InvalidRecordError, match=said):
            avro_records(pa.RecordBatch.from_pylist([good | wrong], schema=COLUMNS), FORMAT, None)


def test_the_schema_of_a_ddl_is_read_by_fastavro() -> None:
    ddl = (
        "t TINYINT, s SMALLINT, i INT COMMENT 'n', d DECIMAL(20,3), at TIMESTAMP, b BINARY, "
        "m MAP<STRING, STRUCT<x: DATE, y: STRUCT<z: STRING>>>, x STRUCT<y: STRUCT<z: INT>>"
    )
    values = topic_values({"value.format": "avro", "value.schema": ddl, "key": "i"})
    assert values.avro is not None
    columns = value_arrow_schema(values.fields)
    row = {
        "t": -3,
        "s": 7,
        "i": None,
        "d": Decimal("1.250"),
        "at": None,
        "b": b"\xff",
        "m": {"k": None},
        "x": {"y": None},
    }
    records = avro_records(pa.RecordBatch.from_pylist([{**row, "m": [("k", None)]}], schema=columns), values.avro, "i")
    (value,) = records["value"].to_pylist()
    assert decoded(value, fastavro.parse_schema(json.loads(values.avro.schema))) == row
    assert rows([value], values.avro, columns) == [row]
    assert records["key"].to_pylist() == [None]
    # A TINYINT is an int in Avro: another writer's may be too large.
    foreign = io.BytesIO()
    fastavro.schemaless_writer(foreign, json.loads(values.avro.schema), row | {"t": 300})
    assert rows([foreign.getvalue()], values.avro, columns) == [row | {"t": None}]
    added = with_avro_fields(values.avro.schema, parse_value_schema("more ARRAY<INT>"))
    with pytest.raises(ConfigurationError, match="column `tiny` TINYINT would be `tiny` INT"):
        with_avro_fields(values.avro.schema, parse_value_schema("tiny TINYINT"))
    grown = topic_values({"value.format": "avro", "value.schema": added})
    assert grown.avro is not None
    assert rows([value], grown.avro, value_arrow_schema(grown.fields)) == [{**row, "more": None}]


JSON: dict[str, Any] = {
    "a": 1,
    "b": "ö",
    "c": [1.5, None, "NaN"],
    "d": {"x": 1, "y": ["z"]},
    "e": {"k": None},
    "f": 0.5,
    "g": True,
    "h": 1.25,
    "i": "2026-01-02T03:04:05.678901+01:00",
    "j": "2026-01-02T03:04:05.678",
    "k": "2026-01-02",
    "l": "GREEN",
    "m": "mm",
    "n": "-3.5",
    "o": 7,
    "p": {"base64": "/w=="},
    "q": [{"k": ["RED"]}],
}


def test_json_of_users_becomes_avro_or_is_refused() -> None:
    encoder = AvroOfJson(FORMAT, ValueType("STRUCT", fields=topic_values(SETTINGS).fields))
    found = decoded(encoder.encode(json.dumps(JSON).encode()))
    assert shown([found]) == shown(rows([encoder.encode(json.dumps(JSON).encode())]))
    assert {name: found[name] for name in "abdeghlmnopqrs"} == {
        **{name: JSON[name] for name in "abdeglo"},
        "h": Decimal("1.25"),
        "m": b"mm",
        "n": Decimal("-3.5"),
        "p": b"\xff",
        "q": [{"k": ["RED"]}],
        "r": None,
        "s": None,
    }
    assert found["i"] == datetime(2026, 1, 2, 2, 4, 5, 678901, UTC)
    assert (found["j"], found["k"]) == (datetime(2026, 1, 2, 3, 4, 5, 678000), date(2026, 1, 2))
    for wrong, said in (
        ({"a": "x"}, 'field a is "x", which is no BIGINT'),
        ({"a": 2**63}, "field a is 9223372036854775808, which is no BIGINT"),
        ({"a": None}, "field a is null, which the Avro schema does not let it be"),
        ({"d": {"x": 1}}, "field d.y is null"),
        ({"d": {"x": 1, "y": [], "z": 1}}, "value.schema has no field d.z; there are x, y"),
        ({"c": {}}, r"field c is \{\}, which is no ARRAY<DOUBLE>"),
        ({"h": 1.257}, r"field h is 1.257, which is no DECIMAL\(10,2\)"),
        ({"l": "BLUE"}, 'field l is "BLUE", and in Avro one of RED, GREEN'),
        ({"m": "long"}, "field m has 4 bytes, and in Avro 2"),
        ({"p": {"base64": "?"}}, "which is no BINARY"),
        ({"i": "noon"}, "which is no TIMESTAMP"),
    ):
        with pytest.raises(InvalidRecordError, match=said):
            encoder.encode(json.dumps(JSON | wrong).encode())
    for text in (b"no json", b"[1]", b""):
        with pytest.raises(InvalidRecordError, match="no JSON object"):
            encoder.encode(text)


def schema(**field: object) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", **field}]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "the Avro schema is no JSON: Expecting property name enclosed in double quotes: line 1"),
        ('{"type": "string"}', "values of a table are records, and the Avro schema is of type string"),
        ('["null", "int"]', "is of type union"),
        ('{"type": "record", "name": "r", "fields": []}', "a record of a table has fields"),
        ('{"type": "record", "name": "r-1", "fields": []}', "'r-1' is no name in Avro"),
        (schema(type="nul"), "column a: there is no Avro type 'nul'"),
        (schema(type="null"), "column a is always null"),
        (schema(type=["null", "r"]), "the record r contains itself"),
        (schema(type=["int", "string"]), "column a is a union of int, string: a column has one type"),
        (schema(type=["null", "int", "null"]), "a union has each type once"),
        (schema(type={"type": "fixed", "name": "f", "size": 0}), "a fixed has a size of at least 1"),
        (schema(type={"type": "enum", "name": "e", "symbols": []}), "an enum has symbols"),
        (schema(type={"type": "enum", "name": "e", "symbols": ["A", "A"]}), "an enum has each symbol once"),
        (schema(type={"type": "enum", "name": "r", "symbols": ["A"]}), "defines r twice"),
        (schema(type={"type": "array", "items": "null"}), r"column a\[\] is always null"),
        (schema(type=3), "3 is no Avro type"),
        (schema(type="int", doc="x" * TEXT_MAX), f"at most {TEXT_MAX} characters"),
        ('{"type":"array","items":' * 2000, "nested too deep|no JSON|at most"),
        ("v VARIANT", "column v cannot be VARIANT: Avro has no such type"),
        ("`p q` INT", "column p q: a name in Avro"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_schema_of_a_table_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"for configuration value.schema: .*(?:{said})"):
        parse_overrides({"value.format": "avro", "value.schema": text})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"value.format": "avro"}, "values in Avro are read with value.schema, and the topic has none"),
        ({"value.schema": TEXT}, "this is an Avro schema, and the topic has value.format=json"),
        ({"value.schema": "a BINARY"}, "JSON has no bytes"),
        ({"value.avro.schema.id": "1"}, "the topic has not value.format=avro"),
        ({"value.format": "avro", "value.schema": "a INT", "value.avro.schema.id": "-1"}, "at least 0"),
        ({"value.format": "avro", "value.schema": TEXT, "key": "c"}, "a ARRAY has no one text"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        parse_overrides(settings)
