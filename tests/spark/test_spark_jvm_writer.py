"""Staged files have two writers: Python's (`staged_rows`) and, for Spark, the jar's (`jvm/.../RowStager.java`). They agree."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from append_door import Door
from examples import examples
from hypothesis import Phase, given
from hypothesis import strategies as st
from kafka_reference import Kafkalake, create_topic, topic_name
from pyspark.sql import DataFrame, SparkSession, functions
from staged_jobs import addresses, describe, targets
from test_spark_json_texts import FIELDS

from kafkalake.client.staged_append import ask_once
from kafkalake.reader.json_texts import with_values
from kafkalake.record.layout import VALUE_COLUMN
from kafkalake.record.message import OK, check_frame
from kafkalake.record.message_set import scan, to_arrow
from kafkalake.record.schema import PREAMBLE
from kafkalake.spark.sink.staged_rows import RowStager, first_partition
from kafkalake.spark.sink.write_target import BATCH_BYTES
from kafkalake.storage.staged_file import StagedReader, StagedWriter
from kafkalake.storage.staging import remove_directory, staging_path

Messages = dict[tuple[int, int], list[bytes]]
"""(number of the topic, partition) -> its messages, in order."""

COLUMNS = """key BINARY, value STRING, topic STRING, partition INT, timestamp TIMESTAMP,
             headers ARRAY<STRUCT<key: STRING, value: BINARY>>, note STRING"""
MOMENT = datetime(2024, 5, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def fields_topic(broker: Kafkalake) -> str:
    """A topic with one partition."""
    name = topic_name("fields")
    create_topic(broker, name, partitions=1)
    return name


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


def staged_by_jvm(broker: Kafkalake, rows: DataFrame, topic: str | None, **options: str) -> tuple[str, Messages]:
    """Write the rows with a broker that does not get the request to append them; the directory and what is staged in it."""
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
    return directory.name, found


def values(found: Messages) -> list[bytes | None]:
    """Return the values of the only partition."""
    ((_, of_partition),) = found.items()
    data = np.frombuffer(b"".join(of_partition), dtype=np.uint8)
    return list(to_arrow(scan(data, 0, len(data)).messages, VALUE_COLUMN).column("value").to_pylist())


def staged_by_python(
    broker: Kafkalake, rows: DataFrame, topic: str | None, directory: str, path: Path, *topics: str
) -> Messages:
    """As the first task of a write with that directory."""
    described = describe(broker, *topics)
    with StagedWriter(str(path)) as writer:
        stager = RowStager(writer, targets(described), topic, described["bytes_max"], first_partition(directory, 0))
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
                randomness.choice((MOMENT, EPOCH)) + timedelta(microseconds=randomness.randrange(-(10**15), 10**15)),
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
    directory, found = staged_by_jvm(broker, rows, None)
    expected = staged_by_python(broker, rows, None, directory, tmp_path / "all.arrow", *every)
    assert found == expected
    assert max(len(of_partition) for of_partition in found.values()) > 1, "batches are cut"
    directory, of_one = staged_by_jvm(broker, rows, topics[0])
    assert of_one == staged_by_python(broker, rows, topics[0], directory, tmp_path / "one.arrow", topics[0])
    assert len(of_one) == 5


def test_records_without_a_key_fill_one_partition_after_another(
    spark: SparkSession, broker: Kafkalake, tmp_path: Path
) -> None:
    topic = topic_name("sticky")
    create_topic(broker, topic, partitions=3)
    rows = spark.range(5_000).selectExpr("REPEAT('x', 1000) AS value", "TIMESTAMP_MILLIS(id) AS timestamp")
    directory, found = staged_by_jvm(broker, rows, topic)
    assert found == staged_by_python(broker, rows, topic, directory, tmp_path / "sticky.arrow", topic)
    assert sorted(found) == [(0, 0), (0, 1), (0, 2)]
    assert max(len(message) for of_partition in found.values() for message in of_partition) < BATCH_BYTES * 1.2


MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(2037, 1, 1))  # later, Arrow knows no summer time
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTS = st.integers(-(2**31), 2**31 - 1)
OF_TYPES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "s": TEXTS,
    "b": st.booleans(),
    "f": st.floats(width=32),
    "d": st.floats(),
    "n": st.decimals(-(10**15), 10**15, places=4),
    "t": MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
    "l": MOMENTS,
    "day": st.dates(date(1, 1, 1)),
    "list": st.lists(st.none() | INTS, max_size=3),
    "map": st.dictionaries(TEXTS, st.none() | st.floats(), max_size=3).map(lambda pairs: list(pairs.items())),
    "struct": st.fixed_dictionaries(
        {"x": st.none() | INTS, "y": st.none() | st.lists(st.none() | st.fixed_dictionaries({"z": st.none() | TEXTS}))}
    ),
}
OF_FIELDS = st.fixed_dictionaries({name: st.none() | of_type for name, of_type in OF_TYPES.items()})


@examples(4, phases=[Phase.generate])  # a smaller example is not worth the time that each write takes
@given(rows=st.lists(OF_FIELDS, min_size=40, max_size=200), zone=st.sampled_from(["UTC", "Europe/Berlin", "-03:30"]))
def test_values_made_of_fields_have_the_text_of_python(
    rows: list[dict[str, Any]], zone: str, spark: SparkSession, broker: Kafkalake, fields_topic: str
) -> None:
    table = pa.Table.from_pylist(rows, schema=FIELDS)
    utc = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame(table).withColumn("l", functions.col("l").cast("TIMESTAMP_NTZ"))
        _, found = staged_by_jvm(broker, frame, fields_topic, valueSchema="any of the columns")
        (batch,) = frame.coalesce(1).toArrow().combine_chunks().to_batches()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(utc))
    # As Spark hands the rows of a task to Python: with times in the session's zone.
    batch = batch.set_column(FIELDS.get_field_index("t"), "t", batch.column("t").cast(pa.timestamp("us", tz=zone)))
    assert batch.schema.field("l").type == pa.timestamp("us")
    expected = with_values(batch, {name: name for name in FIELDS.names}).column("value").to_pylist()
    assert values(found) == expected
