"""Queries that go on while the schema, the format or the key of their topic is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_reference import Kafkalake
from lake_catalog import Statement
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StreamingQuery
from waiting import wait_until

from kafkalake.errors import LakeError
from kafkalake.reader.read_options import TYPED_NOTE
from kafkalake.spark.planner.writes import write_commit
from kafkalake.storage.staging import ASKED_FILE, staging_path


def test_values_with_fields_that_were_added_meanwhile_are_read(
    sql: Statement, session: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    table = f"lake.{clicks}"
    sql(f"CREATE TABLE {table} (user STRING, ms BIGINT) TBLPROPERTIES ('value.format' = 'avro')")
    sql(f"INSERT INTO {table} VALUES ('ann', 1)")
    frame = session.table(table).select("user", "ms")
    reader = session.readStream.option("startingOffsets", "earliest")
    queries = [
        stream.select("user", "ms")
        .writeStream.format("memory")
        .queryName(name)
        .trigger(processingTime="0.3 seconds")
        .start()
        for name, stream in (("seen", reader.table(table)), ("changed", session.readStream.changes(table)))
    ]
    try:
        queries[0].processAllAvailable()
        sql(f"ALTER TABLE {table} ADD COLUMN (more STRING)")
        sql(f"INSERT INTO {table} VALUES ('bob', 2, 'new')")
        queries[0].processAllAvailable()
        both = [Row(user="ann", ms=1), Row(user="bob", ms=2)]
        assert sorted(sql("SELECT * FROM seen")) == both
        # Changes are those of versions, so they come once these are published.
        wait_until(lambda: len(sql("SELECT * FROM changed")) > 1, lambda: f"{queries[1].lastProgress}")
        assert sorted(sql("SELECT * FROM changed")) == both
        assert sorted(frame.where("ms > 0").collect()) == both
        sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('value.schema' = 'user STRING')")
        said = f"field ms of topic {clicks} was changed since this query was made"
        sql(f"INSERT INTO {table} VALUES ('cid')")
        with pytest.raises(PySparkException, match=said):
            queries[0].processAllAvailable()
        with pytest.raises(PySparkException, match=said):
            frame.where("ms > 1").collect()
    finally:
        for query in queries:
            query.stop()


def test_a_stream_writes_nothing_in_a_format_or_with_a_key_that_its_topic_had_before(
    sql: Statement, session: SparkSession, broker: Kafkalake, clicks: str, tmp_path: Path
) -> None:
    source, target = f"lake.{clicks}", f"lake.{clicks}_copy"
    sql(f"CREATE TABLE {source} (user STRING, ms BIGINT)")
    sql(f"CREATE TABLE {target} (user STRING, ms BIGINT) TBLPROPERTIES ('key' = 'user')")

    def start() -> StreamingQuery:
        stream = session.readStream.option("startingOffsets", "earliest").table(source)
        return stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable(target)

    sql(f"INSERT INTO {source} VALUES ('ann', 1)")
    query = start()
    try:
        query.processAllAvailable()
        sql(f"ALTER TABLE {target} ADD COLUMN (more STRING)")
        sql(f"INSERT INTO {source} VALUES ('bob', 2)")
        query.processAllAvailable()
        sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('key' = 'ms')")
        sql(f"INSERT INTO {source} VALUES ('cid', 3)")
        with pytest.raises(PySparkException, match=f"key of topic {clicks}_copy was changed since this query was made"):
            query.processAllAvailable()
        query = start()
        query.processAllAvailable()
    finally:
        query.stop()
    found = sql(f"SELECT user, CAST(_key AS STRING) AS key FROM {target} ORDER BY ms")
    assert found == [Row(user="ann", key="ann"), Row(user="bob", key="bob"), Row(user="cid", key="3")]
    stream = session.readStream.table(source)
    query = stream.writeStream.format("memory").queryName("of_json").start()
    try:
        query.processAllAvailable()
        sql(f"ALTER TABLE {source} SET TBLPROPERTIES ('value.format' = 'avro')")
        sql(f"INSERT INTO {source} VALUES ('dan', 4)")
        with pytest.raises(PySparkException, match=f"value.format of topic {clicks} was changed since this query was"):
            query.processAllAvailable()
    finally:
        query.stop()
    question = {
        "options": {
            "lake": str(broker.lake),
            "topic": clicks,
            TYPED_NOTE: '{"value.schema": "user STRING, ms BIGINT"}',
        },
        "directory": "job-0",
    }
    (staging_path(broker.lake) / "job-0").mkdir(parents=True)
    with pytest.raises(LakeError, match=f"value.format of topic {clicks} was changed"):
        write_commit(question)
    (staging_path(broker.lake) / "job-0" / ASKED_FILE).touch()
    with pytest.raises(KeyError, match="cluster_id"):  # it goes on: the broker may have appended the records
        write_commit(question)
