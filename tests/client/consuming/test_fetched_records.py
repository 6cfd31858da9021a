"""The records of a response: batches that are decoded many at a time hold the same as those that are decoded one at a time."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from record_batches import Row, record_batch

from kafkalake.client.consuming.fetched import FetchedRecords
from kafkalake.client.consuming.records import BatchRecords
from kafkalake.errors import CorruptMessageError
from kafkalake.record import layout as at
from kafkalake.record.crc32c import checksum
from kafkalake.wire.fetched_run import read_run
from kafkalake.wire.record_batch import decode_fetched, encode_batch


def rows(count: int, kind: int) -> list[Row]:
    """Rows with and without keys, values and headers."""
    return [
        (
            1_000 + index,
            None if (index + kind) % 3 == 0 else b"k%d" % index,
            None if (index + kind) % 4 == 0 else b"v" * (index % 7),
            [("h", b"%d" % index), ("ü", None)] if (index + kind) % 5 == 0 else [],
        )
        for index in range(count)
    ]


def placed(first: int, batch: Any, epoch: int, codec: int = 0) -> bytes:
    """A batch as it is at its place in a log: the base offset and the epoch are not under the checksum."""
    data = bytearray(encode_batch(batch, codec))
    struct.pack_into(">q", data, 0, first)
    struct.pack_into(">i", data, 12, epoch)
    return bytes(data)


def log_append(data: bytes) -> bytes:
    """The same batch with the timestamps of a topic with LogAppendTime."""
    changed = bytearray(data)
    changed[22] |= at.ATTRIBUTE_LOG_APPEND_TIME
    struct.pack_into(">I", changed, 17, checksum(np.frombuffer(bytes(changed), np.uint8), 21, len(changed)))
    return bytes(changed)


def response(kinds: str) -> bytes:
    """Batches of different kinds, a letter each: small, of a later epoch, compressed, large, with log append time."""
    parts, first = [], 0
    for number, kind in enumerate(kinds):
        count = 3_000 if kind == "l" else 1 + number % 4
        data = placed(first, record_batch(rows(count, number)), int(kind == "e"), 4 if kind == "c" else 0)
        parts.append(log_append(data) if kind == "a" else data)
        first += count + number % 2  # gaps, as after compaction
    return b"".join(parts)


KINDS = ["s", "sssss", "ssess", "cscss", "sslss", "saass", "l", "c", "s" * 1_100, "lclc"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("start", [0, 1, 6])
def test_all_records_from_an_offset_on_are_there_however_they_are_taken(kinds: str, start: int) -> None:
    data = response(kinds)
    batches = [BatchRecords("t", 0, batch) for batch in decode_fetched(data)]
    expected = [one for batch in batches for one in batch.read(0, batch.rows) if one.offset >= start]
    for limit in (1, 7, 5_000):
        taken = FetchedRecords(("t", 0), 1, start, data, None)
        found = []
        while part := taken.take_records(limit):
            assert len(part) <= limit and taken.next_offset > part[-1].offset
            found += part
        assert found == expected and taken.is_drained
    arrow = FetchedRecords(("t", 0), 1, start, data, None)
    offsets: list[int] = []
    keys: list[bytes | None] = []
    while (columns := arrow.take_arrow()) is not None:
        columns.validate(full=True)
        offsets += columns.column("offset").to_pylist()
        keys += columns.column("key").to_pylist()
    assert (offsets, keys) == ([one.offset for one in expected], [one.key for one in expected])


def test_an_invalid_batch_among_small_ones_is_raised_after_those_before_it() -> None:
    parts = [placed(number, record_batch(rows(1, 1)), 0) for number in range(5)]
    parts[3] = parts[3][:-1] + bytes([parts[3][-1] ^ 1])
    taken = FetchedRecords(("t", 0), 1, 0, b"".join(parts), None)
    assert [one.offset for one in taken.take_records(10)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(CorruptMessageError, match="from offset 3 on"):
            taken.take_records(10)


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    data = response("sss")
    last = placed(100, record_batch(rows(2, 0)), 0)
    for length in (1, 30, 61, len(last) - 1):
        run = read_run(data + last[:length], 0)
        assert run is not None and len(run.headers) == 3 and run.end == len(data)
    assert read_run(last[:-1], 0) is None and read_run(b"", 0) is None
