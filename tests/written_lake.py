"""A lake written through storage and metadata, with no broker: what the tests of Spark and of datasets read.

`plain_rows` reads the same topic with pyarrow's own reader of IPC files and streams, and nothing of kafkalake.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from record_batches import Row, record_batch

from kafkalake.clock import SystemClock
from kafkalake.errors import KafkaError
from kafkalake.metadata import paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.store import PublishedState
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentKey, SegmentRow, TopicRow
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import EndMarker

BROKER = 0
ABORT, COMMIT = 0, 1


class WrittenLake:
    """A lake of one broker. Every append is visible when it returns; Delta learns of it at `publish`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = DeltaMetadataStore(path)
        self.topics: dict[str, TopicRow] = {}
        self.logs: dict[tuple[str, int], Log] = {}
        self._published: set[SegmentKey] = set()
        self._versions = 0
        self._app = str(uuid.uuid4())

    def create(self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None, **config: Any) -> None:
        """settings: of the topic, as text. config: of its logs."""
        row = TopicRow(topic, str(uuid.uuid4()), partitions, settings or {}, time.time_ns() // 1_000_000)
        self.store.create_topics([row])
        self.topics[topic] = row
        for partition in range(partitions):
            self._open(topic, partition, LogConfig(**config))

    def add_partition(self, topic: str) -> None:
        """One more, as after CreatePartitions."""
        row = self.topics[topic]
        self._open(topic, row.partitions, LogConfig())
        self.topics[topic] = replace(row, partitions=row.partitions + 1)
        self.store.alter_topics([self.topics[topic]])

    def delete_topic(self, topic: str) -> None:
        row = self.topics.pop(topic)
        for partition in range(row.partitions):
            self.logs.pop((topic, partition)).close()
            shutil.rmtree(self.directory(topic, partition))
        self.store.delete_topics([row.topic_id])

    def _open(self, topic: str, partition: int, config: LogConfig) -> None:
        directory = self.directory(topic, partition)
        directory.mkdir(parents=True)
        self.logs[topic, partition] = Log.open(
            str(directory), config, SystemClock(), topic_id=uuid.UUID(self.topics[topic].topic_id)
        )

    def directory(self, topic: str, partition: int = 0) -> Path:
        return paths.partition_path(self.path, BROKER, topic, partition)

    def append(self, topic: str, partition: int, rows: Sequence[Row], **producer: Any) -> int:
        """Append one producer batch; returns its base offset."""
        return self.append_batch(topic, partition, record_batch(rows, **producer))

    def append_batch(self, topic: str, partition: int, batch: ProducerBatch) -> int:
        """Append a batch; returns its base offset."""
        log = self.logs[topic, partition]
        (answer,) = log.append([batch], 0)
        assert not isinstance(answer, KafkaError), answer
        log.advance_high_watermark(log.log_end_offset)
        return answer.base_offset

    def append_values(self, topic: str, partition: int, values: Sequence[bytes], timestamp: int = 1_000) -> int:
        """One batch without keys or headers; timestamps count up from `timestamp` (ms)."""
        return self.append(topic, partition, [(timestamp + i, None, value, []) for i, value in enumerate(values)])

    def end_transaction(self, topic: str, partition: int, producer_id: int, control_type: int) -> None:
        log = self.logs[topic, partition]
        log.append_control(EndMarker(producer_id, 0, control_type, 0), 0)
        log.advance_high_watermark(log.log_end_offset)

    def roll(self, topic: str, partition: int = 0) -> None:
        self.logs[topic, partition].roll()

    def publish(self) -> int:
        """Copy the state of all logs into Delta, as a broker's publisher does; returns the version of `partitions`."""
        sealed, states = [], []
        for topic, partition in self.logs:
            segments, state = self.described(topic, partition)
            sealed += [row for row in segments if row.key not in self._published]
            states.append(state)
        return self.publish_rows(sealed, states)

    def publish_rows(self, sealed: Sequence[SegmentRow], states: Sequence[PartitionRow]) -> int:
        """Commit these; returns the version of `partitions`."""
        self._published |= {row.key for row in sealed}
        self._versions += 1
        now_ms = time.time_ns() // 1_000_000
        return self.store.publish(PublishedState((BROKER,), states, sealed, [], self._app, self._versions, now_ms))

    def described(self, topic: str, partition: int) -> tuple[list[SegmentRow], PartitionRow]:
        """What Delta is told of a log: its sealed segments and its state."""
        log, row = self.logs[topic, partition], self.topics[topic]
        sealed = [
            SegmentRow(
                topic,
                row.topic_id,
                partition,
                segment.base_offset,
                segment.next_offset,
                segment.generation,
                paths.relative_path(self.path, Path(segment.path)),
                segment.records,
                segment.bytes,
                segment.min_timestamp,
                segment.max_timestamp,
                segment.sealed_at_ms,
                BROKER,
            )
            for segment in log.sealed_segments()
        ]
        state = PartitionRow(
            topic,
            row.topic_id,
            partition,
            BROKER,
            0,
            (BROKER,),
            (BROKER,),
            log.log_start_offset,
            log.high_watermark,
            log.last_stable_offset,
            log.log_end_offset,
        )
        return sealed, state

    def close(self) -> None:
        for log in self.logs.values():
            log.close()
        self.logs.clear()

    def plain_rows(self, topic: str) -> list[dict[str, Any]]:
        """Every record in the files of a topic, in the columns of Spark's Kafka source, by partition and offset."""
        rows = []
        for partition in range(self.topics[topic].partitions):
            for file in sorted(self.directory(topic, partition).glob("*.arrow")):
                for batch in _batches(file):
                    rows += [_row(topic, partition, record) for record in batch.to_pylist()]
        return rows


def _batches(file: Path) -> list[pa.RecordBatch]:
    """Whatever pyarrow finds in a segment: a file when it is sealed, a stream that just ends when it is not."""
    data = file.read_bytes()
    if data.endswith(b"ARROW1"):
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            return [reader.get_batch(i) for i in range(reader.num_record_batches)]
    batches = []
    with pa.ipc.open_stream(pa.BufferReader(data[8:])) as stream:
        while True:
            try:
                batches.append(stream.read_next_batch())
            except (StopIteration, pa.ArrowInvalid):
                return batches


def _row(topic: str, partition: int, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "key": record["key"],
        "value": record["value"],
        "topic": topic,
        "partition": partition,
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "timestampType": 0,
        "headers": record["headers"] or None,
    }
