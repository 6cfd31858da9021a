"""One client in a process of its own: sends records as fast as it can. Of a round it prints the seconds, and those of processors.

`python -m benchmarks.client_process CLIENT SERVERS RECORDS`. A topic on a line of standard input starts a round there.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine
from typing import Any

from benchmarks.client_readers import READERS, Client, Round
from benchmarks.prepared_requests import prepared_requests

VALUE = bytes(100)
ARROW_ROWS = 100_000
LINGER_MS = 5
WAIT_S = 120


def _sending(producer: Any, records: int) -> Client:
    """Return the client of a producer that has the methods of Kafka's."""

    def begin(topic: str) -> Round:
        def send() -> None:
            for _ in range(records):
                producer.send(topic, VALUE)
            producer.flush(WAIT_S)

        producer.partitions_for(topic)
        return send

    return begin


def kafkalake_send(servers: str, records: int) -> Client:
    from kafkalake import Producer

    return _sending(Producer(bootstrap_servers=servers, linger_ms=LINGER_MS), records)


def kafkalake_send_arrow(servers: str, records: int) -> Client:
    import pyarrow as pa

    from kafkalake import Producer

    producer = Producer(bootstrap_servers=servers, linger_ms=LINGER_MS)
    rows = pa.record_batch({"value": pa.array([VALUE] * ARROW_ROWS, pa.binary())})

    def begin(topic: str) -> Round:
        def send() -> None:
            for start in range(0, records, ARROW_ROWS):
                producer.send_arrow(topic, rows.slice(0, min(ARROW_ROWS, records - start)))
            producer.flush(WAIT_S)

        producer.partitions_for(topic)
        return send

    return begin


def kafka_python(servers: str, records: int) -> Client:
    from kafka import KafkaProducer

    return _sending(KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=LINGER_MS), records)


def aiokafka(servers: str, records: int) -> Client:
    from aiokafka import AIOKafkaProducer

    loop = asyncio.new_event_loop()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return loop.run_until_complete(work)

    async def start() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=LINGER_MS)
        await producer.start()
        return producer

    producer = run(start())

    async def send(topic: str) -> None:
        for _ in range(records):
            await producer.send(topic, VALUE)
        await producer.flush()

    def begin(topic: str) -> Round:
        run(producer.partitions_for(topic))
        return lambda: run(send(topic))

    return begin


def confluent_kafka(servers: str, records: int) -> Client:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": LINGER_MS, "acks": "all"})

    def begin(topic: str) -> Round:
        def send() -> None:
            for _ in range(records):
                while True:
                    try:
                        producer.produce(topic, VALUE)
                        break
                    except BufferError:
                        producer.poll(0.01)
            producer.flush(WAIT_S)

        producer.list_topics(topic)
        return send

    return begin


CLIENTS = {
    each.__name__: each
    for each in (kafkalake_send, kafkalake_send_arrow, kafka_python, aiokafka, confluent_kafka, prepared_requests)
}


def main() -> None:
    name, servers, records = sys.argv[1:4]
    client = (CLIENTS | READERS)[name](servers, int(records))
    for line in sys.stdin:
        work = client(line.strip())
        began, worked = time.perf_counter(), time.process_time()
        work()
        print(time.perf_counter() - began, time.process_time() - worked, flush=True)


if __name__ == "__main__":
    main()
