"""Tables over topics: a statement does to the topic what it says, or it is refused; in Delta's session catalogue and Spark's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from kafka_reference import Kafkalake, create_topic, topic_name
from pyspark.sql import SparkSession
from written_lake import WrittenLake

from kafkalake.dataset import topic_dataset
from kafkalake.jobs.error_sentence import one_line_message


@pytest.fixture(scope="module", params=["delta", "builtin"])
def sql(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession:
    """A session with this catalogue; tables are shared by all sessions."""
    session = spark.newSession()
    if request.param == "builtin":
        session.conf.set("spark.sql.catalog.spark_catalog", "builtin")
    return session


@pytest.fixture
def clicks(broker: Kafkalake, sql: SparkSession) -> Iterator[str]:
    """The name of a topic, and of no table yet."""
    name = topic_name("clicks").replace("-", "_")
    create_topic(broker, name)
    yield name
    sql.sql(f"DROP TABLE IF EXISTS {name}")


def values(broker: Kafkalake, topic: str, count: int) -> list[bytes | None]:
    """What a Kafka client reads."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), 1.0):
            assert message.error() is None
            found.append(message.value())
    consumer.close()
    return found


def using(broker: Kafkalake, topic: str, more: str = "") -> str:
    return f"USING kafkalake OPTIONS (lake '{broker.lake}', subscribe '{topic}'{more})"


def refused(sql: SparkSession, statement: str) -> str:
    with pytest.raises(Exception) as error:
        sql.sql(statement).collect()
    return one_line_message(error.value)


def test_what_is_inserted_into_fields_is_in_the_value(sql: SparkSession, broker: Kafkalake, clicks: str) -> None:
    fields = ", valueSchema 'a INT, b STRING, t TIMESTAMP'"
    sql.sql(f"CREATE TABLE {clicks} {using(broker, clicks, fields)}")
    sql.sql(f"INSERT INTO {clicks} (a, b, t) VALUES (1, 'x', TIMESTAMP '2024-05-01 12:00:00.5Z')")
    sql.sql(f"INSERT INTO {clicks} (key, value) VALUES (CAST('k' AS BINARY), CAST('no JSON' AS BINARY))")
    sql.sql(f"INSERT INTO {clicks} (key) VALUES (CAST('k' AS BINARY))")  # a tombstone, and meant as one
    sql.sql(f"INSERT INTO {clicks} SELECT * FROM {clicks} WHERE a = 1")
    assert "column a is 2, where the value has 1" in refused(
        sql, f"INSERT INTO {clicks} (value, a) VALUES (CAST('{{\"a\": 1}}' AS BINARY), 2)"
    )
    json = b'{"a":1,"b":"x","t":"2024-05-01T12:00:00.500000Z"}'
    assert values(broker, clicks, 4) == [json, b"no JSON", None, json]
    found = sql.sql(f"SELECT a, b, unix_millis(t), value IS NULL FROM {clicks} ORDER BY offset").collect()
    moment = 1_714_564_800_500
    assert [tuple(row) for row in found] == [
        (1, "x", moment, False),
        (None, None, None, False),
        (None, None, None, True),
        (1, "x", moment, False),
    ]


