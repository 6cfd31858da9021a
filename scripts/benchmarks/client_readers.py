"""Consumers of Python for `client_process`: a round reads the whole partition from its first record on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache

Round = Callable[[], None]
"""Sends or reads the records of a round, and returns when all are acknowledged, or there."""
Client = Callable[[str], Round]
"""Returns the round for a topic, of which the client knows where it is then."""
WAIT_S = 1.0
BATCH = 10_000


def kafkalake_poll(servers: str, topic: str, records: int) -> Round:
    from kafkalake import Consumer

    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([(topic, 0)])

    def read() -> None:
        consumer.seek_to_beginning()
        count = 0
        while count < records:
            count += len(consumer.poll(WAIT_S))

    return read


def kafkalake_poll_arrow(servers: str, topic: str, records: int) -> Round:
    from kafkalake import Consumer

    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([(topic, 0)])

    def read() -> None:
        consumer.seek_to_beginning()
        count = 0
        while count < records:
            count += sum(batch.num_rows for batch in consumer.poll_arrow(WAIT_S))

    return read


def kafka_python_poll(servers: str, topic: str, records: int) -> Round:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    place = TopicPartition(topic, 0)
    consumer.assign([place])

    def read() -> None:
        consumer.seek_to_beginning(place)
        count = 0
        while count < records:
            count += sum(map(len, consumer.poll(1_000).values()))

    return read


def aiokafka_poll(servers: str, topic: str, records: int) -> Round:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    loop = asyncio.new_event_loop()
    place = TopicPartition(topic, 0)

    async def start() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
        await consumer.start()
        consumer.assign([place])
        return consumer

    consumer = loop.run_until_complete(start())

    async def read() -> None:
        await consumer.seek_to_beginning(place)
        count = 0
        while count < records:
            count += sum(map(len, (await consumer.getmany(timeout_ms=1_000, max_records=500)).values()))

    return lambda: loop.run_until_complete(read())


def confluent_kafka_consume(servers: str, topic: str, records: int) -> Round:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "benchmark", "enable.auto.commit": False})

    def read() -> None:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        count = 0
        while count < records:
            count += len(consumer.consume(BATCH, WAIT_S))

    return read


def _of_topic(reader: Callable[[str, str, int], Round]) -> Callable[[str, int], Client]:
    """Return the client that makes a reader for the topic of its first round, and reads that again in each."""

    def client(servers: str, records: int) -> Client:
        return cache(lambda topic: reader(servers, topic, records))

    return client


READERS = {
    each.__name__: _of_topic(each)
    for each in (kafkalake_poll, kafkalake_poll_arrow, kafka_python_poll, aiokafka_poll, confluent_kafka_consume)
}
