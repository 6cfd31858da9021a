"""Compressed segments are read within a bound on what they hold, however small they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contract.wire_client import batch

from kafkalake.clock import SystemClock
from kafkalake.record import layout as at
from kafkalake.record.message import OK
from kafkalake.record.message_set import scan, to_arrow
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.scanner import scan_segment
from kafkalake.storage.segment import FIRST_MESSAGE
from kafkalake.storage.segment_reader import SEGMENTS
from kafkalake.wire.record_batch import decode_produced

VALUE_BYTES = 100_000
MESSAGES = 40


@pytest.fixture(scope="module", params=["zstd", "lz4"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed segment of 40 messages of 100 KB each, of which it stores a few hundred bytes."""
    directory = tmp_path_factory.mktemp(request.param)
    log = Log.open(directory, LogConfig(segment_compression=request.param), SystemClock())
    for number in range(MESSAGES):
        data = batch([(b"key", bytes([number]) * VALUE_BYTES)], timestamp=1_000 + number)
        log.append([decode_produced(data)], 0)
    log.advance_high_watermark(MESSAGES)
    log.close()
    return next(directory.glob("*.arrow"))


def test_a_scan_stops_before_it_decompresses_too_much(path: Path) -> None:
    data = np.fromfile(path, dtype=np.uint8)
    position, seen = FIRST_MESSAGE, 0
    while seen < MESSAGES:
        found = scan(data, position, len(data), plain_bytes=5 * VALUE_BYTES)
        assert len(found.messages) == 4
        assert found.status == OK or seen == MESSAGES - 4  # the footer follows
        assert found.end == found.messages.positions[-1]
        rows = to_arrow(found.messages)
        assert rows.column("offset").to_pylist() == list(range(seen, seen + 4))
        assert [value[:1] for value in rows.column("value").to_pylist()] == [bytes([n]) for n in range(seen, seen + 4)]
        assert len(found.messages.data) <= 5 * VALUE_BYTES <= found.messages.size_bytes * 5 // 4 + 1000
        position, seen = found.end, seen + 4


def test_one_message_is_given_however_large_it_is(path: Path) -> None:
    data = np.fromfile(path, dtype=np.uint8)
    assert len(scan(data, FIRST_MESSAGE, len(data), plain_bytes=1).messages) == 1


def test_columns_that_are_not_wanted_are_verified_and_not_decompressed(path: Path) -> None:
    data = np.fromfile(path, dtype=np.uint8)
    found = scan(data, FIRST_MESSAGE, len(data), plain_columns=at.TIMESTAMP_COLUMN, plain_bytes=5 * VALUE_BYTES)
    assert len(found.messages) == MESSAGES
    assert len(found.messages.data) == 8 * MESSAGES
    timestamps = to_arrow(found.messages, at.TIMESTAMP_COLUMN).column("timestamp").cast("timestamp[ms]").cast("int64")
    assert timestamps.to_pylist() == [1_000 + number for number in range(MESSAGES)]
    data[int(found.messages.positions[7]) - 8] ^= 1  # in the last column of the seventh message
    assert len(scan(data, FIRST_MESSAGE, len(data), plain_columns=at.TIMESTAMP_COLUMN).messages) == 6


def test_a_segment_is_described_without_its_values(path: Path) -> None:
    held: list[int] = []
    found = scan_segment(SEGMENTS.segment(path), lambda messages, _: held.append(len(messages.data)))
    assert sum(held) == 8 * MESSAGES
    content = found.content
    assert (content.records, content.min_timestamp, content.max_timestamp) == (MESSAGES, 1_000, 1_000 + MESSAGES - 1)


def test_a_read_is_bounded_by_what_it_holds(path: Path) -> None:
    segment = SEGMENTS.segment(path)
    found = segment.fetch(7, 3 * VALUE_BYTES, MESSAGES)
    assert found is not None
    assert found.messages.base_offset <= 7 < found.messages.next_offset <= 7 + 3
    assert found.messages.layouts[:, at.ROWS].sum() == len(found.messages)


def test_recovery_does_not_decompress_values(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kafkalake.record.message_set as message_set

    config = LogConfig(segment_compression="zstd")
    log = Log.open(tmp_path, config, SystemClock())
    for number in range(MESSAGES):
        log.append([decode_produced(batch([(None, bytes(VALUE_BYTES))], timestamp=number))], 0)
    log.advance_high_watermark(MESSAGES)
    plain: list[int] = []
    decompress = message_set._plain_buffer

    def counting(messages: message_set.MessageSet, *arguments: int) -> object:
        part = decompress(messages, *arguments)
        plain.append(len(part))
        return part

    monkeypatch.setattr(message_set, "_plain_buffer", counting)
    again = Log.open(tmp_path, config, SystemClock())
    assert again.log_end_offset == MESSAGES
    assert sum(plain) <= 2 * 8 * MESSAGES
