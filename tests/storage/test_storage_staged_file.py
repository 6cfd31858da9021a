"""Staged files: what was written is read, and what is damaged or forged is refused; what is left behind is found."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from record_batches import Row, arrow_rows, record_batch, simple_batch

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.staged_file import StagedBatch, StagedReader, StagedWriter, batch_fault
from kafkalake.storage.staging import commits_path, remove_staged, staging_path, stale_staging

ROWS: list[Row] = [
    (5, b"key", b"value", [("a", b"1"), ("b", None)]),
    (7, None, b"", []),
    (6, b"", None, [("c", b"")]),
]
MIB = 1 << 20


def write(path: Path, batches: list[tuple[ProducerBatch, int, int]]) -> int:
    with StagedWriter(str(path)) as writer:
        for batch, topic, partition in batches:
            writer.append(batch, topic, partition)
    assert writer.bytes == path.stat().st_size
    return writer.bytes


def read(path: Path, size: int, **limits: int) -> list[StagedBatch]:
    reader = StagedReader(str(path), size, limits.get("message_bytes_max", 4 * MIB))
    found: list[StagedBatch] = []
    try:
        while batches := reader.read(limits.get("chunk_bytes", MIB)):
            found += batches
    finally:
        reader.close()
    return found


def test_batches_come_back_with_where_they_go(tmp_path: Path) -> None:
    path = tmp_path / "task.arrow"
    size = write(path, [(record_batch(ROWS), 0, 3), (simple_batch([b"x"] * 10), 2, 0)])
    first, second = read(path, size)
    assert [(each.topic, each.partition, each.batch.rows) for each in (first, second)] == [(0, 3, 3), (2, 0, 10)]
    assert [row for _, row in arrow_rows(first.batch.to_arrow())] == ROWS
    with pa.OSFile(str(path)) as file:
        file.seek(8)
        assert pa.ipc.open_stream(file).read_next_batch().column("key").to_pylist() == [b"key", None, b""]


def test_a_message_longer_than_a_chunk_is_read_whole_and_one_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "task.arrow"
    size = write(path, [(simple_batch([b"x" * 300_000]), 0, 0), (simple_batch([b"y"]), 0, 1)])
    assert [each.partition for each in read(path, size, chunk_bytes=10_000)] == [0, 1]
    with pytest.raises(CorruptSegmentError, match="a message of"):
        read(path, size, chunk_bytes=10_000, message_bytes_max=100_000)


@pytest.mark.exhaustive
def test_flipped_bytes_and_every_other_length_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "task.arrow"
    size = write(path, [(record_batch(ROWS), 0, 0), (simple_batch([b"z"]), 0, 1)])
    good = path.read_bytes()
    for position in range(0, size, 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(CorruptSegmentError):
            read(path, size)
    for length in (0, 7, 500, size - 1):
        path.write_bytes(good[:length])
        with pytest.raises(CorruptSegmentError, match="its job wrote"):
            read(path, size)
        with pytest.raises(CorruptSegmentError):
            read(path, length) or pytest.fail("nothing was read")
    path.write_bytes(good)
    target = tmp_path / "link.arrow"
    target.symlink_to(path)
    with pytest.raises(OSError):
        read(target, size)


def test_batches_that_no_producer_could_have_sent_are_refused() -> None:
    def fault(change: object, *where: int, header: bool = False) -> int:
        batch = record_batch(ROWS)
        body, layout, numbers = batch.body.copy(), batch.layout.copy(), batch.header.copy()
        target = numbers if header else layout
        if len(where) == 2:
            start = int(layout[at.FIRST_BUFFER + 2 * where[0]]) + where[1]
            body[start : start + 4] = np.frombuffer(np.int32(change).tobytes(), dtype=np.uint8)
        elif where:
            target[where[0]] = change
        return int(batch_fault(body, layout, numbers))

    assert fault(None) == 0
    assert fault(4, at.RECORDS, header=True) == 1
    assert fault(9, at.LAST_OFFSET_DELTA, header=True) == 1
    assert fault(at.ATTRIBUTE_CONTROL, at.ATTRIBUTES, header=True) == 1
    assert fault(8, at.MAX_TIMESTAMP, header=True) == 2
    assert fault(1, at.OFFSET_DATA, 0) == 2
    assert fault(1 << 30, at.KEY_OFFSETS, 4) == 3
    assert fault(-1, at.KEY_OFFSETS, 0) == 3
    assert fault(0, at.KEY_NULLS) == 3
    assert fault(2, at.VALUE_NULLS) == 4
    assert fault(100, at.VALUE_OFFSETS, 12) == 4
    assert fault(3, at.HEADERS_OFFSETS, 4) == 5
    assert fault(1 << 20, at.HEADER_ROWS) == 5
    assert fault(77, at.HEADER_KEY_OFFSETS, 4) == 5
    assert fault(77, at.HEADER_VALUE_OFFSETS, 8) == 5


def test_what_killed_jobs_left_is_found_by_its_age_and_removed(tmp_path: Path) -> None:
    hour_ms = 3_600_000
    now_ms = 1_700_000_000_000

    def touch(path: Path, age_ms: int, content: bytes = b"") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        for each in (path, path.parent):
            os.utime(each, ns=((now_ms - age_ms) * 1_000_000,) * 2)

    staging = staging_path(tmp_path)
    assert stale_staging(tmp_path, now_ms) == []
    touch(staging / "old" / "task-0.arrow", 30 * hour_ms, b"1234")
    touch(staging / "young" / "task-0.arrow", 2 * hour_ms)
    touch(commits_path(tmp_path) / "a.json", 31 * 24 * hour_ms)
    touch(commits_path(tmp_path) / "b.json", 29 * 24 * hour_ms)
    stale = stale_staging(tmp_path, now_ms)
    assert [(job.path.name, job.files, job.bytes) for job in stale] == [("a.json", 1, 0), ("old", 1, 4)]
    for job in stale:
        remove_staged(job)
        remove_staged(job)
    assert stale_staging(tmp_path, now_ms) == []
    assert sorted(path.name for path in staging.iterdir()) == [".commits", "young"]
    assert [path.name for path in commits_path(tmp_path).iterdir()] == ["b.json"]
