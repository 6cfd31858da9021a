"""What an application gives to a client and what raises more than an `Exception` there, as `sys.exit` or a cancelled task do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from kafka_reference import Kafkalake
from waiting import wait_until

import kafkalake
from kafkalake import aio
from kafkalake.client.consuming.assignors import RangeAssignor
from kafkalake.client.errors import AssignorError
from kafkalake.client.producing.interceptors import ProducerRecord
from kafkalake.topic_partition import TopicPartition

TIMEOUT_S = 60


@pytest.fixture
def servers(_shared_kafkalake: Kafkalake, topic: str) -> str:
    """The addresses of a broker with the test's topic, of two partitions."""
    found = _shared_kafkalake.bootstrap_servers
    with kafkalake.Admin(bootstrap_servers=found) as admin:
        admin.create_topic(topic, partitions=2)
    return found


def cancel(*_: object) -> None:
    raise asyncio.CancelledError


def leave(*_: object) -> None:
    sys.exit("of the test")


class Leaving:
    """An interceptor that raises where it hears of records and commits."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: object, error: object) -> None:
        sys.exit("of the test")

    def on_consume(self, records: Sequence[Any]) -> Sequence[Any]:
        return records

    def on_commit(self, offsets: object) -> None:
        sys.exit("of the test")


@pytest.mark.parametrize("raising", [cancel, leave])
def test_a_callback_that_raises_anything_leaves_other_records_and_those_who_wait_alone(
    servers: str, topic: str, raising: Callable[..., None]
) -> None:
    heard: list[object] = []
    settings = {"bootstrap.servers": servers, "linger.ms": 50}
    with kafkalake.Producer(settings, interceptors=[Leaving()]) as producer:
        futures = [producer.send(topic, b"a", partition=each, on_delivery=raising) for each in (0, 1)]
        futures[0].add_done_callback(raising)
        producer.send(topic, b"b", partition=0, on_delivery=lambda metadata, error: heard.append(error))
        producer.flush(TIMEOUT_S)
        assert [future.get(TIMEOUT_S).offset for future in futures] == [0, 0] and heard == [None]
        assert producer.send(topic, b"c", partition=0).get(TIMEOUT_S).offset == 2


def test_a_callback_that_raises_what_ends_the_producer_leaves_nobody_waiting(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records fail one by one as the producer is closed, with a callback each that raises."""
    with kafkalake.Producer({"bootstrap.servers": servers}) as producer:
        assert producer.partitions_for(topic) == 2
        monkeypatch.setattr(producer._core.client, "prepare", lambda node_id, now_ms: False)
        futures = [producer.send(topic, b"a", partition=each, on_delivery=leave) for each in (0, 1)]
        producer.close(0)
        assert all(future.is_done for future in futures)


def test_a_callback_on_an_event_loop_that_raises_anything_leaves_others_alone(servers: str, topic: str) -> None:
    async def run() -> None:
        async with aio.Producer(bootstrap_servers=servers) as producer:
            sent = [await producer.send(topic, b"a", partition=each, on_delivery=cancel) for each in (0, 1)]
            await producer.flush(TIMEOUT_S)
            assert [(await each).offset for each in sent] == [0, 0]
            assert (await producer.send_and_wait(topic, b"b", partition=0)).offset == 1

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def test_a_callback_on_an_event_loop_may_end_the_process(servers: str, topic: str) -> None:
    """After the records whose deliveries came with that of its record."""
    sent: list[aio.Delivery] = []

    async def run() -> None:
        async with aio.Producer({"bootstrap.servers": servers, "linger.ms": 50}) as producer:
            sent.extend([await producer.send(topic, b"a", partition=0, on_delivery=leave) for _ in range(2)])
            await producer.flush(TIMEOUT_S)
            await asyncio.sleep(TIMEOUT_S)

    with pytest.raises(SystemExit, match="of the test"):
        asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
    assert [each.is_done for each in sent] == [True, True]


class LeavingAssignor(RangeAssignor):
    """An assignor that raises once."""

    calls = 0

    def assign(self, members: Mapping[str, Any], partitions: Mapping[str, int]) -> dict[str, Sequence[TopicPartition]]:
        self.calls += 1
        if self.calls == 1:
            sys.exit("of the test")
        return super().assign(members, partitions)  # type: ignore[return-value]


def test_a_consumer_sends_heartbeats_after_its_assignor_or_interceptor_has_raised_anything(
    servers: str, topic: str
) -> None:
    quick = {"heartbeat.interval.ms": 100, "session.timeout.ms": 6_000, "enable.auto.commit": False}
    settings: dict[str, object] = {"bootstrap.servers": servers, "group.id": topic, **quick}
    assignor = LeavingAssignor()
    with kafkalake.Consumer(settings, assignors=[assignor], interceptors=[Leaving()]) as consumer:
        consumer.subscribe(topic)

        def is_assigned() -> bool:
            try:
                consumer.poll(0.1)
            except (SystemExit, AssignorError):
                assert assignor.calls == 1
            return len(consumer.assignment()) == 2

        wait_until(is_assigned)
        before = consumer.metrics()
        consumer.commit_async({(topic, 0): 0})
        wait_until(lambda: consumer._keeper is not None and not consumer._calls._commits_under_way)
        assert consumer._keeper is not None and consumer._keeper.is_alive(), before
        consumer.commit({(topic, 0): 0})
