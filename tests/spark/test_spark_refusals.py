"""What no topic can do is refused in a sentence, in every way of running SQL, and what is like another table is made like it."""

from __future__ import annotations

import pytest
from kafka_reference import Kafkalake
from lake_catalog import Statement, refused
from pyspark.errors import AnalysisException
from test_spark_catalog import partitions, setting

REFUSED = (
    ("UPDATE {t} SET ms = 0 WHERE user = 'ann'", "UPDATE TABLE does not change the records of a topic: INSERT INTO"),
    (
        "MERGE INTO {t} t USING (SELECT 'ann' AS user) s ON t.user = s.user WHEN MATCHED THEN UPDATE SET ms = 0 "
        "WHEN NOT MATCHED THEN INSERT (user) VALUES (s.user)",
        "MERGE INTO TABLE does not change the records of a topic: INSERT INTO",
    ),
    (
        "MERGE INTO {t} USING (SELECT 'ann' AS user) s ON {t}.user = s.user WHEN NOT MATCHED THEN INSERT (user) VALUES (s.user)",
        "MERGE INTO TABLE does not change the records of a topic: INSERT INTO",
    ),
    ("DELETE FROM {t} WHERE ms < 1", "(WHERE _offset < 100), and a compacted topic also those of a key (WHERE user = "),
    ("DELETE FROM {t} WHERE user = 'ann'", "is not compacted"),
    ("DELETE FROM {t} WHERE user IN (SELECT user FROM {t})", "DELETE from a topic takes no subquery"),
    ("CREATE VIEW {t}_v AS SELECT * FROM {t}", "a lake has no views: CREATE TEMPORARY VIEW"),
    ("CREATE OR REPLACE TABLE {t} (a INT)", "a topic is not replaced"),
    ("CREATE TABLE {t}_2 (a INT) PARTITIONED BY (a)", "a topic is not partitioned by columns"),
    ("CREATE EXTERNAL TABLE {t}_2 (a INT)", "cannot be EXTERNAL"),
    ("ALTER TABLE {t} RENAME TO default.other", "a topic cannot be renamed"),
    ("ALTER TABLE {t} DROP COLUMN ms", "columns are added to a topic"),
    ("ALTER TABLE {t} SET TBLPROPERTIES ('retention.mss' = '1')", "Unknown topic config name"),
    ("ALTER TABLE {t} SET TBLPROPERTIES ('retention.mss' = '1')", "; 'retention.mss': did you mean 'retention.ms'"),
    (
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('retention.mss')",
        "no setting 'retention.mss'; did you mean 'retention.ms'",
    ),
    ("ALTER TABLE {t} UNSET TBLPROPERTIES ('retention.ms', 'team')", "has no setting 'team'"),
    (
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('partitions')",
        "partitions is no setting of a topic that can be changed so",
    ),
    ("CREATE TABLE {t}_2 (a INT) TBLPROPERTIES ('clean.policy' = 'compact')", "did you mean 'cleanup.policy'"),
    ("INSERT OVERWRITE {t} VALUES ('ann', '/', 1)", "a topic cannot be overwritten"),
    ("SELECT * FROM {t} VERSION AS OF 'main'", "a version is a whole number"),
    ("SELECT * FROM {t} TIMESTAMP AS OF '2100-01-01'", "after the latest version"),
    ("CREATE NAMESPACE lake.other", "a lake has the namespaces"),
    ("CALL lake.system.compct()", "there is no procedure"),
    ("CALL lake.system.compact('no_such_topic')", "is not in the lake"),
)


@pytest.fixture
def table(sql: Statement, clicks: str) -> str:
    sql(
        f"CREATE TABLE lake.{clicks} (user STRING, url STRING, ms BIGINT) TBLPROPERTIES ('partitions' = '3', 'key' = 'user')"
    )
    return clicks


