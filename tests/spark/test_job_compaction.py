"""The compaction job on Spark: beside a broker with clients at work, killed while it writes, its keys spread over tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from compacted_lake import CompactedTopic, compact
from compaction_model import compacted
from kafka_clients import Confluent, create_topic
from kafka_reference import Kafkalake

from kafkalake.cli.log import problems_of
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.spark import key_offsets
from kafkalake.spark.compaction import CompactionJob
from kafkalake.spark.job import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 40


def test_spark_keeps_the_newest_of_each_key(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_offsets, "PIECE_BYTES", 20_000)
    topic = CompactedTopic(tmp_path / "lake", **{"segment.bytes": "120000"})
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


class Load:
    """A producer and a consumer at full speed on threads of their own; what goes wrong is in `errors`."""

    def __init__(self, broker: Kafkalake) -> None:
        self.written: dict[bytes, bytes] = {}
        self.seen: dict[bytes, bytes] = {}
        self.errors: list[str] = []
        self.stop_writing = threading.Event()
        self.stop_reading = threading.Event()
        self.position = 0
        self._servers = broker.bootstrap_servers
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._read)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_writing.set()
        self.stop_reading.set()
        for thread in self._threads:
            thread.join(60)

    def drain(self) -> None:
        """End the writing, and wait until the consumer has all."""
        self.stop_writing.set()
        self._threads[0].join(60)
        end = Confluent().bounds(self._servers, "states", 0)[1]
        deadline = time.monotonic() + 60
        while self.position < end and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.position == end

    def _write(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 2}
        )

        def report(error: Any, message: Any) -> None:
            if error:
                self.errors.append(str(error))

        number = 0
        while not self.stop_writing.is_set():
            key, value = b"k%d" % (number * 7 % KEYS), b"%d" % number + bytes(100)
            producer.produce("states", value, key, on_delivery=report)
            self.written[key] = value
            number += 1
            if number % 200 == 0:
                producer.poll(0)
                self.stop_writing.wait(0.05)
        assert producer.flush(60) == 0

    def _read(self) -> None:
        consumer = Confluent()._consumer(self._servers)
        consumer.assign([confluent_kafka.TopicPartition("states", 0, 0)])
        while not self.stop_reading.is_set():
            for message in consumer.consume(1_000, 0.2):
                if message.error() or message.offset() < self.position:
                    self.errors.append(str(message.error() or f"{message.offset()} after {self.position}"))
                self.position = message.offset() + 1
                self.seen[message.key()] = message.value()
        consumer.close()


def test_beside_a_broker_whose_clients_write_and_read_at_full_speed(
    kafkalake_broker: Callable[..., Kafkalake], spark: SparkSession
) -> None:
    broker = kafkalake_broker()
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "400000",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "500",
    }
    create_topic(broker.bootstrap_servers, "states", config=config)
    store = DeltaMetadataStore(broker.lake)
    with Load(broker) as load:
        for round_number in range(1, 3):
            wait_for_segments(store, len(store.load_segments("states")) + 4)
            assert main(CompactionJob(), ["--lake", str(broker.lake)], spark=spark) == 0
            assert max(row.generation for row in store.load_segments("states")) == round_number
        load.drain()
        assert load.errors == []
        assert load.seen == load.written
    wait_for(lambda: Confluent().read(broker.bootstrap_servers, "states", 0, 0, 1)[0].offset > 0)
    rows = spark.read.format("kafkalake").option("lake", str(broker.lake)).load("states").collect()
    arrow = sorted((row["offset"], bytes(row["key"]), bytes(row["value"])) for row in rows)
    read = Confluent().read(broker.bootstrap_servers, "states", 0, 0, len(arrow))
    assert [(record.offset, record.key, record.value) for record in read] == arrow
    assert {key: value for _, key, value in arrow} == load.written
    directory = broker.lake / "logs" / "0" / "states-0"
    named = {Path(row.path).name for row in store.load_segments("states")}
    wait_for(lambda: len({path.name for path in directory.glob("*.arrow")} - named) <= 1)
    assert list(problems_of(broker.lake)) == []
    broker.kill()
    broker.start()
    again = Confluent().read(broker.bootstrap_servers, "states", 0, 0, len(arrow))
    assert [(record.offset, record.key, record.value) for record in again] == arrow


def wait_for_segments(store: DeltaMetadataStore, count: int) -> None:
    wait_for(lambda: len(store.load_segments("states")) >= count)


def wait_for(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def test_a_driver_that_is_killed_while_its_tasks_write(tmp_path: Path, spark: SparkSession) -> None:
    topic = CompactedTopic(tmp_path / "lake", **{"segment.bytes": "40000"})
    for number in range(40):
        topic.write([(b"k%d" % ((number * 7 + i) % 90), b"v" * 200) for i in range(100)])
        topic.seal()
    cleaned_to = topic.publish()
    directory = topic.lake.directory("states")
    script = Path(__file__).parents[2] / "jobs" / "compaction.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    job = subprocess.Popen([sys.executable, str(script), "--lake", str(topic.lake.path)], env=environment)
    wait_for(lambda: any(directory.glob(".compaction-*/*/*.arrow")) or job.poll() is not None, 150)
    assert job.poll() is None, "it ended before it could be killed"
    job.send_signal(signal.SIGKILL)
    job.wait(30)
    assert topic.stored() == topic.sealed(topic.records)
    assert list(problems_of(topic.lake.path)) == []
    compact(topic.lake.path, spark)
    assert topic.stored() == topic.sealed(compacted(topic.records, cleaned_to))
    assert not any(directory.glob(".compaction-*"))
    topic.lake.close()
