"""Jobs where Spark is: under spark-submit, their tables in Spark SQL, and what they give to Spark's tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chispa import assert_df_equality
from kafka_reference import PROJECT
from local_spark import FEW_ROWS, settings
from pyspark.sql import SparkSession
from written_lake import WrittenLake

from kafkalake.dataset import topic_dataset
from kafkalake.jobs.frame import main
from kafkalake.jobs.lag import next_record
from kafkalake.jobs.lag.command import ALERT_EXIT_CODE, LagJob
from kafkalake.jobs.retention import Retention
from kafkalake.metadata import paths
from kafkalake.metadata.store import PublishedOffsets
from kafkalake.metadata.tables.job_tables import JobTable
from kafkalake.metadata.tables.schemas import GroupOffsetRow

pytestmark = pytest.mark.spark

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    """`clicks` and `orders`, 3 partitions of 40 records, half of them sealed and ten years old; groups at many places."""
    lake = WrittenLake(tmp_path / "lake")
    rows: list[GroupOffsetRow] = []
    for topic in ("clicks", "orders"):
        lake.create(topic, 3)
        topic_id = lake.topics[topic].topic_id
        for partition in range(3):
            lake.append_values(topic, partition, [b"v"] * 20, timestamp=NOW_MS - 3650 * 86_400_000)
            lake.roll(topic, partition)
            lake.append_values(topic, partition, [b"v"] * 20, timestamp=NOW_MS)
            for number, group in enumerate(("a", "b", "c")):
                for offset in (0, 7 * number + 9 * partition):
                    at_ms = NOW_MS - 60_000 + len(rows)
                    rows.append(
                        GroupOffsetRow(group, topic, topic_id, partition, offset, -1, "", at_ms, None, 0, len(rows))
                    )
    lake.publish()
    lake.store.publish_group_offsets(PublishedOffsets(rows, {0: len(rows)}))
    yield lake
    lake.close()


def test_the_report_is_what_sql_over_the_metadata_says(
    lake: WrittenLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--lake", str(lake.path), "--history", "0"]
    assert main(LagJob(), arguments, spark=spark) == 0
    monkeypatch.setattr(next_record, "SPARK_SEGMENTS", 1)  # the same, read by Spark's tasks
    assert main(LagJob(), arguments, spark=spark) == 0
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")  # Delta's 50 tasks a table are for larger logs
    for table in (paths.LAG, paths.GROUP_OFFSETS, paths.PARTITIONS):
        spark.read.format("delta").load(str(paths.table_path(lake.path, table))).createOrReplaceTempView(f"t_{table}")
    expected = spark.sql("""
        SELECT group, topic, partition, p.high_watermark - g.offset AS lag, 2L AS runs
        FROM (SELECT group, topic, partition, max_by(offset, journal_offset) AS offset
              FROM t_group_offsets GROUP BY ALL) g
        JOIN t_partitions p USING (topic, partition)""")
    found = spark.sql("SELECT group, topic, partition, lag, count(*) AS runs FROM t_lag GROUP BY ALL")
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)
    rows = JobTable(lake.path, paths.LAG).rows().to_pylist()
    assert {(row["committed_offset"] < 20, row["lag_seconds"] > 86_400) for row in rows} == {
        (True, True),
        (False, False),
    }


def test_spark_submit_runs_jobs_and_gives_their_exit_status(lake: WrittenLake, tmp_path: Path) -> None:
    properties = tmp_path / "spark.properties"
    properties.write_text("\n".join(f"{name} {value}" for name, value in (settings(tmp_path) | FEW_ROWS).items()))
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--properties-file", str(properties)]
    job = ["jobs/lag.py", "--lake", str(lake.path), "--max-lag", "90", "--html", str(tmp_path / "lag.html")]
    done = subprocess.run(
        [*submit, "--master", "local[1]", *job],
        cwd=PROJECT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == ALERT_EXIT_CODE, done.stderr[-3000:]
    assert "3 groups in 18 partitions, 3 behind" in done.stdout
    assert "lag: alert: group 'a' is" in done.stdout + done.stderr  # spark-submit puts a driver's stderr into stdout
    assert "a plot comes with the next run" in (tmp_path / "lag.html").read_text()


def test_what_retention_did_is_a_table_in_spark(lake: WrittenLake, spark: SparkSession) -> None:
    assert main(Retention(), ["--lake", str(lake.path), "--topic", "clicks"], spark=spark) == 0
    rows = spark.read.format("delta").load(str(paths.table_path(lake.path, paths.JOB_RUNS)))
    found = rows.filter("action = 'delete segments'").selectExpr(
        "topic", "partition", "after['log_start_offset'] start"
    )
    assert sorted(tuple(row) for row in found.collect()) == [("clicks", number, "20") for number in range(3)]
    assert topic_dataset(str(lake.path), "clicks").to_table().num_rows == 60
    assert topic_dataset(str(lake.path), "orders").to_table().num_rows == 120
