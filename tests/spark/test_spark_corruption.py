"""Whatever happens to the bytes of a segment or its indexes: right records or an error, never wrong records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from written_lake import WrittenLake

from kafkalake.errors import CorruptSegmentError
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.columns import KAFKA_SCHEMA, project
from kafkalake.reader.plan import plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import parse_options
from kafkalake.reader.slice_reader import SliceReader

READER_COLUMNS = project(KAFKA_SCHEMA, json_values=False)


@pytest.fixture(params=["sealed", "active", "lz4"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WrittenLake]:
    """`clicks`: one segment of 4 messages, 3 records each."""
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", segment_compression="lz4" if request.param == "lz4" else "none", index_interval_bytes=1)
    for start in range(0, 12, 3):
        lake.append(
            "clicks", 0, [(start + i, b"k%d" % i, b"value-%d" % (start + i) * 5, [("h", b"x")]) for i in range(3)]
        )
    if request.param != "active":
        lake.roll("clicks")
    lake.publish()
    yield lake
    lake.close()


def records(lake: WrittenLake, first: int = 0, end: int = 12) -> list[dict[str, object]]:
    options = parse_options({"lake": str(lake.path), "subscribe": "clicks"})
    groups = plan_slices(begin_read(options), Selection().with_offset_range(first, end))
    batches = list(SliceReader(READER_COLUMNS, Selection()).read([piece for group in groups for piece in group]))
    return pa.Table.from_batches(batches, KAFKA_SCHEMA).to_pylist()


@pytest.mark.exhaustive
def test_every_flipped_byte_and_every_length_gives_right_records_or_an_error(lake: WrittenLake) -> None:
    segment = next(lake.directory("clicks").glob("*.arrow"))
    data = segment.read_bytes()
    expected = records(lake)
    assert len(expected) == 12
    options = parse_options({"lake": str(lake.path), "subscribe": "clicks"})
    groups = plan_slices(begin_read(options), Selection())
    slices = [piece for group in groups for piece in group]
    failed = 0
    damaged = [data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :] for i in range(0, len(data), 3)]
    for content in [*damaged, *(data[:length] for length in range(0, len(data), 41))]:
        segment.write_bytes(content)
        try:
            batches = list(SliceReader(READER_COLUMNS, Selection()).read(slices))
        except CorruptSegmentError as error:
            assert error.path == str(segment)
            failed += 1
        else:
            assert pa.Table.from_batches(batches, KAFKA_SCHEMA).to_pylist() == expected
    assert failed > len(damaged) / 2


@pytest.mark.exhaustive
def test_a_damaged_index_costs_time_and_not_records(lake: WrittenLake) -> None:
    index = next(lake.directory("clicks").glob("*.index"), None)
    lake.logs["clicks", 0].flush()
    expected = {first: records(lake, first, first + 4) for first in (0, 4, 8)}
    path = next(lake.directory("clicks").glob("*.arrow")).with_suffix(".index")
    data = path.read_bytes() if index is not None else b"\0" * 64
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        for first, rows in expected.items():
            assert records(lake, first, first + 4) == rows
    for content in (b"", data[:7], data[16:], data[::-1]):
        path.write_bytes(content)
        for first, rows in expected.items():
            assert records(lake, first, first + 4) == rows
