"""The tables of Spark's catalogue about a topic: what they say against what a Kafka client and the lake's files say."""

from __future__ import annotations

import time
from datetime import datetime

import confluent_kafka
import pytest
from kafka_reference import Kafkalake, topic_name
from lake_catalog import Statement, refused, statements, with_catalog
from pyspark.sql import Row, SparkSession
from waiting import wait_until

from kafkalake.delayed_headers import DELIVER_AT

NAMES = ["segments", "partitions", "groups", "lag", "history", "transactions", "producers", "delayed", "jobs"]


@pytest.fixture
def clicks(sql: Statement) -> str:
    """A topic of two partitions with a hundred records of one transaction."""
    name = topic_name("clicks").replace("-", "_")
    sql(f"CREATE TABLE lake.{name} TBLPROPERTIES ('partitions' = '2')")
    insert(sql, name, 100)
    return name


def insert(sql: Statement, topic: str, records: int) -> None:
    values = "CAST(CAST(id AS STRING) AS BINARY), CAST('v' AS BINARY), CAST(id % 2 AS INT)"
    sql(f"INSERT INTO lake.{topic} (key, value, partition) SELECT {values} FROM range({records})")


def commit(broker: Kafkalake, group: str, topic: str, partition: int, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, partition, offset)], asynchronous=False)
    consumer.close()


def published(sql: Statement, topic: str, records: int) -> int:
    """Wait until Delta knows so many added offsets of a topic; returns the version in which it does."""

    def versions() -> list[Row]:
        return sql(f"SELECT version, offsets FROM lake.{topic}.history ORDER BY version")

    wait_until(lambda: sum(row.offsets for row in versions()) >= records, versions)
    return int(versions()[-1].version)


def now(sql: Statement) -> datetime:
    found: datetime = sql("SELECT current_timestamp() AS t")[0].t
    return found


def test_the_tables_of_a_topic_and_of_the_lake_are_listed(sql: Statement, clicks: str) -> None:
    for namespace in (clicks, f"default.{clicks}", "system"):
        assert [row.tableName for row in sql(f"SHOW TABLES IN lake.{namespace}")] == NAMES
    assert [row.namespace for row in sql("SHOW NAMESPACES IN lake")] == ["default", "system"]
    types = {row.col_name: row.data_type for row in sql(f"DESCRIBE lake.{clicks}.lag")}
    assert (types["group"], types["lag"], types["committed_at"]) == ("string", "bigint", "timestamp")
    assert "topic" not in types
    assert next(iter(sql("DESCRIBE lake.system.lag"))).col_name == "topic"
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql(f"SELECT * FROM lake.{clicks}.lags")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM lake.no_such_topic.lag")


def test_a_topic_may_have_the_name_of_a_table_about_one(sql: Statement, clicks: str) -> None:
    sql(f"CREATE TABLE lake.`{clicks}.lag`")
    assert sql(f"SELECT count(*) AS n FROM lake.`{clicks}.lag`")[0].n == 0
    assert sql(f"SELECT count(*) AS n FROM lake.`{clicks}.lag`.partitions")[0].n == 1
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks}.lag")[0].n == 0


def test_lag_is_what_the_group_has_not_read_now_and_then(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    published(sql, clicks, 102)
    commit(broker, f"etl-{clicks}", clicks, 0, 10)
    lag = f"SELECT `group`, partition, committed_offset, log_end_offset, lag FROM lake.{clicks}.lag"
    expected = [Row(group=f"etl-{clicks}", partition=0, committed_offset=10, log_end_offset=51, lag=41)]
    wait_until(lambda: sql(lag) == expected, lambda: sql(lag))
    then = now(sql)
    (group,) = sql(f"SELECT `group`, state, lag, lag_seconds FROM lake.{clicks}.groups")
    assert (group.state, group.lag) == ("Empty", 41)
    assert 0 <= group.lag_seconds < 600
    insert(sql, clicks, 20)
    assert sql(f"SELECT lag FROM lake.{clicks}.lag WHERE partition = 0") == [Row(lag=52)]
    assert sql(f"SELECT count(*) AS n FROM lake.system.lag WHERE topic = '{clicks}'")[0].n == 1
    published(sql, clicks, 124)
    assert sql(f"{lag} TIMESTAMP AS OF '{then}'") == expected
    (past,) = sql(f"SELECT state, lag, lag_seconds FROM lake.{clicks}.groups TIMESTAMP AS OF '{then}'")
    assert (past.state, past.lag) == (None, 41)
    assert past.lag_seconds <= group.lag_seconds


def test_versions_of_the_history_can_be_read(sql: Statement, clicks: str) -> None:
    first = published(sql, clicks, 102)
    sql(f"ALTER TABLE lake.{clicks} SET TBLPROPERTIES ('retention.ms' = '7200000')")
    insert(sql, clicks, 50)
    published(sql, clicks, 154)
    sql(f"DELETE FROM lake.{clicks} WHERE offset < 5 AND partition = 1")
    history = f"SELECT what, added, log_starts, settings FROM lake.{clicks}.history"
    wait_until(lambda: sql(history)[-1].what == "log start moved", lambda: sql(history))
    found = [row for row in sql(history) if row.what != "created"]
    settings = next(row for row in found if row.settings)
    assert (settings.what, settings.settings) == ("settings changed", {"retention.ms": "7200000"})
    assert sum(sum(row.added.values()) for row in found) == 154
    assert found[-1].log_starts == {1: 5}
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks} VERSION AS OF {first}")[0].n == 100
    before = sql(f"SELECT sum(offsets) AS n FROM lake.{clicks}.history VERSION AS OF {first}")
    assert before[0].n == 102
    ends = sql(f"SELECT partition, log_end_offset AS end FROM lake.{clicks}.partitions VERSION AS OF {first}")
    assert ends == [Row(partition=0, end=51), Row(partition=1, end=51)]


