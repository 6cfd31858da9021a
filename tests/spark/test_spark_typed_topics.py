"""Topics with a schema of their values: tables of fields for Spark, JSON with keys for Kafka's clients, whichever of them wrote."""

from __future__ import annotations

import json
import re

import confluent_kafka
import pyarrow.dataset as ds
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kafka_reference import Kafkalake
from lake_catalog import Statement, refused
from pyspark.sql import Row, SparkSession
from test_spark_catalog import partitions, read, setting

from kafkalake.dataset import topic_dataset

COLUMNS = "(user STRING, url STRING COMMENT 'where', ms BIGINT)"


def send(broker: Kafkalake, topic: str, records: list[tuple[bytes | None, bytes | None]]) -> dict[bytes, int]:
    """Produce with murmur2, as Kafka's Java client, and return the partition of each key."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 5}
    )
    chosen: dict[bytes, int] = {}

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        if (key := message.key()) is not None and (partition := message.partition()) is not None:
            chosen[bytes(key)] = partition

    for key, value in records:
        producer.produce(topic, value, key, on_delivery=delivered)
    assert producer.flush(60) == 0
    return chosen


def alter(broker: Kafkalake, topic: str, **settings: str) -> None:
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ],
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_rows_become_json_with_the_key_of_a_field_in_the_partition_that_kafkas_clients_choose(
    sql: Statement, broker: Kafkalake, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks} {COLUMNS} TBLPROPERTIES ('partitions' = '4', 'key' = 'user')")
    assert setting(broker, clicks, "value.schema") == "`user` STRING, `url` STRING COMMENT 'where', `ms` BIGINT"
    assert setting(broker, clicks, "key") == "user"
    sql(
        f"INSERT INTO lake.{clicks} VALUES ('ann', '/', 12), ('größe', NULL, 3), (NULL, '/\"', NULL), (NULL, NULL, NULL)"
    )
    assert [(key, json.loads(value or b"")) for key, value in read(broker, clicks, 4, 4, by=str)] == [
        (None, {"url": '/"'}),
        (None, {}),
        (b"ann", {"user": "ann", "url": "/", "ms": 12}),
        ("größe".encode(), {"user": "größe", "ms": 3}),
    ]
    where = {
        row.k: row.p for row in sql(f"SELECT _key AS k, _partition AS p FROM lake.{clicks} WHERE user IS NOT NULL")
    }
    assert where == send(broker, clicks, [(b"ann", b"{}"), ("größe".encode(), b"{}")])


def test_what_a_kafka_client_writes_is_read_as_fields_and_a_bad_value_is_a_row_of_nulls(
    sql: Statement, broker: Kafkalake, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks} {COLUMNS}")
    values = [b'{"user": "ann", "ms": 12, "more": [1]}', b'{"user": 5, "ms": "x"}', b"no json", None]
    send(broker, clicks, [(b"k", value) for value in values])
    rows = sql(f"SELECT *, _offset, _key, _value, _topic FROM lake.{clicks} ORDER BY _offset")
    assert rows == [
        Row(user=user, url=None, ms=ms, _offset=offset, _key=b"k", _value=values[offset], _topic=clicks)
        for offset, (user, ms) in enumerate([("ann", 12), ("5", None), (None, None), (None, None)])
    ]
    assert sql(f"SELECT count(*) AS n FROM lake.{clicks} WHERE ms > 1 AND _timestamp > now() - INTERVAL 1 HOUR") == [
        Row(n=1)
    ]
    assert topic_dataset(broker.lake, clicks).to_table(["user", "ms"]).to_pylist() == [
        {"user": row.user, "ms": row.ms} for row in rows
    ]


def test_a_topic_made_by_a_kafka_client_is_the_same_table(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {"value.schema": "user STRING, ms BIGINT", "key": "user"}
    admin.create_topics([NewTopic(clicks, 1, 1, config=config)])[clicks].result(30)
    sql(f"INSERT INTO lake.{clicks} SELECT 'ann', 1")
    assert read(broker, clicks, 1, 1) == [(b"ann", b'{"user":"ann","ms":1}')]
    alter(broker, clicks, value_schema="user STRING, ms BIGINT, url STRING")
    assert sql(f"SELECT * FROM lake.{clicks}") == [Row(user="ann", ms=1, url=None)]
    with pytest.raises(confluent_kafka.KafkaException, match="has no such field"):
        alter(broker, clicks, value_schema="ms BIGINT")
    with pytest.raises(confluent_kafka.KafkaException, match="did you mean STRING"):
        alter(broker, clicks, value_schema="user STRNG")
    with pytest.raises(confluent_kafka.KafkaException, match="a DOUBLE has no one text"):
        config = {"value.schema": "ms DOUBLE", "key": "ms"}
        admin.create_topics([NewTopic(clicks + "2", 1, 1, config=config)])[clicks + "2"].result(30)


def test_a_table_made_of_a_query_has_its_columns_as_fields(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    query = "SELECT id, 2 * id AS twice, named_struct('day', DATE'2026-01-02') AS at FROM range(3)"
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('key' = 'id') AS {query}")
    assert read(broker, clicks, 1, 3) == [
        (b"%d" % number, b'{"id":%d,"twice":%d,"at":{"day":"2026-01-02"}}' % (number, 2 * number))
        for number in range(3)
    ]
    assert sql(f"SELECT sum(twice) AS n, max(at.day) AS day FROM lake.{clicks}")[0].n == 6


def test_columns_are_added_at_the_end_and_not_altered_otherwise(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    table = f"lake.{clicks}"
    sql(f"CREATE TABLE {table} {COLUMNS} TBLPROPERTIES ('key' = 'user')")
    sql(f"INSERT INTO {table} VALUES ('ann', '/', 12)")
    sql(f"ALTER TABLE {table} ADD COLUMNS (agent STRING COMMENT 'its name', tags ARRAY<STRING>)")
    described = {row.col_name: (row.data_type, row.comment) for row in sql(f"DESCRIBE {table}")}
    assert described["agent"] == ("string", "its name")
    assert described["url"] == ("string", "where")
    assert list(described)[:5] == ["user", "url", "ms", "agent", "tags"]
    sql(f"INSERT INTO {table} (tags, user) VALUES (array('a', NULL), 'bob')")
    assert sql(f"SELECT user, agent, tags FROM {table} ORDER BY user") == [
        Row(user="ann", agent=None, tags=None),
        Row(user="bob", agent=None, tags=["a", None]),
    ]
    before = setting(broker, clicks, "value.schema")
    for change, said in (
        ("ADD COLUMN more STRING NOT NULL", "cannot be NOT NULL"),
        ("ADD COLUMN more STRING DEFAULT 'x'", "cannot have a default value"),
        ("ADD COLUMN more STRING FIRST", "is added at the end"),
        ("ADD COLUMN more BINARY", "JSON has no bytes"),
        ("ADD COLUMN user STRING", "already exists"),
        ("DROP COLUMN agent", "not altered otherwise"),
        ("RENAME COLUMN agent TO client", "not altered otherwise"),
        ("ALTER COLUMN ms TYPE DOUBLE", "not altered otherwise|to DOUBLE"),
        ("SET TBLPROPERTIES ('key' = 'tags')", "a ARRAY has no one text"),
        ("UNSET TBLPROPERTIES ('value.schema')", "the topic has none"),
    ):
        assert re.search(said, refused(sql, f"ALTER TABLE {table} {change}")), change
    assert setting(broker, clicks, "value.schema") == before
    sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('value.schema' = 'ms INT, user STRING')")
    assert sql(f"SELECT * FROM {table} ORDER BY user")[0] == Row(ms=12, user="ann")


def test_what_a_typed_table_cannot_be_or_take_is_refused(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    name = f"lake.{clicks}"
    for columns, said in (
        ("(a INT NOT NULL)", "cannot be NOT NULL"),
        ("(a INT DEFAULT 4)", "default value"),
        ("(a VARCHAR(4))", "values know no lengths"),
        ("(a BINARY)", "JSON has no bytes"),
        ("(m MAP<INT, INT>)", "keys of a JSON object are STRING"),
        ("(value DOUBLE)", "fields of such names stand in the property value.schema"),
        ("(key BINARY COMMENT 'k')", "have no comments"),
        ("(a INT) TBLPROPERTIES ('value.schema' = 'b INT')", "give one of them"),
        ("(a INT) TBLPROPERTIES ('key' = 'b')", "no such field"),
        ("TBLPROPERTIES ('key' = 'b')", "the topic has none"),
    ):
        assert said in refused(sql, f"CREATE TABLE {name} {columns}"), columns
        assert partitions(broker, clicks) == 0
    sql(f"CREATE TABLE {name} {COLUMNS}")
    assert "Cannot safely cast" in refused(sql, f"INSERT INTO {name} VALUES ('ann', '/', 'x')")
    assert "overwritten" in refused(sql, f"INSERT OVERWRITE {name} VALUES ('ann', '/', 1)")
    assert "Cannot delete" in refused(sql, f"DELETE FROM {name} WHERE ms < 1")
    sql(f"INSERT INTO {name} VALUES ('ann', '/', CAST(7 AS TINYINT))")
    sql(f"DELETE FROM {name} WHERE _offset < 1 AND _partition = 0")
    assert sql(f"SELECT count(*) AS n FROM {name}") == [Row(n=0)]


def test_a_stream_writes_fields_by_their_names_and_types(
    session: SparkSession, sql: Statement, broker: Kafkalake, clicks: str, tmp_path: object
) -> None:
    sql(f"CREATE TABLE lake.{clicks} {COLUMNS} TBLPROPERTIES ('key' = 'user')")
    sql(f"INSERT INTO lake.{clicks} VALUES ('ann', '/', 12), ('bob', '/b', 3)")
    sql(f"CREATE TABLE lake.{clicks}_2 {COLUMNS} TBLPROPERTIES ('key' = 'user')")

    def copied(*columns: str) -> None:
        frame = session.readStream.option("startingOffsets", "earliest").table(f"lake.{clicks}").selectExpr(*columns)
        writer = frame.writeStream.option("checkpointLocation", f"{tmp_path}/{len(columns)}").trigger(availableNow=True)
        writer.toTable(f"lake.{clicks}_2").awaitTermination(60)

    copied("2 * ms AS ms", "user")
    assert read(broker, f"{clicks}_2", 1, 2) == [
        (b"ann", b'{"ms":24,"user":"ann"}'),
        (b"bob", b'{"ms":6,"user":"bob"}'),
    ]
    for column, said in (("CAST(ms AS STRING) AS ms", "CAST it"), ("user AS usr", "has no column usr")):
        with pytest.raises(Exception, match=said):
            copied(column)


def test_a_raw_table_takes_text_and_bytes(
    sql: Statement, session: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    sql(f"CREATE TABLE lake.{clicks}")
    every = bytes(range(256))
    sql(f"INSERT INTO lake.{clicks} (key, value) VALUES ('k', 'größe')")
    sql(f"INSERT INTO lake.{clicks} (value, key) VALUES (X'{every.hex()}', 'l')")
    sql(f"INSERT INTO lake.{clicks} VALUES ('m', X'C3', NULL, 0, NULL, NULL, NULL, NULL)")
    session.sql("SELECT CAST(NULL AS STRING) AS key, X'FF' AS value").writeTo(f"lake.{clicks}").append()
    expected = [(b"k", "größe".encode()), (b"l", every), (b"m", b"\xc3"), (None, b"\xff")]
    assert read(broker, clicks, 1, 4, by=str) == sorted(expected, key=str)
    assert sql(f"SELECT value FROM lake.{clicks} WHERE key = X'6C'") == [Row(value=bytearray(every))]
    assert "value" in refused(sql, f"INSERT INTO lake.{clicks} (key, value) VALUES ('k', array(1))")


def test_fields_named_as_kafkas_columns_are_fields(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks} (`key` INT, `offset` BIGINT, partition STRING, v VARIANT)")
    send(broker, clicks, [(b"k", b'{"key": %d, "offset": %d, "v": {"n": %d}}' % (n, 100 + n, n)) for n in range(5)])
    columns = "`key`, `offset`, CAST(_key AS STRING), _offset, variant_get(v, '$.n', 'int')"
    found = sql(
        f"SELECT {columns} FROM lake.{clicks} WHERE `offset` >= 103 AND _offset IN (2, 3, 4) AND partition IS NULL"
    )
    assert sorted(tuple(row) for row in found) == [(3, 103, "k", 3, 3), (4, 104, "k", 4, 4)]
    assert tuple(sql(f"SELECT count(*), count(`key`) FROM lake.{clicks} WHERE _offset = 1")[0]) == (1, 1)


def test_values_of_every_type_are_the_json_of_spark_and_come_back(
    sql: Statement, session: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    query = """
        SELECT id, id % 2 = 0 AS b, CAST(id AS TINYINT) AS t, CAST(-id AS SMALLINT) AS s, CAST(id AS INT) AS i,
            CAST(id AS FLOAT) / 3 AS f, CAST(id AS DOUBLE) / 3 AS d, CAST(id AS DECIMAL(20, 3)) / 7 AS m,
            DATE'2026-01-02' + CAST(id AS INT) AS day, TIMESTAMP_NTZ'2026-01-02 03:04:05.678901' AS local,
            array(CAST(id AS STRING), NULL) AS a, map('k"', id) AS mp,
            named_struct('x', id, 'y', array(named_struct('z', 'ö'))) AS st,
            CASE WHEN id > 1 THEN 'tab\\t"quote" \\\\ \\u0001' END AS text
        FROM range(4)"""
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('key' = 'm') AS {query}")
    all_digits = """map('timestampNTZFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")"""
    written = sql(f"SELECT CAST(m AS STRING) AS k, to_json(struct(*), {all_digits}) AS v FROM ({query}) ORDER BY id")
    read_by_client = read(broker, clicks, 1, 4)
    assert {key: json.loads(value or b"") for key, value in read_by_client} == {
        row.k.encode(): json.loads(row.v) for row in written
    }
    assert sql(f"SELECT * FROM lake.{clicks} ORDER BY id") == sql(f"SELECT * FROM ({query}) ORDER BY id")
    of_arrow = topic_dataset(broker.lake, clicks).to_table(["id", "m", "day", "a", "st"])
    assert sorted(of_arrow["m"].to_pylist()) == sorted(row.m for row in sql(f"SELECT m FROM lake.{clicks}"))


def test_years_beyond_9999_and_before_1_are_the_json_of_spark_and_come_back(
    sql: Statement, broker: Kafkalake, clicks: str
) -> None:
    rows = " UNION ALL ".join(
        f"SELECT DATE'{day}' AS day, TIMESTAMP'{day} 12:00:00' AS time, TIMESTAMP_NTZ'{day} 12:00:00' AS local"
        for day in ("+10000-01-01", "0000-02-29", "-0001-12-31", "+290000-07-01")
    )
    sql(f"CREATE TABLE lake.{clicks} TBLPROPERTIES ('key' = 'day') AS {rows}")
    texts = "CAST(day AS STRING) AS day, CAST(time AS STRING) AS time, CAST(local AS STRING) AS local"
    expected = sorted(sql(f"SELECT {texts} FROM ({rows})"))
    assert sorted(sql(f"SELECT {texts} FROM lake.{clicks}")) == expected
    fields = (
        f"from_json(CAST(_value AS STRING), 'day DATE, time TIMESTAMP, local TIMESTAMP_NTZ') AS x FROM lake.{clicks}"
    )
    assert sorted(sql(f"SELECT {texts} FROM (SELECT x.* FROM (SELECT {fields}))")) == expected
    assert sorted(row.k for row in sql(f"SELECT CAST(_key AS STRING) AS k FROM lake.{clicks}")) == [
        row.day for row in expected
    ]
    found = topic_dataset(broker.lake, clicks).to_table(["day", "time", "local"])
    assert [found[name].null_count for name in found.column_names] == [0, 0, 0]


def test_a_variant_is_written_as_the_json_that_it_is(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks} (id INT, v VARIANT)")
    texts = ['{"a":[1,2.5,"x\\"",null,true]}', '"text"', "null", "7"]
    rows = ", ".join(f"({index}, parse_json('{text}'))" for index, text in enumerate(texts))
    sql(f"INSERT INTO lake.{clicks} VALUES {rows.replace(chr(92), 2 * chr(92))}, (9, NULL)")
    values = sorted(
        (json.loads(value or b"") for _, value in read(broker, clicks, 1, 5)), key=lambda row: int(row["id"])
    )
    assert values == [*({"id": index, "v": json.loads(text)} for index, text in enumerate(texts)), {"id": 9}]
    assert topic_dataset(broker.lake, clicks).to_table(["v"], filter=ds.field("id") == 1)["v"].to_pylist() == ["text"]
    assert tuple(sql(f"SELECT variant_get(v, '$.a[1]', 'double') FROM lake.{clicks} WHERE id = 0")[0]) == (2.5,)


def test_metadata_columns_narrow_a_scan_of_typed_and_of_raw_topics(
    sql: Statement, session: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    for columns in ("(user STRING, `partition` STRING)", ""):
        topic = clicks + str(len(columns))
        sql(f"CREATE TABLE lake.{topic} {columns} TBLPROPERTIES ('partitions' = '2')")
        send(broker, topic, [(b"%d" % number, b'{"user": "ann", "partition": "7"}') for number in range(40)])
        where = "WHERE _offset >= 3 AND _partition = 1 AND _timestamp > now() - INTERVAL 1 HOUR"
        rows = sql(f"SELECT _key, _offset, _partition, _topic, _value FROM lake.{topic} {where}")
        assert {(row._partition, row._topic, row._value[:2]) for row in rows} == {(1, topic, b'{"')}
        assert min(row._offset for row in rows) == 3
        plan = sql(f"EXPLAIN SELECT _key FROM lake.{topic} {where}")[0].plan
        assert re.search(r"1 of 2 segments, pushed: .*_offset >= 3", plan), plan
        assert "_key" not in session.table(f"lake.{topic}").columns
        found = session.table(f"lake.{topic}").selectExpr("*", "_headers", "_timestampType").first()
        assert found is not None
        assert (found._headers, found._timestampType) == (None, 0)
        sql(f"DELETE FROM lake.{topic} WHERE _offset < 1000 AND _partition = 1")
        assert [row.p for row in sql(f"SELECT DISTINCT _partition AS p FROM lake.{topic}")] == [0]
    typed = f"lake.{clicks}{len('(user STRING, `partition` STRING)')}"
    assert sql(f"SELECT count(*) AS n FROM {typed} WHERE `partition` = '7'")[0].n > 0, "a field, and not the partition"
    assert "Cannot delete" in refused(sql, f"DELETE FROM {typed} WHERE `partition` = '7'")
