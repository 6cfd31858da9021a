"""Transactional producers of three Kafka clients behind one small interface, so that a scenario is written once.

Each of them flushes what was sent before it is asked for more, so that a scenario knows what the broker has. What a broker
refuses because of a newer producer with the same transactional id is raised as `Fenced`, however the client calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

TIMEOUT_S = 30.0


class Fenced(Exception):
    """Another producer has taken over the transactional id."""


class TransactionalProducer(Protocol):
    """A producer that has its producer id (`init_transactions` is done by its constructor)."""

    name: str

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: bytes) -> None:
        """Send and wait for the acknowledgement."""

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Send one offset of a group without members to the transaction."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class ConfluentTransactions:
    """librdkafka."""

    name = "confluent-kafka"

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._servers = servers
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
                "error_cb": lambda error: (
                    None
                ),  # without it a fatal error is raised from within the callback of a delivery
            }
        )
        with self._fencing():
            self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes, key: bytes | None = None) -> None:
        # Without a callback: a fatal error, as of a fenced producer, is raised by `flush`, an abortable one by what comes next.
        self._producer.produce(topic, value, key, partition=partition)
        with self._fencing():
            assert self._producer.flush(TIMEOUT_S) == 0

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._servers, "group.id": group})
        with self._fencing():
            self._producer.send_offsets_to_transaction(
                [confluent_kafka.TopicPartition(topic, partition, offset)],
                consumer.consumer_group_metadata(),
                TIMEOUT_S,
            )
        consumer.close()

    def commit(self) -> None:
        with self._fencing():
            self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        with self._fencing():
            self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        """It has no close: what is open stays so, as if the process had died."""

    @contextlib.contextmanager
    def _fencing(self) -> Iterator[None]:
        try:
            yield
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_PURGE_QUEUE"):
                raise Fenced from error
            raise


class KafkaPythonTransactions:
    """kafka-python."""

    name = "kafka-python"

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, linger_ms=0
        )
        with self._fencing():
            self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        with self._fencing():
            self._producer.send(topic, value=value, partition=partition).get(TIMEOUT_S)

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        where, what = kafka.TopicPartition(topic, partition), kafka.OffsetAndMetadata(offset, "", -1)
        with self._fencing():
            self._producer.send_offsets_to_transaction({where: what}, kafka.ConsumerGroupMetadata(group, -1, "", None))

    def commit(self) -> None:
        with self._fencing():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with self._fencing():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)

    @contextlib.contextmanager
    def _fencing(self) -> Iterator[None]:
        try:
            yield
        except kafka.errors.KafkaError as error:
            if any(word in f"{type(error).__name__} {error}" for word in ("Fenced", "ProducerEpoch", "fenced")):
                raise Fenced from error
            raise


class AioKafkaTransactions:
    """aiokafka, its loop in a thread of its own."""

    name = "aiokafka"

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            await producer.start()
            return producer

        self._producer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise Fenced from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        where = aiokafka.TopicPartition(topic, partition)
        self._run(self._producer.send_offsets_to_transaction({where: offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._run(asyncio.wait_for(self._producer.stop(), 5))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)


TRANSACTIONAL_CLIENTS: list[Any] = [ConfluentTransactions, KafkaPythonTransactions, AioKafkaTransactions]
