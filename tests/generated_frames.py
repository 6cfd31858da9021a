"""Frames of every API and version that the broker serves, right and broken, the same for the same seed.

A frame is written field by field from its schema. Names, partitions, epochs and records are often such as exist, elements of
arrays repeat, tagged fields come known and unknown. `broken` then breaks it: bits, ends, lengths, varints, keys, versions.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import Field, fields
from functools import cache
from typing import Any, get_args, get_origin
from uuid import UUID

from contract.wire_client import batch, gzipped, old_message
from wire.test_wire_requests import without_none

from kafkalake.server.registry import APIS
from kafkalake.wire.messages.schemas import request_schema
from kafkalake.wire.messages.shapes import NUMBERS
from kafkalake.wire.staged_append import API_KEY as APPEND_STAGED_KEY

PARTITIONS = 4
KEPT = ("kept-0", "kept-1")
"""Topics that no request deletes, of `PARTITIONS` partitions each."""
COMING = ("coming-0", "coming-1", "coming-2")
"""Topics that requests create and delete."""
GROUPS = ("group-0", "group-1", "group-2", "")
TRANSACTIONAL_IDS = ("transactional-0", "transactional-1", "")
TIMES_MS = 1_700_000_000_000

_DELETE_TOPICS = 20
_CHANGES = (19, _DELETE_TOPICS, 33, 37, 44)
"""CreateTopics, DeleteTopics, AlterConfigs, CreatePartitions, IncrementalAlterConfigs."""
_CHANGES_SHARE = 0.05
"""Of the requests that change topics, which all write metadata to the disk, so many are sent."""
_REMEMBERED = 4_000
_AGAIN_SHARE = 0.7
"""Drawing is slower than serving: so many of the last frames come again, in this share of the cases."""

_BITS = {"b": 7, "h": 15, "i": 31, "q": 63}
_NUMBERS: dict[str, tuple[int, ...]] = {
    "partition": (0, 0, 1, 2, 3, 4, -1),
    "index": (0, 0, 1, 2, 3, 4, -1),
    "num_partitions": (-1, 0, 1, 2, 3),
    "count": (0, 1, 2, 3, 4, 5, 6),
    "replication_factor": (-1, 1, 1, 1, 0, 3),
    "acks": (-1, -1, 1, 0, 2),
    "max_wait": (0, 0, 1, 5),
    "key_type": (0, 1, 2),
    "resource_type": (2, 2, 4, 8, 32),
    "config_operation": (0, 1, 2, 3, 4),
    "isolation_level": (0, 1, 2),
    "transaction_timeout": (1000, 60_000, 0, -1),
    "session_timeout": (6_000, 10_000, 0),
    "rebalance_timeout": (1, 50, 1_000, -1),
}
_TEXTS: dict[str, tuple[str, ...]] = {
    "group": GROUPS,
    "transactional_id": TRANSACTIONAL_IDS,
    "member": ("", "", "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"),
    "instance": ("instance-0", "instance-1", ""),
    "protocol_type": ("consumer", "consumer", ""),
    "protocol": ("range", "roundrobin", ""),
    "assignor": ("uniform", "range", ""),
    "resource_name": (*KEPT, *COMING, "0", ""),
    "value": ("1000", "-1", "delete", "compact", "x", ""),
    "state": ("Ongoing", "Stable", "Empty", "x"),
    "pattern": (".*", "(", "(a+)+$", ""),
    "regex": (".*", "kept-[01]", "("),
    "key": (*GROUPS, *TRANSACTIONAL_IDS),
}
_SETTINGS = ("retention.ms", "cleanup.policy", "segment.ms", "max.message.bytes", "min.insync.replicas", "x", "")
_ODD = ("", "x", "é\u202e\x1b[31m", "../x", "a b", "." * 3, "n" * 249, "n" * 300)

Writer = Callable[[bytearray], None]


def _compact(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Frames:
    """Draws frames of the APIs `keys`. `topic_ids`: of topics that are there, so that requests that name topics by id find them."""

    def __init__(self, seed: int, topic_ids: Sequence[UUID], keys: Collection[int] = APIS) -> None:
        self._random = random.Random(seed)
        self._ids = [each.bytes for each in topic_ids]
        self._records = self._some_records()
        apis = [APIS[key] for key in APIS if key in keys]
        self._apis = [(api.key, version) for api in apis for version in range(api.lowest, api.highest + 1)]
        self._schemas: dict[tuple[int, int], Any] = {
            api: request_schema(*api) for api in self._apis if api[0] != APPEND_STAGED_KEY
        }
        self._drawn: list[bytes] = []
        self._wrong_lengths = False
        self._empty: tuple[type, str] | None = None
        self._api_key = -1
        self._writers: dict[Any, Writer] = {}

    def with_empty_arrays(self) -> Iterator[bytes]:
        """For each array field of each API and version a frame in which this one is empty."""
        for api, schema in self._schemas.items():
            for field in _arrays_of(schema):
                self._empty = field
                yield self._frame(*api)
        self._empty = None

    def draw(self) -> bytes:
        """A frame, its size in front, as its API has it; often one that was drawn before."""
        rnd, drawn = self._random, self._drawn
        if len(drawn) == _REMEMBERED and rnd.random() < _AGAIN_SHARE:
            return drawn[int(rnd.random() * _REMEMBERED)]
        while True:
            key, version = rnd.choice(self._apis)
            if key not in _CHANGES or rnd.random() < _CHANGES_SHARE:
                break
        frame = self._frame(key, version)
        if len(drawn) < _REMEMBERED:
            drawn.append(frame)
        else:
            drawn[int(rnd.random() * _REMEMBERED)] = frame
        return frame

    def broken(self) -> bytes:
        """A frame that is broken somewhere; its size says most times how long it is."""
        rnd = self._random
        self._wrong_lengths = rnd.random() < 0.3
        frame = bytearray(self.draw())
        self._wrong_lengths = False
        kind = rnd.randrange(7)
        if kind == 0:
            for _ in range(rnd.choice((1, 1, 2, 8))):
                frame[rnd.randrange(4, len(frame))] ^= 1 << rnd.randrange(8)
        elif kind == 1:
            del frame[rnd.randrange(4, len(frame) + 1) :]
        elif kind == 2:
            at = rnd.randrange(12, len(frame) + 1)
            frame[at : at + rnd.randrange(5)] = rnd.choice(
                (b"\xff\xff\xff\xff\x0f", b"\xff" * 11, b"\x80" * 5, b"\xff\xff\xff\x7f")
            )
        elif kind == 3:
            at = rnd.randrange(8, len(frame) + 1)
            frame[at : at + 4] = rnd.choice(
                (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\0\0\x7f\xff")
            )
        elif kind == 4:
            frame[4:8] = struct.pack(
                ">hh", rnd.choice((-1, 4, 7, 73, 50, 62, 88, 10_001, 32_767, frame[5])), rnd.randrange(-1, 20)
            )
        elif kind == 5:
            at = rnd.randrange(4, len(frame))
            frame[at:at] = frame[at : at + rnd.randrange(1, 40)]
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        if rnd.random() < 0.02:
            frame[:4] = struct.pack(">i", rnd.choice((-1, 0, 7, len(frame), 2**31 - 1, -(2**31), 1 << 20)))
        return bytes(frame)

    def _frame(self, key: int, version: int) -> bytes:
        rnd = self._random
        self._api_key = key
        out = bytearray(struct.pack(">ihhi", 0, key, version, rnd.randrange(1 << 31)))
        client = rnd.choice((None, b"", b"fuzz", b"c" * 300))
        out += b"\xff\xff" if client is None else struct.pack(">h", len(client)) + client
        if key == APPEND_STAGED_KEY:
            out += json.dumps(self._staged()).encode()
        else:
            schema = self._schemas[key, version]
            if schema.__flexible__:
                self._tags(out, {})
            self._struct(schema)(out)
        out[:4] = (len(out) - 4).to_bytes(4, "big")
        return bytes(out)

    def _staged(self) -> Any:
        rnd = self._random
        any_value = lambda: rnd.choice((None, "", "x", 0, -1, 1 << 70, [], {}, [None], [{}], True, "../x", *KEPT))  # noqa: E731
        if rnd.random() < 0.3:
            return {"ask": "describe", "topics": rnd.choice((None, [], list(KEPT), ["nowhere"], any_value()))}
        names = ("application", "version", "files", "topics", "producer", "batch", "topic", "partition", "path")
        return {
            "ask": rnd.choice(("append", any_value())),
            **{name: any_value() for name in names if rnd.random() < 0.8},
        }

    # Fields.

    def _struct(self, schema: Any) -> Writer:
        if schema not in self._writers:
            plain = [self._field(schema, each) for each in fields(schema) if "tag" not in each.metadata]
            tagged = {
                each.metadata["tag"]: self._field(schema, each) for each in fields(schema) if "tag" in each.metadata
            }

            def write(out: bytearray) -> None:
                for writer in plain:
                    writer(out)
                if schema.__flexible__:
                    self._tags(out, tagged)

            self._writers[schema] = write
        return self._writers[schema]

    def _tags(self, out: bytearray, known: dict[int, Writer]) -> None:
        rnd = self._random
        if rnd.random() > 0.1:
            out.append(0)
            return
        sections = []
        for tag, writer in known.items():
            value = bytearray()
            writer(value)
            sections.append(_compact(tag) + _compact(len(value)) + value)
        for _ in range(rnd.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 70))):
            sections.append(_compact(rnd.choice((7, 99, 1 << 20))) + _compact(3) + b"abc")
        out += _compact(len(sections)) + b"".join(sections)

    def _field(self, schema: Any, field: Field[Any]) -> Writer:
        kind, nullable = without_none(field.type)
        flexible = bool(schema.__flexible__)
        if get_origin(kind) is not tuple:
            return self._one(schema, field, kind, flexible=flexible, nullable=nullable)
        inner, inner_nullable = without_none(get_args(kind)[0])
        item = self._one(schema, field, inner, flexible=flexible, nullable=False, in_array=True)
        may_be_null = nullable or inner_nullable

        def write(out: bytearray) -> None:
            rnd = self._random
            chance = rnd.random() if self._empty is None else 0.5
            if self._empty == (schema, field.name) or chance < 0.05:
                self._length(out, 0, flexible=flexible, wide=True)
                return
            if chance < 0.1 and may_be_null:
                self._length(out, -1, flexible=flexible, wide=True)
                return
            values = []
            for _ in range(1 if chance < 0.7 else rnd.randrange(1, 4)):
                value = bytearray()
                item(value)
                values.append(value)
            if chance > 0.9:
                values *= 200 if chance > 0.9995 else 2
            self._length(out, len(values), flexible=flexible, wide=True)
            out += b"".join(values)

        return write

    def _one(
        self, schema: Any, field: Field[Any], kind: Any, *, flexible: bool, nullable: bool, in_array: bool = False
    ) -> Writer:
        rnd = self._random
        if hasattr(kind, "__dataclass_fields__"):
            inner = self._struct(kind)
            if not nullable:
                return inner

            def write_optional(out: bytearray) -> None:
                if rnd.random() < 0.5:
                    out.append(0xFF)
                else:
                    out.append(1)
                    inner(out)

            return write_optional
        kafka_type = field.metadata["kafka_type"]
        if kafka_type in NUMBERS:
            return self._number(field.name, NUMBERS[kafka_type])
        if kafka_type == "uuid":
            return self._uuid()
        draw = self._text(schema, field.name) if kafka_type == "string" else self._bytes(field.name)

        def write(out: bytearray) -> None:
            value = None if nullable and rnd.random() < 0.15 else draw()
            self._length(out, -1 if value is None else len(value), flexible=flexible, wide=kafka_type != "string")
            out += value or b""

        return write

    def _length(self, out: bytearray, length: int, *, flexible: bool, wide: bool) -> None:
        if self._wrong_lengths and self._random.random() < 0.1:
            length = self._random.choice((-1, -2, 0, length + 1, length - 1, 32_767, 50_001, 2**31 - 1, 127, 128))
        if flexible:
            out += _compact((length + 1) & 0xFFFFFFFF)
        else:
            out += (length & (0xFFFFFFFF if wide else 0xFFFF)).to_bytes(4 if wide else 2, "big")

    def _number(self, name: str, layout: str) -> Writer:
        rnd, pack = self._random, struct.Struct(">" + layout).pack
        known = _known(name, _NUMBERS) or (-1, 0, 0, 1, 1, 2)
        bits = _BITS.get(layout)
        edges = (0, 1) if bits is None else (2**bits - 1, -(2**bits), 100, 10_000 if bits > 14 else 50)
        if name in ("num_partitions", "count", "max_wait", "resource_type"):
            edges = known
        if layout == "H":  # a port
            known = edges = (0, 1, 9092, 65_535)

        def write(out: bytearray) -> None:
            out += pack(rnd.choice(known if rnd.random() < 0.9 else edges))

        return write

    def _uuid(self) -> Writer:
        def write(out: bytearray) -> None:
            kept = self._ids if self._api_key != _DELETE_TOPICS else []
            out += self._random.choice([bytes(16), bytes(15) + b"\7", *kept])

        return write

    def _text(self, schema: Any, name: str) -> Callable[[], bytes]:
        rnd = self._random
        in_configs = "Config" in schema.__name__ or "Alterable" in schema.__name__
        known = _known(name, _TEXTS)
        if name == "name" and (in_configs or "value" in {each.name for each in fields(schema)}):
            known = _SETTINGS

        def draw() -> bytes:
            if rnd.random() < 0.1:
                return rnd.choice(_ODD).encode()
            if known is not None:
                return rnd.choice(known).encode()
            return rnd.choice(COMING if self._api_key == _DELETE_TOPICS else (*KEPT, *KEPT, *COMING)).encode()

        return draw

    def _bytes(self, name: str) -> Callable[[], bytes]:
        if name == "records":
            return lambda: self._random.choice(self._records)
        return lambda: self._random.choice((b"", b"\0\1", b"x" * 100, _SUBSCRIPTION))

    def _some_records(self) -> list[bytes]:
        rnd = self._random
        found: list[bytes] = [b"", old_message(b"old"), old_message(b"old")[:-1]]
        for number in range(60):
            messages = [
                (rnd.choice((None, b"k")), rnd.choice((None, b"", b"v" * number))) for _ in range(number % 7 + 1)
            ]
            wrong: dict[str, Any] = rnd.choice(
                (
                    {},
                    {},
                    {},
                    {"producer_id": number % 3, "epoch": number % 2, "sequence": number % 5},
                    {"producer_id": 1, "epoch": 0, "sequence": 0, "attributes": 0x10},
                    {"attributes": rnd.choice((1, 2, 3, 4, 5, 8, 0x20, 0x30))},
                    {"bad_checksum": True},
                    {"count": rnd.choice((0, -1, 2**31 - 1, 100))},
                    {"last_offset_delta": rnd.choice((-1, 2**31 - 1, 100))},
                    {"magic": rnd.choice((0, 1, 3))},
                    {"timestamp": rnd.choice((-1, 0, 2**63 - 1))},
                )
            )
            one = batch(messages, **{"timestamp": TIMES_MS, **wrong})
            found += [one, one + one, one[: rnd.randrange(len(one))]]
            if not wrong:
                found.append(gzipped(one))
        return found


_SUBSCRIPTION = struct.pack(">hih6si", 1, 1, 6, KEPT[0].encode(), 0) + struct.pack(">i", 0)


def _known(name: str, table: dict[str, tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """The values of the longest entry that the field's name contains."""
    found = [part for part in table if part in name]
    return table[max(found, key=len)] if found else None


@cache
def _arrays_of(schema: Any) -> list[tuple[type, str]]:
    found: list[tuple[type, str]] = []
    for field in fields(schema):
        kind, _ = without_none(field.type)
        if get_origin(kind) is tuple:
            found.append((schema, field.name))
            kind, _ = without_none(get_args(kind)[0])
        if hasattr(kind, "__dataclass_fields__"):
            found += _arrays_of(kind)
    return found
