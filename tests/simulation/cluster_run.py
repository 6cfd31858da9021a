"""A run of several brokers by seed, each on a machine of its own, and of the network between them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from simulation.clients import PAUSE_S, Reader
from simulation.machine import Machine
from simulation.seeded_run import SETTINGS, Simulation

from kafkalake.broker.partitions import replica_fetch

BROKERS = 3
HOUR_MS = 3_600_000
CLUSTER_SETTINGS = SETTINGS | {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "controller.quorum.election.timeout.ms": "300",
    "request.timeout.ms": "3000",
    "log.message.timestamp.after.max.ms": str(2 * HOUR_MS),
}
REPLICATED_SETTINGS = CLUSTER_SETTINGS | {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "100",
}


class ClusterSimulation(Simulation):
    """One run of three brokers, whose partitions have one replica each."""

    producers = 1
    batches = 12
    transactions = 4
    commits = 8
    life_s = 4.0

    def __init__(self, seed: int, lake: Path, settings: Mapping[str, str] = CLUSTER_SETTINGS) -> None:
        super().__init__(seed, lake, BROKERS, settings)

    def _lives(self) -> list[Coroutine[Any, Any, None]]:
        return [*super()._lives(), self._disturb()]

    async def _disturb(self) -> None:
        """Cut ways between brokers or make them slow, and heal them. Clocks are up to an hour off, and jump."""
        random, network = self.random, self.universe.network
        while not self._is_over:
            random.choice(self.universe.machines).set_clock(random.choice((-HOUR_MS, -1, 0, HOUR_MS)))
            await self._until(lambda: self._is_over, random.random() * 5)
            one, other = random.sample(range(BROKERS), 2)
            others = [each for each in range(BROKERS) if each != one]
            match random.choice(["one way", "both ways", "alone", "slow"]):
                case "one way":
                    network.cut(one, other)
                case "both ways":
                    network.cut(one, other)
                    network.cut(other, one)
                case "alone":
                    for each in others:
                        network.cut(one, each)
                        network.cut(each, one)
                case _:
                    network.slow(one, other, random.choice((50, 500, 3_000)))
            await self._until(lambda: self._is_over, random.random() * 4)
            network.heal()
        await asyncio.sleep(0)


class ReplicatedSimulation(ClusterSimulation):
    """One run of three brokers, each of which has a replica of every partition. Two replicas acknowledge.

    In two of three seeds segments of few records are copied as whole files, as large ones are.
    """

    replicas = BROKERS

    def __init__(self, seed: int, lake: Path) -> None:
        super().__init__(seed, lake, REPLICATED_SETTINGS)
        self._whole_from_bytes = Random(f"segments {seed}").choice((1_000, 5_000, replica_fetch.WHOLE_FROM_BYTES))

    def run(self) -> str:
        with patch.object(replica_fetch, "WHOLE_FROM_BYTES", self._whole_from_bytes):
            return super().run()

    def _other_readers(self) -> list[Coroutine[Any, Any, None]]:
        chance = Random(f"followers {self.seed}")
        readers = [Reader(self.ledger, key, committed=chance.random() < 0.5) for key in self.keys]
        return [self._tail_followers(each, chance) for each in readers]

    async def _tail_followers(self, reader: Reader, chance: Random) -> None:
        while not self._is_over:
            with suppress(ConnectionError):
                await reader.poll_follower(chance)
            await asyncio.sleep(PAUSE_S)

    def _may_lose_power(self, machine: Machine) -> bool:
        """One machine at a time, until all replicas have caught up again, unless records are forced to the disk."""
        partitions = (each for several in self.universe.store.image.partitions.values() for each in several)
        others = [each for each in self.universe.machines if each is not machine]
        return self.forces or (
            all(each.started.is_set() and not each.error_rate for each in others)
            and all(len(each.isr) == len(each.replicas) > 1 for each in partitions)
        )
