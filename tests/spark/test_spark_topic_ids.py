"""A topic that was created again has the name, the paths and the offsets of the one before, and is never taken for it. No Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from group_offsets import committed, produce
from kafka_reference import Kafkalake, create_topic
from waiting import wait_until
from written_lake import WrittenLake

from kafkalake.errors import LakeError, OffsetOutOfRangeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.store import PublishedOffsets
from kafkalake.metadata.tables.schemas import GroupOffsetRow
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.columns import TOPIC_ID, project
from kafkalake.reader.group_positions import GroupPositions
from kafkalake.reader.lake_broker import connect
from kafkalake.reader.partition_edges import PartitionBounds
from kafkalake.reader.plan import SegmentSlice, plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import ReadOptions, Use, parse_options
from kafkalake.reader.slice_reader import SliceReader
from kafkalake.spark.stream.plan import first_positions, plan_batch
from kafkalake.spark.stream.topic_stream import Offsets, TopicStream
from kafkalake.storage.partition_metadata import PARTITION_METADATA_FILE
from kafkalake.uuid_text import encode_uuid

CLICKS = ("clicks", 0)
SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.string()), (TOPIC_ID, pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path / "lake")
    yield lake
    lake.close()


def fill(lake: WrittenLake, name: str, count: int) -> str:
    """Create `clicks` with records of this name, sealed and not; returns its id."""
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"%s-%d" % (name.encode(), number) for number in range(count)])
    lake.roll("clicks")
    lake.append_values("clicks", 0, [b"last"])
    lake.publish()
    return encode_uuid(UUID(lake.topics["clicks"].topic_id))


def options(lake: WrittenLake, **more: str) -> ReadOptions:
    return parse_options({"lake": str(lake.path), "subscribe": "clicks", **more})


def read(groups: list[list[SegmentSlice]]) -> list[tuple[int, str, str]]:
    reader = SliceReader(project(SCHEMA, json_values=False), Selection())
    batches = [batch for group in groups for batch in reader.read(group)]
    return [tuple(row.values()) for row in pa.Table.from_batches(batches, SCHEMA).to_pylist()]


@pytest.mark.exhaustive
def test_a_plan_never_reads_the_next_topic_of_the_name(lake: WrittenLake) -> None:
    old = fill(lake, "old", 3)
    groups = plan_slices(begin_read(options(lake)), Selection())
    assert read(groups) == [(0, "old-0", old), (1, "old-1", old), (2, "old-2", old), (3, "last", old)]
    version = str(lake.publish())
    lake.delete_topic("clicks")
    new = fill(lake, "new", 3)
    with pytest.raises(LakeError, match=f"clicks-0 belongs to another topic .*its id was {old}, and is {new} now"):
        read(groups)
    with pytest.raises(LakeError, match=f"the version asked for is of topic id {old}, which was deleted"):
        read(plan_slices(begin_read(options(lake, versionAsOf=version)), Selection()))
    found = read(plan_slices(begin_read(options(lake)), Selection()))
    assert [value for _, value, _ in found] == ["new-0", "new-1", "new-2", "last"]


@pytest.mark.exhaustive
def test_a_directory_without_an_id_is_one_of_the_first_version(lake: WrittenLake) -> None:
    topic_id = fill(lake, "old", 1)
    (lake.directory("clicks") / PARTITION_METADATA_FILE).unlink()
    assert read(plan_slices(begin_read(options(lake)), Selection())) == [(0, "old-0", topic_id), (1, "last", topic_id)]
    assert PartitionBounds(options(lake), lake.store).look()[CLICKS] == (0, 2, 2, topic_id)


@pytest.mark.exhaustive
def test_a_directory_of_another_topic_is_not_this_ones(lake: WrittenLake) -> None:
    fill(lake, "old", 3)
    # As between the deletion in Delta and the directory's, with a broker that was killed between them.
    lake.store.delete_topics([lake.topics["clicks"].topic_id])
    row = replace(lake.topics["clicks"], topic_id=str(UUID(int=7)))
    lake.store.create_topics([row])
    (snapshot,) = begin_read(options(lake)).partitions
    assert (snapshot.end_offset, snapshot.segments, snapshot.topic_id) == (0, (), encode_uuid(UUID(int=7)))
    assert PartitionBounds(options(lake), lake.store).look()[CLICKS][:3] == (0, 0, 0)


@pytest.mark.exhaustive
def test_a_batch_of_a_stream_is_of_the_topics_that_its_offsets_name(lake: WrittenLake) -> None:
    old = fill(lake, "old", 9)
    assert first_positions(options(lake, startingOffsets="earliest"), lake.store) == ({CLICKS: 0}, {"clicks": old})
    lake.delete_topic("clicks")
    new = fill(lake, "new", 14)
    patient = options(lake, failOnDataLoss="false")
    # From the old topic to the new one: all of the new one.
    between = {"start_ids": {"clicks": old}, "end_ids": {"clicks": new}}
    assert len(read(plan_batch(patient, {CLICKS: 10}, {CLICKS: 15}, lake.store, **between))) == 15
    assert len(read(plan_batch(options(lake), {CLICKS: 10}, {CLICKS: 15}, lake.store, **between))) == 15
    # Within the old one: it is gone.
    within = {"start_ids": {"clicks": old}, "end_ids": {"clicks": old}}
    assert plan_batch(patient, {CLICKS: 4}, {CLICKS: 10}, lake.store, **within) == []
    with pytest.raises(
        OffsetOutOfRangeError, match="clicks-0: its topic was deleted and created again since the batch"
    ):
        plan_batch(options(lake), {CLICKS: 4}, {CLICKS: 10}, lake.store, **within)
    # Without ids, as 0.1 and Spark's Kafka source write them.
    found = read(plan_batch(options(lake), {CLICKS: 10}, {CLICKS: 15}, lake.store))
    assert [offset for offset, _, _ in found] == [*range(10, 15)]


@pytest.mark.exhaustive
def test_given_offsets_may_name_their_topic(lake: WrittenLake) -> None:
    old = fill(lake, "old", 3)
    starting = json.dumps({"clicks": {"0": 2}, f"clicks#{old}": {}})
    assert len(read(plan_slices(begin_read(options(lake, startingOffsets=starting)), Selection()))) == 2
    lake.delete_topic("clicks")
    fill(lake, "new", 3)
    with pytest.raises(OffsetOutOfRangeError, match="startingOffsets are those of an earlier topic clicks"):
        plan_slices(begin_read(options(lake, startingOffsets=starting)), Selection())


@pytest.mark.exhaustive
def test_an_offset_that_was_committed_for_the_topic_before_is_none_of_this_one(lake: WrittenLake) -> None:
    fill(lake, "old", 3)
    topic = lake.topics["clicks"]
    row = GroupOffsetRow("etl", "clicks", topic.topic_id, 0, 2, 0, "", topic.created_at_ms, None, 0, 7)
    lake.store.publish_group_offsets(PublishedOffsets([row, replace(row, group="older", topic_id=None)], {0: 8}))
    groups = [GroupPositions(lake.path, name, lake.store) for name in ("etl", "older")]
    assert [group.committed() for group in groups] == [{CLICKS: 2}, {CLICKS: 2}]
    lake.delete_topic("clicks")
    fill(lake, "new", 3)
    assert [group.committed() for group in groups] == [
        {},
        {},
    ]  # a broker of 0.1 says only when it was, before the topic


def test_a_stream_commits_to_the_topics_that_it_has_read(
    kafkalake_broker: Callable[..., Kafkalake], caplog: pytest.LogCaptureFixture
) -> None:
    broker = kafkalake_broker()
    given = {"lake": str(broker.lake), "subscribePattern": ".*", "startingOffsets": "earliest", "group": "etl"}
    tables = DeltaMetadataStore(broker.lake, create=False)
    for name, count in (("clicks", 5), ("views", 3)):
        create_topic(broker, name)
        produce(broker, name, 0, [b"old"] * count)

    def stream() -> TopicStream:
        return TopicStream(parse_options({**given, "failOnDataLoss": "false"}, Use.STREAM), tables)

    def end_after(reading: TopicStream, start: Offsets) -> Offsets:
        return reading.next_batch(start, offsets_max=None, target=None).end

    def found() -> list[int]:
        return [max(offset, 0) for name in ("clicks", "views") for offset in committed(broker, "etl", name, 1)]

    reading = stream()
    old = end_after(reading, reading.begin(""))
    reading.commit(old)
    assert found() == [5, 3]
    with connect(broker.lake) as admin:
        admin.delete_topics(["clicks"])
    create_topic(broker, "clicks")
    wait_until(lambda: found() == [0, 3], found)
    for each in (reading, stream()):  # the second was started again
        each.commit(old)
        assert found() == [0, 3], "the topic that has the name now was not read"
    produce(broker, "clicks", 0, [b"new"] * 5)
    new = end_after(reading, old)
    for each in (reading, stream()):
        each.commit(new)
        assert found() == [5, 3], "the new topic was read as far as the old one had been"
    with connect(broker.lake) as admin:
        admin.delete_topics(["clicks"])
    produce(broker, "views", 0, [b"more"])
    again = stream()
    again.commit(new)
    again.commit(end_after(again, new))
    assert found() == [0, 4]
    assert "offsets not committed" not in caplog.text, "a topic that is gone holds no commit up"


@pytest.mark.exhaustive
def test_a_damaged_id_is_said(lake: WrittenLake) -> None:
    fill(lake, "old", 3)
    groups = plan_slices(begin_read(options(lake)), Selection())
    (lake.directory("clicks") / PARTITION_METADATA_FILE).write_text("version: 0\n")
    with pytest.raises(LakeError, match=f"{PARTITION_METADATA_FILE}: damaged"):
        read(groups)
