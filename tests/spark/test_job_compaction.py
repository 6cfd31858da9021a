"""The compaction job on Spark: beside a broker with clients at work, killed while it writes, its keys spread over tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cleaning_clients import ONCE_EVERY, key_of, newest_offsets, value_of
from cleaning_load import Load
from compacted_lake import CompactedTopic, compact
from compaction_model import compacted
from kafka_clients import Confluent, create_topic
from kafka_reference import Kafkalake
from waiting import wait_until

from kafkalake.cli.log import problems_of
from kafkalake.jobs.compaction import key_offsets
from kafkalake.jobs.compaction.command import CompactionJob
from kafkalake.jobs.frame import main
from kafkalake.metadata.delta import DeltaMetadataStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_keeps_the_newest_of_each_key(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_offsets, "PIECE_BYTES", 20_000)
    topic = CompactedTopic(tmp_path / "lake", **{"internal.segment.bytes": "120000"})
    for number in range(12):
        for batch in range(10):
            topic.write([(b"k%d" % ((number * 71 + batch * 13 + i) % 150), b"v" * 50) for i in range(30)], producer=3)
        topic.write([(None, b"no key"), (b"gone", None)])
        topic.seal()
    cleaned_to = topic.publish()
    compact(topic.lake.path, spark)
    left = compacted(topic.records, cleaned_to)
    assert topic.stored() == left
    assert len(topic.lake.store.load_segments("states")) < 12
    assert list(problems_of(topic.lake.path)) == []
    rows = spark.read.format("kafkalake").option("lake", str(topic.lake.path)).load("states").collect()
    assert sorted((row["offset"], row["key"], row["value"]) for row in rows) == [
        (record.offset, record.key, record.value) for record in left
    ]
    topic.lake.close()


@pytest.mark.long
def test_beside_a_broker_whose_clients_write_and_read_at_full_speed(
    kafkalake_broker: Callable[..., Kafkalake], spark: SparkSession
) -> None:
    broker = kafkalake_broker()
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "4000000",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "500",
    }
    create_topic(broker.bootstrap_servers, "states", config=config)
    store = DeltaMetadataStore(broker.lake)

    def compact_again(generation: int) -> None:
        assert main(CompactionJob(), ["--lake", str(broker.lake)], spark=spark) == 0
        assert max(row.generation for row in store.load_segments("states")) == generation

    with Load(broker.bootstrap_servers, "states", records_max=20_000_000, compacted=True) as load:
        load.wait_until(lambda: len(store.load_segments("states")) >= 3)
        before = load.written
        load.read_again()  # what the job is about to replace
        compact_again(1)
        assert load.written > before + 1_000  # they went on meanwhile
        load.wait_until(lambda: [offset for offset, _, _ in read(broker, 2)] == [0, ONCE_EVERY])
        load.read_again()  # what it has left
        cleaned = store.load_cleaning()[0].cleaned_offset
        load.wait_until(lambda: any(row.next_offset > cleaned for row in store.load_segments("states")))
        load.drain()
    end = load.written
    compact_again(2)
    cleaned_to = store.load_cleaning()[0].cleaned_offset
    assert 0 < load.passed_to <= cleaned_to < end
    left = [*newest_offsets(cleaned_to), *range(cleaned_to, end)]
    expected = [(offset, key_of(offset), value_of(offset)) for offset in left]
    wait_until(lambda: read(broker, len(left)) == expected, lambda: read(broker, 5))
    rows = spark.read.format("kafkalake").option("lake", str(broker.lake)).load("states").collect()
    assert sorted((row["offset"], bytes(row["key"]), bytes(row["value"])) for row in rows) == expected
    directory = broker.lake / "logs" / "0" / "states-0"
    named = {Path(row.path).name for row in store.load_segments("states")}
    wait_until(
        lambda: len({path.name for path in directory.glob("*.arrow")} - named) <= 1, lambda: sorted(directory.iterdir())
    )
    assert list(problems_of(broker.lake)) == []
    broker.kill()
    broker.start()
    assert read(broker, len(left)) == expected


def read(broker: Kafkalake, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """The first records that a client gets."""
    records = Confluent().read(broker.bootstrap_servers, "states", 0, 0, count)
    return [(record.offset, record.key, record.value) for record in records]


@pytest.mark.long
def test_a_driver_that_is_killed_while_its_tasks_write(tmp_path: Path, spark: SparkSession) -> None:
    topic = CompactedTopic(tmp_path / "lake", **{"internal.segment.bytes": "40000"})
    for number in range(40):
        topic.write([(b"k%d" % ((number * 7 + i) % 90), b"v" * 200) for i in range(100)])
        topic.seal()
    cleaned_to = topic.publish()
    directory = topic.lake.directory("states")
    script = Path(__file__).parents[2] / "jobs" / "compaction.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    job = subprocess.Popen([sys.executable, str(script), "--lake", str(topic.lake.path)], env=environment)
    wait_until(
        lambda: any(directory.glob(".compaction-*/*/*.arrow")) or job.poll() is not None,
        lambda: sorted(directory.iterdir()),
        150,
    )
    assert job.poll() is None, "it ended before it could be killed"
    job.send_signal(signal.SIGKILL)
    job.wait(30)
    assert topic.stored() == topic.sealed(topic.records)
    assert list(problems_of(topic.lake.path)) == []
    compact(topic.lake.path, spark)
    assert topic.stored() == topic.sealed(compacted(topic.records, cleaned_to))
    assert not any(directory.glob(".compaction-*"))
    topic.lake.close()
