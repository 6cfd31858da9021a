"""Polls that a rebalance listener makes, and that end in their middle, with the consumer of threads and that of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest
from kafka_reference import Kafkalake

import kafkalake
from kafkalake import aio
from kafkalake.client.consuming.listeners import RebalanceListener
from kafkalake.client.errors import IllegalStateError
from kafkalake.topic_partition import TopicPartition

TIMEOUT_S = 60


class Polling(RebalanceListener):
    """Polls its consumer again while it is assigned partitions for the first time."""

    def __init__(self, consumer: kafkalake.Consumer | aio.Consumer) -> None:
        self.consumer = consumer
        self.calls = 0

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> object:
        self.calls += 1
        return self.consumer.poll(1) if self.calls == 1 else None


@pytest.fixture
def settings(_shared_kafkalake: Kafkalake, topic: str) -> dict[str, object]:
    """The settings of a consumer in a group, with a record to read."""
    servers = _shared_kafkalake.bootstrap_servers
    with kafkalake.Producer(bootstrap_servers=servers) as producer, kafkalake.Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
        producer.send(topic, b"v").get(TIMEOUT_S)
    return {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}


def test_a_listener_cannot_poll(settings: dict[str, object], topic: str) -> None:
    with kafkalake.Consumer(settings) as consumer:
        listener = Polling(consumer)
        consumer.subscribe(topic, listener=listener)
        with pytest.raises(IllegalStateError, match="cannot call poll"):
            consumer.poll(TIMEOUT_S)
        assert [each.value for each in consumer.poll(TIMEOUT_S)] == [b"v"] and listener.calls == 2


def test_a_listener_cannot_poll_on_an_event_loop(settings: dict[str, object], topic: str) -> None:
    async def run() -> None:
        async with aio.Consumer(settings) as consumer:
            listener = Polling(consumer)
            consumer.subscribe(topic, listener=listener)
            with pytest.raises(IllegalStateError, match="cannot call poll"):
                await consumer.poll(TIMEOUT_S)
            assert [each.value for each in await consumer.poll(TIMEOUT_S)] == [b"v"] and listener.calls == 2

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def test_a_poll_that_is_interrupted_is_over(
    settings: dict[str, object], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(wait_ms: int) -> None:
        raise KeyboardInterrupt

    with kafkalake.Consumer(settings) as consumer:
        consumer.assign([(topic, 0)])
        with monkeypatch.context() as patch:
            patch.setattr(consumer._edge, "poll", interrupt)
            with pytest.raises(KeyboardInterrupt) as interrupted:
                consumer.poll(TIMEOUT_S)
        assert [each.value for each in consumer.poll(TIMEOUT_S)] == [b"v"]
        assert interrupted.tb  # its frames were kept so far