def test_what_is_refused_is_a_sentence_with_an_sqlstate(sql: Statement, broker: Kafkalake, table: str) -> None:
    """`spark-sql` prints the stack of an error that has no SQLSTATE."""
    sql(f"INSERT INTO lake.{table} VALUES ('ann', '/', 12)")
    for statement, said in REFUSED:
        with pytest.raises(AnalysisException) as error:
            sql(statement.replace("{t}", f"lake.{table}"))
        sentence = str(error.value)
        assert said in sentence and "\n" not in sentence.strip(), sentence
        assert error.value.getSqlState() == "HY000", statement
    assert [tuple(row) for row in sql(f"SELECT * FROM lake.{table}")] == [("ann", "/", 12)]
    assert partitions(broker, f"{table}_2") == 0


def test_what_is_no_setting_is_unset_if_it_exists(sql: Statement, broker: Kafkalake, table: str) -> None:
    sql(f"ALTER TABLE lake.{table} UNSET TBLPROPERTIES ('retention.ms')")  # it has its default
    sql(f"ALTER TABLE lake.{table} SET TBLPROPERTIES ('retention.ms' = '3600000')")
    sql(f"ALTER TABLE lake.{table} UNSET TBLPROPERTIES IF EXISTS ('retention.mss', 'retention.ms')")
    assert setting(broker, table, "retention.ms") == "604800000"


def test_what_is_refused_of_an_entry_of_the_session_catalogue_has_an_sqlstate(
    sql: Statement, broker: Kafkalake, table: str
) -> None:
    entry = f"{table}_entry"
    sql(f"CREATE TABLE {entry} USING kafkalake OPTIONS (lake '{broker.lake}', subscribe '{table}')")
    try:
        options = f"USING kafkalake OPTIONS (lake '{broker.lake}', subscribe"
        for statement in (
            f"TRUNCATE TABLE {entry}",
            f"ALTER TABLE {entry} SET TBLPROPERTIES ('a' = 'b')",
            f"CREATE TABLE {entry}_2 {options} '{table}_no_such')",
            f"CREATE TABLE {entry}_2 {options} '{table}') AS SELECT 1 AS value",
        ):
            with pytest.raises(AnalysisException) as error:
                sql(statement)
            assert error.value.getSqlState() == "HY000", statement
            assert "\n" not in str(error.value).strip(), "no plan"
    finally:
        sql(f"DROP TABLE {entry}")


def test_a_table_like_another_one_is_a_topic_with_its_columns_and_settings(
    sql: Statement, broker: Kafkalake, table: str
) -> None:
    sql(f"ALTER TABLE lake.{table} SET TBLPROPERTIES ('retention.ms' = '3600000')")
    sql(f"CREATE TABLE lake.{table}_like LIKE lake.{table} TBLPROPERTIES ('partitions' = '2')")
    sql(f"INSERT INTO lake.{table}_like VALUES ('ann', '/', 12)")
    assert [tuple(row) for row in sql(f"SELECT *, CAST(_key AS STRING) FROM lake.{table}_like")] == [
        ("ann", "/", 12, "ann")
    ]
    assert (partitions(broker, f"{table}_like"), setting(broker, f"{table}_like", "retention.ms")) == (2, "3600000")
    assert "already exists" in refused(sql, f"CREATE TABLE lake.{table}_like LIKE lake.{table}")
    sql(f"CREATE TABLE IF NOT EXISTS lake.{table}_like LIKE lake.{table}")
    sql(f"CREATE TABLE {table}_files USING parquet AS SELECT 1 AS id, 'x' AS name")
    try:
        sql(f"CREATE TABLE lake.{table}_of_files LIKE {table}_files")
        assert setting(broker, f"{table}_of_files", "value.schema") == "`id` INT, `name` STRING"
    finally:
        sql(f"DROP TABLE {table}_files")
    sql(f"CREATE TABLE lake.{table}_raw TBLPROPERTIES ('cleanup.policy' = 'compact')")
    sql(f"CREATE TABLE lake.{table}_raw_like LIKE lake.{table}_raw")
    assert setting(broker, f"{table}_raw_like", "cleanup.policy") == "compact"
    assert sql(f"SELECT * FROM lake.{table}_raw_like") == []
