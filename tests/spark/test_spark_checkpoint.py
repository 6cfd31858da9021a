"""Where a stream began, kept in its checkpoint, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkalake.errors import LakeError
from kafkalake.reader.positions import from_json, to_json
from kafkalake.reader.read_options import Use, parse_options
from kafkalake.spark.stream.checkpoint import initial_offsets

# From a checkpoint of Spark 4.2.0's Kafka source (spark-sql-kafka-0-10_2.13) on Apache Kafka 4.1.1: subscribe "clicks,Orders.v1",
# 12 and 2 partitions, startingOffsets earliest, maxOffsetsPerTrigger 60. `sources/0/0`, and the last line of `offsets/0`.
SPARK_SOURCES = (
    b'\0v1\n{"clicks":{"0":0,"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0,"9":0,"10":0,"11":0},'
    b'"Orders.v1":{"0":0,"1":0}}'
)
SPARK_OFFSETS = (
    b'{"clicks":{"0":1,"1":2,"2":2,"3":3,"4":3,"5":4,"6":4,"7":5,"8":6,"9":6,"10":7,"11":7},"Orders.v1":{"0":1,"1":2}}'
)


def first(offset: int) -> dict[str, dict[str, int]]:
    return {"clicks": {"0": offset}}


def test_the_first_offsets_are_those_of_the_first_time(tmp_path: Path) -> None:
    location = f"file:{tmp_path / 'checkpoint' / 'sources' / '0'}"
    assert initial_offsets(location, lambda: first(7)) == first(7)
    assert initial_offsets(location, lambda: first(9)) == first(7)
    assert [file.name for file in (tmp_path / "checkpoint" / "sources" / "0").iterdir()] == ["0"]
    assert initial_offsets("", lambda: first(9)) == first(9)


@pytest.mark.parametrize("before", ["file:", "file://", ""])
def test_the_checkpoints_path_is_as_it_is(tmp_path: Path, before: str) -> None:
    location = tmp_path / "a b" / "100%25 ü" / "sources" / "0"
    assert initial_offsets(f"{before}{location}", lambda: first(7)) == first(7)
    assert (location / "0").is_file()
    assert initial_offsets(f"{before}{location}", lambda: first(9)) == first(7)


def test_offsets_that_cannot_be_kept_are_refused_unless_they_stay_the_same() -> None:
    somewhere = "s3a://bucket/check point"
    with pytest.raises(LakeError, match="cannot be kept in the checkpoint, which is at s3a://bucket/check point"):
        initial_offsets(somewhere, lambda: first(9))
    assert initial_offsets(somewhere, lambda: first(9), is_repeatable=True) == first(9)


@pytest.mark.parametrize(
    ("given", "is_lasting"),
    [
        ({}, False),
        ({"startingOffsets": "earliest"}, True),
        ({"startingOffsets": '{"clicks": {"0": 3, "1": -2}}'}, True),
        ({"startingOffsets": '{"clicks": {"0": 3, "1": -1}}'}, False),
        ({"startingTimestamp": "1700000000000", "startingOffsets": "earliest"}, False),
        ({"startingOffsetsByTimestamp": '{"clicks": {"0": 5}}'}, False),
        ({"startingOffsets": "earliest", "group": "g"}, False),
    ],
)
def test_what_begins_at_the_same_offsets_whenever_it_begins(given: dict[str, str], is_lasting: bool) -> None:
    assert parse_options({"lake": "/lake", "path": "clicks", **given}, Use.STREAM).has_lasting_start is is_lasting


def test_a_checkpoint_of_sparks_kafka_source_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(SPARK_SOURCES)
    found = initial_offsets(tmp_path.as_uri(), lambda: first(9))
    assert found == {"clicks": {str(partition): 0 for partition in range(12)}, "Orders.v1": {"0": 0, "1": 0}}


def test_the_files_are_those_of_sparks_kafka_source(tmp_path: Path) -> None:
    initial_offsets(tmp_path.as_uri(), lambda: to_json({("clicks", partition): 0 for partition in range(12)}))
    assert (tmp_path / "0").read_bytes() == SPARK_SOURCES.replace(b',"Orders.v1":{"0":0,"1":0}', b"")
    theirs = json.loads(SPARK_OFFSETS)
    positions = from_json(theirs)
    assert positions[("clicks", 10)] == 7
    assert to_json(positions) == theirs
    # Partitions by number, not as text; topics in an order of their own, which says nothing.
    assert list(to_json(positions)["clicks"]) == list(theirs["clicks"])


@pytest.mark.parametrize("content", [b"", b"\0v2\n{}", b'\0v1\n{"clicks":'])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0").write_bytes(content)
    with pytest.raises(LakeError, match="holds no first offsets of a stream"):
        initial_offsets(tmp_path.as_uri(), lambda: first(9))
