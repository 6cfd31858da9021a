"""A machine with one broker, in one thread: its clock, event loop, network, disk and Delta are simulated, and all follow one seed.

The broker is a whole `Node`. What it calls of the operating system ends here: sockets are `Connection`s, blocking work is run in a
turn of the loop after a random delay, and nothing sleeps. A process that dies leaves its files and nothing else. Its callbacks
are recognized by their context, and are never called again.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import heapq
import os
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from memory_store import MemoryMetadataStore
from storage.power_loss import ForgetfulFiles

from kafkalake.errors import KafkaStorageError
from kafkalake.metadata.store import PublishedOffsets, PublishedState, Transactions
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.process.node import Node
from kafkalake.storage import log_segments, recovery
from kafkalake.world import World

START_MS = 1_700_000_000_000
LATENCY_MS = 3
WORK_MS = 4
"""The longest way of a message and the longest work of a thread."""


class Killed(KeyboardInterrupt):
    """The process ends here. Only these exceptions leave an event loop."""


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


class Process:
    """One life of the broker."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.number = number
        self.is_dead = False
        self.context: Context = copy_context()
        self.context.run(_PROCESS.set, self)
        self.files = ProcessFiles(machine, self)
        self.connections: list[Connection] = []
        self.accept: Callable[[], Any] | None = None
        self.node: SimulatedNode


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class _Selector:
    """Time passes where the event loop would wait."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock

    def select(self, timeout: float | None) -> list[Any]:
        assert timeout is not None, "everything waits and nothing will happen"
        self._clock.ns += max(1_000, int(timeout * 1e9) + 1)
        return []

    def close(self) -> None:
        """Do nothing."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop without a selector, whose time is the clock's. It calls nothing of a dead process."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self._selector = _Selector(machine.clock)
        self._clock_resolution = 1e-6
        self.set_exception_handler(self._on_error)

    def time(self) -> float:
        return self._machine.clock.ns / 1e9

    def _process_events(self, events: list[Any]) -> None:
        """Do nothing."""

    def _write_to_self(self) -> None:
        """Do nothing."""

    def _check_thread(self) -> None:
        """Do nothing."""

    def _call_soon(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        handle = super()._call_soon(callback, args, context)  # type: ignore[misc]
        return self._unless_dead(handle)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self._unless_dead(super().call_at(when, callback, *args, context=context))

    @staticmethod
    def _unless_dead(handle: Any) -> Any:
        process = handle._context.get(_PROCESS)
        if process is not None and process.is_dead:
            handle.cancel()
        return handle

    def drop(self, process: Process) -> None:
        """Cancel what the process would have done."""
        for handle in [*self._ready, *self._scheduled]:  # type: ignore[attr-defined]
            if handle._context.get(_PROCESS) is process:
                handle.cancel()
        heapq.heapify(self._scheduled)  # type: ignore[attr-defined]

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Killed) and "was never retrieved" not in context["message"]:
            self._machine.errors.append(f"{context['message']}: {error!r}")

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task: asyncio.Task[Any] = super().create_task(coro, name=name, context=context)
        self._machine.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        return self.create_task(self._machine.blocking(lambda: func(*args)))

    async def create_server(self, factory: Any, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        process = _PROCESS.get()
        assert process is not None

        async def start_serving() -> None:
            process.accept = factory

        def close() -> None:
            process.accept = None

        socket = SimpleNamespace(getsockname=lambda: ("127.0.0.1", 9092))
        return SimpleNamespace(sockets=[socket], start_serving=start_serving, close=close)


class Connection(asyncio.Transport):
    """A connection between a client and the broker: the broker's transport, and the client's end."""

    def __init__(self, machine: Machine, process: Process, received: Callable[[bytes | None], None]) -> None:
        """`received` is called with the broker's bytes, and at the end with None."""
        super().__init__({"peername": ("127.0.0.1", 50_000 + machine.connected)})
        self._machine = machine
        self._number = machine.connected
        self._process = process
        self._received = received
        self._arrived = bytearray()
        self._paused = False
        self._is_closed = False
        self._times = [0.0, 0.0]
        assert process.accept is not None
        self.protocol: Any = process.context.copy().run(process.accept)
        process.connections.append(self)
        process.context.copy().run(self.protocol.connection_made, self)

    def _later(self, way: int, context: Context, deliver: Callable[..., None], *args: Any) -> None:
        """Deliver in the order of sending, after a random time."""
        loop = self._machine.loop
        at = max(self._times[way] + 1e-6, loop.time() + self._machine.random.random() * LATENCY_MS / 1000)
        self._times[way] = at
        loop.call_at(at, deliver, *args, context=context)

    # The client's end.

    def send(self, data: bytes) -> None:
        cut = self._machine.random.randrange(len(data)) if self._machine.random.random() < 0.1 else len(data)
        for part in filter(None, (data[:cut], data[cut:])):
            self._later(0, self._process.context, self._arrive, part)

    def hang_up(self) -> None:
        self._later(0, self._process.context, self._lose)

    def lost(self) -> None:
        """End the connection for the client."""
        self._is_closed = True
        # Not by chance: a broker that stops closes its connections in the order of a set, which differs from run to run.
        loop, delay_ms = self._machine.loop, LATENCY_MS + self._number % 997 / 997
        loop.call_at(loop.time() + delay_ms / 1000, self._received, None, context=self._machine.context)

    # The broker's end.

    def _arrive(self, data: bytes = b"") -> None:
        self._arrived += data
        while self._arrived and not self._paused and not self._is_closed:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(self._arrived))
            buffer[:count] = self._arrived[:count]
            del self._arrived[:count]
            self.protocol.buffer_updated(count)

    def _lose(self) -> None:
        if self in self._process.connections:
            self._process.connections.remove(self)
            self.lost()
            self.protocol.connection_lost(None)

    def write(self, data: Any) -> None:
        if not self._is_closed and not self._process.is_dead:
            self._later(1, self._machine.context, self._received, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._machine.loop.call_soon(self._arrive)

    def close(self) -> None:
        self._machine.loop.call_soon(self._lose)

    abort = close

    def is_closing(self) -> bool:
        return self._is_closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the client always reads."""

    def get_write_buffer_size(self) -> int:
        return 0


class ProcessFiles:
    """The files of one process, which fail and end it as the machine says. Every change is a step of the trace."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self._machine = machine
        self._process = process
        self._disk = machine.disk
        self._paths: dict[int, str] = {}

    def _step(self, what: str, path: str, *words: object) -> None:
        if self._process.is_dead:
            raise Killed
        machine = self._machine
        machine.trace.add(what, path[len(machine.prefix) :], *words)
        machine.steps_left -= 1
        if machine.steps_left == 0:
            machine.kill()
            raise Killed
        if machine.error_rate and machine.random.random() < machine.error_rate:
            machine.trace.add("fails")
            raise OSError(errno.EIO, "the disk fails on purpose", path)

    def end(self) -> None:
        """Close what the process had open."""
        for descriptor in self._paths:
            self._disk.close(descriptor)
        self._paths.clear()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if create:
            self._step("create", path)
        elif self._process.is_dead:
            raise Killed
        descriptor = self._disk.open(path, write=write, create=create)
        self._paths[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        if not self._process.is_dead:
            del self._paths[descriptor]
            self._disk.close(descriptor)

    def size(self, descriptor: int) -> int:
        return self._disk.size(self._alive(descriptor))

    def modified_ms(self, descriptor: int) -> int:
        return self._machine.written_ms.get(self._paths[self._alive(descriptor)], START_MS)

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        return self._disk.read(self._alive(descriptor), length, position)

    def read_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        return self._disk.read_into(self._alive(descriptor), buffer, position)

    def view(self, descriptor: int, length: int, position: int) -> Any:
        return self._disk.read(self._alive(descriptor), length, position)

    def write(self, descriptor: int, data: Any, position: int) -> int:
        path = self._paths[self._alive(descriptor)]
        try:
            self._step("write", path, position, len(data), hashlib.sha256(data).hexdigest()[:8])
        except BaseException:
            part = self._machine.random.randrange(len(data) + 1)  # a write that is cut off has written a part
            self._disk.write(
                descriptor if descriptor in self._paths else self._machine.reopened(path), data[:part], position
            )
            raise
        self._machine.written_ms[path] = self._machine.clock.now_ms()
        return self._disk.write(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        self._step("truncate", self._paths[self._alive(descriptor)], size)
        self._disk.truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        self._step("sync", self._paths[self._alive(descriptor)])
        self._disk.sync(descriptor)

    def rename(self, source: str, target: str) -> None:
        self._step("rename", source, os.path.basename(target))
        self._disk.rename(source, target)
        for descriptor, path in self._paths.items():
            if path == source or path.startswith(f"{source}/"):
                self._paths[descriptor] = target + path[len(source) :]

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        self._disk.unlink(path)

    def list(self, directory: str) -> list[str]:
        return sorted(self._disk.list(directory))

    def make_directory(self, path: str) -> None:
        self._step("mkdir", path)
        self._disk.make_directory(path)

    def sync_directory(self, path: str) -> None:
        self._step("sync", path)
        self._disk.sync_directory(path)

    def _alive(self, descriptor: int) -> int:
        if self._process.is_dead:
            raise Killed
        return descriptor


class SimulatedStore(MemoryMetadataStore):
    """Delta as the broker sees it: each commit may fail before it or after it. Publishes of `partitions` are not fsynced."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.clock)
        self._machine = machine
        self._partitions_kept = 0

    def _commits(self, what: str, commit: Callable[[], Any]) -> Any:
        machine = self._machine
        machine.trace.add("delta", what)
        fails = machine.error_rate and machine.random.random() < 4 * machine.error_rate
        if fails and machine.random.random() < 0.5:
            raise KafkaStorageError("Delta fails on purpose, nothing is committed")
        found = commit()
        if fails:
            raise KafkaStorageError("Delta fails on purpose, the change is committed")
        return found

    def create_topic(self, row: TopicRow) -> None:
        self._commits(f"create {row.topic}", lambda: super(SimulatedStore, self).create_topic(row))

    def delete_topic(self, topic: str) -> None:
        self._commits(f"delete {topic}", lambda: super(SimulatedStore, self).delete_topic(topic))

    def publish(self, state: PublishedState) -> int:
        return int(self._commits(f"publish {state.version}", lambda: super(SimulatedStore, self).publish(state)))

    def publish_group_offsets(self, offsets: PublishedOffsets) -> int:
        found = self._commits("offsets", lambda: super(SimulatedStore, self).publish_group_offsets(offsets))
        return int(found)

    def publish_transactions(self, transactions: Transactions) -> int:
        found = self._commits("transactions", lambda: super(SimulatedStore, self).publish_transactions(transactions))
        return int(found)

    def lose_power(self, random: Random) -> None:
        """Go back to a version of `partitions` between the last that a power loss left and the newest."""
        del self._partitions[random.randrange(self._partitions_kept, len(self._partitions)) + 1 :]
        self._partitions_kept = len(self._partitions) - 1


class SimulatedNode(Node):
    """A node whose blocking work is simulated, with a lease that nobody else wants."""

    def __init__(self, machine: Machine, process: Process, settings: dict[str, str]) -> None:
        world = World(machine.clock, machine.random, process.files, machine.new_id)
        super().__init__(machine.lake, settings, world=world)
        self._machine = machine

    async def _run_in(self, executor: Any, work: Callable[[], Any]) -> Any:
        return await self._machine.blocking(work)

    def _open_store(self) -> Any:
        return self._machine.store

    async def _own(self, store: Any, settings: Any) -> Any:
        self._ownership.renewed(self._clock.elapsed_ms(), 1 << 50)
        return SimpleNamespace(took_over=False, renew=lambda **address: None)

    def _watch(self) -> None:
        """Do nothing."""


class Machine:
    """See the module. `lake` is an empty directory."""

    def __init__(self, seed: int, lake: Path, settings: dict[str, str]) -> None:
        self.random = Random(seed)
        self.lake = lake
        (lake / "metadata").mkdir(parents=True)
        self.prefix = f"{lake}/"
        self.clock = SimulatedClock()
        self.trace = Trace(self.clock)
        self.errors: list[str] = []
        """What the event loop reported: callbacks that failed."""
        self.disk = ForgetfulFiles()
        self.written_ms: dict[str, int] = {}
        self.store = SimulatedStore(self)
        self.context = copy_context()
        self.loop = SimulatedLoop(self)
        self.process: Process | None = None
        self.steps_left = -1
        """The change of a file that the process does not survive. Below 0: none."""
        self.error_rate = 0.0
        """The share of changes and commits that fail."""
        self.connected = 0
        self.started = asyncio.Event()
        self._settings = settings
        self._processes: list[Process] = []
        self._boots = 1
        self.tasks: list[asyncio.Task[Any]] = []
        """Held to the end: what a dead process left unfinished must not be cleared away while others live."""
        self._reopened: list[int] = []

    def new_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    async def blocking(self, work: Callable[[], Any]) -> Any:
        """Do the work of a thread."""
        await asyncio.sleep(self.random.random() * WORK_MS / 1000)
        return work()

    def reopened(self, path: str) -> int:
        """Return a descriptor of a file that a dead process had open."""
        self._reopened.append(self.disk.open(path, write=True))
        return self._reopened[-1]

    # The broker's lives.

    async def start(self) -> None:
        """Start the broker. Raise what its start raises, `ConnectionError` if it is killed meanwhile."""
        process = self.process = Process(self, len(self._processes))
        self._processes.append(process)
        self.trace.add("start", process.number)
        process.node = process.context.copy().run(SimulatedNode, self, process, self._settings)
        await self._in_process(process, process.node.start())
        self.trace.add("started", process.number)
        self.started.set()

    async def stop(self) -> None:
        """Stop the broker in order, as on SIGTERM."""
        process = self.process
        if process is not None and not process.is_dead:
            self.trace.add("stop", process.number)
            self.started.clear()
            with suppress(ConnectionError):
                await self._in_process(process, process.node.stop())
            self._end(process)

    async def _in_process(self, process: Process, work: Any) -> None:
        task = self.loop.create_task(work, context=process.context)
        while not task.done():
            if process.is_dead:
                raise ConnectionError("the broker was killed")
            await asyncio.sleep(0.005)
        if process.is_dead:
            raise ConnectionError("the broker was killed")
        task.result()

    def kill(self) -> None:
        """End the process at once, as SIGKILL does."""
        process = self.process
        if process is not None and not process.is_dead:
            self.trace.add("kill", process.number)
            self._end(process)

    def lose_power(self) -> None:
        """End the process, and leave of the disk what was forced to it and a random part of the rest."""
        self.kill()
        self.trace.add("power loss")
        self._boots += 1
        self.disk.lose_power(self.random)
        self.store.lose_power(self.random)

    def _end(self, process: Process) -> None:
        self.started.clear()
        self.steps_left = -1
        process.is_dead = True
        self.loop.drop(process)
        process.files.end()
        for connection in process.connections:
            connection.lost()
        process.connections.clear()

    def connect(self, received: Callable[[bytes | None], None]) -> Connection:
        """Raise `ConnectionRefusedError` if no broker listens."""
        process = self.process
        if process is None or process.is_dead or process.accept is None:
            raise ConnectionRefusedError("no broker listens")
        self.connected += 1
        return Connection(self, process, received)

    def run(self, main: Any) -> Any:
        """Run a coroutine to its end, on through the deaths of the broker."""
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(main, context=self.context)
        boots = [
            patch.object(module, "boot_id", lambda: bytes([self._boots]) * 16) for module in (recovery, log_segments)
        ]
        try:
            for each in boots:
                each.start()
            while True:
                with suppress(Killed):
                    return self.loop.run_until_complete(task)
        finally:
            for each in boots:
                each.stop()
            self._close()

    def _close(self) -> None:
        if self.process is not None and not self.process.is_dead:
            self._end(self.process)
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        for descriptor in self._reopened:
            self.disk.close(descriptor)
        asyncio.set_event_loop(None)
        self.loop.close()
