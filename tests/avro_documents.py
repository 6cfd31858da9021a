"""Values in Avro as producers write them, and as they should not, for the readers and writers in Python and in the JVM."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from random import Random
from typing import Any

import fastavro
from hypothesis import strategies as st

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "namespace": "org.example",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": ["null", "string"], "default": None, "doc": "it's a text"},
        {"name": "c", "type": {"type": "array", "items": ["double", "null"]}},
        {
            "name": "d",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Inner",
                    "fields": [
                        {"name": "x", "type": "int"},
                        {"name": "y", "type": {"type": "array", "items": "string"}},
                    ],
                },
            ],
        },
        {"name": "e", "type": {"type": "map", "values": ["null", "Inner"]}},
        {"name": "f", "type": ["float", "null"]},
        {"name": "g", "type": "boolean"},
        {"name": "h", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "i", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "j", "type": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}]},
        {"name": "k", "type": {"type": "int", "logicalType": "date"}},
        {"name": "l", "type": {"type": "enum", "name": "Kind", "symbols": ["RED", "GREEN"]}},
        {"name": "m", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {
            "name": "n",
            "type": {"type": "fixed", "name": "Big", "size": 16, "logicalType": "decimal", "precision": 30, "scale": 5},
        },
        {"name": "o", "type": ["null", "int", "long"]},
        {"name": "p", "type": "bytes"},
        {
            "name": "q",
            "type": {"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "Kind"}}},
        },
        {"name": "r", "type": ["null", "Two"], "default": None},
        {"name": "s", "type": ["null", {"type": "array", "items": "Inner"}], "default": None},
    ],
}
"""Its last two fields may be lacking."""
TEXT = json.dumps(SCHEMA)
DDL = (
    "a BIGINT, b STRING, c ARRAY<DOUBLE>, d STRUCT<x: INT, y: ARRAY<STRING>>, e MAP<STRING, STRUCT<x: INT, y: ARRAY<STRING>>>, "
    "f FLOAT, g BOOLEAN, h DECIMAL(10,2), i TIMESTAMP, j TIMESTAMP_NTZ, k DATE, l STRING, m BINARY, n DECIMAL(30,5), o BIGINT, "
    "p BINARY, q ARRAY<MAP<STRING, ARRAY<STRING>>>, r BINARY, s ARRAY<STRUCT<x: INT, y: ARRAY<STRING>>>"
)
"""Its columns."""

_PARSED = fastavro.parse_schema(SCHEMA)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_INTS = st.integers(-(2**31), 2**31 - 1)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_INNER = st.fixed_dictionaries({"x": _INTS, "y": st.lists(_TEXTS, max_size=3)})
_KINDS = st.sampled_from(["RED", "GREEN"])
_MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
ROWS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "a": _LONGS,
        "b": st.none() | _TEXTS,
        "c": st.lists(st.none() | st.floats(), max_size=3),
        "d": st.none() | _INNER,
        "e": st.dictionaries(_TEXTS, st.none() | _INNER, max_size=3),
        "f": st.none() | st.floats(width=32),
        "g": st.booleans(),
        "h": st.decimals(-(10**7), 10**7, places=2),
        "i": _MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
        "j": st.none() | _MOMENTS.map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)),
        "k": st.dates(date(1900, 1, 1), date(2200, 1, 1)),
        "l": _KINDS,
        "m": st.binary(min_size=2, max_size=2),
        "n": st.decimals(-(10**20), 10**20, places=5),
        "o": st.none() | _INTS | _LONGS,
        "p": st.binary(max_size=9),
        "q": st.lists(st.dictionaries(_TEXTS, st.lists(_KINDS, max_size=2), max_size=2), max_size=2),
        "r": st.none() | st.binary(min_size=2, max_size=2),
        "s": st.none() | st.lists(_INNER, max_size=2),
    }
)


def encoded(row: dict[str, Any], schema: Any = _PARSED) -> bytes:
    """Return a row as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def decoded(value: bytes, schema: Any = _PARSED) -> dict[str, Any]:
    """Return a value as fastavro reads it."""
    found = fastavro.schemaless_reader(io.BytesIO(value), schema, None)
    assert isinstance(found, dict)
    return found


def damaged(value: bytes, randomness: Random) -> bytes:
    """Return a value with some bytes changed, cut off or added."""
    found = bytearray(value)
    for _ in range(randomness.randrange(3)):
        found[randomness.randrange(len(found))] = randomness.choice(
            (0, 1, 2, 3, 4, 128, 255, randomness.randrange(256))
        )
    kept = randomness.choice((len(found), len(found), randomness.randrange(len(found))))
    return bytes(found[:kept]) + randomness.randbytes(randomness.choice((0, 0, 1)))
