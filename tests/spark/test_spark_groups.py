"""Spark as a consumer group: what `kafkalake groups describe` shows of streams, and where batch queries start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from group_offsets import described, produce
from kafka_reference import Kafkalake, create_topic
from pyspark.sql import SparkSession

GROUP = "etl"


def test_a_stream_is_a_group_among_groups(
    spark: SparkSession, kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path
) -> None:
    broker = kafkalake_broker()
    create_topic(broker, "clicks", partitions=2)
    produce(broker, "clicks", 0, [b"x"] * 30)
    produce(broker, "clicks", 1, [b"x"] * 10)

    def stream() -> int:
        """Records read by a run with `Trigger.AvailableNow`."""
        read: list[int] = []
        reader = spark.readStream.format("kafkalake").option("lake", str(broker.lake)).option("group", GROUP)
        frame = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 20).load("clicks")
        writer = frame.select("offset").writeStream.foreachBatch(lambda batch, _: read.append(batch.count()))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(90)
        return sum(read)

    def unread(group: str = GROUP, **options: str) -> list[tuple[int, int]]:
        reader = spark.read.format("kafkalake").option("lake", str(broker.lake)).option("group", group)
        rows = reader.options(**options).load("clicks").select("partition", "offset").collect()
        return sorted((row.partition, row.offset) for row in rows)

    assert stream() == 40
    assert described(broker, GROUP) == {("clicks", 0): (30, 0), ("clicks", 1): (10, 0)}
    produce(broker, "clicks", 1, [b"x"] * 2)
    assert described(broker, GROUP) == {("clicks", 0): (30, 0), ("clicks", 1): (10, 2)}
    assert unread() == [(1, 10), (1, 11)]
    assert len(unread("nobody")) == 42
    assert unread("nobody", startingOffsets='{"clicks": {"0": 29, "1": 12}}') == [(0, 29)]
    assert unread(endingOffsets='{"clicks": {"0": 30, "1": 11}}') == [(1, 10)]
    assert described(broker, GROUP) == {("clicks", 0): (30, 0), ("clicks", 1): (10, 2)}  # a batch commits nothing
    broker.stop()
    assert unread() == [(1, 10), (1, 11)]  # by what was published
    assert stream() == 2  # the group cannot be told
    broker.start()
    assert described(broker, GROUP) == {("clicks", 0): (30, 0), ("clicks", 1): (10, 2)}
    assert stream() == 0  # nothing is new, and now it can
    assert described(broker, GROUP) == {("clicks", 0): (30, 0), ("clicks", 1): (12, 0)}
    assert unread() == []
