"""Queries that go on while their Avro topic gets fields: values with these are no broken ones to them."""

from __future__ import annotations

import pytest
from kafka_reference import Kafkalake
from lake_catalog import Statement
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from waiting import wait_until


def test_values_with_fields_that_were_added_meanwhile_are_read(
    sql: Statement, session: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    table = f"lake.{clicks}"
    sql(f"CREATE TABLE {table} (user STRING, ms BIGINT) TBLPROPERTIES ('value.format' = 'avro')")
    sql(f"INSERT INTO {table} VALUES ('ann', 1)")
    frame = session.table(table).select("user", "ms")
    reader = session.readStream.option("startingOffsets", "earliest")
    queries = [
        stream.select("user", "ms").writeStream.format("memory").queryName(name).start()
        for name, stream in (("seen", reader.table(table)), ("changed", session.readStream.changes(table)))
    ]
    try:
        queries[0].processAllAvailable()
        sql(f"ALTER TABLE {table} ADD COLUMN (more STRING)")
        sql(f"INSERT INTO {table} VALUES ('bob', 2, 'new')")
        queries[0].processAllAvailable()
        both = [Row(user="ann", ms=1), Row(user="bob", ms=2)]
        assert sql("SELECT * FROM seen ORDER BY ms") == both
        # Changes are those of versions, so they come once these are published.
        wait_until(lambda: len(sql("SELECT * FROM changed")) > 1, lambda: f"{queries[1].lastProgress}")
        assert sql("SELECT * FROM changed ORDER BY ms") == both
        assert frame.orderBy("ms").collect() == both
        sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('value.schema' = 'user STRING')")
        said = f"the schema of topic {clicks} was changed since this query was made, the field ms with it"
        sql(f"INSERT INTO {table} VALUES ('cid')")
        with pytest.raises(PySparkException, match=said):
            queries[0].processAllAvailable()
        with pytest.raises(PySparkException, match=said):
            frame.where("ms > 1").collect()
    finally:
        for query in queries:
            query.stop()
