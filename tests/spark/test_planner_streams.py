"""What the planning process answers about streams depends on the questions, and on nothing that it keeps. No Spark."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType
from written_lake import WrittenLake

from kafkalake.errors import ConfigurationError, OffsetOutOfRangeError
from kafkalake.reader.read_options import Use, parse_options
from kafkalake.spark.planner import streams
from kafkalake.spark.planner.requests import answer
from kafkalake.spark.stream.stream import KafkaLakeStreamReader
from kafkalake.uuid_text import encode_uuid

Ask = Callable[..., Any]
EARLIEST = {"subscribe": "clicks", "startingOffsets": "earliest"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", 2)
    yield lake
    lake.close()


@pytest.fixture
def ask(lake: WrittenLake, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """`ask(what, stream=..., options=..., **question)` of a planner that knows no stream yet."""
    monkeypatch.setattr(streams, "_streams", OrderedDict())

    def ask(what: str, *, stream: str = "query", options: dict[str, str] = EARLIEST, **question: Any) -> Any:
        given = {"lake": str(lake.path), **options}
        return answer({"ask": f"stream_{what}", "stream": stream, "options": given, **question})

    return ask


def batches(ask: Ask, checkpoint: Path, *, between: Callable[[], None]) -> list[tuple[str, list[tuple[int, int]]]]:
    """The end of each batch of 20 offsets, with the offsets of its tasks, up to a target; `between` comes before each question."""

    def then(what: str, **question: Any) -> Any:
        between()
        return ask(what, **question)

    location = f"file:{checkpoint}"
    target, end, found = then("ends"), then("begin", checkpoint=location), list[tuple[str, list[tuple[int, int]]]]()
    while True:
        start = end
        assert then("begin", checkpoint=location) == then("begin", checkpoint=location)
        end = then("next", start=start, offsets_max=20, target=target, is_done=True, may_wait=False)["end"]
        if start == end:
            return found
        tasks = then("plan", start=start, end=end)
        read = [(piece["from_offset"], piece["to_offset"]) for task in tasks for piece in task["slices"]]
        then("commit", end=end)
        found.append((end, sorted(read)))


@pytest.mark.exhaustive
def test_a_planner_that_was_started_again_goes_on_with_the_stream(ask: Ask, lake: WrittenLake, tmp_path: Path) -> None:
    for partition, count in ((0, 30), (1, 20)):
        lake.append_values("clicks", partition, [b"v"] * count)
    found = batches(ask, tmp_path / "kept", between=lambda: None)
    assert [read for _, read in found] == [[(0, 8), (0, 12)], [(8, 16), (12, 24)], [(16, 20), (24, 30)]]
    topic_id = encode_uuid(UUID(lake.topics["clicks"].topic_id))
    # With the spaces that Spark's Python sources have always had in checkpoints: Spark compares the text.
    assert found[-1][0] == f'{{"clicks": {{"0": 30, "1": 20}}, "clicks#{topic_id}": {{}}}}'
    assert batches(ask, tmp_path / "lost", between=lambda: streams._streams.clear()) == found


@pytest.mark.exhaustive
def test_a_target_holds_back_what_came_later(ask: Ask, lake: WrittenLake) -> None:
    lake.append_values("clicks", 0, [b"v"] * 3)
    target = ask("ends")
    lake.append_values("clicks", 0, [b"v"] * 3)
    start = ask("begin", checkpoint="")
    step = ask("next", start=start, offsets_max=None, target=target, is_done=False, may_wait=False)
    assert json.loads(step["end"])["clicks"] == {"0": 3, "1": 0}
    assert json.loads(step["readable_ends"])["clicks"] == {"0": 6, "1": 0}


@pytest.mark.exhaustive
def test_a_batch_of_few_offsets_waits_for_more(ask: Ask, lake: WrittenLake) -> None:
    options = {**EARLIEST, "minOffsetsPerTrigger": "5"}

    def step(start: str, *, may_wait: bool = True) -> str:
        limits = {"offsets_max": 4, "target": None, "is_done": False, "may_wait": may_wait}
        return str(ask("next", options=options, start=start, **limits)["end"])

    lake.append_values("clicks", 0, [b"v"])
    first = step(ask("begin", options=options, checkpoint=""))
    assert json.loads(first)["clicks"] == {"0": 1, "1": 0}, "the first is not delayed"
    lake.append_values("clicks", 0, [b"v"] * 4)
    as_spark_has_it = first.replace(" ", "")
    assert step(as_spark_has_it) == as_spark_has_it
    assert json.loads(step(first, may_wait=False))["clicks"]["0"] == 5
    lake.append_values("clicks", 0, [b"v"])
    assert json.loads(step(first))["clicks"]["0"] == 5


@pytest.mark.exhaustive
def test_what_is_kept_of_streams_is_bounded(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)
    for stream in ("first", "second", "first", "third"):
        ask("ends", stream=stream)
    assert list(streams._streams) == ["first", "third"]


@pytest.mark.exhaustive
def test_a_topic_that_was_created_again_is_another_for_every_planner(ask: Ask, lake: WrittenLake) -> None:
    lake.append_values("clicks", 0, [b"v"] * 3)
    start = ask("begin", checkpoint="")
    lake.delete_topic("clicks")
    lake.create("clicks", 2)
    for is_forgotten in (False, True):
        if is_forgotten:
            streams._streams.clear()
        with pytest.raises(OffsetOutOfRangeError, match="deleted and created again since it was read"):
            ask("next", start=start, offsets_max=None, target=None, is_done=False, may_wait=False)


def test_a_stream_is_described_as_by_sparks_kafka_source(ask: Ask, lake: WrittenLake) -> None:
    opened = ask(
        "open", options={"subscribe": "clicks,views", "maxOffsetsPerTrigger": "7"}, columns={"key": "STRING"}, fields=[]
    )
    assert opened == {
        "description": f"KafkaLake[Subscribe[clicks, views], {lake.path}]",
        "offsets_max": 7,
        "offsets_min": None,
        "delay_ms_max": 15 * 60_000,
        "has_group": False,
    }
    for given, expected in (
        ({"subscribePattern": "clicks-.*"}, "KafkaLake[SubscribePattern[clicks-.*], /lake]"),
        ({"assign": '{"clicks": [1, 0]}'}, "KafkaLake[Assign[clicks-1, clicks-0], /lake]"),
    ):
        assert streams.describe(parse_options({"lake": "/lake", **given}, Use.STREAM)) == expected
    with pytest.raises(ConfigurationError, match="column key cannot be int32"):
        ask("open", columns={"key": "INT"}, fields=[], stream="another")
    with pytest.raises(ConfigurationError, match=r"no column 'a' but key, value.* option valueSchema"):
        ask("open", columns={}, fields=["a"], stream="a third")


@pytest.mark.exhaustive
def test_a_driver_without_the_jar_gets_the_same_answers(ask: Ask, lake: WrittenLake) -> None:
    lake.append_values("clicks", 0, [b"v"] * 10)
    schema = StructType([StructField("offset", LongType())])
    reader = KafkaLakeStreamReader({"lake": str(lake.path), "maxOffsetsPerTrigger": "4", **EARLIEST}, schema)
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    reader.prepareForTriggerAvailableNow()
    lake.append_values("clicks", 0, [b"v"] * 10)
    start, read = reader.initialOffset(), 0
    assert json.dumps(start) == ask("begin", checkpoint="")
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        question = {"start": json.dumps(start), "offsets_max": 4, "is_done": True, "may_wait": False}
        assert json.dumps(end) == ask("next", target='{"clicks": {"0": 10, "1": 0}}', **question)["end"]
        read += sum(batch.num_rows for task in reader.partitions(start, end) for batch in reader.read(task))
        reader.commit(end)
        start = end
    assert read == 10
    assert reader.reportLatestOffset() == {"clicks": {"0": 20, "1": 0}}
