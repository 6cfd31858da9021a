"""What happens to three brokers on one lake that replicate: killed, stopped, or without a network between them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker_proxies import BrokerProxies, ProxiedKafkalake, Way, ways_of
from kafka_reference import BROKERS


@dataclass(frozen=True)
class ReplicaCluster:
    """Three brokers, the network between them, and chance. session_s: of the brokers with the controller."""

    brokers: list[ProxiedKafkalake]
    proxies: BrokerProxies
    session_s: float

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(each.bootstrap_servers for each in self.brokers)


@contextmanager
def replica_cluster(directory: Path, settings: Mapping[str, str], session_s: float) -> Iterator[ReplicaCluster]:
    """Start three brokers that reach each other through proxies, and kill them at the end."""
    with BrokerProxies() as proxies:
        brokers = [
            ProxiedKafkalake(
                proxies,
                directory / "lake",
                directory=directory / f"broker-{each}",
                broker_id=each,
                settings=settings,
            )
            for each in range(BROKERS)
        ]
        try:
            for each in brokers:
                each.launch()
            for each in brokers:
                each.wait_until_ready()
            yield ReplicaCluster(brokers, proxies, session_s)
        finally:
            for each in brokers:
                each.close()


Fault = Callable[[ReplicaCluster, random.Random], None]


def kill(cluster: ReplicaCluster, chance: random.Random) -> None:
    """One broker is killed, and started again later."""
    broker = chance.choice(cluster.brokers)
    broker.kill()
    time.sleep(chance.choice([0.0, 0.3, 1.0, 2.5]))
    broker.start()


def kill_two(cluster: ReplicaCluster, chance: random.Random) -> None:
    """Two are killed one after the other: the last one does not acknowledge alone."""
    ended = chance.sample(cluster.brokers, 2)
    for each in ended:
        each.kill()
        time.sleep(chance.choice([0.0, 0.2, 0.7]))
    for each in chance.sample(ended, 2):
        each.start()


def kill_all(cluster: ReplicaCluster, chance: random.Random) -> None:
    for each in cluster.brokers:
        each.kill()
    for each in chance.sample(cluster.brokers, BROKERS):
        each.launch()
    for each in cluster.brokers:
        each.wait_until_ready()


def stop(cluster: ReplicaCluster, chance: random.Random) -> None:
    """One broker is stopped, perhaps for longer than its session, and goes on as if nothing had been."""
    broker = chance.choice(cluster.brokers)
    os.killpg(broker.pid, signal.SIGSTOP)
    time.sleep(cluster.session_s * chance.choice([0.5, 1.5, 2.5]))
    os.killpg(broker.pid, signal.SIGCONT)


def isolate(cluster: ReplicaCluster, chance: random.Random) -> None:
    """One broker, which leads and may be the controller, reaches no other one; clients and the lake it reaches."""
    _without(cluster, ways_of(chance.randrange(BROKERS)), chance)


def isolate_one_way(cluster: ReplicaCluster, chance: random.Random) -> None:
    """Nothing of one broker arrives at the others, or nothing of the others at it."""
    alone, end = chance.randrange(BROKERS), chance.randrange(2)
    _without(cluster, [way for way in ways_of(alone) if way[end] == alone], chance)


def part(cluster: ReplicaCluster, chance: random.Random) -> None:
    """Two brokers do not reach each other; the third one reaches both."""
    one, other = chance.sample(range(BROKERS), 2)
    _without(cluster, [(one, other), (other, one)], chance)


def _without(cluster: ReplicaCluster, ways: list[Way], chance: random.Random) -> None:
    cluster.proxies.cut(ways)
    time.sleep(cluster.session_s * chance.choice([0.5, 1.5, 2.5]))
    cluster.proxies.heal()


def flap(cluster: ReplicaCluster, chance: random.Random) -> None:
    """The ways of one broker come and go; its connections break or hang."""
    ways = ways_of(chance.randrange(BROKERS))
    for _ in range(chance.randrange(3, 8)):
        cluster.proxies.cut(ways)
        if chance.random() < 0.5:
            cluster.proxies.reset(ways)
        time.sleep(cluster.session_s * chance.choice([0.05, 0.2, 0.5]))
        cluster.proxies.heal()
        time.sleep(cluster.session_s * chance.choice([0.05, 0.2]))


def slow(cluster: ReplicaCluster, chance: random.Random) -> None:
    """What one broker sends and gets takes long, up to its session."""
    cluster.proxies.slow(ways_of(chance.randrange(BROKERS)), cluster.session_s * chance.choice([0.1, 0.4, 1.0]))
    time.sleep(cluster.session_s * chance.choice([1.0, 2.0]))
    cluster.proxies.heal()


FAULTS: tuple[Fault, ...] = (
    kill,
    kill,
    kill_two,
    kill_all,
    stop,
    stop,
    isolate,
    isolate,
    isolate_one_way,
    part,
    flap,
    slow,
)
