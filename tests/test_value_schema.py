"""The schema of a topic's values: one reading of its DDL, what is refused of it, and the types that it gives."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafkalake.broker.admin.topic_plans import parse_overrides
from kafkalake.config.layers import Settings
from kafkalake.config.value_schema import TEXT_MAX, parse_value_schema, value_schema_sql
from kafkalake.errors import ConfigurationError, InvalidConfigError
from kafkalake.reader.value_types import value_arrow_schema


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("user STRING, ms BIGINT", "`user` STRING, `ms` BIGINT"),
        ("a: long, b real ,\n c  dec(5)", "`a` BIGINT, `b` FLOAT, `c` DECIMAL(5,0)"),
        ("`odd,name``s` map<string,array<int>>", "`odd,name``s` MAP<STRING, ARRAY<INT>>"),
        ("a STRUCT<b: INT, c: STRUCT<d: DATE>>", "`a` STRUCT<`b` INT, `c` STRUCT<`d` DATE>>"),
        (r"""a int comment 'it''s \\ "x" \'y\''""", r"""`a` INT COMMENT 'it\'s \\ "x" \'y\''"""),
        ("a STRING COLLATE UTF8_BINARY", "`a` STRING"),
        ("größe decimal, at timestamp_ntz", "`größe` DECIMAL(10,0), `at` TIMESTAMP_NTZ"),
    ],
)
def test_a_schema_is_read_and_written_in_one_form(text: str, canonical: str) -> None:
    fields = parse_value_schema(text)
    assert value_schema_sql(fields) == canonical
    assert parse_value_schema(canonical) == fields


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "give columns and types"),
        ("a", "column a has no type"),
        ("a INT,", "the end is no column"),
        (",", "',' is no column"),
        ("a STRNG", "cannot be STRNG: JSON has no such type; did you mean STRING"),
        ("a INT b", "'B' is not understood behind its type INT"),
        ("a INT NOT NULL", "cannot be NOT NULL"),
        ("a INT DEFAULT 3", "cannot have a DEFAULT value"),
        ("a BINARY", "JSON has no bytes"),
        ("a VARCHAR(3)", "values know no lengths"),
        ("a STRING COLLATE UTF8_LCASE", "has no collation"),
        ("a INT, A STRING", "column A is there twice"),
        ("s STRUCT<a: INT, a: INT>", "column a is there twice"),
        ("s STRUCT<>", "a STRUCT has fields"),
        ("a DECIMAL(39)", r"no DECIMAL\(39,0\)"),
        ("m MAP<INT, INT>", "keys of a JSON object are STRING"),
        ("a ARRAY<INT", "the end in the ARRAY of column a, where '>' is expected"),
        ("a " + "ARRAY<" * 40 + "INT" + ">" * 40, "nested more than 32 deep"),
        ("a INT COMMENT '" + "x" * TEXT_MAX + "'", "at most 16384 characters"),
        ("`a INT", "'`' is no column"),
    ],
)
def test_what_is_no_schema_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_value_schema(text)


def test_fields_have_the_types_of_arrow_that_spark_gives_them() -> None:
    fields = parse_value_schema("a INT, b ARRAY<STRUCT<c: TIMESTAMP>>, d MAP<STRING, DECIMAL(5, 2)>, e TIMESTAMP_NTZ")
    times = pa.struct([pa.field("c", pa.timestamp("us", tz="UTC"))])
    assert value_arrow_schema(fields) == pa.schema(
        [
            pa.field("a", pa.int32()),
            pa.field("b", pa.list_(pa.field("element", times))),
            pa.field("d", pa.map_(pa.string(), pa.decimal128(5, 2))),
            pa.field("e", pa.timestamp("us")),
        ]
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"value.schema": "user STRNG"},
            "Invalid value user STRNG for configuration value.schema: .*did you mean STRING",
        ),
        ({"key": "user"}, "names a field of value.schema, and the topic has none"),
        ({"value.schema": "user STRING", "key": "usr"}, "no such field; did you mean 'user'"),
        ({"value.schema": "ms DOUBLE", "key": "ms"}, "a DOUBLE has no one text"),
        ({"value.format": "xml"}, "String must be one of: json, avro"),
    ],
)
def test_a_topic_is_not_given_a_schema_or_key_that_is_none(settings: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        parse_overrides(settings)


def test_a_topic_has_no_schema_until_it_is_given_one() -> None:
    def described(settings: dict[str, str]) -> dict[str, str | None]:
        entries = Settings().describe_topic(parse_overrides(settings))
        return {entry.setting.name: entry.value for entry in entries}

    assert described({}).keys() & {"value.schema", "key"} == set()
    given = {"value.schema": "user STRING, ms BIGINT", "key": "user"}
    assert described(given).items() >= given.items()
