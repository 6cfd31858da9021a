"""Machines with a broker each, in one thread: clock, event loop, network and Delta are simulated, and all follow one seed.

A broker is a whole `Node`. What it calls of the operating system ends here: sockets are `network.Link`s, blocking work is run in a
turn of the loop after a random delay, and nothing sleeps. A process that dies leaves its files and nothing else. Its callbacks
are recognized by their context, and are never called again.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from contextvars import copy_context
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from uuid import UUID

from simulation.network import Link, Network, PeerTransport
from simulation.processes import PROCESS, Killed, Process

from kafkalake.broker import broker as broker_module
from kafkalake.cluster.image import NO_LEADER, PartitionRegistration
from kafkalake.storage import log_segments, recovery

if TYPE_CHECKING:
    from simulation.machine import Machine, SimulatedStore

START_MS = 1_700_000_000_000
WORK_MS = 4
"""The longest work of a thread."""
FIRST_PORT = 9092
TURN_NS = 1_000
"""How long a turn of the event loop takes."""


class SimulatedClock:
    """The time of the event loop. `ns` counts from the start of the machine."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def now_ms(self) -> int:
        return START_MS + self.ns // 1_000_000

    def monotonic_ms(self) -> int:
        return self.ns // 1_000_000

    def monotonic_ns(self) -> int:
        return self.ns

    def elapsed_ms(self) -> int:
        return self.ns // 1_000_000

    def elapsed_ns(self) -> int:
        return self.ns


class Trace:
    """What happened, as a digest of all and the text of the last steps."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self._digest = hashlib.sha256()
        self.last: list[str] = []

    def add(self, *words: object) -> None:
        line = f"{self._clock.ns / 1e6:.3f} {' '.join(map(str, words))}"
        self._digest.update(line.encode())
        self.last.append(line)
        if len(self.last) > 400:
            del self.last[:200]

    def digest(self) -> str:
        return self._digest.hexdigest()


def _is_dead(handle: Any) -> bool:
    """Return whether what is to be called is of a dead process."""
    process = handle._context.get(PROCESS)
    return process is not None and process.is_dead


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop without a selector, whose time is the clock's. It calls nothing of a dead process."""

    def __init__(self, universe: Universe) -> None:
        super().__init__()
        self._universe = universe
        self._clock = universe.clock
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap, in which timers of the same time are in the order of their making."""
        self._made = 0
        self._cancelled = 0
        self.set_exception_handler(self._on_error)

    def time(self) -> float:
        return self._clock.ns / 1e9

    def _run_once(self) -> None:
        """Pass time to the next timer if nothing is to be called now, and call what is due then. A turn takes a microsecond."""
        ready, timers, clock = self._ready, self._timers, self._clock  # type: ignore[attr-defined]
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
            self._cancelled -= 1
        assert ready or timers, "everything waits and nothing will happen"
        wait_ns = 0 if ready else int(timers[0][0] * 1e9) + 1 - clock.ns
        clock.ns += max(TURN_NS, wait_ns)
        end = (clock.ns + TURN_NS) / 1e9
        while timers and timers[0][0] < end:
            handle = heapq.heappop(timers)[2]
            handle._scheduled = False  # type: ignore[attr-defined]
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """Let most of the timers be such as will be called."""
        if not handle._scheduled:
            return
        self._cancelled += 1
        if self._cancelled > max(100, len(self._timers) // 2):
            self._timers = [each for each in self._timers if each[2] is not handle and not each[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _write_to_self(self) -> None:
        """Do nothing."""

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not _is_dead(handle):
            self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not _is_dead(handle):
            self._made += 1
            handle._scheduled = True  # type: ignore[attr-defined]
            heapq.heappush(self._timers, (when, self._made, handle))
        return handle

    def drop(self, process: Process) -> None:
        """Cancel what the process would have done."""
        for handle in [*self._ready, *(timer for _, _, timer in self._timers)]:  # type: ignore[attr-defined]
            if handle._context.get(PROCESS) is process:
                handle.cancel()

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Killed) and "was never retrieved" not in context["message"]:
            self._universe.errors.append(f"{context['message']}: {error!r}")

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task: asyncio.Task[Any] = super().create_task(coro, name=name, context=context)
        self._universe.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        return self.create_task(self._universe.blocking(lambda: func(*args)))

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        process = PROCESS.get()
        assert process is not None

        async def start_serving() -> None:
            process.accept = factory

        def close() -> None:
            process.accept = None

        bound = SimpleNamespace(getsockname=lambda: ("127.0.0.1", port))
        return SimpleNamespace(sockets=[bound], start_serving=start_serving, close=close)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:  # type: ignore[override]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Connect a broker to another one. Raise `ConnectionRefusedError`; wait for ever if the network is cut."""
        process, universe = PROCESS.get(), self._universe
        assert process is not None
        here, there = process.broker_id, port - FIRST_PORT
        await asyncio.sleep(universe.network.latency_s(here, there))
        if universe.network.is_cut(here, there) or universe.network.is_cut(there, here):
            await asyncio.Event().wait()
        transport = PeerTransport(process)
        link = universe.connect(there, transport.received, source=here, context=process.context)
        process.opened.append(link)
        protocol = factory()
        transport.begin(link, protocol)
        return transport, protocol


