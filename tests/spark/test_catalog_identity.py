"""A table of the catalogue is one topic, and not the next one of its name: for data frames, and for interrupted statements."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from kafka_reference import Kafkalake
from lake_catalog import Statement, statements, with_catalog
from planning_process import planner_of
from pyspark.sql import Row, SparkSession
from waiting import wait_until

from kafkalake import Admin
from kafkalake.client.administration.configs import TOPIC_RESOURCE
from kafkalake.errors import BrokerUnavailableError, InvalidConfigError, LakeError
from kafkalake.reader.lake_broker import connect
from kafkalake.spark.planner import tombstones
from kafkalake.spark.planner.process import IS_WITHDRAWN
from kafkalake.spark.planner.statements import delete_records, drop_table, undo_create
from kafkalake.spark.planner.tables import id_of
from kafkalake.storage.staging import staging_path


def setting(lake: Path, topic: str, name: str) -> str | None:
    with connect(lake) as admin:
        entries = admin.describe_configs(TOPIC_RESOURCE, [topic])[topic]
    return next(entry.value for entry in entries if entry.name == name)


def sockets(process: int) -> int:
    def target(name: str) -> str:
        try:
            return os.readlink(f"/proc/{process}/fd/{name}")
        except OSError:
            return ""  # closed since it was listed

    return sum(target(name).startswith("socket:") for name in os.listdir(f"/proc/{process}/fd"))


def table_of(session: SparkSession, topic: str) -> Any:
    """The table as Spark has it once a statement is analyzed."""
    jvm, gateway = session._jvm, session.sparkContext._gateway
    assert jvm is not None and gateway is not None
    identifier = jvm.org.apache.spark.sql.connector.catalog.Identifier.of(gateway.new_array(jvm.String, 0), topic)
    return session._jsparkSession.sessionState().catalogManager().catalog("lake").loadTable(identifier)


def test_a_frame_never_reads_the_next_topic_of_the_name(
    sql: Statement, session: SparkSession, clicks: str, tmp_path: Path
) -> None:
    table = f"lake.{clicks}"
    sql(f"CREATE TABLE {table}")
    sql(f"INSERT INTO {table} (value) VALUES ('1')")
    frame, stream = session.table(table), session.readStream.table(table)
    changes = session.sql(f"SELECT * FROM {table} CHANGES FROM VERSION 0")
    assert frame.count() == 1
    sql(f"DROP TABLE {table}")
    sql(f"CREATE TABLE {table}")
    sql(f"INSERT INTO {table} (value) VALUES ('2')")
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    for old in (
        frame.count,
        frame.select("value").collect,
        changes.collect,
        lambda: query.start().awaitTermination(60),
    ):
        with pytest.raises(Exception, match="was deleted and created again since this data frame was made"):
            old()
    assert session.table(table).count() == 1


def test_a_table_is_dropped_also_where_the_planning_process_dies_over_it(
    sql: Statement, spark: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks}")
    planner = planner_of(spark)
    before = sockets(planner)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as pool:
            dropped = pool.submit(sql, f"DROP TABLE lake.{clicks} PURGE")
            wait_until(lambda: sockets(planner) > before)  # it asks the broker
            os.kill(planner, signal.SIGKILL)
            os.kill(broker.pid, signal.SIGCONT)
            dropped.result(60)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert id_of(str(broker.lake), clicks) is None


def test_a_truncation_over_which_the_planning_process_dies_is_not_repeated_by_itself(
    sql: Statement, spark: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    """A second one would take along what was acknowledged meanwhile. What the first has asked for ends at its offsets."""
    sql(f"CREATE TABLE lake.{clicks}")
    insert = f"INSERT INTO lake.{clicks} (value) SELECT CAST(id AS STRING) FROM RANGE(0, 5, 1, 1)"
    counted = f"SELECT count(*) AS n FROM lake.{clicks}"
    sql(insert)
    for _ in range(2):
        planner = planner_of(spark)
        before = sockets(planner)
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(1) as pool:
                truncated = pool.submit(sql, f"TRUNCATE TABLE lake.{clicks}")
                wait_until(lambda before=before, planner=planner: sockets(planner) > before)  # it asks the broker
                os.kill(planner, signal.SIGKILL)
                with pytest.raises(
                    Exception, match="look whether the statement was carried out before you run it again"
                ):
                    truncated.result(60)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        sql(insert)
        assert sql(counted)[0].n >= 5
    sql(f"TRUNCATE TABLE lake.{clicks}")
    assert sql(counted) == [Row(n=0)]
    sql(insert)
    assert sql(counted) == [Row(n=5)]


def test_an_insert_is_committed_once_also_where_the_planning_process_dies_over_it(
    sql: Statement, spark: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks}")
    rows = f"INSERT INTO lake.{clicks} (key, value) SELECT CAST(id AS STRING), REPEAT('v', 200) FROM RANGE(0, 100000, 1, 2)"
    planner = planner_of(spark)
    staged = staging_path(broker.lake)
    try:
        with ThreadPoolExecutor(1) as pool:
            inserted = pool.submit(sql, rows)
            wait_until(lambda: any(staged.glob("job-*")) or inserted.done())
            before = sockets(planner)
            os.kill(broker.pid, signal.SIGSTOP)
            wait_until(lambda: sockets(planner) > before or inserted.done())  # the commit is asked for
            os.kill(planner, signal.SIGKILL)
            os.kill(broker.pid, signal.SIGCONT)
            inserted.result(60)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    counted = f"SELECT count(*) AS n, count(DISTINCT key) AS k FROM lake.{clicks}"
    assert sql(counted) == [Row(n=100_000, k=100_000)]
    sql(f"INSERT INTO lake.{clicks} (key) VALUES ('next')")
    assert sql(counted) == [Row(n=100_001, k=100_001)]
    assert not any(staged.glob("job-*"))


def test_what_is_undone_is_done_to_no_other_topic_and_a_purge_that_fails_leaves_its_topic_as_it_was(
    sql: Statement, broker: Kafkalake, clicks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('file.delete.delay.ms' = '5000')")
    topic_id = id_of(str(broker.lake), clicks)
    statement = {"lake": str(broker.lake), "topic": clicks, "topic_id": topic_id, "purge": True}

    def fail(admin: Admin, topic_id: UUID) -> None:
        raise BrokerUnavailableError("no answer")

    with monkeypatch.context() as patched, pytest.raises(BrokerUnavailableError, match="no answer"):
        patched.setattr(Admin, "delete_topic", fail)
        drop_table(statement)
    assert setting(broker.lake, clicks, "file.delete.delay.ms") == "5000"
    assert list((broker.lake / "logs" / "0").glob(f"{clicks}-0"))
    sql(f"DROP TABLE lake.{clicks}")
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('delete.protected' = 'true')")
    assert not drop_table(statement)
    assert not undo_create(statement)
    assert setting(broker.lake, clicks, "file.delete.delay.ms") == "60000"
    assert setting(broker.lake, clicks, "delete.protected") == "true"


def test_keys_that_were_found_in_a_topic_are_deleted_from_no_other_of_its_name(
    sql: Statement, broker: Kafkalake, clicks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('cleanup.policy' = 'compact')")
    sql(f"INSERT INTO lake.{clicks} (key, value) VALUES ('ann', '1')")
    find = tombstones._found

    def find_and_make_anew(*asked: Any) -> pa.RecordBatch:
        found = find(*asked)
        sql(f"DROP TABLE lake.{clicks}")
        sql(f"CREATE TABLE lake.{clicks}")
        return found

    monkeypatch.setattr(tombstones, "_found", find_and_make_anew)
    lake = str(broker.lake)
    statement = {"lake": lake, "topic": clicks, "topic_id": id_of(lake, clicks), "keys": [b"ann".hex()]}
    statement[IS_WITHDRAWN] = lambda: False
    with pytest.raises(LakeError, match=f"topic {clicks} was deleted and created again meanwhile"):
        tombstones.delete_keys(statement)
    assert sql(f"SELECT * FROM lake.{clicks}") == []


def test_a_statement_that_was_analyzed_deletes_no_records_of_the_next_topic_of_the_name(
    sql: Statement, session: SparkSession, clicks: str
) -> None:
    compacted = "TBLPROPERTIES ('cleanup.policy' = 'compact,delete')"
    sql(f"CREATE TABLE lake.{clicks} {compacted}")
    table, jvm, gateway = table_of(session, clicks), session._jvm, session.sparkContext._gateway
    assert jvm is not None and gateway is not None
    sql(f"DROP TABLE lake.{clicks}")
    sql(f"CREATE TABLE lake.{clicks} {compacted}")
    sql(f"INSERT INTO lake.{clicks} (key, value) VALUES ('ann', '1')")
    expressions = jvm.org.apache.spark.sql.connector.expressions
    of_key = gateway.new_array(expressions.Expression, 2)
    of_key[0], of_key[1] = (
        expressions.Expressions.column("key"),
        expressions.Expressions.literal(bytearray(b"ann")),
    )
    where = gateway.new_array(expressions.filter.Predicate, 1)
    where[0] = expressions.filter.Predicate("=", of_key)
    for delete in (table.truncateTable, lambda: table.deleteWhere(where)):
        with pytest.raises(Exception, match=f"topic {clicks} was deleted and created again meanwhile"):
            delete()
    assert [bytes(row.key) for row in sql(f"SELECT key FROM lake.{clicks}")] == [b"ann"]
    table_of(session, clicks).truncateTable()
    assert sql(f"SELECT * FROM lake.{clicks}") == []


def test_a_topic_that_is_made_anew_between_two_partitions_of_a_deletion_keeps_its_records(
    sql: Statement, broker: Kafkalake, clicks: str
) -> None:
    lake, rows = str(broker.lake), "SELECT CAST(id % 2 AS INT), 'v' FROM range(20)"

    def make() -> None:
        sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('partitions' = '2')")
        sql(f"INSERT INTO lake.{clicks} (partition, value) {rows}")

    make()
    asked = []

    def make_anew_before_the_second() -> bool:
        asked.append(True)
        if len(asked) == 2:
            sql(f"DROP TABLE lake.{clicks}")
            make()
        return False

    statement = {"lake": lake, "topic": clicks, "topic_id": id_of(lake, clicks), "partitions": None, "before": None}
    with pytest.raises(LakeError, match=f"topic {clicks} was deleted and created again meanwhile"):
        delete_records({**statement, IS_WITHDRAWN: make_anew_before_the_second})
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 20


def test_what_show_create_table_prints_makes_such_a_topic_in_another_lake(
    sql: Statement, spark: SparkSession, clicks: str
) -> None:
    typed = "(user STRING COMMENT 'who', at STRUCT<ms BIGINT>) TBLPROPERTIES ('key' = 'user', 'partitions' = '2')"
    with Kafkalake() as other:
        run = statements(with_catalog(spark, other.lake))
        for number, columns in enumerate(("", "(value STRING)", typed)):
            name = f"lake.{clicks}_{number}"
            sql(f"CREATE TABLE {name} {columns}")
            printed = sql(f"SHOW CREATE TABLE {name}")[0].createtab_stmt
            run(printed)
            assert run(f"SHOW CREATE TABLE {name}")[0].createtab_stmt == printed
            assert run(f"DESCRIBE {name}") == sql(f"DESCRIBE {name}")


def test_columns_that_two_drivers_add_at_once_are_all_there(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks} (user STRING)")
    with connect(broker.lake) as admin:

        def add(fields: str) -> None:
            """What each driver sends, which has seen the first column alone."""
            admin.alter_configs(TOPIC_RESOURCE, clicks, append={"value.schema": fields})

        for fields in ("url STRING", "ms BIGINT COMMENT 'since 1970'", "url STRING"):
            add(fields)
        with pytest.raises(InvalidConfigError, match="column ms is there twice"):
            add("ms STRING")
    assert [row.col_name for row in sql(f"DESCRIBE lake.{clicks}")] == ["user", "url", "ms"]
