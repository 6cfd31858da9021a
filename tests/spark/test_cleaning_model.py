"""Compaction, then retention, both on Spark, of topics that hypothesis writes: what Spark reads then is what plain models keep."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chispa import assert_df_equality
from compacted_lake import HOUR_MS, CompactedTopic, compact
from compaction_model import Written, compacted
from examples import examples
from hypothesis import Phase, given
from hypothesis import strategies as st
from long_runs import ALL
from manual_clock import ManualClock
from retention_model import taken
from topic_operations import Operation, act, timed_operations
from written_lake import WrittenLake

from kafkalake.cli.log import problems_of
from kafkalake.jobs.frame import main
from kafkalake.jobs.retention import Retention
from kafkalake.storage.retention import RetentionRule, SealedRange
from kafkalake.storage.state import read_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW_MS = 10 * HOUR_MS
POLICIES = ("compact", "delete", "compact,delete")
LIMITS = st.tuples(
    st.just(-1) | st.integers(1, 9).map(lambda hours: hours * HOUR_MS), st.just(-1) | st.integers(0, 9_000)
)
"""retention.ms and retention.bytes; a segment of a batch or two has about 1,500 bytes."""
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")

Wanted = tuple[tuple[int, int], list[Operation]]


# A failing example is shown as it was found: each try costs a run of Spark, too many to look for a smaller one.
@examples(10 if ALL else 2, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(topics=st.tuples(*(st.tuples(LIMITS, st.lists(timed_operations, min_size=12, max_size=30)) for _ in POLICIES)))
def test_spark_reads_what_the_rules_of_compaction_and_retention_keep(
    spark: SparkSession, topics: Sequence[Wanted]
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        lake = WrittenLake(Path(directory) / "lake")
        left: dict[str, list[Written]] = {}
        written = {}
        for number, (policy, ((retention_ms, retention_bytes), given_operations)) in enumerate(
            zip(POLICIES, topics, strict=True)
        ):
            config = {
                "cleanup.policy": policy,
                "internal.segment.bytes": "6000",
                "retention.ms": str(retention_ms),
                "retention.bytes": str(retention_bytes),
            }
            topic = written[policy] = CompactedTopic(lake, f"topic-{number}", **config)
            act(topic, given_operations)
            cleaned_to = topic.publish() if "compact" in policy else 0
            left[policy] = compacted(topic.records, cleaned_to)
        lake.publish()
        compact(lake.path, spark, NOW_MS)
        for policy, (limits, _) in zip(POLICIES, topics, strict=True):
            start = expected_start(written[policy], left[policy], policy, limits)
            left[policy] = [record for record in left[policy] if record.offset >= start]
        assert main(Retention(), ["--lake", str(lake.path)], clock=ManualClock(NOW_MS)) == 0
        for isolation in ("read_uncommitted", "read_committed"):
            rows = [
                row
                for policy, topic in written.items()
                for row in visible(topic, left[policy], committed=isolation == "read_committed")
            ]
            check(spark, lake.path, isolation, rows)
        assert list(problems_of(lake.path)) == []
        lake.close()


def expected_start(topic: CompactedTopic, left: Sequence[Written], policy: str, limits: tuple[int, int]) -> int:
    """Where the log begins after retention, by the model and what is on the disk after compaction."""
    sealed = []
    for row in topic.lake.store.load_segments(topic.name):
        inside = [record.timestamp for record in left if row.base_offset <= record.offset < row.next_offset]
        newest_ms = max(inside, default=row.sealed_at_ms)
        size = (topic.lake.path / row.path).stat().st_size
        sealed.append(SealedRange(row.base_offset, row.next_offset, size, newest_ms))
    state = read_state(topic.lake.directory(topic.name))
    gone = taken(
        sealed,
        RetentionRule("delete" in policy, *limits),
        {},
        now_ms=NOW_MS,
        log_start=0,
        end_offset=state.high_watermark,
        active_bytes=state.active_position,
    )
    return gone[-1].next_offset if gone else 0


def visible(topic: CompactedTopic, left: Sequence[Written], *, committed: bool) -> list[tuple[Any, ...]]:
    """Spark's rows of what is left."""
    end = topic.stable_end
    return [
        (
            topic.name,
            0,
            record.offset,
            datetime.fromtimestamp(record.timestamp / 1_000, UTC),
            record.key,
            record.value,
            [(name, value) for name, value in record.headers],
        )
        for record in left
        if not committed or (not record.aborted and (end is None or record.offset < end))
    ]


def check(spark: SparkSession, lake: Path, isolation: str, rows: Sequence[tuple[Any, ...]]) -> None:
    reader = spark.read.format("kafkalake").option("lake", str(lake)).option("isolation", isolation)
    found: DataFrame = reader.option("includeHeaders", "true").option("subscribePattern", ".*").load().select(*COLUMNS)
    expected = spark.createDataFrame(list(rows), found.schema)
    assert_df_equality(found.orderBy("topic", "offset"), expected.orderBy("topic", "offset"), ignore_nullable=True)
