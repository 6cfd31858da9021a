"""Verification of a lake: right ones are silent, and what Delta says is compared with what is there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from partition_logs import append, open_log
from record_batches import simple_batch

from kafkalake.storage import verify_segment
from kafkalake.storage.log import Log
from kafkalake.storage.sealed_segment import SealedSegment
from kafkalake.storage.segment import Segment
from kafkalake.storage.verify import Problem, PublishedPartition, PublishedSegment, verify_lake, verify_partition

DIRECTORY = "logs/0/clicks-0"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with one partition of some sealed segments, closed."""
    log = open_log(tmp_path / DIRECTORY, segment_bytes=3_000)
    for n in range(20):
        append(log, simple_batch([b"%d" % n, b"x"], timestamp=100 * n))
    log.close()
    return tmp_path


def published(lake: Path) -> list[PublishedSegment]:
    """Delta's rows as the publisher would have written them."""

    def row(segment: SealedSegment) -> PublishedSegment:
        path = str(Path(segment.path).relative_to(lake))
        return PublishedSegment(
            path,
            segment.base_offset,
            segment.next_offset,
            segment.records,
            segment.bytes,
            segment.min_timestamp,
            segment.max_timestamp,
        )

    return [row(segment) for segment in open_log(lake / DIRECTORY).sealed_segments()]


def whats(problems: list[Problem]) -> list[str]:
    return [problem.what for problem in problems]


def test_a_right_lake_has_no_problems(lake: Path) -> None:
    partition = PublishedPartition(DIRECTORY, 0, 40, 40, 40)
    assert list(verify_lake(lake, published(lake), [partition])) == []


def test_an_empty_lake_has_no_problems(tmp_path: Path) -> None:
    assert list(verify_lake(tmp_path)) == []
    open_log(tmp_path / "logs/0/empty-0").close()
    open_log(tmp_path / "logs/0/opened-1")
    assert list(verify_lake(tmp_path)) == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"records": 1}, "records is"),
        ({"bytes": 1}, "bytes is"),
        ({"next_offset": 3}, "next offset is"),
        ({"min_timestamp": 0}, "smallest timestamp is"),
        ({"max_timestamp": None}, "largest timestamp is"),
    ],
)
def test_a_row_that_differs_from_its_segment_is_found(lake: Path, change: dict[str, int], what: str) -> None:
    rows = published(lake)
    rows[1] = rows[1]._replace(**change)
    problems = list(verify_lake(lake, rows))
    assert len(problems) == 1
    assert what in problems[0].what
    assert problems[0].file == str(lake / rows[1].path)


def test_offsets_that_are_published_twice_are_found(lake: Path) -> None:
    rows = published(lake)
    problems = list(verify_lake(lake, [*rows, rows[1]]))
    assert [what for what in whats(problems) if "twice" in what]


def test_a_segment_that_only_delta_has_is_found(lake: Path) -> None:
    rows = published(lake)
    ghost = rows[-1]._replace(path=f"{DIRECTORY}/{40:020d}.arrow", base_offset=40, next_offset=50)
    assert whats(list(verify_lake(lake, [*rows, ghost]))) == ["Delta knows this segment, and the file is missing"]


def test_a_partition_that_delta_puts_ahead_of_the_log_is_found(lake: Path) -> None:
    partition = PublishedPartition(DIRECTORY, 0, 41, 40, 40)
    assert whats(list(verify_lake(lake, [], [partition]))) == ["high watermark is 40 here and 41 in Delta"]


def test_a_partition_without_its_directory_is_found(lake: Path) -> None:
    gone = PublishedPartition("logs/0/gone-3", 0, 5, 5, 5)
    never_written = PublishedPartition("logs/0/new-3", 0, 0, 0, 0)
    problems = list(verify_lake(lake, [], [gone, never_written]))
    assert whats(problems) == ["Delta knows this partition, and its directory is missing"]


def test_a_missing_segment_is_found(lake: Path) -> None:
    bases = open_log(lake / DIRECTORY).sealed_base_offsets
    (lake / DIRECTORY / f"{bases[2]:020d}.arrow").unlink()
    problems = whats(list(verify_lake(lake)))
    assert problems == [f"the offsets [{bases[2]}, {bases[3]}) are missing"]


def test_rows_of_deleted_segments_may_stay_in_delta_for_a_while(lake: Path) -> None:
    rows = published(lake)
    open_log(lake / DIRECTORY).delete_records_before(rows[2].base_offset)
    assert list(verify_lake(lake, rows)) == []


def test_a_log_whose_beginning_was_deleted_is_right(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3_000)
    for n in range(30):
        append(log, simple_batch([b"%d" % n], timestamp=1_000 - n))
    log.delete_records_before(17)
    assert verify_partition(tmp_path) == []


@pytest.mark.exhaustive
def test_a_log_that_is_written_at_the_moment_is_right(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=20_000, index_interval_bytes=0, file_delete_delay_ms=60_000)
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(log: Log) -> None:
        try:
            while not stop.is_set():
                append(log, simple_batch([b"x" * 50]))
                if log.log_end_offset % 200 == 0:
                    log.delete_records_before(log.log_end_offset - 100)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write, args=(log,))
    writer.start()
    try:
        while log.log_end_offset < 20 and not failures:
            pass
        for _ in range(20):
            assert verify_partition(tmp_path) == []
    finally:
        stop.set()
        writer.join()
    assert not failures
    assert verify_partition(tmp_path) == []


@pytest.mark.parametrize("part", ["before a segment is read", "while it is read"])
def test_a_log_that_is_truncated_at_the_moment_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    log = open_log(tmp_path)
    log.append([simple_batch([b"kept"])], 0)
    log.append([simple_batch([b"discarded"])], 0)
    log.advance_high_watermark(1)
    owner, name = (Segment, "read_into") if part == "while it is read" else (verify_segment, "scan_segment")
    original = getattr(owner, name)

    def after_truncation(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        log.truncate_to(1)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, after_truncation)
    assert verify_partition(tmp_path) == []
    assert log.log_end_offset == 1