class Universe:
    """See the module. `lake` is an empty directory."""

    def __init__(self, seed: int, lake: Path) -> None:
        self.random = Random(seed)
        self.lake = lake
        (lake / "metadata").mkdir(parents=True)
        self.prefix = f"{lake}/"
        self.clock = SimulatedClock()
        self.trace = Trace(self.clock)
        self.errors: list[str] = []
        """What the event loop reported: callbacks that failed."""
        self.context = copy_context()
        self.loop = SimulatedLoop(self)
        self.network = Network(self)
        self.machines: list[Machine] = []
        self.store: SimulatedStore
        self.tasks: list[asyncio.Task[Any]] = []
        """Held to the end: what a dead process left unfinished must not be cleared away while others live."""

    def new_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    async def blocking(self, work: Callable[[], Any]) -> Any:
        """Do the work of a thread."""
        process = PROCESS.get()
        longest_ms = WORK_MS if process is None else process.work_ms
        await asyncio.sleep(self.random.random() * longest_ms / 1000)
        return work()

    def connect(
        self, broker_id: int, received: Callable[[bytes | None], None], *, source: int = -1, context: Any = None
    ) -> Link:
        """Connect a client, or another broker, in whose `context` its answers arrive. Raise `ConnectionRefusedError`."""
        process = self.machines[broker_id].process
        if process is None or process.is_dead or process.accept is None:
            raise ConnectionRefusedError("no broker listens")
        return Link(self, source, process, received, self.context if context is None else context)

    def registration(self, topic: str, index: int) -> PartitionRegistration | None:
        """Return a partition as the control store has it."""
        topic_id = self.topic_id(topic)
        return None if topic_id is None else self.store.image.partition((topic_id, index))

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic as Delta has it."""
        return next((UUID(each.topic_id) for each in self.store.load_topics() if each.topic == topic), None)

    def leader(self, topic: str, index: int) -> int:
        """Return the leader of a partition, any broker if it has none."""
        found = self.registration(topic, index) if len(self.machines) > 1 else None
        if found is None or found.leader == NO_LEADER:
            return self.any_broker()
        return found.leader

    def leader_epoch(self, topic: str, index: int) -> int:
        """Return the leader epoch of a partition, -1 if there is no such partition."""
        found = self.registration(topic, index)
        return -1 if found is None else found.leader_epoch

    def high_watermark(self, topic: str, index: int, leader_epoch: int) -> int | None:
        """Return the high watermark of a partition, None unless the broker that leads it in an epoch lives and knows it."""
        processes = [each.process for each in self.machines]
        brokers = [each.node.broker for each in processes if each is not None and not each.is_dead]
        found = [each.topics.find(topic) for each in brokers if each is not None]
        led = [each.replicas[index] for each in found if each is not None and index in each.replicas]
        online = [each for each in led if each.leader_epoch == leader_epoch and not each.is_offline]
        known = [each for each in online if not each.is_watermark_behind]
        return known[0].log.high_watermark if known else None

    def any_broker(self) -> int:
        return self.random.randrange(len(self.machines)) if len(self.machines) > 1 else 0

    def run(self, main: Any) -> Any:
        """Run a coroutine to its end, on through the deaths of brokers."""
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(main, context=self.context)
        with ExitStack() as stack:
            for module in (recovery, log_segments, broker_module):
                stack.enter_context(patch.object(module, "boot_id", _boot_id))
            try:
                while True:
                    with suppress(Killed):
                        return self.loop.run_until_complete(task)
            finally:
                self._close()

    def _close(self) -> None:
        for machine in self.machines:
            machine.close()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        for machine in self.machines:
            machine.close_files()
        asyncio.set_event_loop(None)
        self.loop.close()


def _boot_id() -> bytes:
    process = PROCESS.get()
    return bytes([0 if process is None else process.boot]) * 16
