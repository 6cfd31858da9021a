"""The lag report of 1,000 groups in 10,000 partitions, as `spark-submit` runs it: Spark's start included, no broker needed.

Each group has committed in 100 partitions, so there are 100,000 offsets; all but one in ten of them are behind, at ten different
places of each partition.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kafka_reference import PROJECT
from local_spark import settings
from written_lake import WrittenLake

from benchmarks.kafka_tools import ToolFailed
from benchmarks.plan import Plan, progress
from benchmarks.rows import Row, number
from kafkalake.metadata.store import PublishedOffsets
from kafkalake.metadata.tables.schemas import GroupOffsetRow

LIMIT_S = 30.0
PARTITIONS_OF_TOPIC = 100
PARTITIONS_OF_GROUP = 100
RECORDS = 100
"""Of a partition, half of them in a sealed segment."""


def measure(plan: Plan) -> list[Row]:
    groups, topics = plan.size(1_000, 50), plan.size(100, 5)
    with tempfile.TemporaryDirectory(prefix="kafkalake-benchmark-", dir=plan.directory) as directory:
        lake = Path(directory) / "lake"
        progress(f"lag-report: writing {topics * PARTITIONS_OF_TOPIC:,} partitions")
        write_lake(lake, topics, groups)
        properties = Path(directory) / "spark.properties"
        given = settings(Path(directory))
        properties.write_text("\n".join(f"{name} {value}" for name, value in given.items()))
        seconds = []
        for turn in range(max(plan.rounds // 2, 1)):
            seconds.append(report_s(lake, properties))
            progress(f"lag-report: round {turn + 1}: {seconds[-1]:.1f} s")
    median = statistics.median(seconds)
    return [
        Row(
            "lag-report",
            f"lag report, {groups:,} groups, {topics * PARTITIONS_OF_TOPIC:,} partitions, "
            f"{groups * PARTITIONS_OF_GROUP:,} offsets, with Spark's start",
            f"{number(median)} s",
            "",
            "",
            f"{LIMIT_S:g} s",
            median <= LIMIT_S,
            {"kafkalake": seconds, "unit": "s"},
        )
    ]


def report_s(lake: Path, properties: Path) -> float:
    """Seconds from the command to its end. Raises `ToolFailed`."""
    submit = Path(sys.executable).parent / "spark-submit"
    job = ["jobs/lag.py", "--lake", str(lake), "--show", "5", "--history", "0"]
    command = [str(submit), "--properties-file", str(properties), "--master", "local[2]", *job]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    started = time.monotonic()
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300)
    seconds = time.monotonic() - started
    if done.returncode:
        raise ToolFailed(f"jobs/lag.py: {done.stderr[-2000:]}")
    progress(done.stdout.strip().splitlines()[-1])
    return seconds


def write_lake(path: Path, topics: int, groups: int) -> None:
    """Topics of 100 partitions with records of the last minutes, published; and what groups have committed."""
    lake = WrittenLake(path)
    now_ms = time.time_ns() // 1_000_000
    values = [b"v" * 100] * (RECORDS // 2)
    sealed, states = [], []
    for number_of_topic in range(topics):
        topic = f"topic-{number_of_topic:03}"
        lake.create(topic, PARTITIONS_OF_TOPIC)
        for partition in range(PARTITIONS_OF_TOPIC):
            lake.append_values(topic, partition, values, timestamp=now_ms - 600_000)
            lake.roll(topic, partition)
            lake.append_values(topic, partition, values, timestamp=now_ms - 300_000)
            segments, state = lake.described(topic, partition)
            sealed += segments
            states.append(state)
        lake.close()  # files of 10,000 logs are more than a process may hold open
    lake.publish_rows(sealed, states)
    rows = [
        GroupOffsetRow(
            f"group-{group:04}",
            f"topic-{partition // PARTITIONS_OF_TOPIC:03}",
            None,
            partition % PARTITIONS_OF_TOPIC,
            RECORDS - (group % 10) * 10,
            -1,
            "",
            now_ms,
            None,
            0,
            group,
        )
        for group in range(groups)
        for partition in ((group * 37 + each) % (topics * PARTITIONS_OF_TOPIC) for each in range(PARTITIONS_OF_GROUP))
    ]
    lake.store.publish_group_offsets(PublishedOffsets(rows, {0: groups}))
