"""Interceptors of a consumer: called by the thread that calls the consumer, while heartbeats go on, and of each commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kafka_clients import create_topic
from kafka_reference import BrokerProcess
from waiting import wait_until

import kafkalake
from kafkalake.client.records import OffsetAndMetadata

TIMEOUT_S = 60


class Using:
    """An interceptor that uses the consumer, and looks whether the thread that sends heartbeats can use it meanwhile."""

    def __init__(self) -> None:
        self.consumer: kafkalake.Consumer | None = None
        self.commits: list[dict[Any, Any]] = []
        self.threads: set[threading.Thread] = set()
        self.waits = 0
        self.partition = ("", 0)

    def on_consume(self, records: Sequence[Any]) -> Sequence[Any]:
        self._use()
        return records

    def on_commit(self, offsets: Any) -> None:
        self.commits.append(dict(offsets))
        self._use()

    def _use(self) -> None:
        assert self.consumer is not None
        self.threads.add(threading.current_thread())
        self.consumer.position(self.partition, TIMEOUT_S)
        took: list[bool] = []

        def take() -> None:
            assert self.consumer is not None
            if self.consumer._lock.acquire(timeout=5):
                self.consumer._lock.release()
                took.append(True)

        taking = threading.Thread(target=take)
        taking.start()
        taking.join(TIMEOUT_S)
        self.waits += not took


@pytest.fixture
def using(any_broker: BrokerProcess, topic: str) -> Iterator[Using]:
    """An interceptor of a consumer of the test's topic, which has one record and commits automatically each second."""
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, 1)
    with kafkalake.Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, b"v")
    found = Using()
    found.partition = (topic, 0)
    settings = {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    with kafkalake.Consumer({**settings, "auto.commit.interval.ms": 1_000}, interceptors=[found]) as consumer:
        found.consumer = consumer
        consumer.subscribe(topic)
        wait_until(lambda: consumer.poll(0.1))
        yield found
        found.commits.clear()
    assert found.commits == [{found.partition: OffsetAndMetadata(1, 0)}], "of the close"


def test_interceptors_are_called_by_the_applications_thread_and_hear_of_each_commit(using: Using) -> None:
    consumer = using.consumer
    assert consumer is not None
    consumer.commit_async({using.partition: 0})
    wait_until(lambda: not consumer._calls._commits_under_way)  # by the thread that sends heartbeats
    consumer.commit({using.partition: 1})
    assert using.commits[-2:] == [{using.partition: OffsetAndMetadata(0)}, {using.partition: OffsetAndMetadata(1)}]
    using.commits.clear()
    wait_until(lambda: consumer.poll(0.1) or using.commits == [{using.partition: OffsetAndMetadata(1, 0)}])
    assert using.threads == {threading.current_thread()} and not using.waits
