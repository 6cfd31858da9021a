"""A run of one broker by seed: clients that write, read and commit, and faults, several a run; then all is read and checked.

A seed gives the settings, the workload, the faults and every delay, so that it gives the same run again:
`SIMULATION_SEED=17 python -m pytest tests/simulation`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from simulation.clients import (
    PAUSE_S,
    Administrator,
    Committer,
    Key,
    Ledger,
    Producer,
    Reader,
    TransactionalProducer,
    Violation,
    refuse,
)
from simulation.machine import Machine, SimulatedStore
from simulation.universe import Universe

from kafkalake.errors import KafkaLakeError

TOPICS = {"orders": 2, "small": 1}
SECONDS_MAX = 600.0


SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "metadata.publish.interval.ms": "500",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.retention.ms": "-1",
    "log.segment.delete.delay.ms": "1000",
}
FORCED = {"log.flush.interval.messages": "1"}


class Simulation:
    """One run. `lake` is an empty directory. `settings`: beside those of the seed."""

    topics = TOPICS
    replicas = 1
    producers = 2
    batches = 20
    transactions = 6
    commits = 15
    life_s = 0.8

    def __init__(self, seed: int, lake: Path, brokers: int = 1, settings: Mapping[str, str] = SETTINGS) -> None:
        self.seed = seed
        self.random = Random(f"workload {seed}")
        self.forces = self.random.random() < 0.5
        """Whether each write is forced to the disk before it is acknowledged, so that a loss of power loses nothing."""
        self.universe = Universe(seed, lake)
        self.universe.store = SimulatedStore(self.universe)
        for _ in range(brokers):
            Machine(self.universe, {**settings, **(FORCED if self.forces else {})})
        self.ledger = Ledger(self.universe, leaders_change=self.replicas > 1)
        self.keys: list[Key] = [(name, index) for name, count in self.topics.items() for index in range(count)]
        self._is_over = False

    def run(self) -> str:
        """Return the digest of what happened. Raise `Violation`."""
        try:
            self.universe.run(self._main())
            refuse(bool(self.universe.errors), "callbacks failed:", self.universe.errors[:3])
        except Exception as error:
            last = "\n".join(self.universe.trace.last[-60:])
            raise Violation(f"seed {self.seed}: {error}\nthe last steps:\n{last}") from error
        return self.universe.trace.digest()

    async def _main(self) -> None:
        try:
            await asyncio.wait_for(asyncio.gather(*self._lives(), self._work()), SECONDS_MAX)
        except TimeoutError:
            raise Violation("the clients do not come to an end") from None
        await self._check()

    # The brokers and their faults.

    def _lives(self) -> list[Coroutine[Any, Any, None]]:
        return [self._live(machine) for machine in self.universe.machines]

    async def _live(self, machine: Machine) -> None:
        """Start a broker, and again after each fault."""
        while True:
            with suppress(ConnectionError):
                await self._start(machine)
                if self._is_over:
                    machine.steps_left = -1  # of a start that was to be killed: nobody would start it again
                    return
                await self._suffer(machine)
            await asyncio.sleep(self.random.random() * 0.1)

    async def _start(self, machine: Machine) -> None:
        """Start, until it succeeds. Raise `ConnectionError` if it is killed."""
        if self.random.random() < 0.2 and not self._is_over:
            machine.steps_left = self.random.randrange(1, 100)
        while True:
            try:
                await machine.start()
                return
            except (KafkaLakeError, OSError) as error:
                if machine.process is None or machine.process.is_dead:
                    raise
                refuse(not machine.error_rate, "the broker does not start:", repr(error))
                machine.error_rate = 0.0
                await machine.stop()

    async def _suffer(self, machine: Machine) -> None:
        """Have one fault, sometime in the next seconds. Return when the broker is to be started again."""
        random = self.random
        fault = random.choice(
            ["kill", "kill at a step", "errors", "stop", *(["power", "power"] if self._may_lose_power(machine) else [])]
        )
        await self._until(lambda: self._is_over, random.random() * self.life_s)
        if self._is_over:
            await machine.stop()
            return
        self.universe.trace.add("fault", machine.broker_id, fault)
        if fault == "kill":
            machine.kill()
        elif fault == "power":
            if self._may_lose_power(machine):  # others may have failed since the fault was chosen
                self._lose_power(machine)
            machine.kill()
        elif fault == "stop":
            await machine.stop()
        elif fault == "kill at a step":
            machine.steps_left = random.randrange(1, 60)
            process = machine.process
            assert process is not None
            await self._until(lambda: process.is_dead or self._is_over, 2.0)
            machine.kill()
            if random.random() < 0.5 and self._may_lose_power(machine):
                self._lose_power(machine)
        else:
            machine.error_rate = random.choice((0.02, 0.1, 0.5))
            await asyncio.sleep(random.random())
            machine.error_rate = 0.0
            if random.random() < 0.5:
                await self._until(lambda: self._is_over, random.random() * 0.5)
            machine.kill()

    def _may_lose_power(self, machine: Machine) -> bool:
        """Return whether nothing is lost that was acknowledged when this machine loses power."""
        return self.forces

    def _lose_power(self, machine: Machine) -> None:
        machine.lose_power()
        if len(self.universe.machines) == 1:
            self.universe.store.lose_power(self.universe.random)

    @staticmethod
    async def _until(is_so: Callable[[], bool], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not is_so() and loop.time() < end:
            await asyncio.sleep(PAUSE_S)

    # The clients.

    async def _work(self) -> None:
        administrator = Administrator(self.ledger, "passing", self.keys, self.replicas)
        for name, count in self.topics.items():
            await administrator.create(name, count)
        readers = [Reader(self.ledger, key, committed=self.random.random() < 0.5) for key in self.keys]
        await asyncio.gather(self._write(administrator), *map(self._tail, readers), *self._other_readers())

    def _other_readers(self) -> list[Coroutine[Any, Any, None]]:
        """Return what else reads while clients write."""
        return []

    async def _write(self, administrator: Administrator) -> None:
        ledger, random = self.ledger, self.random
        work = [
            Producer(ledger, f"p{number}", self.keys).run(random.randrange(5, self.batches))
            for number in range(self.producers)
        ]
        work += [
            TransactionalProducer(ledger, f"t{number}", self.keys).run(random.randrange(2, self.transactions))
            for number in range(random.randrange(3))
        ]
        work.append(Committer(ledger, "committer", self.keys[0]).run(random.randrange(5, self.commits)))
        work.append(administrator.run(random.randrange(4)))
        await asyncio.gather(*work)
        self._is_over = True

    async def _tail(self, reader: Reader) -> None:
        while not self._is_over:
            with suppress(ConnectionError):
                await reader.poll()
            if self.random.random() < 0.01:
                reader.client.hang_up()
            await asyncio.sleep(PAUSE_S)

    # The end.

    async def _check(self) -> None:
        self.universe.trace.add("check")
        for committed in (False, True):
            records = {}
            for key in self.keys:
                reader = Reader(self.ledger, key, committed=committed)
                records[key] = await reader.read_to_end()
                self.ledger.check_all(key, records[key], committed=committed)
            if committed:
                self.ledger.check_transactions(records)
                self.ledger.check_versions(self.universe.store.stable_offsets, records)
        for machine in self.universe.machines:
            await machine.stop()


def simulate(seed: int, lake: Path, kind: Callable[[int, Path], Simulation] = Simulation) -> str:
    """Run one seed and return its digest. Raise `Violation`."""
    logging.disable(logging.CRITICAL)
    gc.freeze()  # what was there before is not looked through again and again: a tenth of the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that a killed process never began
            return kind(seed, lake).run()
    finally:
        gc.collect()  # the run alone, whose files are open until then
        gc.unfreeze()
        logging.disable(logging.NOTSET)
