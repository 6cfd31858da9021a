"""Clients on an event loop, used wrongly: from two tasks or loops, cancelled anywhere, dropped, after the end of their loop."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_reference import Kafkalake

from kafkalake import aio
from kafkalake.client.errors import ClientClosedError, IllegalStateError, WakeupError

TIMEOUT_S = 60
Settings = dict[str, Any]
Clients = tuple[aio.Producer, aio.Consumer, aio.Admin]
VALUES = [b"%d" % number for number in range(60)]


@pytest.fixture
def settings(_shared_kafkalake: Kafkalake) -> Settings:
    return {"bootstrap.servers": _shared_kafkalake.bootstrap_servers}


def run(scenario: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario
        assert asyncio.all_tasks() == {asyncio.current_task()}, "tasks are left"

    asyncio.run(limited())


def made(settings: Settings) -> Clients:
    more = {"group.id": f"g-{uuid.uuid4()}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return aio.Producer(settings, linger_ms=5), aio.Consumer({**settings, **more}), aio.Admin(settings)


async def close(clients: Clients) -> None:
    for client in clients:
        await client.close()
        await client.close()


async def cancelled(call: Awaitable[Any], turns: int) -> tuple[bool, Any]:
    """Cancel a call after some turns of the event loop. Return whether it was, and else its result."""
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return False, await task
    except asyncio.CancelledError:
        return True, None


def test_calls_that_are_cancelled_anywhere_lose_nothing_and_life_goes_on(settings: Settings, topic: str) -> None:
    async def scenario() -> None:
        producer, consumer, admin = clients = made(settings)
        await admin.create_topic(topic, partitions=1)
        sent: list[Any] = []
        kept: list[bytes] = []
        for number, value in enumerate(VALUES):
            sending = producer.send(topic, value)
            was_cancelled, delivery = await cancelled(sending, number) if number % 3 == 0 else (False, await sending)
            await cancelled(producer.flush(), number % 7)
            await cancelled(admin.describe_topic(topic), number % 11)
            if not was_cancelled:
                sent.append(delivery)
                kept.append(value)
                await cancelled(anext_of(delivery), number % 5)
        assert len({(await each).offset for each in [*sent, *sent]}) == len(kept) > len(VALUES) // 2
        consumer.subscribe([topic])
        found: list[bytes] = []
        for turns in range(10_000):
            _, records = await cancelled(consumer.poll(5, max_records=3), turns % 40)
            found += [record.value for record in records or ()]
            await cancelled(consumer.commit(), turns % 9)
            await cancelled(consumer.position((topic, 0)), turns % 5) if consumer.assignment() else None
            if len(found) >= len(kept):
                break
            await asyncio.sleep(0.01)
        assert found == kept, "each once, in order"
        await consumer.commit()
        committed = (await consumer.committed([(topic, 0)]))[topic, 0]
        assert committed is not None and committed.offset == len(kept)
        await close(clients)
        for turns in range(0, 20, 4):
            others = made(settings)
            others[1].subscribe([topic])
            await others[0].send(topic, b"last")
            await others[1].poll(0.05)
            for client in others:
                await cancelled(client.close(), turns)
            await close(others)

    run(scenario())


def test_polls_that_do_not_wait_return_records_and_let_other_tasks_run(settings: Settings, topic: str) -> None:
    async def scenario() -> None:
        producer, consumer, admin = clients = made(settings)
        await admin.create_topic(topic, partitions=1)
        consumer.assign([(topic, 0)])
        sending = asyncio.ensure_future(producer.send_and_wait(topic, b"v"))
        found: list[bytes] = []
        ends_s = time.monotonic() + 20
        while not found and time.monotonic() < ends_s:
            found += [record.value for record in await consumer.poll()]
        assert found == [b"v"] and sending.done()
        await close(clients)

    run(scenario())


async def anext_of(delivery: Awaitable[Any]) -> Any:
    return await delivery


def test_one_task_at_a_time_uses_a_consumer_and_nobody_a_closed_client(settings: Settings, topic: str) -> None:
    async def scenario() -> None:
        producer, consumer, admin = clients = made(settings)
        await admin.create_topic(topic, partitions=1)
        consumer.assign([(topic, 0)])
        waiting = asyncio.ensure_future(consumer.poll(30))
        await asyncio.sleep(0)
        for call in (lambda: consumer.poll(0), consumer.commit, consumer.close, consumer.unsubscribe):
            with pytest.raises(IllegalStateError, match="another task uses the consumer"):
                await call()
        threading.Thread(target=consumer.wakeup).start()
        with pytest.raises(WakeupError):
            await waiting
        first, second = await asyncio.gather(*[producer.send_and_wait(topic, b"v") for _ in range(2)])
        assert {first.offset, second.offset} == {0, 1}
        assert len(await consumer.poll(30)) >= 1
        asking = asyncio.ensure_future(admin.describe_topic("missing", wait_s=30))
        await asyncio.sleep(0.1)
        await close(clients)
        with pytest.raises(ClientClosedError):
            await asyncio.wait_for(asking, 5)
        for late in (
            lambda: producer.send(topic, b"v"),
            lambda: producer.send_arrow(topic, None),  # type: ignore[arg-type]
            producer.begin_transaction,
            lambda: consumer.poll(0),
            consumer.commit,
            admin.list_topics,
        ):
            with pytest.raises(ClientClosedError, match="is closed"):
                await late()
        for sync in (lambda: consumer.seek((topic, 0), 0), lambda: consumer.subscribe([topic]), consumer.assignment):
            with pytest.raises(ClientClosedError):
                sync()

    run(scenario())


def test_a_client_belongs_to_the_loop_that_it_was_made_on(settings: Settings, topic: str) -> None:
    outcome: list[Any] = []

    async def elsewhere(clients: Clients, delivery: Any) -> None:
        producer, consumer, admin = clients
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: producer.send(topic, b"v"),
            producer.flush,
            producer.close,
            lambda: consumer.poll(0),
            admin.list_topics,
        ]
        for call in [*calls, *([lambda: anext_of(delivery)] if not delivery.is_done else [])]:
            try:
                outcome.append(await asyncio.wait_for(call(), 5))
            except IllegalStateError as error:
                outcome.append(str(error))

    async def scenario() -> None:
        producer, consumer, admin = clients = made(settings)
        await admin.create_topic(topic, partitions=1)
        patient = aio.Producer(settings, linger_ms=60_000)
        delivery = await patient.send(topic, b"v")
        other = threading.Thread(target=lambda: asyncio.run(elsewhere(clients, delivery)))
        other.start()
        while other.is_alive():
            await asyncio.sleep(0.01)
        assert len(outcome) == 6 and all("another event loop" in str(each) for each in outcome), outcome
        await patient.close()
        assert (await delivery).offset == 0
        assert (await producer.send_and_wait(topic, b"w")).offset == 1
        consumer.assign([(topic, 0)])
        assert [record.value for record in await consumer.poll(30)] == [b"v", b"w"]
        await close(clients)

    run(scenario())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_clients_whose_loop_is_closed_say_so_and_close(settings: Settings, topic: str) -> None:
    async def begin() -> tuple[Clients, Any]:
        producer, consumer, admin = clients = made(settings)
        await admin.create_topic(topic, partitions=1)
        consumer.subscribe([topic])
        await consumer.poll(0.1)
        return clients, await producer.send(topic, b"v")

    async def end(clients: Clients) -> None:
        producer, consumer, admin = clients
        for call in (lambda: producer.send(topic, b"v"), lambda: consumer.poll(1), admin.list_topics):
            with pytest.raises(IllegalStateError, match="another event loop, which is closed"):
                await asyncio.wait_for(call(), 5)
        await close(clients)

    clients, _ = asyncio.run(begin())
    run(end(clients))


def test_a_client_that_is_dropped_warns_and_ends_its_connections(settings: Settings, topic: str) -> None:
    async def scenario() -> None:
        async def use() -> None:
            _, consumer, admin = made(settings)
            await admin.list_topics()
            consumer.assign([(topic, 0)])
            await consumer.poll(0.1)

        with pytest.warns(ResourceWarning, match="unclosed kafkalake") as warned:
            await use()
            gc.collect()
        assert len([each for each in warned if "unclosed kafkalake" in str(each.message)]) >= 2
        await asyncio.sleep(0.1)

    async def whole() -> None:
        await scenario()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(whole())


UNCLOSED = """
import asyncio, sys
import kafkalake
from kafkalake import aio

