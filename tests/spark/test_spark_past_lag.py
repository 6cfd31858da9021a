"""`group_offsets` and `partitions` as they were: the lag of a group at any past time, in SQL."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from waiting import wait_for_later_files
from written_lake import WrittenLake

from kafkalake.metadata import paths
from kafkalake.metadata.store import PublishedOffsets
from kafkalake.metadata.tables.schemas import GroupOffsetRow

LAG = """
SELECT c.group, c.topic, c.partition, c.offset, p.high_watermark - c.offset AS lag
FROM (
  SELECT *, row_number() OVER (PARTITION BY `group`, topic, partition ORDER BY journal_offset DESC, committed_at DESC) AS age
  FROM delta.`{lake}/metadata/group_offsets` {committed}
) AS c
JOIN delta.`{lake}/metadata/partitions` {published} AS p ON p.topic = c.topic AND p.partition = c.partition
WHERE c.age = 1 AND c.offset IS NOT NULL
ORDER BY c.group, c.partition
"""
"""The query that the README shows."""

STEPS = [
    # what is appended to each partition, what the groups commit, and the lags that follow
    (
        100,
        {("etl", 0): 40, ("etl", 1): 100, ("web", 0): 0},
        [("etl", 0, 40, 60), ("etl", 1, 100, 0), ("web", 0, 0, 100)],
    ),
    (50, {("etl", 0): 150, ("web", 0): None}, [("etl", 0, 150, 0), ("etl", 1, 100, 50)]),
    (10, {("etl", 1): 155}, [("etl", 0, 150, 10), ("etl", 1, 155, 5)]),
]


def test_the_lag_of_any_group_at_any_past_time(spark: SparkSession, tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", 2)
    topic_id = lake.topics["clicks"].topic_id
    past = []
    for number, (records, committed, _) in enumerate(STEPS):
        for partition in range(2):
            lake.append_values("clicks", partition, [b"value"] * records)
        rows = [
            GroupOffsetRow(group, "clicks", topic_id, partition, offset, -1, "", 1_000 * number, None, 0, number)
            for (group, partition), offset in committed.items()
        ]
        versions = lake.store.publish_group_offsets(PublishedOffsets(rows, {0: number + 1})), lake.publish()
        past.append((*versions, _moment_after(lake.path)))
    lake.close()
    offsets_version, partitions_version, _ = past[0]
    assert _lags(spark, lake, f"VERSION AS OF {offsets_version}", f"VERSION AS OF {partitions_version}") == STEPS[0][2]
    assert _lags(spark, lake, *[f"TIMESTAMP AS OF '{past[1][2]}'"] * 2) == STEPS[1][2]
    assert _lags(spark, lake, "", "") == STEPS[2][2]


def _lags(spark: SparkSession, lake: WrittenLake, committed: str, published: str) -> list[tuple[str, int, int, int]]:
    found = spark.sql(LAG.format(lake=lake.path, committed=committed, published=published)).collect()
    return [(row.group, row.partition, row.offset, row.lag) for row in found]


def _moment_after(lake: Path) -> str:
    """A time (UTC) after every commit so far and before every later one; Delta's time of a version is its file's, in ms."""
    commits = [
        file
        for table in (paths.GROUP_OFFSETS, paths.PARTITIONS)
        for file in (paths.table_path(lake, table) / "_delta_log").glob("*.json")
    ]
    after_ms = max(file.stat().st_mtime_ns for file in commits) // 1_000_000 + 1
    wait_for_later_files(after_ms / 1000)
    return datetime.fromtimestamp(after_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
