"""JSON values as producers write them, and as they should not, for the two readers of fields: in Python and in the JVM."""

from __future__ import annotations

import json
from random import Random

import pyarrow as pa

DDL = """
    a long, b string, c array<double>, d struct<x: int, y: array<string>>, e map<string, bigint>, f double, g boolean,
    h decimal(10,2), i timestamp, j timestamp_ntz, k date, l tinyint, m float, n decimal(30,5),
    o array<struct<x: int, p: map<string, string>>>,
    `p q` smallint, `ä` string
"""
FIELDS = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.list_(pa.float64())),
        ("d", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        ("e", pa.map_(pa.string(), pa.int64())),
        ("f", pa.float64()),
        ("g", pa.bool_()),
        ("h", pa.decimal128(10, 2)),
        ("i", pa.timestamp("us", tz="UTC")),
        ("j", pa.timestamp("us")),
        ("k", pa.date32()),
        ("l", pa.int8()),
        ("m", pa.float32()),
        ("n", pa.decimal128(30, 5)),
        ("o", pa.list_(pa.struct([("x", pa.int32()), ("p", pa.map_(pa.string(), pa.string()))]))),
        ("p q", pa.int16()),
        ("ä", pa.string()),
    ]
)
_NAMES = [
    *(name.encode() for name in FIELDS.names),
    b"x",
    b"y",
    b"p",
    b"z",
    b"\\u0061",
    b"\\u00e4",
    b"",
    b"\\ud800",
    b"a long name, of 42 bytes",
]
_PIECES = [
    b"a",
    b"B",
    b" ",
    "é".encode(),
    "€".encode(),
    "😀".encode(),
    b"\\u00e9",
    b"\\ud83d\\ude00",
    b"\\n",
    b"\\/",
    b'\\"',
    b"\\\\",
]
_PIECES += [b"\x7f", b"\\u0000", b"{", b"}", b"[", b"]", b",", b":", b"null", "\u2028".encode()]
_WRONG_PIECES = [
    b"\\ud83d",
    b"\\ude00",
    b"\x01",
    b"\n",
    b"\\x",
    b"\\u12g4",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf0\x9f",
    b"\xc0\x80",
    b"\x00",
]
_NUMBERS = [
    b"0",
    b"-0",
    b"7",
    b"-1",
    b"127",
    b"128",
    b"-32769",
    b"2147483648",
    b"9223372036854775807",
    b"-9223372036854775808",
]
_NUMBERS += [
    b"9223372036854775808",
    b"9007199254740993",
    b"9007199254740993.0",
    b"7.0",
    b"-0.0",
    b"1e2",
    b"1E-2",
    b"12.50e1",
    b"0.125",
]
_NUMBERS += [
    b"1e400",
    b"-1e400",
    b"5e-324",
    b"1e-400",
    b"0e99999",
    b"0.1",
    b"123456789.123456789",
    b"1e15",
    b"1.7976931348623157e308",
]
_NUMBERS += [
    b"2.675",
    b"99999999.995",
    b"99999999.994",
    b"9" * 400,
    b"1" + b"0" * 5000,
    b"0." + b"3" * 1200,
    b"1700000000",
    b"253402300800",
]
_NUMBERS += [
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"16777217",
    b"3.4028236e38",
    b"4.35",
    b"1e23",
    b"8.5",
    b"1" + b"0" * 18,
    b"1e-99999",
]
_WRONG_NUMBERS = [
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"-",
    b"1e",
    b"1e+",
    b"0x1",
    b"nan",
    b"-NaN",
    b"1_000",
    b"Infinit",
    b"--1",
    b"1.e5",
    b"tru",
    b"nulll",
]
_TIMES = [
    b"2024-05-01T12:00:00Z",
    b"2024-05-01 12:00:00.123456789",
    b"2024-05-01",
    b"2024-05-01T12",
    b"2024-05-01T12:30+02:00",
    b"0001-01-01",
]
_TIMES += [
    b"2024-05-01T12:30:15-0730",
    b"2024-05-01T12+02",
    b"2024-05-01T12:00:00.5+00:19:32",
    b"9999-12-31T23:59:59.999999",
    b"2024-02-30",
]
_TIMES += [
    b"2024-03-10T02:30:00",
    b"2024-11-03T01:30:00",
    b"20240501",
    b"2024-W18-3",
    b"2024-05-01T24:00",
    b"0000-01-01T00:00:00",
    b"2024-5-1",
]
_TIMES += [
    b"2024-05-01T12:00:60",
    b"2024-05-01T12:00:00,5",
    b"2024-05-01t12:00",
    b"2024-05-01T12:00:00 Z",
    b" 2024-05-01",
    b"2024-05-01T12:",
    b"12:00",
]
_TIMES += [
    b"2024-05-01T12\\u003a00",
    b"2024-05-01T12:00:00.",
    b"2024-05-01Z",
    b"2024-05-01T12:00+24:00",
    b"1883-11-18T12:00:00",
    b"2024-13-01",
]
_TIMES += [
    b"+10000-01-01T00:00:00",
    b"-0001-02-03T04:05:06.789Z",
    b"0000-02-29",
    b"+2024-05-01T12:00:00-05:00",
    b"-0000-01-01",
]
_TIMES += [
    b"+12024-07-01T12:00+02:00",
    b"+292277-01-10T04:00:54Z",
    b"+292278-01-10",
    b"+5881580-07-11",
    b"+5881580-07-12",
    b"-5877641-06-23",
    b"\\u002b10000-01-01",
    b"10000-01-01",
    b"+999-01-01",
    b"+10000-02-30",
    b"-10000-1-1",
]
_TIMES += [
    b"NaN",
    b"-inf",
    b"+Infinity",
    b"12.50",
    b"1e3",
    b".5",
    b"5.",
    b"-7",
    b"1_0",
    b" 1",
    b"",
    b"x",
    b"true",
    b"null",
    b"1e99999",
]