settings = {"bootstrap.servers": sys.argv[1]}

async def run():
    producer, consumer = aio.Producer(settings), aio.Consumer(settings, group_id=sys.argv[2], auto_offset_reset="earliest")
    admin = aio.Admin(settings)
    print((await producer.send_and_wait(sys.argv[2], b"v")).offset)
    consumer.subscribe([sys.argv[2]])
    print(len(await consumer.poll(20)), len(await admin.list_topics()) > 0)
    await producer.send(sys.argv[2], b"never waited for")
    return producer, consumer, admin

kept = asyncio.run(run())
blocking = kafkalake.Producer(settings), kafkalake.Consumer(settings, group_id="g3" + sys.argv[2]), kafkalake.Admin(settings)
blocking[0].send(sys.argv[2], b"v").get(20)
blocking[1].subscribe([sys.argv[2]])
blocking[1].poll(1)
print("end")
"""


def test_an_interpreter_ends_with_clients_that_nobody_closed(settings: Settings, topic: str, tmp_path: Path) -> None:
    script = tmp_path / "unclosed.py"
    script.write_text(UNCLOSED)
    command = [sys.executable, "-W", "default::ResourceWarning", str(script), settings["bootstrap.servers"], topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == 0 and ended.stdout.split() == ["0", "1", "True", "end"], ended
    for kind in ("Producer", "Consumer", "Admin"):
        assert "ResourceWarning: unclosed kafkalake" in ended.stderr and f"aio.{kind}" in ended.stderr, ended.stderr
    assert "Exception ignored" not in ended.stderr and "Traceback" not in ended.stderr, ended.stderr
