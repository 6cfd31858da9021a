"""The end of a client: closed while others wait, from two threads, with an open transaction, in a process that inherited it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import uuid
from collections.abc import Collection
from pathlib import Path

import pytest
from kafka_reference import Kafkalake
from waiting import wait_until

import kafkalake
from kafkalake import aio
from kafkalake.client.consuming.listeners import RebalanceListener
from kafkalake.client.errors import ClientClosedError, ClientTimeoutError
from kafkalake.topic_partition import TopicPartition

TIMEOUT_S = 60


def test_the_shorter_time_counts_when_two_threads_close_a_producer(
    _shared_kafkalake: Kafkalake, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = _shared_kafkalake.bootstrap_servers
    with kafkalake.Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
    producer = kafkalake.Producer(bootstrap_servers=servers)
    assert producer.partitions_for(topic) == 1
    monkeypatch.setattr(producer._core.client, "prepare", lambda node_id, now_ms: False)
    future = producer.send(topic, b"is not sent")
    patient = [threading.Thread(target=call) for call in (producer.close, producer.flush)]
    for each in patient:
        each.start()
    wait_until(lambda: producer._is_closed)
    producer.close(0.01)
    for each in patient:
        each.join(TIMEOUT_S)
        assert not each.is_alive()
    with pytest.raises(ClientClosedError):
        future.get(0)
    producer.close()
    for call in (
        lambda: producer.send(topic, b"v"),
        lambda: producer.partitions_for("other"),
        producer.begin_transaction,
    ):
        with pytest.raises(ClientClosedError, match="the producer is closed"):
            call()


def test_a_transaction_that_is_open_when_its_producer_is_closed_is_aborted(
    _shared_kafkalake: Kafkalake, topic: str
) -> None:
    servers = _shared_kafkalake.bootstrap_servers
    names = [f"{kind}-{uuid.uuid4()}" for kind in ("threads", "loop")]

    async def leave_open() -> None:
        async with aio.Producer(bootstrap_servers=servers, transactional_id=names[1]) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(topic, b"v")

    with kafkalake.Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
        with kafkalake.Producer(bootstrap_servers=servers, transactional_id=names[0]) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"v")
        asyncio.run(asyncio.wait_for(leave_open(), TIMEOUT_S))
        for name in names:
            wait_until(lambda name=name: admin.describe_transaction(name).state == "CompleteAbort")


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_close_waits_for_the_end_of_a_transaction_that_had_no_time_before(
    _shared_kafkalake: Kafkalake, topic: str, end: str
) -> None:
    servers = _shared_kafkalake.bootstrap_servers
    names = [f"{kind}-{uuid.uuid4()}" for kind in ("threads", "loop")]
    settings = {"bootstrap.servers": servers, "max.block.ms": 2_000}
    held = pytest.MonkeyPatch()

    def hold(producer: kafkalake.Producer | aio.Producer) -> None:
        held.setattr(producer._core.transactions, "poll", lambda now_ms: None)

    def release(producer: kafkalake.Producer) -> None:
        wait_until(lambda: producer._is_closed)
        held.undo()
        producer._edge.wake_up()

    async def run() -> None:
        producer = aio.Producer(settings, transactional_id=names[1])
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"v")
        hold(producer)
        with pytest.raises(ClientTimeoutError):
            await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        held.undo()
        producer._edge.schedule()
        await closing

    with kafkalake.Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
        producer = kafkalake.Producer(settings, transactional_id=names[0])
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v").get(TIMEOUT_S)
        hold(producer)
        with pytest.raises(ClientTimeoutError):
            (producer.commit_transaction if end == "commit" else producer.abort_transaction)()
        releasing = threading.Thread(target=release, args=[producer])
        releasing.start()
        producer.close()
        releasing.join(TIMEOUT_S)
        asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
        for name in names:
            wait_until(
                lambda name=name: admin.describe_transaction(name).state == f"Complete{end.title()}", timeout_s=10
            )


def test_a_consumer_that_its_listener_closes_is_closed(_shared_kafkalake: Kafkalake, topic: str) -> None:
    """In a rebalance, and again by what the close itself calls."""
    servers = _shared_kafkalake.bootstrap_servers
    with kafkalake.Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=2)
    settings = {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    calls: list[str] = []

    class Closing(RebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> object:
            calls.append("assigned")
            return consumer.close()

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> object:
            calls.append("revoked")
            return consumer.close()

    consumer: kafkalake.Consumer | aio.Consumer = kafkalake.Consumer(settings)
    consumer.subscribe(topic, listener=Closing())
    with pytest.raises(ClientClosedError, match="the consumer is closed"):
        consumer.poll(TIMEOUT_S)
    assert calls == ["assigned", "revoked"]

    async def read() -> None:
        nonlocal consumer
        consumer = aio.Consumer(settings)
        consumer.subscribe(topic, listener=Closing())
        with pytest.raises(ClientClosedError, match="the consumer is closed"):
            await consumer.poll(TIMEOUT_S)

    asyncio.run(asyncio.wait_for(read(), TIMEOUT_S))
    assert calls == ["assigned", "revoked"] * 2
    with kafkalake.Admin(bootstrap_servers=servers) as admin:
        assert admin.describe_group(topic).state == "Empty"  # it has left


INHERITED = """
import os, sys
import kafkalake
from kafkalake.client.errors import ClientClosedError

settings, topic = {"bootstrap.servers": sys.argv[1]}, sys.argv[2]
producer, consumer, admin = kafkalake.Producer(settings), kafkalake.Consumer(settings), kafkalake.Admin(settings)
admin.create_topic(topic, partitions=1)
producer.send(topic, b"a").get(20)
consumer.assign([(topic, 0)])
consumer.seek_to_beginning()
assert [each.value for each in consumer.poll(20)] == [b"a"]
admin.create_topic(topic + "-late", partitions=1)
lingering = kafkalake.Producer(settings, linger_ms=60_000)
unsent = lingering.send(topic + "-late", b"late")
child = os.fork()
for call in (lambda: producer.send(topic, b"b"), producer.flush, lambda: producer.partitions_for("other"), consumer.assignment,
             lambda: consumer.poll(1), admin.list_topics, unsent.get) if not child else ():
    try:
        call()
        print("taken")
    except ClientClosedError as error:
        assert "belongs to the process" in str(error), error
for client in (producer, consumer, admin, lingering) if not child else ():
    client.close()
if not child:
    with kafkalake.Producer(settings) as own:
        own.send(topic, b"c").get(20)
    del producer, consumer, admin
    sys.exit(0)
print("child", os.waitpid(child, 0)[1])
producer.send(topic, b"d").get(20)
found = []
while len(found) < 2:
    found += [each.value for each in consumer.poll(20)]
print(found, topic in [each.name for each in admin.list_topics()])
for client in (producer, consumer, admin, lingering):
    client.close()
assert unsent.get(0).offset == 0
"""


def test_clients_of_a_forked_process_say_so_and_those_of_its_parent_go_on(
    _shared_kafkalake: Kafkalake, topic: str, tmp_path: Path
) -> None:
    script = tmp_path / "inherited.py"
    script.write_text(INHERITED)
    command = [sys.executable, str(script), _shared_kafkalake.bootstrap_servers, topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.stdout.splitlines() == ["child 0", "[b'c', b'd'] True"], ended
    assert not ended.stderr, ended.stderr
