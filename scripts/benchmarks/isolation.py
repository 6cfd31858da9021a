"""How long a producer waits when the leader reaches no other broker: three brokers of each kind, three replicas, acks=all.

Brokers, and the controllers of Apache Kafka, reach each other through proxies that hold back what is sent (`broker_proxies`).
Clients reach all brokers, the isolated one too, and kafkalake's brokers the lake. The leader is the controller in one row, and
another broker is in the other.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from broker_proxies import BrokerProxies, ProxiedKafkalake, ways_of
from confluent_kafka.admin import NewTopic
from kafka_reference import BROKERS, PERFORMANCE_JVM, ApacheKafka, Cluster, KafkaQuorum

from benchmarks.clusters import (
    DURABLE,
    JOURNALS,
    SESSION,
    TIMEOUT_S,
    SteadyProducer,
    admin,
    controller_id,
    wait_for_isr,
)
from benchmarks.gaps import SESSION_S, compare_gaps, limit_by_session
from benchmarks.plan import APACHE_KAFKA_HEAP, Plan
from benchmarks.rows import Row


@dataclass(frozen=True)
class _Network:
    """A cluster whose brokers reach each other through proxies."""

    cluster: Cluster
    proxies: tuple[BrokerProxies, ...]

    def isolate(self, broker_id: int) -> None:
        for each in self.proxies:
            each.cut(ways_of(broker_id))

    def heal(self) -> None:
        for each in self.proxies:
            each.heal()


class _ProxiedKafka(ApacheKafka):
    """A node of Apache Kafka that others reach through proxies: its broker and its controller."""

    def __init__(
        self,
        brokers: BrokerProxies,
        controllers: BrokerProxies,
        directory: Path,
        *,
        broker_id: int,
        quorum: KafkaQuorum,
        settings: Mapping[str, str],
    ) -> None:
        super().__init__(
            directory,
            broker_id=broker_id,
            quorum=quorum,
            settings=settings,
            heap=APACHE_KAFKA_HEAP,
            jvm=PERFORMANCE_JVM,
        )
        own = brokers.listeners(broker_id, self.port)
        controller = "CONTROLLER://127.0.0.1:{}"
        self._settings |= own | {
            "listeners": f"{own['listeners']},{controller.format(controllers.behind[broker_id])}",
            "advertised.listeners": f"{own['advertised.listeners']},{controller.format(controllers.advertised[broker_id])}",
            "listener.security.protocol.map": f"{own['listener.security.protocol.map']},CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": ",".join(
                f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers.advertised)
            ),
        }


def measure(plan: Plan) -> Iterator[Row]:
    rows = (
        ("leader-isolated", "isolation of the leader", _others_leader),
        ("leading-controller-isolated", "isolation of the leader, which is the controller too", _controllers_leader),
    )
    with (
        tempfile.TemporaryDirectory(
            prefix="kafkalake-benchmark-", dir=plan.directory, ignore_cleanup_errors=True
        ) as directory,
        ExitStack() as stack,
    ):
        pair = _kafkalake(plan, Path(directory), stack), _apache_kafka(Path(directory), stack)
        for key, title, choose in rows:
            if plan.wants(key):
                yield _row(plan, pair, key, f"{title}, session {SESSION_S:g} s", choose)


def _kafkalake(plan: Plan, directory: Path, stack: ExitStack) -> _Network:
    proxies = stack.enter_context(BrokerProxies())
    brokers = [
        ProxiedKafkalake(
            proxies,
            directory / "lake",
            directory=directory / f"kafkalake-{each}",
            broker_id=each,
            settings={**JOURNALS, **SESSION, **dict(plan.settings)},
        )
        for each in range(BROKERS)
    ]
    return _Network(stack.enter_context(Cluster(brokers)), (proxies,))


def _apache_kafka(directory: Path, stack: ExitStack) -> _Network:
    between, controllers = stack.enter_context(BrokerProxies()), stack.enter_context(BrokerProxies())
    quorum = KafkaQuorum(BROKERS)
    brokers = [
        _ProxiedKafka(
            between,
            controllers,
            directory / f"apache-kafka-{each}",
            broker_id=each,
            quorum=quorum,
            settings={**JOURNALS, **SESSION},
        )
        for each in range(BROKERS)
    ]
    return _Network(stack.enter_context(Cluster(brokers)), (between, controllers))


def _row(plan: Plan, pair: tuple[_Network, _Network], key: str, title: str, choose: Callable[[int], int]) -> Row:
    """The median over the rounds; in each, so many leaders are isolated. `choose` returns the leader, by the controller."""
    networks = {each.cluster.name: each for each in pair}

    def gap(cluster: Cluster, number: int) -> tuple[float, Sequence[object]]:
        return _gap_s(networks[cluster.name], f"{key}-{number}", choose)

    row = compare_gaps(plan, (pair[0].cluster, pair[1].cluster), key, title, plan.size(4, 1), gap)
    return limit_by_session(row)


def _controllers_leader(controller: int) -> int:
    return controller


def _others_leader(controller: int) -> int:
    return (controller + 1) % BROKERS


def _gap_s(network: _Network, topic: str, choose: Callable[[int], int]) -> tuple[float, Sequence[object]]:
    """Return a producer's longest gap while the leader of a new topic is isolated, and its errors."""
    cluster = network.cluster
    leader = choose(controller_id(cluster.brokers[0]))
    replicas = [(leader + each) % BROKERS for each in range(BROKERS)]
    client = admin(cluster)
    client.create_topics([NewTopic(topic, 1, replica_assignment=[replicas], config=DURABLE)])[topic].result(TIMEOUT_S)
    for each in cluster.brokers:
        wait_for_isr(cluster, topic, asked=each)
    with SteadyProducer(cluster, topic) as producer:
        since_s = time.monotonic()
        network.isolate(leader)
        try:
            producer.wait_for_progress()
            gap_s = producer.longest_gap_s(since_s)
        finally:
            network.heal()
    assert not producer.errors, f"{cluster.name}: {producer.errors[0]}"
    for each in cluster.brokers:
        wait_for_isr(cluster, topic, asked=each)
    return gap_s, producer.errors
