"""A broker that is fenced, and not told, has groups and transactions that another one coordinates: it says nothing of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from contract.wire_client import WireClient, code
from contract.wire_transactions import TransactionalClient, find_coordinator

from kafkalake.broker.broker import Broker
from kafkalake.broker.controller.membership import Membership
from kafkalake.broker.coordination.journal_lifecycle import JournalLifecycle
from kafkalake.errors import KafkaStorageError
from kafkalake.metadata.tables.cluster import DeltaClusterTable
from kafkalake.process.node import Node

NONE, NOT_COORDINATOR = 0, 16
GROUP, TRANSACTION = 0, 1
TIMEOUT_S = 20.0
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}
SHORT = {"broker.heartbeat.interval.ms": "50", "broker.session.timeout.ms": "800"}
"""Of the broker that is deposed: to itself, its session ends soon. It waits half of that for answers, also of a slow machine."""


class Deafness:
    """Once `begun`, broker 1 neither sends heartbeats nor learns of versions, unless it looks for them on its own account."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = False
        for name in ("_beat", "_look_for_versions", "follow"):
            monkeypatch.setattr(Membership, name, self._deaf(getattr(Membership, name)))

    def _deaf(self, hear: Callable[..., Awaitable[object] | None]) -> Callable[..., Awaitable[object] | None]:
        async def hear_nothing() -> None:
            return

        def heard(member: Membership, *args: object) -> Awaitable[object] | None:
            return hear_nothing() if self.begun and member._broker_id == 1 else hear(member, *args)

        return heard


@asynccontextmanager
async def two_brokers(lake: Path) -> AsyncIterator[tuple[Broker, Broker, WireClient, WireClient]]:
    """Two brokers, of which the first is the controller, and a client of each."""
    nodes = [Node(lake, SETTINGS | {"node.id": "0"}), Node(lake, SETTINGS | SHORT | {"node.id": "1"})]
    clients = []
    try:
        for each in nodes:
            await each.start()
            clients.append(await asyncio.to_thread(WireClient, each.listeners[0].address))
        assert nodes[0].broker is not None
        assert nodes[1].broker is not None
        yield nodes[0].broker, nodes[1].broker, clients[0], clients[1]
    finally:
        for client in clients:
            client.socket.close()
        for each in reversed(nodes):
            await each.stop()


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():
            await asyncio.sleep(0.01)


def name_of(journal: JournalLifecycle[Any, Any, Any], broker: Broker) -> str:
    """Return a group or transactional id that the broker coordinates."""
    names = (f"name {number}" for number in count())
    return next(each for each in names if broker.topics.leader_id(journal.key(each)) == broker.broker_id)


async def depose(deafness: Deafness, controller: Broker, deposed: Broker) -> None:
    """Have the broker fenced, without its knowledge, and its session ended."""

    async def is_fenced() -> bool:
        return controller.cluster.brokers[1].is_fenced

    async def is_in_doubt() -> bool:
        return deposed.membership.may_be_deposed

    deafness.begun = True
    await controller.controller.fence(controller.cluster.brokers[1], "a test")
    await until(is_fenced)
    await until(is_in_doubt)
    assert deposed.cluster.version < controller.cluster.version


async def is_committed(client: WireClient, group: str, offset: int) -> bool:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [partition | {"committed_leader_epoch": -1}]}]
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    answer = await asyncio.to_thread(client.call, "OffsetCommit", 8, group_id=group, **member, topics=topics)
    return code(answer.topics[0].partitions[0].error_code) == NONE


async def fetched(client: WireClient, group: str) -> tuple[int, list[int]]:
    """The group's error and its offsets."""
    topics = [{"name": "orders", "partition_indexes": [0]}]
    answer = await asyncio.to_thread(client.call, "OffsetFetch", 7, group_id=group, topics=topics, require_stable=True)
    return code(answer.error_code), [each.committed_offset for topic in answer.topics for each in topic.partitions]


async def create(client: WireClient) -> None:
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 2, "assignments": [], "configs": []}
    await asyncio.to_thread(client.call, "CreateTopics", 7, topics=[topic], timeout=20_000, validate_only=False)


@pytest.mark.exhaustive
def test_a_deposed_coordinator_tells_no_old_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing at all while it cannot find out whether it is deposed."""
    deafness = Deafness(monkeypatch)

    async def run() -> None:
        async with two_brokers(tmp_path) as (controller, deposed, there, here):
            await create(there)
            await asyncio.to_thread(find_coordinator, here, "any", GROUP)
            group = name_of(deposed.groups.journal, deposed)
            await until(lambda: is_committed(here, group, 5))
            assert await fetched(here, group) == (NONE, [5])
            await depose(deafness, controller, deposed)
            await until(lambda: is_committed(there, group, 6))
            address = "{}:{}".format(*here.socket.getpeername())
            with monkeypatch.context() as away:
                away.setattr(DeltaClusterTable, "load_newer", fail)
                with pytest.raises(ConnectionError):
                    await fetched(here, group)
            with await asyncio.to_thread(WireClient, address) as again:
                assert await fetched(again, group) == (NOT_COORDINATOR, [])
            assert await fetched(there, group) == (NONE, [6])

    asyncio.run(run())


def fail(table: DeltaClusterTable, version: int) -> None:
    raise KafkaStorageError("Delta is away")


@pytest.mark.exhaustive
def test_a_deposed_coordinator_takes_no_transaction_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one, begun elsewhere, would be called ended, and go on with the third."""
    deafness = Deafness(monkeypatch)

    async def run() -> None:
        async with two_brokers(tmp_path) as (controller, deposed, there, here):
            await create(there)
            await asyncio.to_thread(find_coordinator, here, "any", TRANSACTION)
            name = name_of(deposed.transactions.journal, deposed)
            producer = TransactionalClient(here, name, version_2=False)
            assert await asyncio.to_thread(producer.init) == NONE
            assert await asyncio.to_thread(producer.add, "orders", [0]) == [NONE]
            assert await asyncio.to_thread(end, producer) == NONE
            transaction = deposed.transactions.coordinator.table.find(name)
            assert transaction is not None

            async def is_between() -> bool:
                return transaction.transaction.is_between_steps

            await until(is_between)
            await depose(deafness, controller, deposed)
            producer.client = there
            assert await asyncio.to_thread(producer.add, "orders", [0]) == [NONE]
            producer.client = here
            assert await asyncio.to_thread(end, producer) == NOT_COORDINATOR
            producer.client = there
            assert await asyncio.to_thread(end, producer) == NONE

    asyncio.run(run())


def end(producer: TransactionalClient) -> int:
    answer = producer.client.call(
        "EndTxn",
        3,
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    return code(answer.error_code)
