"""One pass over a segment: from any offset, in any chunk, whatever the index says."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest
from partition_logs import append, open_log
from record_batches import rows_of, simple_batch
from sources import ON_ONE_WORKER, modules, nodes

from kafkalake.errors import CorruptSegmentError, LakeError
from kafkalake.storage import scanner
from kafkalake.storage.index import encode_entry
from kafkalake.storage.scanner import scan_segment
from kafkalake.storage.segment import FIRST_MESSAGE
from kafkalake.storage.segment_reader import SEGMENTS, End, SegmentReader, Stop

pytestmark = ON_ONE_WORKER

BATCHES, RECORDS = 40, 3
END = BATCHES * RECORDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sealed segment of forty messages of three records, the twentieth of which is larger than a chunk."""
    log = open_log(tmp_path, index_interval_bytes=500)
    for number in range(BATCHES):
        size = 300_000 if number == 20 else 10
        append(log, simple_batch([b"%d" % number, b"x" * size, b""], timestamp=number))
    log.close()
    return tmp_path / f"{0:020d}.arrow"


def offsets(reader: SegmentReader, start: int, end: int | None) -> list[int]:
    with reader:
        return [offset for messages in reader.messages(start, end) for offset, _ in rows_of(messages)]


@pytest.mark.parametrize("first_chunk_bytes", [700, 4_000, 1 << 20])
def test_messages_that_overlap_the_range_are_read(path: Path, first_chunk_bytes: int) -> None:
    for start, end in ((0, END), (1, 2), (3, 6), (58, 64), (END - 1, END), (5, 5)):
        found = offsets(SEGMENTS.open(path, first_chunk_bytes=first_chunk_bytes), start, end)
        expected = range(start // RECORDS * RECORDS, -(-end // RECORDS) * RECORDS) if start < end else ()
        assert found == list(expected), (start, end)
    assert offsets(SEGMENTS.open(path, first_chunk_bytes=first_chunk_bytes), 100, None) == list(range(99, END))


@pytest.mark.parametrize("entry", [(0, FIRST_MESSAGE + 8), (0, 5_000), (10, 1 << 31), (3, 0)])
def test_a_wrong_index_changes_nothing(path: Path, entry: tuple[int, int]) -> None:
    path.with_suffix(".index").write_bytes(encode_entry(*entry))
    assert offsets(SEGMENTS.open(path), 10, END) == list(range(9, END))
    path.with_suffix(".index").unlink()
    assert offsets(SEGMENTS.open(path), 10, END) == list(range(9, END))


def test_only_the_bytes_that_count_are_read(path: Path) -> None:
    ends = [run for run in SEGMENTS.open(path).runs() if isinstance(run, End)]
    assert [end.stop for end in ends] == [Stop.END_OF_STREAM]
    whole = ends[0].position
    assert offsets(SEGMENTS.open(path, whole), 0, None) == list(range(END))
    with pytest.raises(CorruptSegmentError, match=f"ends before offset {END}"):
        offsets(SEGMENTS.open(path, whole), 0, END + 1)
    with pytest.raises(CorruptSegmentError):
        offsets(SEGMENTS.open(path, whole - 1), 0, END)


def test_a_file_that_becomes_shorter_is_damaged(path: Path) -> None:
    with SEGMENTS.open(path, first_chunk_bytes=700) as reader:
        messages = reader.messages(0, END)
        next(messages)
        path.write_bytes(path.read_bytes()[:2_000])
        with pytest.raises(CorruptSegmentError, match="became shorter"):
            list(messages)


def test_a_scan_says_that_a_file_becomes_shorter_as_the_disk_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "CHUNK_BYTES", 700)

    def truncate(*_: object) -> None:
        path.write_bytes(path.read_bytes()[:2_000])

    with pytest.raises(OSError, match="became shorter"):
        scan_segment(SEGMENTS.segment(path), truncate)


def test_another_file_is_no_segment(path: Path) -> None:
    with pytest.raises(LakeError, match="is no name of a segment"):
        SEGMENTS.open(path.with_name("state"))
    with pytest.raises(FileNotFoundError):
        SEGMENTS.open(path.with_name(f"{7:020d}.arrow"))


def verifying(of: Mapping[str, str]) -> set[str]:
    """Return the modules that verify messages of bytes: those that call `record.message_set.scan`."""
    found = set()
    for module, source in of.items():
        for node in nodes(source, ast.ImportFrom):
            if node.module == "kafkalake.record.message_set":
                found |= {module for alias in node.names if alias.name == "scan"}
        for node in nodes(source, ast.Attribute):
            if node.attr == "scan":
                found |= {module for name in ast.walk(node) if getattr(name, "id", "") == "message_set"}
    return found


@pytest.mark.exhaustive
def test_one_module_loops_over_a_segment() -> None:
    """Besides it `segment` reads at one position, `staged_file` a file of another kind, `replica_run` what is not yet written."""
    of_storage = {"segment_reader", "segment", "staged_file", "replica_run"}
    assert verifying(modules()) == {f"storage.{module}" for module in of_storage}


def test_another_loop_is_found() -> None:
    for source in (
        "from kafkalake.record.message_set import MessageSet, scan",
        "from kafkalake.record import message_set\nmessage_set.scan(data, 0, 9)",
        "def late():\n    from kafkalake.record.message_set import scan",
    ):
        assert verifying({"reader.other": source}) == {"reader.other"}
