"""CALL: the jobs of a lake from SQL, by the same functions as `kafkalake jobs run`, with typed rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import confluent_kafka
import pytest
from kafka_reference import Kafkalake
from lake_catalog import Statement, refused, statements, with_catalog
from pyspark.sql import Row, SparkSession
from waiting import wait_until

from kafkalake.clock import SystemClock
from kafkalake.jobs.lock import exclusive_job_lock


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    with Kafkalake(settings={"log.retention.check.interval.ms": "3600000"}) as broker:
        yield broker


def fill(sql: Statement, topic: str, settings: str, inserts: int = 3) -> None:
    """Make a topic of one partition with sealed segments, which Delta knows."""
    sql(f"CREATE TABLE lake.{topic} TBLPROPERTIES ('internal.segment.bytes' = '2000', {settings})")
    for _ in range(inserts):
        sql(
            f"INSERT INTO lake.{topic} (key, value) "
            "SELECT CAST(CAST(id % 10 AS STRING) AS BINARY), CAST('v' AS BINARY) FROM range(500)"
        )
    unsealed = f"SELECT base_offset FROM lake.{topic}.segments WHERE sealed_at IS NULL"
    wait_until(lambda: len(sql(unsealed)) <= 1, lambda: sql(unsealed))


def test_procedures_are_listed_and_described(sql: Statement) -> None:
    names = {row.procedure_name for row in sql("SHOW PROCEDURES IN lake.system")}
    assert names == {"retention", "compact", "lag", "maintenance", "verify", "reset_offsets"}
    described = [row.procedure_desc for row in sql("DESCRIBE PROCEDURE lake.system.retention")]
    assert any(
        "Remove sealed segments" in line and "\n  dry_run BOOLEAN DEFAULT false: say what" in line for line in described
    )
    assert "those of its namespace system are retention, " in refused(sql, "CALL lake.system.retain()")


def test_a_dry_run_changes_nothing_and_the_run_does_what_it_said(sql: Statement, clicks: str) -> None:
    fill(sql, clicks, "'retention.bytes' = '1'")
    count = f"SELECT count(*) AS n FROM lake.{clicks}"
    (planned,) = sql(f"CALL lake.system.retention(topic => '{clicks}', dry_run => true)")
    assert (planned.subject, planned.action, planned.outcome) == (f"{clicks}-0", "delete segments", None)
    assert "retention.bytes=1" in planned.why
    assert planned.now["log_start_offset"] == "0"
    assert sql(count)[0].n == 1500
    (done,) = sql(f"CALL lake.system.retention('{clicks}')")
    assert (done.subject, done.action, done.why, done.now) == (
        planned.subject,
        planned.action,
        planned.why,
        planned.now,
    )
    assert done.outcome == "done"
    assert int(done.after["log_start_offset"]) > 0
    assert sql(count)[0].n < 1500
    assert sql(f"CALL lake.system.retention('{clicks}')") == []
    (row,) = sql(f"SELECT job, action, outcome, before FROM lake.{clicks}.jobs")
    assert row == Row(job="retention", action="delete segments", outcome="done", before=planned.now)


def test_compaction_runs_in_the_session_that_calls_it(sql: Statement, clicks: str) -> None:
    fill(sql, clicks, "'cleanup.policy' = 'compact', 'min.cleanable.dirty.ratio' = '0.01'")
    (planned,) = sql(f"CALL lake.system.compact('{clicks}', dry_run => true)")
    assert (planned.action, planned.outcome) == ("compact", None)
    (done,) = sql(f"CALL lake.system.compact('{clicks}')")
    assert int(done.after["records"]) < int(done.now["records"])
    left = sql(f"SELECT key, max(offset) AS newest FROM lake.{clicks} GROUP BY key")
    assert len(left) == 10
    assert sql(f"CALL lake.system.verify('{clicks}')") == []


def test_maintenance_says_how_large_the_tables_are(sql: Statement) -> None:
    rows = {row.why.partition(":")[0]: row for row in sql("CALL lake.system.maintenance(dry_run => true)")}
    assert {"topics", "partitions", "segments"} <= rows.keys()
    for row in rows.values():
        assert row.now.keys() == {"files", "bytes", "versions"}
        assert int(row.now["bytes"]) > 0
    assert {row.outcome for row in sql("CALL lake.system.maintenance()")} == {"done"}


def test_offsets_are_reset_as_by_kafkas_tool(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('partitions' = '2')")
    sql(f"INSERT INTO lake.{clicks} (partition, value) SELECT CAST(id % 2 AS INT), CAST('v' AS BINARY) FROM range(20)")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": clicks})
    partitions = [confluent_kafka.TopicPartition(clicks, number) for number in range(2)]

    def reset(to: str, more: str = "") -> list[int]:
        rows = sql(f"CALL lake.system.reset_offsets(group => '{clicks}', topic => '{clicks}', to => '{to}'{more})")
        return [row.new_offset for row in rows]

    def committed() -> list[int]:
        return [each.offset for each in consumer.committed(partitions, 30)]

    assert reset("latest", ", dry_run => true") == [11, 11]
    assert committed() == [-1001, -1001]
    assert reset("4") == committed() == [4, 4]
    assert reset("1000000", ", partition => 1") == [11]
    assert committed() == [4, 11]
    assert reset("2020-01-01 00:00:00") == committed() == [0, 0]
    for before_1970 in ("1969-12-31 23:59:59.999", "1969-12-31 23:59:59.998", "0001-01-01 00:00:00"):
        assert reset("2100-01-01 00:00:00") == committed() == [11, 11]
        assert reset(before_1970) == committed() == [0, 0]
    assert reset("9" * 30) == committed() == [11, 11]
    assert reset("-1") == committed() == [0, 0], "moved to the first offset, as every offset below it"
    assert reset("2100-01-01 00:00:00") == committed() == [11, 11]
    assert reset("earliest") == committed() == [0, 0]
    assert "an offset, or a time" in refused(
        sql, f"CALL lake.system.reset_offsets('{clicks}', '{clicks}', 'the beginning')"
    )
    consumer.subscribe([clicks])
    wait_until(lambda: consumer.poll(0.1) is not None, lambda: "no record")
    assert "has members" in refused(sql, f"CALL lake.system.reset_offsets('{clicks}', '{clicks}', 'latest')")
    consumer.close()


def test_what_cannot_be_done_is_said_in_one_sentence(sql: Statement, broker: Kafkalake) -> None:
    assert "is not in the lake" in refused(sql, "CALL lake.system.retention('no_such_topic')")
    assert "invalid choice" in refused(sql, "CALL lake.system.retention(guard => 'x')")
    assert "--keep-days -1: it cannot be negative" in refused(sql, "CALL lake.system.maintenance(keep_days => -1)")
    with exclusive_job_lock(broker.lake, "retention", "another", SystemClock().now_ms()):
        assert refused(sql, "CALL lake.system.retention()").startswith("already running on ")


def test_a_procedure_that_is_late_is_withdrawn_and_delays_no_question(
    spark: SparkSession, broker: Kafkalake, sql: Statement, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks}")
    hurried = statements(with_catalog(spark, broker.lake, "hurried", **{"procedure.timeout": "0s"}))
    message = refused(hurried, "CALL hurried.system.lag()")
    assert message == "lag has not ended in 0s and was cancelled; what it has done stays done"
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 0
    calls = [threading.Thread(target=sql, args=("CALL lake.system.verify()",)) for _ in range(4)]
    for call in calls:
        call.start()
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks}")[0].n == 0
    for call in calls:
        call.join(60)