def test_who_wrote_in_which_transaction(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    published(sql, clicks, 100)  # the past of a topic begins with the first version that has it
    name = f"copier-{clicks}"
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(clicks, b"v", partition=1)
    producer.flush(60)
    written = f"SELECT transaction_start_offset AS at, last_offset FROM lake.{clicks}.producers WHERE transactional_id = '{name}'"
    wait_until(lambda: sql(written) == [Row(at=51, last_offset=51)], lambda: sql(written))
    states = f"SELECT state, partitions FROM lake.{clicks}.transactions WHERE transactional_id = '{name}'"
    wait_until(lambda: sql(states) == [Row(state="Ongoing", partitions=[1])], lambda: sql(states))
    then = now(sql)
    producer.commit_transaction(60)
    wait_until(lambda: sql(states) == [Row(state="CompleteCommit", partitions=[])], lambda: sql(states))
    assert sql(written) == [Row(at=None, last_offset=51)]
    past = states.replace(" WHERE", f" TIMESTAMP AS OF '{then}' WHERE")
    assert sql(past) == [Row(state="Ongoing", partitions=[1])]


def test_segments_and_partitions_are_those_of_the_log(sql: Statement, clicks: str) -> None:
    sql(f"ALTER TABLE lake.{clicks} SET TBLPROPERTIES ('internal.segment.bytes' = '2000')")
    insert(sql, clicks, 10)
    segments = f"SELECT partition, base_offset, next_offset, records, sealed_at FROM lake.{clicks}.segments"
    unsealed = f"{segments} WHERE sealed_at IS NULL"
    wait_until(lambda: len(sql(unsealed)) <= 2 < len(sql(segments)), lambda: sql(segments))
    for number in range(2):
        found = [row for row in sql(segments) if row.partition == number]
        assert [row.base_offset for row in found] == [0, *(row.next_offset for row in found[:-1])]
        assert found[0].records in (50, 51, 56)
    rows = sql(f"SELECT * FROM lake.{clicks}.partitions")
    assert [(row.leader, row.isr, row.high_watermark) for row in rows] == [(0, [0], 57)] * 2
    assert sum(row.bytes for row in rows) == sql(f"SELECT sum(bytes) AS n FROM lake.{clicks}.segments")[0].n
    assert sql("SELECT count(*) AS n FROM lake.__consumer_offsets.partitions")[0].n > 0


def test_what_waits_to_be_delivered_later(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    sql(f"ALTER TABLE lake.{clicks} SET TBLPROPERTIES ('delayed.delivery.enable' = 'true')")
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(clicks, b"later", b"k", partition=1, headers={DELIVER_AT: str(due_ms).encode()})
    assert producer.flush(60) == 0
    waiting = f"SELECT partition, unix_millis(due) AS due, key, size, source_partition FROM lake.{clicks}.delayed"
    row = Row(partition=1, due=due_ms, key=bytearray(b"k"), size=5, source_partition=1)
    wait_until(lambda: sql(waiting) == [row], lambda: sql(waiting))
    assert sql(f"SELECT count(*) AS n FROM lake.system.delayed WHERE topic = '{clicks}' AND due > now()") == [Row(n=1)]
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks} WHERE value = CAST('later' AS BINARY)") == [Row(n=0)]
    journal = "SELECT key, CAST(value AS STRING) AS value FROM lake.__delayed"
    assert sql(f"{journal} WHERE unix_millis(timestamp) = {due_ms}") == [Row(key=bytearray(b"k"), value="later")]


def test_what_has_no_past_and_what_cannot_be_written_says_so(sql: Statement, clicks: str) -> None:
    lag = f"lake.{clicks}.lag"
    assert "only times" in refused(sql, f"SELECT * FROM {lag} VERSION AS OF 1")
    assert "no past" in refused(sql, f"SELECT * FROM lake.{clicks}.producers TIMESTAMP AS OF '{now(sql)}'")
    assert "after the latest version" in refused(sql, f"SELECT * FROM {lag} TIMESTAMP AS OF '2100-01-01'")
    assert "the oldest is" in refused(sql, f"SELECT * FROM {lag} TIMESTAMP AS OF '2020-01-01'")
    assert "does not support append" in refused(sql, f"INSERT INTO {lag} SELECT * FROM {lag}")
    assert "does not support deletes" in refused(sql, f"DELETE FROM {lag}")
    for statement in (f"DROP TABLE {lag}", f"ALTER TABLE {lag} SET TBLPROPERTIES ('a' = 'b')"):
        assert refused(sql, statement) == f"{clicks}.lag is a table about a topic, and is only read"
    assert "in the namespace default" in refused(sql, "CREATE TABLE lake.system.mine (key BINARY)")


def test_the_tables_are_read_without_a_broker(spark: SparkSession) -> None:
    with Kafkalake() as broker:
        run = statements(with_catalog(spark, broker.lake))
        run("CREATE TABLE lake.clicks TBLPROPERTIES ('partitions' = '2')")
        insert(run, "clicks", 10)
        published(run, "clicks", 12)
        before = {name: run(f"SELECT * FROM lake.clicks.{name}") for name in ("segments", "history", "producers")}
        broker.kill()
        assert {name: run(f"SELECT * FROM lake.clicks.{name}") for name in before} == before
        for name in NAMES:
            run(f"SELECT * FROM lake.system.{name}")
