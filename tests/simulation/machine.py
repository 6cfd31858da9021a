"""A machine with one broker: its disk, its Delta, its process, and what may happen to them."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

from memory_control_store import MemoryControlStore
from memory_store import MemoryMetadataStore
from simulation.processes import PROCESS, Killed, Process
from simulation.universe import FIRST_PORT, START_MS, WORK_MS, SimulatedClock, Universe
from storage.power_loss import ForgetfulFiles

from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import KafkaStorageError
from kafkalake.metadata import changes
from kafkalake.metadata.store import PublishedOffsets, PublishedState, Transactions
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.process.node import Node
from kafkalake.world import World


class MachineClock:
    """The clock of one machine: right as to durations, and off by `off_ms` as to the time of day, which may jump."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self.off_ms = 0
        self.monotonic_ms = clock.monotonic_ms
        self.monotonic_ns = clock.monotonic_ns
        self.elapsed_ms = clock.elapsed_ms
        self.elapsed_ns = clock.elapsed_ns

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.off_ms


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
        machine, universe = self._machine, self._machine.universe
        universe.trace.add(what, path[len(universe.prefix) :], *words)
        machine.steps_left -= 1
        if machine.steps_left == 0:
            machine.kill()
            raise Killed
        if machine.error_rate and universe.random.random() < machine.error_rate:
            universe.trace.add("fails")
            raise OSError(errno.EIO, "the disk fails on purpose", path)

    @property
    def error_rate(self) -> float:
        """The share of changes and commits that fail."""
        return self._machine.error_rate

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
            part = self._machine.universe.random.randrange(len(data) + 1)  # a write that is cut off has written a part
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
    """Delta as the brokers see it: each commit may fail before it or after it. Publishes of `partitions` are not fsynced."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(universe.clock)
        self._universe = universe
        self._partitions_kept = 0
        self.control_store = self._control = MemoryControlStore(
            before_load=lambda: self._may_fail(0.5),
            before_commit=lambda: self._note("commit", 0.5),
            after_commit=lambda: self._may_fail(0.5),
        )

    @property
    def image(self) -> ClusterImage:
        return self._control.images[-1]

    @property
    def stable_offsets(self) -> list[dict[tuple[str, int], int]]:
        """The last stable offsets of each version of `partitions`."""
        versions = (changes.current_partitions(rows) for _, rows in self._partitions)
        return [{(row.topic, row.partition): row.last_stable_offset for row in rows} for rows in versions]

    def _fails(self, factor: float) -> bool:
        process = PROCESS.get()
        rate = 0.0 if process is None else process.files.error_rate
        return bool(rate) and self._universe.random.random() < factor * rate

    def _may_fail(self, factor: float) -> None:
        if self._fails(factor):
            raise KafkaStorageError("the control store fails on purpose")

    def _note(self, what: str, factor: float) -> None:
        self._universe.trace.add("cluster", what)
        self._may_fail(factor)

    def _commits(self, what: str, commit: Callable[[], Any]) -> Any:
        random = self._universe.random
        self._universe.trace.add("delta", what)
        fails = self._fails(4)
        if fails and random.random() < 0.5:
            raise KafkaStorageError("Delta fails on purpose, nothing is committed")
        found = commit()
        if fails:
            raise KafkaStorageError("Delta fails on purpose, the change is committed")
        return found

    def claim_topics(self, controller_epoch: int) -> None:
        self._commits(f"claim {controller_epoch}", lambda: super(SimulatedStore, self).claim_topics(controller_epoch))

    def create_topics(self, rows: Sequence[TopicRow], controller_epoch: int | None = None) -> None:
        names = ",".join(row.topic for row in rows)
        self._commits(f"create {names}", lambda: super(SimulatedStore, self).create_topics(rows, controller_epoch))

    def delete_topics(self, topic_ids: Collection[str], controller_epoch: int | None = None) -> None:
        ids = ",".join(topic_ids)
        self._commits(f"delete {ids}", lambda: super(SimulatedStore, self).delete_topics(topic_ids, controller_epoch))

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
        universe = machine.universe
        world = World(machine.clock, universe.random, process.files, universe.new_id)
        super().__init__(universe.lake, settings, world=world)
        self._universe = universe

    async def _run_in(self, executor: Any, work: Callable[[], Any]) -> Any:
        return await self._universe.blocking(work)

    def _open_store(self) -> Any:
        return self._universe.store

    async def _own(self, store: Any, settings: Any) -> Any:
        self._ownership.renewed(self._clock.elapsed_ms(), 1 << 50)
        return SimpleNamespace(took_over=False, renew=lambda **address: None, note_takeover=lambda: None)

    async def _is_locked(self, broker_id: int) -> bool:
        process = self._universe.machines[broker_id].process
        return process is not None and not process.is_dead

    def _watch(self) -> None:
        """Do nothing."""


class Machine:
    """See the module. The broker of the first machine has the id 0."""

    def __init__(self, universe: Universe, settings: dict[str, str]) -> None:
        self.universe = universe
        self.broker_id = len(universe.machines)
        universe.machines.append(self)
        self.disk = ForgetfulFiles()
        self.clock = MachineClock(universe.clock)
        self.written_ms: dict[str, int] = {}
        self.process: Process | None = None
        self.steps_left = -1
        """The change of a file that the process does not survive. Below 0: none."""
        self.error_rate = 0.0
        """The share of changes and commits that fail."""
        self.started = asyncio.Event()
        self._settings = settings | {
            "node.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{FIRST_PORT + self.broker_id}",
        }
        self._lives = 0
        self._boots = 1
        self._reopened: list[int] = []

    def reopened(self, path: str) -> int:
        """Return a descriptor of a file that a dead process had open."""
        self._reopened.append(self.disk.open(path, write=True))
        return self._reopened[-1]

    # The broker's lives.

    async def start(self) -> None:
        """Start the broker. Raise what its start raises, `ConnectionError` if it is killed meanwhile."""
        process = self.process = Process(self.universe.loop, self.broker_id, self._lives, self._boots, WORK_MS)
        process.files = ProcessFiles(self, process)
        self._lives += 1
        self._note("start")
        process.node = process.context.copy().run(SimulatedNode, self, process, self._settings)
        await self._in_process(process, process.node.start())
        self._note("started")
        self.started.set()

    def _note(self, what: str) -> None:
        self.universe.trace.add(what, self.broker_id, self._lives - 1)

    async def stop(self) -> None:
        """Stop the broker in order, as on SIGTERM."""
        process = self.process
        if process is not None and not process.is_dead:
            self._note("stop")
            self.started.clear()
            with suppress(ConnectionError):
                await self._in_process(process, process.node.stop())
            self._end(process)

    async def _in_process(self, process: Process, work: Any) -> None:
        task = self.universe.loop.create_task(work, context=process.context)
        await asyncio.wait({task, process.ended}, return_when=asyncio.FIRST_COMPLETED)
        if process.is_dead:
            raise ConnectionError("the broker was killed")
        task.result()

    def kill(self) -> None:
        """End the process at once, as SIGKILL does."""
        process = self.process
        if process is not None and not process.is_dead:
            self._note("kill")
            self._end(process)

    def lose_power(self) -> None:
        """End the process, and leave of the disk what was forced to it and a random part of the rest."""
        self.kill()
        self._note("power loss")
        self._boots += 1
        self.disk.lose_power(self.universe.random)

    def _end(self, process: Process) -> None:
        self.started.clear()
        self.steps_left = -1
        process.end()
        self.universe.loop.drop(process)
        process.files.end()
        for link in process.accepted:
            link.lost()
        process.accepted.clear()
        for link in process.opened:
            link.hang_up()
        process.opened.clear()

    def set_clock(self, off_ms: int) -> None:
        """Let the time of day be wrong by so much from now on."""
        self._note(f"clock {off_ms}")
        self.clock.off_ms = off_ms

    def close(self) -> None:
        if self.process is not None and not self.process.is_dead:
            self._end(self.process)

    def close_files(self) -> None:
        for descriptor in self._reopened:
            self.disk.close(descriptor)
