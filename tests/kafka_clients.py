"""Three Kafka clients behind one small interface, so that a scenario is written once and run by each of them.

They are other people's code on purpose: what they read back is what users see. Every call has a timeout.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic
from watermarks import watermarks

TIMEOUT_S = 30.0
UNCOMMITTED, COMMITTED = "read_uncommitted", "read_committed"


@dataclass(frozen=True)
class Record:
    """What a producer gives and a consumer gets; `offset` is -1 before it is written."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 1_700_000_000_000
    offset: int = -1


class Client(Protocol):
    """`write` returns the offsets that were acknowledged with acks=all, in order; `read` returns at `count` records."""

    name: str

    def can_write(self, record: Record) -> bool: ...
    def write(self, servers: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> list[int]: ...
    def read(
        self, servers: str, topic: str, partition: int, offset: int, count: int, isolation: str = UNCOMMITTED
    ) -> list[Record]: ...
    def offset_at(self, servers: str, topic: str, partition: int, timestamp_ms: int) -> int | None: ...
    def bounds(self, servers: str, topic: str, partition: int) -> tuple[int, int]: ...


def create_topic(
    servers: str, topic: str, partitions: int = 1, config: dict[str, str] | None = None, replicas: int = 1
) -> None:
    """Create a topic and wait until the broker has said yes."""
    admin = AdminClient({"bootstrap.servers": servers})
    created = admin.create_topics(
        [NewTopic(topic, partitions, replicas, config=config or {})], operation_timeout=TIMEOUT_S
    )
    created[topic].result(TIMEOUT_S)


class Confluent:
    """librdkafka."""

    name = "confluent-kafka"

    def can_write(self, record: Record) -> bool:
        return True

    def write(self, servers: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> list[int]:
        settings = {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "message.max.bytes": 4_000_000,
        }
        producer = confluent_kafka.Producer(settings)
        offsets: dict[int, int] = {}
        errors: list[Any] = []

        def delivered(index: int) -> Callable[[Any, Any], None]:
            def report(error: Any, message: Any) -> None:
                if error:
                    errors.append(error)
                else:
                    offsets[index] = message.offset()

            return report

        for index, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=delivered(index),
            )
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        assert not errors, errors[0]
        return [offsets[index] for index in range(len(records))]

    def _consumer(self, servers: str, isolation: str = UNCOMMITTED) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "isolation.level": isolation,
                "bootstrap.servers": servers,
                "group.id": "interop",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
            }
        )

    def read(
        self, servers: str, topic: str, partition: int, offset: int, count: int, isolation: str = UNCOMMITTED
    ) -> list[Record]:
        consumer = self._consumer(servers, isolation)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
        found: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(found), 1.0):
                assert not message.error(), message.error()
                found.append(
                    Record(
                        message.key(),
                        message.value(),
                        tuple((name, value) for name, value in message.headers() or ()),
                        message.timestamp()[1],
                        message.offset(),
                    )
                )
        consumer.close()
        return found

    def offset_at(self, servers: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer(servers)
        asked = [confluent_kafka.TopicPartition(topic, partition, timestamp_ms)]
        offset = consumer.offsets_for_times(asked, timeout=TIMEOUT_S)[0].offset
        consumer.close()
        return offset if offset >= 0 else None

    def bounds(self, servers: str, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer(servers)
        found = watermarks(consumer, topic, partition)
        consumer.close()
        return found


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"

    def can_write(self, record: Record) -> bool:
        """It refuses a header without a value and a record with neither key nor value."""
        return all(value is not None for _, value in record.headers) and (record.key, record.value) != (None, None)

    def write(self, servers: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            acks="all",
            linger_ms=5,
            max_request_size=4_000_000,
        )
        sent = [
            producer.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(TIMEOUT_S)
        offsets = [future.get(TIMEOUT_S).offset for future in sent]
        producer.close(TIMEOUT_S)
        return offsets

    def _consumer(self, servers: str, isolation: str = UNCOMMITTED) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            bootstrap_servers=servers,
            group_id=None,
            auto_offset_reset="none",
            check_crcs=True,
            isolation_level=isolation,
        )

    def read(
        self, servers: str, topic: str, partition: int, offset: int, count: int, isolation: str = UNCOMMITTED
    ) -> list[Record]:
        consumer = self._consumer(servers, isolation)
        where = kafka.TopicPartition(topic, partition)
        consumer.assign([where])
        consumer.seek(where, offset)
        found: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.poll(1000, max_records=count - len(found)).get(where, ()):
                headers = tuple((name, value) for name, value in message.headers)
                found.append(Record(message.key, message.value, headers, message.timestamp, message.offset))
        consumer.close()
        return found

    def offset_at(self, servers: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer(servers)
        where = kafka.TopicPartition(topic, partition)
        found = consumer.offsets_for_times({where: timestamp_ms})[where]
        consumer.close()
        return found.offset if found else None

    def bounds(self, servers: str, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer(servers)
        where = kafka.TopicPartition(topic, partition)
        low, high = consumer.beginning_offsets([where])[where], consumer.end_offsets([where])[where]
        consumer.close()
        return low, high


class AioKafka:
    """aiokafka."""

    name = "aiokafka"

    def can_write(self, record: Record) -> bool:
        """It refuses a record with neither key nor value."""
        return (record.key, record.value) != (None, None)

    def write(self, servers: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> list[int]:
        async def run() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=servers,
                compression_type=None if codec == "none" else codec,
                acks="all",
                enable_idempotence=True,
                linger_ms=5,
                max_request_size=4_000_000,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        partition=partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                await producer.flush()
                return [(await future).offset for future in sent]
            finally:
                await producer.stop()

        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))

    def read(
        self, servers: str, topic: str, partition: int, offset: int, count: int, isolation: str = UNCOMMITTED
    ) -> list[Record]:
        async def run(consumer: aiokafka.AIOKafkaConsumer) -> list[Record]:
            where = aiokafka.TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, offset)
            found: list[Record] = []
            deadline = time.monotonic() + TIMEOUT_S
            while len(found) < count and time.monotonic() < deadline:
                polled = await consumer.getmany(where, timeout_ms=1000, max_records=count - len(found))
                for message in polled.get(where, ()):
                    headers = tuple((name, value) for name, value in message.headers)
                    found.append(Record(message.key, message.value, headers, message.timestamp, message.offset))
            return found

        result: list[Record] = self._with_consumer(servers, run, isolation)
        return result

    def _with_consumer(
        self, servers: str, use: Callable[[aiokafka.AIOKafkaConsumer], Any], isolation: str = UNCOMMITTED
    ) -> Any:
        async def run() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=servers,
                auto_offset_reset="none",
                enable_auto_commit=False,
                isolation_level=isolation,
            )
            await consumer.start()
            try:
                return await use(consumer)
            finally:
                await consumer.stop()

        return asyncio.run(asyncio.wait_for(run(), 2 * TIMEOUT_S))

    def offset_at(self, servers: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        where = aiokafka.TopicPartition(topic, partition)

        async def run(consumer: aiokafka.AIOKafkaConsumer) -> int | None:
            found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
            return found.offset if found else None

        offset: int | None = self._with_consumer(servers, run)
        return offset

    def bounds(self, servers: str, topic: str, partition: int) -> tuple[int, int]:
        where = aiokafka.TopicPartition(topic, partition)

        async def run(consumer: aiokafka.AIOKafkaConsumer) -> tuple[int, int]:
            low = await consumer.beginning_offsets([where])
            high = await consumer.end_offsets([where])
            return low[where], high[where]

        edges: tuple[int, int] = self._with_consumer(servers, run)
        return edges


CLIENTS: list[Client] = [Confluent(), KafkaPython(), AioKafka()]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
