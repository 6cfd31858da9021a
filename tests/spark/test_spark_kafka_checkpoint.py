"""A query that changes its format from Spark's own `kafka` to `kafkalake`, and back, with the checkpoint that it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from group_offsets import produce
from kafka_reference import Kafkalake, create_topic
from pyspark.sql import DataFrame, SparkSession

Row = tuple[str, int, int]


def test_a_checkpoint_serves_sparks_kafka_source_and_kafkalake_in_turn(
    spark: SparkSession, kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path
) -> None:
    broker = kafkalake_broker()
    checkpoint = tmp_path / "checkpoint"
    create_topic(broker, "clicks", partitions=11)
    create_topic(broker, "Orders.v1")

    def fill(count: int) -> None:
        for topic, partition in (("clicks", 0), ("clicks", 9), ("clicks", 10), ("Orders.v1", 0)):
            produce(broker, topic, partition, [b"x"] * count)

    def read(source: str) -> list[Row]:
        """The records of a run with `Trigger.AvailableNow`."""
        rows: list[Row] = []

        def keep(frame: DataFrame, batch_id: int) -> None:
            rows.extend(tuple(row) for row in frame.select("topic", "partition", "offset").collect())

        reader = spark.readStream.format(source).option("subscribe", "clicks,Orders.v1")
        reader = reader.option("startingOffsets", "earliest").option("lake", str(broker.lake))
        frame = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        running = query.trigger(availableNow=True).start()
        assert running.awaitTermination(90)
        assert running.exception() is None
        return sorted(rows)

    def kept() -> dict[str, dict[str, int]]:
        newest = max(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
        found: dict[str, dict[str, int]] = json.loads((checkpoint / "offsets" / str(newest)).read_text().split("\n")[2])
        return found

    def expected(first: int, end: int) -> list[Row]:
        places = [("Orders.v1", 0), ("clicks", 0), ("clicks", 9), ("clicks", 10)]
        return [(*place, offset) for place in places for offset in range(first, end)]

    fill(3)
    assert read("kafka") == expected(0, 3)
    fill(2)
    assert read("kafkalake") == expected(3, 5)
    fill(1)
    assert read("kafka") == expected(5, 6)
    assert kept()["clicks"]["10"] == 6
