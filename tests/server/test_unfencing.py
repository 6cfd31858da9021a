"""A broker is unfenced once it listens: until then nobody names it as a leader, and it follows the versions of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafkalake.broker.controller.announcements import Announcements
from kafkalake.broker.controller.controller import Controller
from kafkalake.broker.controller.membership import Membership
from kafkalake.cluster.image import ClusterImage
from kafkalake.config.listener import Listener
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.process.node import Node
from kafkalake.server.acceptor import Acceptor

TIMEOUT_S = 20.0
HEARTBEAT_MS = 50


class Gate:
    """Lets a broker's acceptor serve when the test says so, and counts what controllers hear of brokers meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()
        self.beats = 0
        serve = Acceptor.serve

        async def wait(acceptor: Acceptor) -> None:
            self.reached.set()
            await self.opened.wait()
            await serve(acceptor)

        monkeypatch.setattr(Acceptor, "serve", wait)
        for name in ("heartbeat", "attend_here"):
            monkeypatch.setattr(Controller, name, self._counting(getattr(Controller, name)))

    def _counting(self, hear: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def counting(*args: object, **named: object) -> object:
            heard = await hear(*args, **named)
            self.beats += self.reached.is_set()
            return heard

        return counting


def node(lake: Path, number: int) -> Node:
    settings = {"broker.heartbeat.interval.ms": str(HEARTBEAT_MS), "listeners": "PLAINTEXT://127.0.0.1:0"}
    return Node(lake, settings | {"node.id": str(number)})


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    """Run brokers. Those that the test has started meanwhile are to be stopped by it."""
    try:
        for each in nodes:
            await each.start()
        yield
    finally:
        for each in reversed(nodes):
            await each.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def is_connected(listener: Listener) -> bool:
    try:
        _, writer = await asyncio.open_connection(listener.host, listener.port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


def newest(lake: Path) -> ClusterImage:
    return DeltaMetadataStore(lake, create=False).control_store.load()


async def starts_fenced(starting: Node, lake: Path, gate: Gate) -> None:
    """Start a broker that does not listen for a while, and stop it."""
    number = starting.broker_id
    task = asyncio.create_task(starting.start())
    try:
        await until(lambda: gate.beats >= 2)
        assert newest(lake).brokers[number].is_fenced
        assert not await is_connected(starting.listeners[0])
        gate.opened.set()
        await task
        assert newest(lake).brokers[number].is_active
        assert starting.broker is not None
        assert starting.broker.cluster.brokers[number].is_active, "and it follows that version"
        assert await is_connected(starting.listeners[0])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await starting.stop()


@pytest.mark.exhaustive
def test_a_member_is_unfenced_once_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with running(node(tmp_path, 0)):
            await starts_fenced(node(tmp_path, 1), tmp_path, Gate(monkeypatch))

    asyncio.run(run())


@pytest.mark.exhaustive
def test_the_others_know_a_broker_that_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the controller's announcement does not come."""
    monkeypatch.setattr(Membership, "_look_for_versions", lambda self: None)

    async def run() -> None:
        second = node(tmp_path, 1)
        async with running(node(tmp_path, 0), second):
            monkeypatch.setattr(Announcements, "tell", lambda self, image: None)
            async with running(node(tmp_path, 2)):
                assert second.broker is not None
                assert second.broker.cluster.brokers[2].is_active

    asyncio.run(run())


@pytest.mark.exhaustive
def test_a_controller_with_other_nodes_is_unfenced_once_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with running(node(tmp_path, 0), node(tmp_path, 1)):
            assert newest(tmp_path).controller_id == 0
        await starts_fenced(node(tmp_path, 0), tmp_path, Gate(monkeypatch))
        assert newest(tmp_path).controller_id == 0

    asyncio.run(run())


@pytest.mark.exhaustive
def test_a_broker_that_is_alone_registers_and_leads_in_one_version(tmp_path: Path) -> None:
    async def run() -> None:
        for _ in range(2):
            async with running(node(tmp_path, 0)):
                image = newest(tmp_path)
                assert image.brokers[0].is_active
                assert image.brokers[0].epoch == image.version - 1, "the version after it allocates producer ids"

    asyncio.run(run())