def test_statements_that_would_not_reach_the_topic_are_refused(
    sql: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    sql.sql(f"CREATE TABLE {clicks} (key STRING, value STRING) {using(broker, clicks)} TBLPROPERTIES ('team' = 'data')")
    sql.sql(f"INSERT INTO {clicks} VALUES ('k', 'v')")
    assert refused(sql, f"TRUNCATE TABLE {clicks}").startswith(
        "TRUNCATE TABLE does not reach a topic: kafkalake topics"
    )
    for change in (
        "SET TBLPROPERTIES ('retention.ms' = '1000')",
        "UNSET TBLPROPERTIES ('team')",
        "SET LOCATION '/tmp/elsewhere'",
    ):
        assert refused(sql, f"ALTER TABLE {clicks} {change}").startswith(
            "ALTER TABLE changes the catalogue's entry and"
        )
    assert refused(sql, f"ALTER TABLE {clicks} ADD COLUMNS (c INT)")
    rows = sql.sql("SELECT 'k' AS key, 'v' AS value")
    write = rows.write.format("kafkalake").option("lake", str(broker.lake)).option("topic", clicks)
    for create in (
        lambda: sql.sql(f"CREATE TABLE {clicks}_new {using(broker, clicks)} AS SELECT 'k' AS key, 'v' AS value"),
        lambda: write.mode("append").saveAsTable(f"{clicks}_new"),
        lambda: rows.writeTo(f"{clicks}_new").using("kafkalake").option("topic", clicks).create(),
        lambda: rows.writeTo(clicks).using("kafkalake").option("topic", clicks).createOrReplace(),
    ):
        with pytest.raises(Exception) as error:
            create()
        assert one_line_message(error.value).startswith("a topic and a table over it are not made by writing rows")
    assert not sql.catalog.tableExists(f"{clicks}_new")
    assert topic_dataset(str(broker.lake), clicks).count_rows() == 1
    assert [tuple(row) for row in sql.table(clicks).collect()] == [("k", "v")]
    assert {"key": "team", "value": "data"} in [
        row.asDict() for row in sql.sql(f"SHOW TBLPROPERTIES {clicks}").collect()
    ]
    rows.write.insertInto(clicks)
    assert sql.table(clicks).count() == 2
    # Other tables are Spark's own matter.
    sql.sql(f"CREATE TABLE {clicks}_other USING parquet AS SELECT 1 AS a")
    sql.sql(f"ALTER TABLE {clicks}_other SET TBLPROPERTIES ('a' = 'b')")
    sql.sql(f"TRUNCATE TABLE {clicks}_other")
    sql.sql(f"DROP TABLE {clicks}_other")


def test_a_table_is_made_again_from_what_show_create_table_says(
    sql: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    more = ", valueSchema 'a INT', includeHeaders 'false'"
    sql.sql(f"CREATE TABLE {clicks} {using(broker, clicks, more)} TBLPROPERTIES ('team' = 'data')")
    sql.sql(f"INSERT INTO {clicks} (a) VALUES (1)")
    shown = sql.sql(f"SHOW CREATE TABLE {clicks}").first()[0]
    rows = sql.table(clicks).collect()
    described = {row.col_name: row.data_type for row in sql.sql(f"DESCRIBE EXTENDED {clicks}").collect()}
    assert (described["Type"], described["Provider"]) == ("EXTERNAL", "kafkalake"), "DROP TABLE leaves the topic"
    sql.sql(f"DROP TABLE {clicks}")
    sql.sql(shown)
    assert sql.table(clicks).collect() == rows
    assert len(rows) == 1
    assert sql.sql(f"SHOW CREATE TABLE {clicks}").first()[0] == shown


def test_a_table_that_names_a_topic_to_write_to_is_read_as_well(
    sql: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    sql.sql(
        f"CREATE TABLE {clicks} (key STRING, value STRING) USING kafkalake OPTIONS (lake '{broker.lake}', topic '{clicks}')"
    )
    sql.sql(f"INSERT INTO {clicks} VALUES ('k', 'v')")
    assert [tuple(row) for row in sql.table(clicks).collect()] == [("k", "v")]


def test_times_without_a_zone_are_those_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks")
    midnight_ms = 1_388_448_000_000  # 2013-12-31 00:00 UTC, 09:00 in Tokyo
    lake.append("clicks", 0, [(midnight_ms + 60_000 * minute, None, b"x", []) for minute in range(-600, 600)])
    lake.publish()
    lake.close()
    tokyo = spark.newSession()
    tokyo.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    reader = tokyo.read.format("kafkalake").option("lake", str(lake.path))
    at_nine = "startingTimestamp '2013-12-31 09:00:00'"
    tokyo.sql(f"CREATE TABLE at_nine USING kafkalake OPTIONS (lake '{lake.path}', subscribe 'clicks', {at_nine})")
    try:
        for start in ("2013-12-31 09:00:00", "2013-12-31T00:00:00Z", str(midnight_ms)):
            assert reader.option("startingTimestamp", start).load("clicks").count() == 600
        assert tokyo.table("at_nine").count() == 600
    finally:
        tokyo.sql("DROP TABLE at_nine")
    as_of = tokyo.read.format("kafkalake").option("lake", str(lake.path))
    utc_now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 3600))
    with pytest.raises(Exception, match=r"no version of .* the oldest is") as error:
        as_of.option("timestampAsOf", utc_now).load("clicks").count()  # eight hours ago, in Tokyo
    assert "after the latest version" not in str(error.value)
    with pytest.raises(Exception) as error:
        as_of.option("timestampAsOf", "2130-01-01").load("clicks").count()
    assert "after the latest version of" in one_line_message(error.value)
    text = tokyo.sql("SELECT date_format(current_timestamp(), 'yyyy-MM-dd HH:mm:ss.SSSSSS')").first()[0]
    assert as_of.option("timestampAsOf", text).load("clicks").count() == 1200
