"""Fields of values that are JSON, written: what comes back is what was given, as Spark's to_json has it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from kafkalake.errors import InvalidRecordError
from kafkalake.reader.json_texts import with_values
from kafkalake.reader.json_values import parse_values

FIELDS = pa.schema(
    [
        ("i", pa.int64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("n", pa.decimal128(20, 4)),
        ("t", pa.timestamp("us", tz="UTC")),
        ("l", pa.timestamp("us")),
        ("day", pa.date32()),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("struct", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.string())])))])),
    ]
)
MOMENT = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
ROWS = [
    {
        "i": -(2**63),
        "s": 'quote " and ü and \n',
        "b": True,
        "f": 0.1,
        "d": 1e300,
        "n": Decimal("12345678901234.5678"),
        "t": MOMENT,
        "l": MOMENT.replace(tzinfo=None),
        "day": date(2024, 2, 29),
        "list": [1, None, 3],
        "map": [("a", 1.5), ("b", None)],
        "struct": {"x": 1, "y": [{"z": "deep"}, {"z": None}]},
    },
    {"i": 1, "n": Decimal("0.0000"), "list": [], "map": [], "struct": {"x": None, "y": None}},
    {"d": float("inf"), "f": float("-inf"), "b": False},
    {"s": ""},
]


def rows(given: list[dict[str, object]], value: list[bytes | None] | None = None) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist(given, schema=FIELDS)
    return batch if value is None else batch.append_column("value", pa.array(value, pa.binary()))


def test_what_is_written_to_the_fields_is_read_from_the_value() -> None:
    written = with_values(rows(ROWS), {name: name for name in FIELDS.names})
    for name, parsed in zip(FIELDS.names, parse_values(written.column("value"), FIELDS), strict=True):
        assert parsed.equals(written.column(name)), name


def test_a_time_is_the_same_moment_where_the_zone_had_an_offset_with_seconds() -> None:
    moments = pa.array([datetime(1899, 12, 31, 23, 50, 39, 5, tzinfo=UTC), None, MOMENT], pa.timestamp("us", "UTC"))
    for zone in ("Europe/Paris", "-03:30", "UTC"):
        local = pa.RecordBatch.from_arrays([moments.cast(pa.timestamp("us", zone))], names=["t"])
        values = with_values(local, {"t": "t"}).column("value")
        assert parse_values(values, pa.schema([("t", moments.type)]))[0].equals(moments), values


def test_years_that_python_does_not_have_are_kept() -> None:
    days = pa.array([2_932_897, -719_529, -719_893, 2**31 - 1, -(2**31), 19_000], pa.int32()).cast(pa.date32())
    micros = pa.array([253_402_300_800_000_000, -62_167_219_200_000_001, 2**63 - 1, 0, None, 7], pa.int64())
    names = ["day", "t", "l"]
    given = pa.RecordBatch.from_arrays(
        [days, *(micros.cast(kind) for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")))], names=names
    )
    values = with_values(given, {name: name for name in names}).column("value")
    assert json.loads(values[0].as_py()) == {
        "day": "+10000-01-01",
        "t": "+10000-01-01T00:00:00.000000Z",
        "l": "+10000-01-01T00:00:00.000000",
    }
    for name, parsed in zip(names, parse_values(values, given.schema), strict=True):
        assert parsed.equals(given.column(name)), name


def test_the_json_is_that_of_to_json() -> None:
    few = pa.RecordBatch.from_pylist(
        [{"a": 1, "value_key": None, "f": 0.1}, {"a": None, "value_key": "k", "f": float("nan")}],
        schema=pa.schema([("a", pa.int32()), ("value_key", pa.string()), ("f", pa.float32())]),
    )
    written = with_values(few, {"a": "a", "value_key": "key", "f": "f"})
    assert written.column("value").to_pylist() == [b'{"a":1,"f":0.1}', b'{"key":"k","f":"NaN"}']
    sliced = with_values(rows([*ROWS, *ROWS]).slice(1, 2), {name: name for name in FIELDS.names})
    assert json.loads(sliced.column("value")[0].as_py()) == {"i": 1, "n": 0, "list": [], "map": {}, "struct": {}}


def test_a_value_stays_and_must_say_what_the_fields_say() -> None:
    names = {"i": "i", "s": "s"}
    given = rows([{"i": 1}, {"i": 2, "s": "x"}, {}, {}], [None, b'{"i": 2, "s": "x", "more": 1}', b"no JSON", None])
    assert with_values(given, names).column("value").to_pylist() == [
        b'{"i":1}',
        b'{"i": 2, "s": "x", "more": 1}',
        b"no JSON",
        None,
    ]
    with pytest.raises(InvalidRecordError, match="column i is 3, where the value has 2"):
        with_values(rows([{"i": 3}], [b'{"i": 2}']), names)
    with pytest.raises(InvalidRecordError, match='column s is "x", where the value has nothing'):
        with_values(rows([{"s": "x"}], [b"no JSON"]), names)
