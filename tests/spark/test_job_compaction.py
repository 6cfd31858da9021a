"""The compaction job on lakes: against a plain model, killed and run again, broker up and down, clients at work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from compaction_model import Written, compacted
from record_batches import rows_of
from written_lake import WrittenLake

from kafkalake.cli.log import problems_of
from kafkalake.clock import ManualClock
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.spark.compaction import CompactionJob
from kafkalake.spark.job import main
from kafkalake.storage.segment_reader import read_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 24 * 60 * 60 * 1000
CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path / "lake")
    yield lake
    lake.close()


def create(lake: WrittenLake, topic: str = "states", **config: str) -> None:
    lake.create(topic)
    row = next(row for row in lake.store.load_topics() if row.topic == topic)
    from dataclasses import replace

    lake.store.alter_topic(replace(row, config={**CONFIG, **config}))


class Topic:
    """Writes to a topic and remembers what."""

    def __init__(self, lake: WrittenLake, topic: str = "states") -> None:
        self.lake = lake
        self.topic = topic
        self.records: list[Written] = []
        self._sequences: dict[int, int] = {}

    def write(
        self, pairs: list[tuple[bytes | None, bytes | None]], producer: int = -1, aborted: bool = False, **more: object
    ) -> None:
        rows = [(1_000 + len(self.records) + i, key, value, [("h", b"%d" % i)]) for i, (key, value) in enumerate(pairs)]
        options: dict[str, object] = {}
        if producer >= 0:
            options = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self._sequences.get(producer, 0),
                **more,
            }
            self._sequences[producer] = self._sequences.get(producer, 0) + len(pairs)
        base = self.lake.append(self.topic, 0, rows, **options)
        for i, (timestamp, key, value, headers) in enumerate(rows):
            self.records.append(Written(base + i, key, value, timestamp, tuple(headers), aborted))

    def end(self, producer: int, kind: int) -> None:
        self.lake.end_transaction(self.topic, 0, producer, kind)

    def roll(self) -> None:
        self.lake.roll(self.topic)


def stored(lake: Path, topic: str = "states") -> list[Written]:
    """Every record in the sealed segments that Delta names, by our segment reader."""
    found = []
    for row in DeltaMetadataStore(lake, create=False).load_segments(topic):
        for messages in read_messages(lake / row.path, row.base_offset, row.next_offset):
            for offset, (timestamp, key, value, headers) in rows_of(messages):
                found.append(Written(offset, key, value, timestamp, tuple(headers)))
    return found


def plain(records: list[Written]) -> list[Written]:
    from dataclasses import replace

    return [replace(record, aborted=False) for record in records]


def compact(lake: WrittenLake, spark: SparkSession, now_ms: int = 10 * DAY_MS, *more: str) -> None:
    assert main(CompactionJob(), ["--lake", str(lake.path), *more], spark=spark, clock=ManualClock(now_ms)) == 0


def test_the_newest_record_of_each_key_stays_across_segments(lake: WrittenLake, spark: SparkSession) -> None:
    create(lake)
    topic = Topic(lake)
    for number in range(6):
        for batch in range(5):
            topic.write([(b"k%d" % ((number * 7 + batch * 3 + i) % 11), b"%d" % i) for i in range(4)])
        topic.write([(None, b"no key"), (b"gone", None if number else b"x")])
        topic.roll()
    lake.publish()
    before = len(lake.store.load_segments("states"))
    end = topic.records[-1].offset + 1
    compact(lake, spark)
    assert stored(lake.path) == compacted(topic.records, end)
    rows = lake.store.load_segments("states")
    assert (len(rows), rows[0].base_offset, rows[-1].next_offset) == (1, 0, end) and before == 6
    assert list(problems_of(lake.path)) == []
    lake_rows = spark.read.format("kafkalake").option("lake", str(lake.path)).load("states").orderBy("offset").collect()
    assert [(row["offset"], row["key"], row["value"]) for row in lake_rows] == [
        (record.offset, record.key, record.value) for record in compacted(topic.records, end)
    ]
