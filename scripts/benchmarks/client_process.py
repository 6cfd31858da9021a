"""One client in a process of its own: sends records as fast as it can. Of a round it prints the seconds, and those of processors.

`python -m benchmarks.client_process CLIENT SERVERS TOPIC RECORDS`. A line on standard input starts a round.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

from benchmarks.client_readers import READERS
from benchmarks.prepared_requests import prepared_requests

VALUE = bytes(100)
ARROW_ROWS = 100_000
LINGER_MS = 5
WAIT_S = 120

Round = Callable[[], None]
"""Sends the records of a round, and returns when all are acknowledged."""


def kafkalake_send(servers: str, topic: str, records: int) -> Round:
    from kafkalake import Producer

    producer = Producer(bootstrap_servers=servers, linger_ms=LINGER_MS)

    def send() -> None:
        for _ in range(records):
            producer.send(topic, VALUE)
        producer.flush(WAIT_S)

    return send


def kafkalake_send_arrow(servers: str, topic: str, records: int) -> Round:
    import pyarrow as pa

    from kafkalake import Producer

    producer = Producer(bootstrap_servers=servers, linger_ms=LINGER_MS)
    rows = pa.record_batch({"value": pa.array([VALUE] * ARROW_ROWS, pa.binary())})

    def send() -> None:
        for start in range(0, records, ARROW_ROWS):
            producer.send_arrow(topic, rows.slice(0, min(ARROW_ROWS, records - start)))
        producer.flush(WAIT_S)

    return send


def kafka_python(servers: str, topic: str, records: int) -> Round:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=LINGER_MS)

    def send() -> None:
        for _ in range(records):
            producer.send(topic, VALUE)
        producer.flush(WAIT_S)

    return send


def aiokafka(servers: str, topic: str, records: int) -> Round:
    from aiokafka import AIOKafkaProducer

    loop = asyncio.new_event_loop()

    async def start() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=LINGER_MS)
        await producer.start()
        return producer

    producer = loop.run_until_complete(start())

    async def send() -> None:
        for _ in range(records):
            await producer.send(topic, VALUE)
        await producer.flush()

    return lambda: loop.run_until_complete(send())


def confluent_kafka(servers: str, topic: str, records: int) -> Round:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": LINGER_MS, "acks": "all"})

    def send() -> None:
        for _ in range(records):
            while True:
                try:
                    producer.produce(topic, VALUE)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush(WAIT_S)

    return send


CLIENTS = {
    each.__name__: each
    for each in (kafkalake_send, kafkalake_send_arrow, kafka_python, aiokafka, confluent_kafka, prepared_requests)
}


def main() -> None:
    name, servers, topic, records = sys.argv[1:5]
    send = (CLIENTS | READERS)[name](servers, topic, int(records))
    for _ in sys.stdin:
        began, worked = time.perf_counter(), time.process_time()
        send()
        print(time.perf_counter() - began, time.process_time() - worked, flush=True)


if __name__ == "__main__":
    main()