def value(randomness: Random) -> bytes | None:
    """Return a value: an object, mostly; sometimes with bytes that are changed, left out or put in."""
    if randomness.random() < 0.02:
        return randomness.choice(
            [None, b"", b" ", b"null", b"5", b"[1]", b'"a"', b"{}", b" { } ", b"\xef\xbb\xbf{}", b"\xef\xbb\xbf", b"{"]
        )
    made = bytearray(_object(randomness, 0))
    if randomness.random() < 0.03:
        return randomness.choice([b" ", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"]) + bytes(made)
    if randomness.random() < 0.02:
        return randomness.choice(
            [
                made.decode(errors="replace").encode("utf-16"),
                bytes(made) + b"{}",
                bytes(made) + b"\n",
                bytes(made) + b"\x00",
            ]
        )
    for _ in range(randomness.choice([0, 0, 0, 0, 1, 2])):
        at = randomness.randrange(len(made) + 1)
        kind = randomness.randrange(3)
        if kind == 0 and at < len(made):
            made[at] = randomness.choice(b'{}[]",:\\0123eE+-.ntf \x00\xff\xc3')
        elif kind == 1:
            del made[at : at + randomness.randrange(1, 4)]
        else:
            made[at:at] = randomness.choice(
                [b",", b'"', b"\\u00e9", b"\\ud83d", b" ", b"}", b"NaN", b"1e5", b"null", b"\\"]
            )
    return bytes(made)


def deep_values() -> list[bytes]:
    """Return objects about as deep as they may be, wide ones, and one that no parser that recurses should see."""
    found = []
    for depth in (498, 499, 500, 501, 990, 100_000):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"z":', b"}]")):
            nested = opening * depth + b"1" + closing * depth
            found += [
                b'{"b": "kept", "z": %b}' % nested,
                b'{"z": %b, "a": 1.5, "b": "kept"}' % nested,
                b'{"b": %b}' % nested[:-1],
            ]
    wide = b"[" + b"[],{}," * 1000 + b"0]"
    text = b'"' + b"[" * 2000 + b'\\"' + b"{" * 2000 + b'"'
    return [
        *found,
        b'{"a": "no", "b": "kept", "z": %b}' % wide,
        b'{"z": %b, "a": "no", "b": "kept"}' % text,
        b"[" * 100_000,
        b'{"z": "' + b'\\"' * 50_000,
    ]


def is_json_object(data: bytes | None) -> bool:
    """Return whether Python's `json` reads an object from these bytes, which are UTF-8."""
    try:
        return isinstance(json.loads((data or b"").decode("utf-8-sig"), parse_int=str), dict)
    except (ValueError, RecursionError):
        return False


def _object(randomness: Random, depth: int) -> bytes:
    members = []
    names = randomness.sample(_NAMES, randomness.randrange(12 if depth == 0 else 4))
    if randomness.random() < 0.1:
        names += names[:2]
    for name in names:
        members.append(b'%b"%b"%b:%b' % (_space(randomness), name, _space(randomness), _any(randomness, name, depth)))
    return b"{%b%b}" % (b",".join(members), _space(randomness))


def _any(randomness: Random, name: bytes, depth: int) -> bytes:
    """A value, most likely of the kind that a field of this name has."""
    likely = {
        b"b": 0,
        b"\xc3\xa4": 0,
        b"c": 5,
        b"d": 6,
        b"e": 6,
        b"g": 3,
        b"i": 4,
        b"j": 4,
        b"k": 4,
        b"o": 5,
        b"y": 5,
        b"p": 6,
    }.get(name, 1)
    kind = likely if randomness.random() < 0.7 else randomness.randrange(7)
    if depth > 3:
        kind %= 5
    if kind == 0:
        found = b'"%b"' % b"".join(_piece(randomness) for _ in range(randomness.randrange(12)))
    elif kind <= 2:
        found = randomness.choice(_NUMBERS if randomness.random() < 0.98 else _WRONG_NUMBERS)
    elif kind == 3:
        found = randomness.choice([b"true", b"false", b"null"])
    elif kind == 4:
        found = b'"%b"' % randomness.choice(_TIMES)
    elif kind == 5:
        item = b"x" if name != b"o" else b"d"
        found = b"[%b]" % b",".join(_any(randomness, item, depth + 1) for _ in range(randomness.randrange(4)))
    else:
        found = _object(randomness, depth + 1)
    return _space(randomness) + found + _space(randomness)


def _piece(randomness: Random) -> bytes:
    return randomness.choice(_PIECES if randomness.random() < 0.99 else _WRONG_PIECES)


def _space(randomness: Random) -> bytes:
    return randomness.choice([b"", b"", b"", b" ", b"\n\t", b"\r"]) if randomness.random() < 0.999 else b"\x0b"
