"""Every byte flipped and every length cut: found by verification, never served, never the end of the process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from long_runs import ALL, first_of
from partition_logs import append, open_log
from record_batches import Row, record_batch, rows_of, simple_batch

from kafkalake.errors import CorruptSegmentError, KafkaStorageError, LakeError
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.dump import dump_file
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.storage.segment_reader import SEGMENTS
from kafkalake.storage.verify import verify_partition

FIRST = f"{0:020d}"


@pytest.fixture
def partition(memory_path: Path) -> Path:
    """A closed log of two small sealed segments, with every kind of file beside them."""
    directory = memory_path / "log"
    log = open_log(directory, index_interval_bytes=0)

    def batch(number: int, **producer: object) -> ProducerBatch:
        rows: list[Row] = [(100 * number + i, b"k", b"value", [("h", b"x")][:i]) for i in range(2)]
        return record_batch(rows, **producer)  # type: ignore[arg-type]

    append(log, batch(1), batch(2))
    append(log, batch(3, producer_id=5, epoch=0, sequence=0, transactional=True))
    log.append_control(EndMarker(5, 0, ABORT, 0), 0)
    log.advance_high_watermark(log.log_end_offset)
    log.roll()
    append(log, simple_batch([b"second segment"], timestamp=1_000))
    log.close()
    assert verify_partition(directory) == []
    return directory


def flips(data: bytes) -> Iterator[tuple[str, bytes]]:
    for position in range(0, len(data), 1 if ALL or len(data) < 500 else 3):
        changed = bytearray(data)
        changed[position] ^= 1 << (position % 8)
        yield f"byte {position} flipped", bytes(changed)


def truncations(data: bytes) -> Iterator[tuple[str, bytes]]:
    for length in range(len(data)):
        yield f"cut to {length} bytes", data[:length]


def served(log: Log) -> list[tuple[int, Row]]:
    """Every record that any fetch gives, offset by offset; where the log refuses, nothing."""
    found: dict[int, Row] = {}
    for offset in range(log.log_start_offset, log.high_watermark):
        try:
            messages = log.read(offset, 1)
        except (CorruptSegmentError, KafkaStorageError):
            continue
        for at, row in rows_of(messages):
            assert found.setdefault(at, row) == row
    return sorted(found.items())


def survives(partition: Path, expected: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Open and use the log in every way; what it served, all of it as it was written."""
    try:
        log = open_log(partition)
    except KafkaStorageError:
        return []
    found = served(log)
    assert [row for row in found if row not in expected] == []
    for timestamp in (0, 150, 350, 2_000):
        try:
            hit = log.offset_for_timestamp(timestamp)
        except CorruptSegmentError:
            continue
        right = next(((row[1][0], row[0]) for row in expected if row[1][0] >= timestamp), None)
        assert hit == right, timestamp
    with contextlib.suppress(CorruptSegmentError):
        assert len(log.aborted_transactions(0, 8)) == 1
    with contextlib.suppress(CorruptSegmentError):
        log.max_timestamp()
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", first_of([flips, truncations], 1))
def test_no_damaged_byte_of_a_sealed_segment_is_served_and_all_are_found(partition: Path, damage: object) -> None:
    expected = served(open_log(partition))
    assert len(expected) == 7
    original = {path.name: path.read_bytes() for path in partition.iterdir()}
    victim = partition / f"{FIRST}.arrow"
    for what, data in damage(original[victim.name]):  # type: ignore[operator]
        victim.write_bytes(data)
        problems = verify_partition(partition)
        assert problems, what
        assert any(problem.file == str(victim) for problem in problems), (what, problems)
        found = survives(partition, expected)
        assert len(found) >= 1, "the other segment is whole"
        list(dump_file(victim))
        try:
            with SEGMENTS.open(victim) as reader:
                rows = [row for messages in reader.messages(0, 7) for row in rows_of(messages)]
            assert rows == expected[:6], what
        except CorruptSegmentError:
            pass
        for name, content in original.items():
            if (partition / name).read_bytes() != content or name == victim.name:
                (partition / name).write_bytes(content)


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("damage", [flips, truncations])
def test_damage_to_an_index_is_found_and_changes_no_answer(partition: Path, suffix: str, damage: object) -> None:
    expected = served(open_log(partition))
    victim = partition / f"{FIRST}{suffix}"
    original = victim.read_bytes()
    for what, data in damage(original):  # type: ignore[operator]
        victim.write_bytes(data)
        assert verify_partition(partition), what
        assert survives(partition, expected) == expected, what
    victim.write_bytes(original)
    assert verify_partition(partition) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", [flips, truncations])
def test_damage_to_the_state_is_found_and_what_is_served_stays_right(partition: Path, damage: object) -> None:
    expected = served(open_log(partition))
    original = {path.name: path.read_bytes() for path in partition.iterdir()}
    for what, data in damage(original["state"]):  # type: ignore[operator]
        (partition / "state").write_bytes(data)
        assert verify_partition(partition), what
        found = survives(partition, expected)
        assert found == expected[: len(found)], what
        for name, content in original.items():
            (partition / name).write_bytes(content)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [f"{7:020d}.snapshot", f"{8:020d}.snapshot", "leader-epochs"])
@pytest.mark.parametrize("damage", [flips, truncations])
def test_damage_to_a_snapshot_or_the_epochs_is_found(partition: Path, name: str, damage: object) -> None:
    victim = partition / name
    original = victim.read_bytes()
    for what, data in damage(original):  # type: ignore[operator]
        victim.write_bytes(data)
        assert verify_partition(partition), what
        list(dump_file(victim))
    victim.write_bytes(original)
    assert verify_partition(partition) == []


def test_a_missing_file_is_found(partition: Path) -> None:
    for path in sorted(partition.iterdir()):
        if path.name.endswith(".snapshot") or path.name == "leader-epochs":
            continue
        data = path.read_bytes()
        path.unlink()
        assert verify_partition(partition), path.name
        path.write_bytes(data)


def test_a_file_of_another_segment_is_found(partition: Path) -> None:
    for suffix in (".arrow", ".timeindex"):
        victim, other = partition / f"{FIRST}{suffix}", partition / f"{7:020d}{suffix}"
        original = victim.read_bytes()
        victim.write_bytes(other.read_bytes())
        assert verify_partition(partition), suffix
        victim.write_bytes(original)


def test_dump_refuses_what_is_no_file_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(LakeError):
        list(dump_file(tmp_path / "notes.txt"))
