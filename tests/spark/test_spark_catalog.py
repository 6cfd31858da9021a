"""A lake as a catalogue of Spark: each statement does to the topic what it says, or it is refused in one sentence."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka_reference import Kafkalake
from lake_catalog import Statement, refused, statements, with_catalog
from planning_process import kill_planner
from pyspark.sql import Row, SparkSession
from waiting import wait_until

from kafkalake.errors import LakeError
from kafkalake.spark.planner.process import IS_WITHDRAWN
from kafkalake.spark.planner.statements import delete_records
from kafkalake.spark.planner.tables import id_of
from kafkalake.spark.planner.tombstones import delete_keys


def read(
    broker: Kafkalake, topic: str, partitions: int, count: int, by: Callable[[object], Any] | None = None
) -> list[tuple[bytes | None, bytes | None]]:
    """What a Kafka client reads, sorted."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[tuple[bytes | None, bytes | None]] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += [(message.key(), message.value()) for message in consumer.consume(count - len(found), 1.0)]
    consumer.close()
    return sorted(found, key=by)


def setting(broker: Kafkalake, topic: str, name: str) -> str:
    """What a Kafka client is told."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return str(admin.describe_configs([resource])[resource].result(30)[name].value)


def partitions(broker: Kafkalake, topic: str) -> int:
    found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30).topics
    return len(found[topic].partitions) if topic in found else 0


def test_a_table_is_made_as_a_topic_and_altered_and_dropped_as_one(
    sql: Statement, broker: Kafkalake, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('partitions' = '3', 'retention.ms' = '3600000')")
    assert (partitions(broker, clicks), setting(broker, clicks, "retention.ms")) == (3, "3600000")
    sql(f"ALTER TABLE lake.{clicks} SET TBLPROPERTIES ('partitions' = '4', 'retention.ms' = '7200000')")
    assert (partitions(broker, clicks), setting(broker, clicks, "retention.ms")) == (4, "7200000")
    sql(f"ALTER TABLE lake.default.{clicks} UNSET TBLPROPERTIES ('retention.ms')")
    assert setting(broker, clicks, "retention.ms") == "604800000"
    shown = {row.key: row.value for row in sql(f"SHOW TBLPROPERTIES lake.{clicks}")}
    assert (shown["partitions"], shown["replication"]) == ("4", "1")
    described = {row.col_name: row.data_type for row in sql(f"DESCRIBE EXTENDED lake.{clicks}")}
    assert (described["key"], described["offset"], described["Provider"]) == ("binary", "bigint", "kafkalake")
    sql(f"DROP TABLE lake.{clicks}")
    assert partitions(broker, clicks) == 0
    assert "cannot be found" in refused(sql, f"DROP TABLE lake.{clicks}")
    sql(f"DROP TABLE IF EXISTS lake.{clicks}")


def test_topics_are_listed_in_one_namespace_with_and_without_its_name(
    sql: Statement, session: SparkSession, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks} (key BINARY, value BINARY)")
    for where in ("lake", "lake.default"):
        assert ("default", clicks) in [(row.namespace, row.tableName) for row in sql(f"SHOW TABLES IN {where}")]
    assert clicks in [table.name for table in session.catalog.listTables("lake")]
    assert clicks in [table.name for table in session.catalog.listTables("lake.default")]
    assert not [row for row in sql("SHOW TABLES IN lake") if row.tableName.startswith("__")]
    assert sql(f"SELECT count(*) AS n FROM lake.default.{clicks}")[0].n == 0
    assert "already exists" in refused(sql, f"CREATE TABLE lake.{clicks} (key BINARY, value BINARY)")
    assert "cannot be changed" in refused(sql, "CREATE NAMESPACE lake.other")
    assert "SCHEMA_ALREADY_EXISTS" in refused(sql, "CREATE NAMESPACE lake.default")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql(f"SELECT * FROM lake.other.{clicks}")


def test_tables_are_shown_as_spark_itself_shows_them(sql: Statement, session: SparkSession, clicks: str) -> None:
    """The rows are the jar's. Spark's own node, which the plan names, makes its rows anew; spark-sql prints their names."""
    odd = f"{clicks}-odd"
    sql(f"CREATE TABLE lake.`{odd}`")
    print_rows = session._jvm.org.apache.spark.sql.execution.HiveResult.hiveResultString
    for where in ("lake", "lake.default LIKE '*-odd'", "lake.system", f"lake.`{odd}` LIKE 'l*'", "lake LIKE 'nothing'"):
        shown = session.sql(f"SHOW TABLES IN {where}")
        plan = shown._jdf.queryExecution().executedPlan()
        own = [
            (row.getUTF8String(0).toString(), row.getUTF8String(1).toString(), row.getBoolean(2))
            for row in plan.commandPhysicalPlan().executeCollect()
        ]
        rows = [(row.namespace, row.tableName, row.isTemporary) for row in shown.collect()]
        assert rows == own
        assert [plan.rows().apply(number).getClass().getSimpleName() for number in range(len(rows))] == [
            "GenericInternalRow" for _ in rows
        ]
        assert bool(rows) == ("nothing" not in where)
        printed = print_rows(plan)
        assert [printed.apply(number) for number in range(printed.size())] == [row[1] for row in rows]
        assert plan.commandPhysicalPlan().getClass().getSimpleName() == "ShowTablesExec"
    assert session.sql(f"SHOW TABLES IN lake LIKE '{odd}'").where("isTemporary = false").count() == 1


def test_rows_inserted_are_records_of_one_transaction_and_a_query_sees_them_at_once(
    sql: Statement, broker: Kafkalake, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('partitions' = '3')")
    sql(
        f"INSERT INTO lake.{clicks} (key, value) SELECT CAST(CAST(id AS STRING) AS BINARY), CAST('v' AS BINARY) FROM range(100)"
    )
    assert sql(f"SELECT count(*) AS n, count(DISTINCT partition) AS p FROM lake.{clicks}") == [Row(n=100, p=3)]
    assert read(broker, clicks, 3, 100) == sorted((str(number).encode(), b"v") for number in range(100))


def test_a_table_made_of_a_query_is_there_whole_or_not_at_all(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    rows = "SELECT CAST(id AS STRING) AS key, {} AS value FROM range(100)"
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('partitions' = '2') AS {rows.format('CAST(2 * id AS STRING)')}")
    assert read(broker, clicks, 2, 100) == sorted((b"%d" % number, b"%d" % (2 * number)) for number in range(100))
    failing = rows.format("CAST(raise_error('no') AS STRING)")
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        sql(f"CREATE TABLE lake.{clicks}_failed AS {failing}")
    assert partitions(broker, f"{clicks}_failed") == 0
    sql(f"CREATE TABLE lake.{clicks}_failed AS {rows.format('CAST(id AS STRING)')}")  # the same name again
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks}_failed")[0].n == 100


def test_a_table_is_made_nothing_again_also_by_a_thread_that_was_interrupted(
    session: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    jvm, gateway = session._jvm, session.sparkContext._gateway
    assert jvm is not None and gateway is not None
    of_spark = jvm.org.apache.spark.sql.connector.catalog
    catalog = session._jsparkSession.sessionState().catalogManager().catalog("lake")
    name = of_spark.Identifier.of(gateway.new_array(jvm.java.lang.String, 0), clicks)
    columns = gateway.new_array(of_spark.Column, 0)
    info = getattr(of_spark, "TableInfo$Builder")().withColumns(columns).withProperties(jvm.java.util.HashMap()).build()
    staged = catalog.stageCreate(name, info)
    assert partitions(broker, clicks) == 1
    jvm.java.lang.Thread.currentThread().interrupt()
    try:
        staged.abortStagedChanges()
    finally:
        assert jvm.java.lang.Thread.interrupted()
    assert partitions(broker, clicks) == 0


def test_a_topic_is_never_replaced(sql: Statement, clicks: str) -> None:
    row = "SELECT CAST('k' AS BINARY) AS key, CAST('v' AS BINARY) AS value"
    sql(f"CREATE OR REPLACE TABLE lake.{clicks} AS {row}")  # there is none yet
    for statement in ("CREATE OR REPLACE TABLE", "REPLACE TABLE"):
        assert refused(sql, f"{statement} lake.{clicks} AS {row}").startswith("a topic is not replaced")
        assert refused(sql, f"{statement} lake.{clicks} (key BINARY)").startswith("a topic is not replaced")
    assert "overwritten" in refused(sql, f"INSERT OVERWRITE lake.{clicks} (key, value) {row}")
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 1


def test_what_a_topic_cannot_be_is_refused(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    name = f"lake.{clicks}"
    assert "partitions" in refused(sql, f"CREATE TABLE {name} TBLPROPERTIES ('partitions' = 'many')")
    assert "retentoin.ms" in refused(sql, f"CREATE TABLE {name} TBLPROPERTIES ('retentoin.ms' = '1')")
    assert "column key cannot be" in refused(sql, f"CREATE TABLE {name} (key INT)")
    assert "not partitioned by columns" in refused(sql, f"CREATE TABLE {name} (key BINARY) PARTITIONED BY (key)")
    assert partitions(broker, clicks) == 0
    assert "cannot be one of parquet" in refused(sql, f"CREATE TABLE {name} (key BINARY) USING parquet")
    assert "cannot be EXTERNAL" in refused(sql, f"CREATE EXTERNAL TABLE {name} (key BINARY)")
    assert "no location" in refused(sql, f"CREATE TABLE {name} (key BINARY) LOCATION '/tmp/elsewhere'")
    assert "no comment" in refused(sql, f"CREATE TABLE {name} (key BINARY) COMMENT 'clicks'")
    assert partitions(broker, clicks) == 0
    sql(f"CREATE TABLE {name} USING kafkalake")
    assert "no comment" in refused(sql, f"COMMENT ON TABLE {name} IS 'clicks'")
    refused(sql, f"ALTER TABLE {name} SET TBLPROPERTIES ('retention.ms' = '5', 'partitions' = '20000')")
    assert setting(broker, clicks, "retention.ms") != "5", "all of a statement or none"
    for internal in ("__consumer_offsets", "__transaction_state"):
        assert "broker's own" in refused(sql, f"TRUNCATE TABLE lake.{internal}")
        assert "broker's own" in refused(sql, f"DROP TABLE lake.{internal}")
    assert "not altered" in refused(sql, f"ALTER TABLE {name} ADD COLUMNS (a INT)")
    assert "topic.id" in refused(sql, f"ALTER TABLE {name} SET TBLPROPERTIES ('topic.id' = 'x')")
    assert "cannot be renamed" in refused(sql, f"ALTER TABLE {name} RENAME TO default.{clicks}_2")


def test_the_versions_of_a_table(sql: Statement, session: SparkSession, clicks: str) -> None:
    before = sql("SELECT current_timestamp() AS t")[0].t
    sql(f"CREATE TABLE lake.{clicks}")
    insert = f"INSERT INTO lake.{clicks} (key, value) VALUES (CAST('k' AS BINARY), CAST('v' AS BINARY))"

    def version() -> int | None:
        """Return the newest version in which the topic grew."""
        found: int | None = sql(f"SELECT max(version) AS v FROM lake.{clicks}.history WHERE offsets > 0")[0].v
        return found

    def count(of: str) -> int:
        return int(sql(f"SELECT count(*) AS n FROM lake.{clicks} {of}")[0].n)

    sql(insert)
    wait_until(lambda: version() is not None and count(f"VERSION AS OF {version()}") == 1, version)
    published = version()
    time_then = sql("SELECT current_timestamp() AS t")[0].t
    sql(insert)
    assert count("") == 2
    assert count(f"VERSION AS OF {published}") == 1
    assert count(f"TIMESTAMP AS OF '{time_then}'") == 1
    assert session.read.option("versionAsOf", published).table(f"lake.{clicks}").count() == 1
    assert "after the latest version" in refused(sql, f"SELECT * FROM lake.{clicks} TIMESTAMP AS OF '2100-01-01'")
    beyond = refused(sql, f"SELECT * FROM lake.{clicks} VERSION AS OF 1000000")
    assert "cannot be read: the newest is " in beyond and "ernel" not in beyond
    for options in (f"WITH (versionAsOf = {published})", f"WITH (timestampAsOf = '{time_then}')"):
        assert count(options) == 1
    assert "whole number" in refused(sql, f"SELECT * FROM lake.{clicks} VERSION AS OF 'main'")
    for then, when in (("VERSION AS OF 0", "in version 0"), (f"TIMESTAMP AS OF '{before}'", "at the time asked for")):
        sentence = refused(sql, f"SELECT * FROM lake.{clicks} {then}")
        assert sentence.startswith(f"topic {clicks} was not there {when}: it was created at 20"), sentence
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql(f"SELECT * FROM lake.{clicks}_2 VERSION AS OF 0")


def test_records_are_deleted_from_the_beginning_of_partitions_on(sql: Statement, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('partitions' = '2')")
    insert = (
        f"INSERT INTO lake.{clicks} (partition, value) SELECT CAST(id % 2 AS INT), CAST('v' AS BINARY) FROM range(20)"
    )
    sql(insert)

    def offsets() -> list[list[int]]:
        rows = sql(f"SELECT partition, offset FROM lake.{clicks} ORDER BY partition, offset")
        return [[row.offset for row in rows if row.partition == number] for number in range(2)]

    sql(f"DELETE FROM lake.{clicks} WHERE partition = 1 AND offset < 4")
    assert offsets() == [[*range(10)], [*range(4, 10)]]
    sql(f"DELETE FROM lake.{clicks} WHERE offset <= 5")
    assert offsets() == [[*range(6, 10)]] * 2
    assert "Cannot delete" in refused(sql, f"DELETE FROM lake.{clicks} WHERE offset > 7")
    assert "Cannot delete" in refused(sql, f"DELETE FROM lake.{clicks} WHERE offset < 8 OR partition = 0")
    assert offsets() == [[*range(6, 10)]] * 2
    sql(f"DELETE FROM lake.{clicks} WHERE partition = 0 AND offset < 1000000")  # past its end
    assert offsets() == [[], [*range(6, 10)]]
    for nothing in ("partition = 5", "partition = 5 AND offset < 10", "offset < -1", "offset <= -2", "offset < 0"):
        sql(f"DELETE FROM lake.{clicks} WHERE {nothing}")
        assert offsets() == [[], [*range(6, 10)]], nothing
    sql(f"DELETE FROM lake.{clicks} WHERE offset <= 9223372036854775807 AND partition = 1")
    assert offsets() == [[], []]
    sql(f"TRUNCATE TABLE lake.{clicks}")
    sql(insert)
    assert offsets() == [[*range(11, 21)]] * 2  # behind the marker of the first transaction
    sql(f"TRUNCATE TABLE lake.{clicks}")
    assert offsets() == [[], []]


def test_keys_of_a_compacted_topic_are_deleted_by_tombstones(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('partitions' = '3', 'cleanup.policy' = 'compact')")
    rows = "SELECT CAST(CONCAT('k', id) AS BINARY) AS key, CAST('v' AS BINARY) AS value FROM range(20)"
    sql(f"INSERT INTO lake.{clicks} (key, value) {rows}")
    # Where Kafka's partitioner does not put it.
    sql(
        f"INSERT INTO lake.{clicks} (key, value, partition) "
        f"SELECT key, value, pmod(partition + 1, 3) FROM lake.{clicks} WHERE key = X'6b37'"
    )
    for condition in (
        "key = X'6b31'",
        "key IN (X'6b32', X'6b33', X'616273656e74')",
        "key = 'k4' OR key = X'6b35'",
        "key = X'6b37'",
    ):
        sql(f"DELETE FROM lake.{clicks} WHERE {condition}")
    withdrawn = {
        "lake": str(broker.lake),
        "topic": clicks,
        "topic_id": id_of(str(broker.lake), clicks),
        "keys": [b"k8".hex()],
        IS_WITHDRAWN: lambda: True,
    }
    for deletion in (delete_keys, lambda question: delete_records({**question, "partitions": None, "before": None})):
        with pytest.raises(LakeError, match="the statement was cancelled"):
            deletion(withdrawn)
    written = [(key, value) for key, value in read(broker, clicks, 3, 28, str) if value is None]
    assert written == [(b"k%d" % number, None) for number in (1, 2, 3, 4, 5, 7, 7)]
    placed = sql(
        f"SELECT key, partition, count(*) AS n, count(value) AS v FROM lake.{clicks} WHERE key = X'6b37' GROUP BY ALL"
    )
    assert [(row.n, row.v) for row in placed] == [(2, 1), (2, 1)]
    for column in ("key", "value"):
        said = refused(sql, f"DELETE FROM lake.{clicks} WHERE {column} IN (X'6b36', NULL)")
        assert "NULL equals no key and no value: leave it out of the list" in said
    for condition in ("value = X'76'", "key > X'6b31'", "key = X'6b31' AND partition = 0", "NOT key = X'6b31'"):
        assert "Cannot delete" in refused(sql, f"DELETE FROM lake.{clicks} WHERE {condition}"), condition
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 28
    sql(f"ALTER TABLE lake.{clicks} SET TBLPROPERTIES ('cleanup.policy' = 'delete')")
    assert "is not compacted" in refused(sql, f"DELETE FROM lake.{clicks} WHERE key = X'6b31'")
    assert "UPDATE TABLE" in refused(sql, f"UPDATE lake.{clicks} SET value = X'00' WHERE key = X'6b31'")


def test_a_plan_says_what_is_read_and_joins_know_sizes(sql: Statement, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks} AS SELECT CAST(id AS STRING) AS key, 'v' AS value FROM range(100)")

    def plan(query: str) -> str:
        return str(sql(f"EXPLAIN {query}")[0].plan)

    narrowed = plan(f"SELECT offset FROM lake.{clicks} WHERE offset > 5 AND partition = 0")
    assert f"BatchScan lake.{clicks}[" in narrowed
    assert "1 of 1 segments, pushed: " in narrowed
    assert "offset > 5" in narrowed
    either = f"SELECT count(*) AS n FROM lake.{clicks} WHERE offset = 5 OR offset = 7"
    assert "pushed" in plan(either)
    assert sql(either)[0].n == 2
    assert "pushed" not in plan(f"SELECT offset FROM lake.{clicks} WHERE offset % 2 = 0")
    assert "BroadcastHashJoin" in plan(f"SELECT * FROM lake.{clicks} a JOIN lake.{clicks} b ON a.key = b.key")
    ends = f"(SELECT partition, max(offset) AS e, count(*) AS n FROM lake.{clicks} GROUP BY partition)"
    joined = plan(f"SELECT * FROM {ends} a JOIN {ends} b USING (partition)")
    assert "aggregates: " in joined and "BroadcastHashJoin" in joined


def test_dropping_can_be_forbidden_and_a_wrong_setting_is_named(
    spark: SparkSession, broker: Kafkalake, sql: Statement, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks}")
    kept = statements(with_catalog(spark, broker.lake, "kept", drop="forbidden"))
    assert "spark.sql.catalog.kept.drop is forbidden" in refused(kept, f"DROP TABLE kept.{clicks}")
    assert partitions(broker, clicks) == 1
    late = statements(with_catalog(spark, broker.lake, "late", **{"procedure.timeout": "soon"}))
    with pytest.raises(Exception, match="soon"):
        late("SHOW TABLES IN late")
    odd = statements(with_catalog(spark, broker.lake, "odd", drop="never"))
    with pytest.raises(Exception, match="allowed and forbidden are possible"):
        odd("SHOW TABLES IN odd")
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.nowhere", "io.kafkalake.spark.LakeCatalog")
    with pytest.raises(Exception, match=r"spark\.sql\.catalog\.nowhere\.path is missing"):
        session.sql("SHOW TABLES IN nowhere")


def test_a_protected_topic_is_deleted_by_nobody_until_it_is_protected_no_more(
    sql: Statement, broker: Kafkalake, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('delete.protected' = 'true')")
    sql(f"INSERT INTO lake.{clicks} (value) VALUES ('a'), ('b')")
    name = f"lake.{clicks}"
    for statement in (
        f"DROP TABLE {name}",
        f"DROP TABLE {name} PURGE",
        f"TRUNCATE TABLE {name}",
        f"DELETE FROM {name} WHERE offset < 1",
    ):
        assert "has delete.protected=true" in refused(sql, statement)
    assert sql(f"SELECT count(*) AS n FROM {name}")[0].n == 2
    assert setting(broker, clicks, "file.delete.delay.ms") == "60000"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with pytest.raises(confluent_kafka.KafkaException, match="POLICY_VIOLATION"):
        admin.delete_topics([clicks])[clicks].result(30)
    first = confluent_kafka.TopicPartition(clicks, 0, 1)
    with pytest.raises(confluent_kafka.KafkaException, match="POLICY_VIOLATION"):
        admin.delete_records([first])[first].result(30)
    assert partitions(broker, clicks) == 1
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        sql(
            f"CREATE TABLE lake.{clicks}_2 TBLPROPERTIES ('delete.protected' = 'true') "
            "AS SELECT CAST(raise_error('no') AS STRING) AS key, 'v' AS value FROM range(1)"
        )
    assert partitions(broker, f"{clicks}_2") == 0
    sql(f"ALTER TABLE lake.{clicks} UNSET TBLPROPERTIES ('delete.protected')")
    assert list((broker.lake / "logs" / "0").glob(f"*{clicks}-0*"))
    sql(f"DROP TABLE lake.{clicks} PURGE")
    wait_until(lambda: not list((broker.lake / "logs" / "0").glob(f"*{clicks}-0*")), lambda: "the files are there")


def test_a_lake_is_read_without_its_broker_and_what_needs_one_says_so(spark: SparkSession, clicks: str) -> None:
    with Kafkalake() as broker:
        run = statements(with_catalog(spark, broker.lake))
        run(f"CREATE TABLE lake.{clicks} AS SELECT CAST(id AS STRING) AS key, 'v' AS value FROM range(100)")
        broker.kill()
        assert run(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 100
        assert [row.tableName for row in run("SHOW TABLES IN lake")] == [clicks]
        for statement in (
            f"CREATE TABLE lake.{clicks}_2",
            f"DROP TABLE lake.{clicks}",
            f"TRUNCATE TABLE lake.{clicks}",
        ):
            assert "kafkalake broker start --lake" in refused(run, statement)


def test_a_planning_process_that_was_killed_is_started_again(sql: Statement, spark: SparkSession, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks} AS SELECT CAST(id AS STRING) AS key, 'v' AS value FROM range(100)")
    for _ in range(2):
        kill_planner(spark)
        wait_until(lambda: sql(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 100)


def test_another_lake_is_never_taken_for_this_one(spark: SparkSession, tmp_path: Path, clicks: str) -> None:
    """A copy names the broker of the original; a lake that was made anew at the same path has other topics."""
    lake, copy = tmp_path / "lake", tmp_path / "copy"
    with Kafkalake(directory=lake) as broker:
        run = statements(with_catalog(spark, broker.lake))
        run(f"CREATE TABLE lake.{clicks} AS SELECT CAST(id AS STRING) AS key, 'v' AS value FROM range(100)")
        shutil.copytree(broker.lake, copy)
        session = spark.newSession()
        session.conf.set("spark.sql.catalog.copied", "io.kafkalake.spark.LakeCatalog")
        session.conf.set("spark.sql.catalog.copied.path", f"file://{copy}")
        copied = statements(session)
        assert copied(f"SELECT count(*) AS n FROM copied.{clicks}")[0].n == 100
        for statement in (f"DROP TABLE copied.{clicks}", f"TRUNCATE TABLE copied.{clicks}"):
            assert "kafkalake broker start --lake" in refused(copied, statement)
        assert run(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 100
        path = broker.lake
    shutil.rmtree(path)
    with Kafkalake(directory=lake) as broker:
        assert broker.lake == path
        assert run("SHOW TABLES IN lake") == []
        run(f"CREATE TABLE lake.{clicks} AS SELECT CAST(id AS STRING) AS key, 'v' AS value FROM range(7)")
        assert run(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 7


def test_a_table_is_its_topic_whatever_options_say(session: SparkSession, sql: Statement, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks}")
    with pytest.raises(Exception, match="option subscribe is not for a table"):
        session.read.option("subscribe", "other").table(f"lake.{clicks}").count()
