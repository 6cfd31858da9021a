"""What a writing job does, without Spark: stage rows as its tasks do, and ask a broker to append them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
from kafka_reference import Kafkalake
from waiting import wait_until

from kafkalake.client.staged_append import ask_once
from kafkalake.spark.sink.staged_rows import RowStager
from kafkalake.spark.sink.write_target import Target
from kafkalake.storage.staged_file import StagedWriter
from kafkalake.storage.staging import commits_path, staging_path

TIMEOUT_S = 30.0


def addresses(broker: Kafkalake) -> list[tuple[str, int]]:
    return [("127.0.0.1", broker.port)]


def describe(broker: Kafkalake, *topics: str) -> dict[str, Any]:
    return ask_once(addresses(broker), {"ask": "describe", "topics": list(topics)}, TIMEOUT_S)


def targets(described: dict[str, Any]) -> dict[str, Target]:
    return {
        topic["name"]: Target(
            topic["name"], number, topic["partitions"], topic["message_bytes_max"], topic["key_required"]
        )
        for number, topic in enumerate(described["topics"])
    }


def stage(
    lake: Path, described: dict[str, Any], job: str, tasks: Sequence[Sequence[pa.RecordBatch]], *, version: int = 0
) -> dict[str, Any]:
    """Stage the rows of each task in a file of its own; the request to append them.

    They go to the one topic that was described, or to that of their column `topic`.
    """
    directory = staging_path(lake) / f"{job}-{version}"
    directory.mkdir(parents=True, exist_ok=True)
    used: set[tuple[int, int]] = set()
    files = []
    topic = described["topics"][0]["name"] if len(described["topics"]) == 1 else None
    for number, batches in enumerate(tasks):
        path = directory / f"task-{number}.arrow"
        path.unlink(missing_ok=True)
        with StagedWriter(str(path)) as writer:
            stager = RowStager(writer, targets(described), topic, described["bytes_max"], number)
            for batch in batches:
                stager.add(batch)
            stager.finish()
        used |= stager.used
        files.append((path.name, writer.bytes, writer.batches, writer.records))
    return {
        "ask": "append",
        "application": job,
        "version": version,
        "directory": directory.name,
        "topics": [(each["name"], each["id"]) for each in described["topics"]],
        "partitions": sorted(used),
        "files": files,
    }


def append(broker: Kafkalake, request: dict[str, Any], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    return ask_once(addresses(broker), request, timeout_s)


def wait_for_settled(lake: Path) -> int:
    """Until no commit is under way in the brokers' notes; the version that is committed, -1 for none."""
    versions: list[int] = []

    def is_settled() -> bool:
        notes = []
        for path in commits_path(lake).glob("*.json"):
            with suppress(FileNotFoundError):  # replaced by that of a newer coordinator
                notes.append(json.loads(path.read_text()))
        versions[:] = [note["version"] for note in notes]
        return bool(notes) and all(note["under_way"] is None for note in notes)

    wait_until(is_settled, lambda: "a commit stays under way", TIMEOUT_S)
    return max(versions)


def numbered(first: int, count: int, value_bytes: int = 100) -> pa.RecordBatch:
    """Rows with the keys `first`, `first + 1`, ... as text."""
    keys = [b"%d" % number for number in range(first, first + count)]
    values = [key.ljust(value_bytes, b".") for key in keys]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], ["key", "value"])


def consumed(servers: str, topic: str, isolation: str) -> list[tuple[int, int, bytes | None]]:
    """(partition, offset, key) of all that confluent-kafka finds in a topic; markers and aborted records are not there."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "staged",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in partitions])
    found = []
    ended: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"no end of {topic} after {TIMEOUT_S} s"
        for message in consumer.consume(1, 0.5):
            if message.error() and message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                assert not message.error(), message.error()
                found.append((message.partition(), message.offset(), message.key()))
    consumer.close()
    return found
