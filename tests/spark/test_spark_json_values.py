"""JSON values: whatever the bytes are, as many rows come out as went in, and good records keep their fields."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from json_documents import FIELDS as EVERY_TYPE
from json_documents import deep_values, is_json_object, value

from kafkalake.errors import ConfigurationError
from kafkalake.reader.columns import project
from kafkalake.reader.json_texts import texts_of
from kafkalake.reader.json_values import JsonColumns, parse_values

FIELDS = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.float64()))])
GOOD = {"a": 1, "b": "x", "c": [0.5]}
TIME = pa.timestamp("us", tz="UTC")
VARIANT = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("value", "metadata")])


def parsed(values: list[bytes | None], fields: pa.Schema = FIELDS) -> list[dict[str, Any]]:
    columns = [column.to_pylist() for column in parse_values(pa.array(values, pa.binary()), fields)]
    return [dict(zip(fields.names, row, strict=True)) for row in zip(*columns, strict=True)]


def shown(values: list[bytes | None], fields: pa.Schema) -> list[tuple[str | None, ...]]:
    """As `parsed`, with texts, as Python does not have all years."""
    columns = [texts_of(column) for column in parse_values(pa.array(values, pa.binary()), fields)]
    return list(zip(*columns, strict=True))


NOTHING = {"a": None, "b": None, "c": None}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, NOTHING),
        (b"", NOTHING),
        (b"null", NOTHING),
        (b"{}", NOTHING),
        (b"5", NOTHING),
        (b"[1]", NOTHING),
        (b"not json", NOTHING),
        (b'{"a": 1', NOTHING),
        (b'{"a": 1}}', NOTHING),
        (b'{"a": 1}{"a": 2}', NOTHING),
        (b'{"a": 1}}\n{"v":{"a": 2}', NOTHING),
        (b'{"a": 1}},{"v":{', NOTHING),
        (b'{"b": "\xff"}', NOTHING),
        (b"[" * 100_000, NOTHING),
        (b'{"z": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", NOTHING),
        (b'{"a": "one", "b": "kept"}', {**NOTHING, "b": "kept"}),
        (b'{"a": 1.5, "b": 2}', {**NOTHING, "b": "2"}),
        (b'{"a": 7.0}', {**NOTHING, "a": 7}),
        (b'{"a": 9223372036854775808}', NOTHING),
        (b'{"a": 9007199254740993}', {**NOTHING, "a": 9007199254740993}),
        (b'{"a": true, "b": {"x": [1]}}', {**NOTHING, "b": '{"x": [1]}'}),
        (b'{"a": 1, "a": 2}', {**NOTHING, "a": 2}),
        (b'{"b": "line\\nfeed \\u00e9"}', {**NOTHING, "b": "line\nfeed \u00e9"}),
        (b'{\n  "a": 3,\n  "b": "pretty"\n}\n', {"a": 3, "b": "pretty", "c": None}),
        (b'{"b": "\\ud800"}', NOTHING),
        (b'{"c": [1, null, 2.5], "d": 1}', {**NOTHING, "c": [1.0, None, 2.5]}),
        (b'{"c": "no list"}', NOTHING),
        (b'{"a": 9007199254740993.0}', {**NOTHING, "a": 9007199254740993}),
        (b'{"a": 1e-99999, "c": [1e99999]}', {**NOTHING, "c": [math.inf]}),
        (b'{"a": 1, "z": %b}' % (b"9" * 5_000), {**NOTHING, "a": 1}),
        (b'{"a": 1, "z": %b%b}' % (b"[" * 499, b"]" * 499), {**NOTHING, "a": 1}),
        (b'{"a": 1, "z": %b%b}' % (b"[" * 500, b"]" * 500), NOTHING),
        (b'{"b": {"x":[1.50, 2]}}', {**NOTHING, "b": '{"x":[1.50, 2]}'}),
        (b'\xef\xbb\xbf{"a": 1}', {**NOTHING, "a": 1}),
        ('{"a": 1}'.encode("utf-16"), NOTHING),
        (b'{"b": "\xed\xa0\x80"}', NOTHING),
    ],
)
@pytest.mark.parametrize("neighbours", [0, 3, 300])
def test_a_record_never_disturbs_its_neighbours(value: bytes | None, expected: dict[str, Any], neighbours: int) -> None:
    good: list[bytes | None] = [json.dumps(GOOD).encode()] * neighbours
    assert parsed([*good, value, *good]) == [GOOD] * neighbours + [expected] + [GOOD] * neighbours


def test_every_type_is_read_alike_together_and_one_by_one() -> None:
    fields = pa.schema(
        [
            ("boolean", pa.bool_()),
            ("byte", pa.int8()),
            ("float", pa.float32()),
            ("decimal", pa.decimal128(10, 2)),
            ("date", pa.date32()),
            ("time", TIME),
            ("local", pa.timestamp("us")),
            ("struct", pa.struct([("x", pa.int32()), ("d", pa.date32())])),
        ]
    )
    value = (
        b'{"boolean": true, "byte": -7, "float": 0.5, "decimal": 12.50, "date": "2024-02-29", '
        b'"time": "2024-05-01T12:00:00.123Z", "local": "2024-05-01T12:00:00", "struct": {"x": 5, "d": "1999-12-31"}}'
    )
    expected = {
        "boolean": True,
        "byte": -7,
        "float": 0.5,
        "decimal": Decimal("12.50"),
        "date": date(2024, 2, 29),
        "time": datetime(2024, 5, 1, 12, 0, 0, 123000, tzinfo=UTC),
        "local": datetime(2024, 5, 1, 12, 0),
        "struct": {"x": 5, "d": date(1999, 12, 31)},
    }
    assert parsed([value] * 100, fields) == [expected] * 100
    assert parsed([value, b"bad"], fields)[0] == expected


def test_a_number_for_a_time_is_seconds_as_in_from_json() -> None:
    fields = pa.schema([("t", TIME)])
    assert parsed([b'{"t": 1700000000}'], fields) == [{"t": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)}]


def test_a_time_beyond_all_calendars_is_none() -> None:
    fields = pa.schema([("t", TIME)])
    assert parsed([b'{"t": %d}' % 10**power for power in (12, 15, 18, 30)], fields) == [{"t": None}] * 4


def test_whole_numbers_keep_their_digits_beside_others_with_a_point() -> None:
    values: list[bytes | None] = [b'{"a": 9007199254740993, "c": [1]}', *[b'{"a": 7.0}'] * 100]
    assert parsed(values)[:2] == [{"a": 9007199254740993, "b": None, "c": [1.0]}, {**NOTHING, "a": 7}]


def test_decimals_have_all_their_digits_and_are_rounded_half_up() -> None:
    fields = pa.schema([("n", pa.decimal128(38, 2))])
    values: list[bytes | None] = [
        b'{"n": 123456789012345678901234567890123456.785}',
        b'{"n": "-0.125"}',
        b'{"n": "1_0"}',
    ]
    expected = [Decimal("123456789012345678901234567890123456.79"), Decimal("-0.13"), None]
    assert parsed(values, fields) == [{"n": number} for number in expected]


def test_maps_are_read() -> None:
    fields = pa.schema([("m", pa.map_(pa.string(), pa.int64()))])
    assert parsed([b'{"m": {"x": 1, "y": null}}', b'{"m": 3}'], fields) == [{"m": [("x", 1), ("y", None)]}, {"m": None}]
    assert parsed([b'{"m": [{"key": "x", "value": 1}]}', b'{"m": {"\\ud800": 1}}'], fields) == [{"m": None}] * 2


@pytest.mark.parametrize(
    "kind", [VARIANT, pa.binary(), pa.duration("us"), pa.map_(pa.int64(), pa.int64()), pa.list_(pa.binary())]
)
def test_types_that_json_does_not_have_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match="column x"):
        JsonColumns.of(project(pa.schema([("x", kind)]), json_values=True))


documents = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.text(max_size=40).map(str.encode),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcv"), inner, max_size=3),
        max_leaves=8,
    ).map(lambda document: json.dumps(document).encode()),
    st.sampled_from(
        [b'{"v":', b"}", b'{"a":1}}\n{"v":{"a":2}', b'}\n{"v":null', b'{"b":"', b'"}', b'{"c":[', b"]}", b"\n"]
    ),
)


@pytest.mark.exhaustive
@examples(300)
@given(st.lists(documents, max_size=6))
def test_rows_are_the_same_alone_and_together(values: list[bytes | None]) -> None:
    assert parsed(values) == [row for value in values for row in parsed([value])]


@pytest.mark.exhaustive
@examples(150)
@given(st.randoms(use_true_random=True))
def test_every_type_is_the_same_alone_and_together(randomness: Random) -> None:
    fields = pa.schema(randomness.sample(list(EVERY_TYPE), randomness.choice([1, 1, 2, 3, 17])))
    values = [value(randomness) for _ in range(randomness.choice([2, 3, 40]))]
    together = shown(values, fields)
    assert together == [row for each in values for row in shown([each], fields)]
    for each, row in zip(values, together, strict=True):
        assert is_json_object(each) or set(row) == {None}, each


@pytest.mark.exhaustive
def test_deep_values_are_the_same_alone_and_together() -> None:
    assert parsed(list(deep_values())) == [row for each in deep_values() for row in parsed([each])]


@pytest.mark.parametrize("count", [1, 100])
def test_times_without_a_zone_are_those_of_the_sessions(count: int) -> None:
    fields = pa.schema([("t", TIME), ("deep", pa.struct([("l", pa.list_(TIME))])), ("local", pa.timestamp("us"))])
    values = [
        b'{"t": "2024-05-01T09:00:00", "deep": {"l": ["2024-05-01 09:00:00", "2024-05-01T09:00:00+02:00"]}}',
        b'{"t": "2024-05-01T09:00:00Z", "local": "2024-05-01T09:00:00"}',
        b'{"t": 1714521600}',
    ]
    expected = [
        (datetime(2024, 5, 1, 0, tzinfo=UTC), [datetime(2024, 5, 1, hour, tzinfo=UTC) for hour in (0, 7)], None),
        (datetime(2024, 5, 1, 9, tzinfo=UTC), None, datetime(2024, 5, 1, 9)),
        (datetime(2024, 5, 1, 0, tzinfo=UTC), None, None),
    ]
    for chosen in ([0, 1, 2], [0], [1]):
        given = pa.array([values[number] for number in chosen] * count, pa.binary())
        times, deep, local = (column.to_pylist() for column in parse_values(given, fields, "Asia/Tokyo"))
        found = [(t, d and d["l"], naive) for t, d, naive in zip(times, deep, local, strict=True)]
        assert found == [expected[number] for number in chosen] * count
