"""What `log dump` shows of each kind of file."""

from __future__ import annotations

from pathlib import Path

import pytest
from partition_logs import append, open_log
from record_batches import record_batch, simple_batch

from kafkalake.storage.dump import DumpedBatch, DumpedEntry, dump_file
from kafkalake.storage.producer_state import ABORT, EndMarker

FIRST = f"{0:020d}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with one sealed segment: plain, idempotent and aborted batches."""
    log = open_log(tmp_path, index_interval_bytes=0)
    append(log, record_batch([(5, b"k", b"v", [("h", None)]), (6, None, None, [])]), simple_batch([b"x"], attributes=4))
    append(log, simple_batch([b"t"], producer_id=9, epoch=3, sequence=7, transactional=True), epoch=2)
    log.append_control(EndMarker(9, 3, ABORT, 0), 2)
    log.advance_high_watermark(5)
    log.close()
    return tmp_path


def batches(path: Path, **options: bool) -> list[DumpedBatch]:
    return [item for item in dump_file(path, **options) if isinstance(item, DumpedBatch)]


def entries(path: Path) -> list[DumpedEntry]:
    return [item for item in dump_file(path) if isinstance(item, DumpedEntry)]


def test_a_segment_shows_its_batches_and_records(directory: Path) -> None:
    found = batches(directory / f"{FIRST}.arrow")
    assert [(batch.base_offset, batch.last_offset, batch.records) for batch in found] == [
        (0, 1, 2),
        (2, 2, 1),
        (3, 3, 1),
        (4, 4, 0),
    ]
    first, second, third, marker = found
    assert first.position == second.position == 488 < third.position < marker.position
    assert [record.offset for record in first.rows] == [0, 1]
    assert (first.rows[0].timestamp, first.rows[0].key, first.rows[0].value) == (5, b"k", b"v")
    assert first.rows[0].headers == (("h", None),)
    assert (second.codec, first.codec) == ("zstd", "none")
    assert (third.producer_id, third.producer_epoch, third.base_sequence, third.transactional) == (9, 3, 7, True)
    assert (third.leader_epoch, marker.control, third.control) == (2, "abort", "")
    assert entries(directory / f"{FIRST}.arrow")[-1].kind == "footer"


def test_a_segment_can_be_shown_without_its_records(directory: Path) -> None:
    assert all(batch.rows == () for batch in batches(directory / f"{FIRST}.arrow", records=False))


def test_damage_is_shown_and_what_follows_it(directory: Path) -> None:
    path = directory / f"{FIRST}.arrow"
    data = bytearray(path.read_bytes())
    second = batches(path)[2].position
    data[second + 100] ^= 1
    path.write_bytes(data)
    damage = [entry for entry in entries(path) if entry.kind == "damage"]
    assert [entry.position for entry in damage] == [second]
    assert [batch.base_offset for batch in batches(path)] == [0, 2, 4]


def test_an_active_segment_is_shown_too(tmp_path: Path) -> None:
    append(open_log(tmp_path), simple_batch([b"x"]))
    assert [batch.records for batch in batches(tmp_path / f"{FIRST}.arrow")] == [1]


def test_the_files_beside_a_segment_are_shown(directory: Path) -> None:
    assert [entry.fields["offset"] for entry in entries(directory / f"{FIRST}.index")] == [0, 3, 4]
    assert [entry.fields["timestamp"] for entry in entries(directory / f"{FIRST}.timeindex")] == [
        -1,
        -1,
        1000,
        1000,
        1000,
    ]
    aborted = entries(directory / f"{FIRST}.txnindex")
    assert [(entry.kind, entry.fields["first_offset"]) for entry in aborted] == [("aborted transaction", 3)]
    state = entries(directory / "state")
    assert {entry.kind for entry in state} == {"state"}
    assert max(entry.fields["high_watermark"] for entry in state) == 5
    snapshot = entries(next(directory.glob("*.snapshot")))
    assert [entry.kind for entry in snapshot] == ["snapshot", "producer"]
    assert snapshot[1].fields["producer_id"] == 9
    assert [entry.fields for entry in entries(directory / "leader-epochs")] == [
        {"epoch": 0, "start_offset": 0},
        {"epoch": 2, "start_offset": 3},
    ]
