"""Calls of a producer that wait: for room, for nothing in its own callbacks; and what interceptors hear of those that fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from kafka_reference import Kafkalake
from waiting import wait_until

import kafkalake
from kafkalake import aio
from kafkalake.client.errors import BufferExhaustedError, IllegalStateError, SerializationError
from kafkalake.client.producing.interceptors import ProducerRecord
from kafkalake.errors import KafkaLakeError, MessageTooLargeError, UnknownTopicOrPartitionError

TIMEOUT_S = 60
SMALL = {"buffer.memory": 40_000, "batch.size": 4_000, "linger.ms": 0}


@pytest.fixture
def servers(_shared_kafkalake: Kafkalake, topic: str) -> str:
    """The addresses of a broker with the test's topic."""
    found = _shared_kafkalake.bootstrap_servers
    with kafkalake.Admin(bootstrap_servers=found) as admin:
        admin.create_topic(topic, partitions=1)
    return found


def test_a_send_waits_for_room_and_says_so_if_none_comes(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kafkalake.Producer({"bootstrap.servers": servers, "max.block.ms": 300, **SMALL}) as producer:
        assert producer.partitions_for(topic) == 1
        with monkeypatch.context() as patch:
            patch.setattr(producer._core.client, "prepare", lambda node_id, now_ms: False)
            sent = []
            with pytest.raises(BufferExhaustedError, match="no memory for the record in 300 ms"):
                while len(sent) < 1_000:
                    sent.append(producer.send(topic, bytes(3_000)))
        producer._wake_up()  # as the answer does for which a real connection has no room
        assert 8 <= len(sent) <= 13
        assert [future.get(TIMEOUT_S).offset for future in sent] == list(range(len(sent)))
        sent += [producer.send(topic, bytes(3_000)) for _ in range(100)]  # which waits again and again
        assert [future.get(TIMEOUT_S).offset for future in sent] == list(range(len(sent)))
        assert producer._core.accumulator.used_bytes == 0


def test_a_send_on_an_event_loop_waits_for_room_and_says_so_if_none_comes(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with aio.Producer({"bootstrap.servers": servers, "max.block.ms": 300, **SMALL}) as producer:
            await producer.send_and_wait(topic, b"first")
            with monkeypatch.context() as patch:
                patch.setattr(producer._core.client, "prepare", lambda node_id, now_ms: False)
                sent = []
                with pytest.raises(BufferExhaustedError, match="no memory for the record in 300 ms"):
                    while len(sent) < 1_000:
                        sent.append(await producer.send(topic, bytes(3_000)))
            producer._wake_up()  # as the answer does for which a real connection has no room
            sent += [await producer.send(topic, bytes(3_000)) for _ in range(100)]
            assert [(await each).offset for each in sent] == list(range(1, len(sent) + 1))

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def test_a_callback_does_not_wait_for_the_thread_that_calls_it(servers: str, topic: str) -> None:
    settings = {"bootstrap.servers": servers, "transactional.id": f"id-{topic}"}
    with kafkalake.Producer(settings) as producer:
        producer.init_transactions()
        raised: list[Exception] = []
        ended = threading.Event()
        calls: list[Callable[[], Any]] = [
            producer.flush,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send("another topic"),
            lambda: producer.send(topic, b"a").get(),
            lambda: producer.send_arrow(topic, pa.table({"value": [b"a"]})).get(TIMEOUT_S),
        ]

        def called_back(metadata: object, error: object) -> None:
            for call in calls:
                try:
                    call()
                except Exception as failed:
                    raised.append(failed)
            ended.set()

        producer.begin_transaction()
        producer.send(topic, b"a", on_delivery=called_back)
        producer.flush(TIMEOUT_S)
        assert ended.wait(TIMEOUT_S)
        assert [type(each) for each in raised] == [IllegalStateError] * len(calls)
        assert "a callback cannot wait" in str(raised[0])
        producer.send(topic, b"b")
        producer.commit_transaction()


class Counting:
    """Counts what is sent and what it hears of it."""

    def __init__(self) -> None:
        self.sent = 0
        self.errors: list[KafkaLakeError | None] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent += 1
        return record

    def on_acknowledgement(self, metadata: object, error: KafkaLakeError | None) -> None:
        self.errors.append(error)


WRONG: tuple[tuple[dict[str, Any], type[Exception]], ...] = (
    ({"value": bytes(2_000_000)}, MessageTooLargeError),
    ({"value": b"v", "partition": 7}, UnknownTopicOrPartitionError),
    ({"value": 5}, SerializationError),
    ({"value": b"v", "timestamp": "now"}, TypeError),
)
HEARD = [None, MessageTooLargeError, UnknownTopicOrPartitionError, SerializationError, SerializationError]


def test_interceptors_hear_of_each_record_that_is_refused_once(servers: str, topic: str) -> None:
    counting = Counting()
    with kafkalake.Producer(bootstrap_servers=servers, interceptors=[counting]) as producer:
        producer.send(topic, b"v").get(TIMEOUT_S)
        wait_until(lambda: counting.errors == [None])
        for wrong, error in WRONG:
            with pytest.raises(error):
                producer.send(topic, **wrong)
    assert [error and type(error) for error in counting.errors] == HEARD and counting.sent == len(HEARD)


def test_interceptors_on_an_event_loop_hear_of_each_record_that_is_refused_once(servers: str, topic: str) -> None:
    counting = Counting()

    async def run() -> None:
        async with aio.Producer(bootstrap_servers=servers, interceptors=[counting]) as producer:
            await producer.send_and_wait(topic, b"v")
            for wrong, error in WRONG:
                with pytest.raises(error):
                    await producer.send(topic, **wrong)

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
    assert [error and type(error) for error in counting.errors] == HEARD and counting.sent == len(HEARD)


class Registering:
    """A serializer, and a partitioner, that send by the same producer and wait for that, as for a schema."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.producer: kafkalake.Producer | None = None
        self.serialized = self.chosen = 0

    def serialize(self, topic: str, headers: object, value: bytes) -> bytes:
        self.serialized += 1
        self._register()
        return value

    def partition(self, topic: str, key: object, value: object, partitions: int, available: object) -> int:
        self.chosen += 1
        self._register()
        return 0

    def _register(self) -> None:
        if self.producer is not None:
            self.producer.send_arrow(self.topic, pa.table({"value": [b"schema"]}), partition=0).get(TIMEOUT_S)


def test_a_record_that_waits_for_room_is_serialized_and_given_a_partition_once(servers: str, topic: str) -> None:
    """What is called may itself wait for the producer, by whose thread the room is made."""
    own = Registering(topic)
    with kafkalake.Producer({"bootstrap.servers": servers, **SMALL}, value_serializer=own, partitioner=own) as producer:
        own.producer = producer
        senders = [threading.Thread(target=producer.send, args=[topic, bytes(30_000)]) for _ in range(20)]
        for each in senders:
            each.start()
        for each in senders:
            each.join(TIMEOUT_S)
            assert not each.is_alive()
        producer.flush(TIMEOUT_S)
    assert (own.serialized, own.chosen) == (len(senders), len(senders))
