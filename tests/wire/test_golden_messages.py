"""Recorded bytes of every API and version that the broker serves, both directions: no change of the codec may move them.

The values are drawn from kio's schemas by a seed: nulls and empty arrays, one element, several with tagged fields. The file
beside it has a digest of their bytes for each (direction, API, version); a response's ends with one of which no field is given.
`python -m wire.test_golden_messages` in `tests` adds to it, for a new API or version.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator
from dataclasses import Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from wire.message_codec import client_reads, client_writes, server_reads, server_writes, server_writes_in_steps
from wire.test_wire_requests import as_plain, assert_same, encoded, with_header, without_none

from kafkalake.server.registry import APIS

pytestmark = pytest.mark.exhaustive

RECORDED = Path(__file__).with_name("golden_messages.txt")
KEYS = sorted(key for key in APIS if key < 1000)  # Kafka's own
FULLNESS = (0, 1, 3)
"""Elements of each array. Without any, values that may be null are null."""


def golden_values(schema: Any, count: int, seed: random.Random) -> Any:
    """Return a message of one of kio's dataclasses with arrays of `count` elements."""
    return schema(**{field.name: _field(field, count, seed) for field in fields(schema)})


def _field(field: Field[Any], count: int, seed: random.Random) -> Any:
    kind, optional = without_none(field.type)
    if optional and not count:
        return None
    if get_origin(kind) is tuple:
        inner, _ = without_none(get_args(kind)[0])
        return tuple(_value(inner, field, count, seed) for _ in range(count))
    if "tag" in field.metadata and count < 3 and not hasattr(kind, "__dataclass_fields__"):
        return field.default
    return _value(kind, field, count, seed)


def _value(kind: Any, field: Field[Any], count: int, seed: random.Random) -> Any:
    if hasattr(kind, "__dataclass_fields__"):
        return golden_values(kind, count, seed)
    match field.metadata["kafka_type"]:
        case "bool":
            return seed.random() < 0.5
        case "error_code":
            return seed.choice([ErrorCode.none, ErrorCode.unknown_server_error, ErrorCode.invalid_request])
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=seed.randrange(100_000))
        case "datetime_i64":
            return datetime.fromtimestamp(seed.randrange(2_000_000), UTC)
        case "uuid":
            return UUID(int=seed.getrandbits(128))
        case "string":
            return "".join(seed.choices("abcäß€", k=seed.choice([0, 1, 5, 70 * count])))
        case "bytes" | "records":
            return seed.randbytes(seed.choice([0, 3, 100 * count]))
        case "float64":
            return seed.random()
        case number:
            bits = int(number.lstrip("uint"))
            return seed.getrandbits(bits) if number[0] == "u" else seed.getrandbits(bits - 1) * seed.choice([1, -1])


@cache
def recorded() -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in RECORDED.read_text().splitlines())


def versions(key: int) -> range:
    return range(APIS[key].lowest, APIS[key].highest + 1)


def messages(direction: str, schema: Any) -> Iterator[tuple[Any, bytes]]:
    """Return (message, its bytes with header, without size) of a version's messages, the same in each run."""
    for count in FULLNESS:
        name = f"{direction} {schema.__api_key__} {schema.__version__}"
        entity = golden_values(schema, count, random.Random(f"{name} {count}"))
        body = encoded(schema, entity)
        if direction == "request":
            yield entity, with_header(schema, body, "wire-client", 77)
        else:
            yield entity, struct.pack(">i", 77) + (b"\0" if schema.__header_schema__.__flexible__ else b"") + body


def digest(frames: list[bytes]) -> str:
    return hashlib.sha256(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)).hexdigest()[:32]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: APIS[key].name)
def test_requests_have_the_recorded_bytes(key: int) -> None:
    for version in versions(key):
        frames = []
        for entity, frame in messages("request", load_request_schema(key, version)):
            assert_same(server_reads(frame), as_plain(entity))
            frames.append(client_writes(key, version, 77, "wire-client", as_plain(entity))[4:])
            assert frames[-1] == frame, version
        assert digest(frames) == recorded()[f"request {key} {version}"], version


@pytest.mark.parametrize("key", KEYS, ids=lambda key: APIS[key].name)
def test_responses_have_the_recorded_bytes(key: int) -> None:
    for version in versions(key):
        frames = []
        for entity, frame in messages("response", load_response_schema(key, version)):
            frames.append(server_writes(key, version, 77, as_plain(entity))[4:])
            assert frames[-1] == frame, version
            assert server_writes_in_steps(key, version, 77, as_plain(entity))[4:] == frame, version
            assert_same(client_reads(key, version, 77, frame), as_plain(entity))
        frames.append(server_writes(key, version, 77, {}))
        assert digest(frames) == recorded()[f"response {key} {version}"], version


def test_each_version_is_recorded() -> None:
    names = {
        f"{direction} {key} {version}"
        for key in KEYS
        for version in versions(key)
        for direction in ("request", "response")
    }
    assert set(recorded()) == names


def _record() -> None:
    lines = []
    for key in KEYS:
        for version in versions(key):
            frames = [frame for _, frame in messages("request", load_request_schema(key, version))]
            lines.append(f"request {key} {version} {digest(frames)}\n")
            frames = [frame for _, frame in messages("response", load_response_schema(key, version))]
            frames.append(server_writes(key, version, 77, {}))
            lines.append(f"response {key} {version} {digest(frames)}\n")
    RECORDED.write_text("".join(lines))


if __name__ == "__main__":
    _record()
