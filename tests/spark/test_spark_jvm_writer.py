"""Staged files have two writers: Python's (`staged_rows`) and, for Spark, the jar's (`jvm/.../RowStager.java`). They agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from append_door import Door
from kafka_reference import Kafkalake, create_topic, topic_name
from pyspark.sql import DataFrame, SparkSession
from staged_jobs import addresses, describe, targets

from kafkalake.client.staged_append import ask_once
from kafkalake.record.message import OK, check_frame
from kafkalake.record.schema import PREAMBLE
from kafkalake.spark.sink.staged_rows import RowStager
from kafkalake.spark.sink.write_target import BATCH_BYTES
from kafkalake.storage.staged_file import StagedReader, StagedWriter
from kafkalake.storage.staging import remove_directory, staging_path

Messages = dict[tuple[int, int], list[bytes]]
"""(number of the topic, partition) -> its messages, in order."""

COLUMNS = """key BINARY, value STRING, topic STRING, partition INT, timestamp TIMESTAMP,
             headers ARRAY<STRUCT<key: STRING, value: BINARY>>, note STRING"""
MOMENT = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    with Kafkalake() as broker:
        yield broker


def messages(path: Path) -> Messages:
    data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    assert data[: len(PREAMBLE)].tobytes() == PREAMBLE
    reader = StagedReader(str(path), len(data), 1 << 30)
    batches = []
    while chunk := reader.read():
        batches += chunk
    reader.close()
    found: Messages = {}
    position, lengths = len(PREAMBLE), np.zeros(3, dtype=np.int64)
    for batch in batches:
        assert check_frame(data, position, len(data), lengths) == OK
        end = position + int(lengths[0] + lengths[1])
        found.setdefault((batch.topic, batch.partition), []).append(data[position:end].tobytes())
        position = end
    assert position == len(data)
    return found


def staged_by_jvm(broker: Kafkalake, rows: DataFrame, topic: str | None, **options: str) -> Messages:
    """Write the rows with a broker that does not get the request to append them, and return what is staged then."""
    with Door(broker, forwards_append=False) as door:
        writer = rows.coalesce(1).write.format("kafkalake").option("lake", str(broker.lake)).mode("append")
        writer = (
            writer.options(**options).option("kafka.bootstrap.servers", door.address).option("commitTimeout", "1ms")
        )
        with pytest.raises(Exception, match="it is not known whether the records were appended"):
            writer.save(topic) if topic else writer.save()
    (directory,) = staging_path(broker.lake).glob("job-*")
    (path,) = directory.glob("*.arrow")
    found = messages(path)
    remove_directory(directory)
    return found


def staged_by_python(broker: Kafkalake, rows: DataFrame, topic: str | None, path: Path, *topics: str) -> Messages:
    described = describe(broker, *topics)
    with StagedWriter(str(path)) as writer:
        stager = RowStager(writer, targets(described), topic, described["bytes_max"], 0)
        for batch in rows.coalesce(1).toArrow().to_batches():
            stager.add(batch)
        stager.finish()
    return messages(path)


def random_rows(randomness: random.Random, topics: list[str], count: int) -> list[tuple[Any, ...]]:
    rows = []
    for number in range(count):
        key = randomness.choice((None, b"", randomness.randbytes(randomness.randrange(12))))
        large = key is not None and randomness.random() < 0.15
        rows.append(
            (
                key,
                randomness.choice((None, "", f"värde {number}", "x" * (250_000 if large else 40))),
                randomness.choice(topics),
                randomness.choice((None, 0, 0)),
                MOMENT + timedelta(microseconds=randomness.randrange(-(10**15), 10**15)),
                randomness.choice((None, [], [("h", None)], [("a", b"1"), ("ä", b"")])),
                "not written",
            )
        )
    return rows


def test_the_bytes_are_those_of_python(spark: SparkSession, broker: Kafkalake, tmp_path: Path) -> None:
    topics = [topic_name("many"), topic_name("one")]
    create_topic(broker, topics[0], partitions=5, config={"max.message.bytes": "1500000"})
    create_topic(broker, topics[1], partitions=1, config={"max.message.bytes": "900000"})
    rows = spark.createDataFrame(random_rows(random.Random(11), topics, 700), COLUMNS).orderBy("timestamp").cache()
    # With a column `topic`, and no topic named, the broker describes all; Python is to number them in the same order.
    everything = ask_once(addresses(broker), {"ask": "describe", "topics": None}, 30)
    every = [topic["name"] for topic in everything["topics"]]
    found = staged_by_jvm(broker, rows, None)
    expected = staged_by_python(broker, rows, None, tmp_path / "all.arrow", *every)
    assert found == expected
    assert max(len(of_partition) for of_partition in found.values()) > 1, "batches are cut"
    of_one = staged_by_jvm(broker, rows, topics[0])
    assert of_one == staged_by_python(broker, rows, topics[0], tmp_path / "one.arrow", topics[0])
    assert len(of_one) == 5


def test_records_without_a_key_fill_one_partition_after_another(
    spark: SparkSession, broker: Kafkalake, tmp_path: Path
) -> None:
    topic = topic_name("sticky")
    create_topic(broker, topic, partitions=3)
    rows = spark.range(5_000).selectExpr("REPEAT('x', 1000) AS value", "TIMESTAMP_MILLIS(id) AS timestamp")
    found = staged_by_jvm(broker, rows, topic)
    assert found == staged_by_python(broker, rows, topic, tmp_path / "sticky.arrow", topic)
    assert sorted(found) == [(0, 0), (0, 1), (0, 2)]
    assert max(len(message) for of_partition in found.values() for message in of_partition) < BATCH_BYTES * 1.2
