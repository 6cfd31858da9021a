"""Three brokers of each kind, one of which ends: how long what it did is not done. And what a cluster of kafkalake commits.

Sessions are as in `clusters`. Every event is noticed through another broker than the one that ends.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
import uuid
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from contract.wire_client import WireClient
from kafka_reference import BrokerProcess, Cluster, Kafkalake
from waiting import wait_until

from benchmarks.clusters import SESSION, TIMEOUT_S, SteadyProducer, clusters, create_replicated
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_times, limited
from kafkalake.metadata import paths

GROUPS, TRANSACTIONS = 0, 1
_SESSION_S = int(SESSION["broker.session.timeout.ms"]) / 1000


def measure(plan: Plan) -> Iterator[Row]:
    with clusters(plan) as pair:
        for key, title, most, work in (
            ("controller-killed", "SIGKILL of the controller: next CreateTopics answered", 3.0, _controller_killed),
            ("broker-killed", "SIGKILL of a broker: fenced", 1, _broker_killed),
            (
                "broker-stopped",
                f"SIGSTOP of a broker, session {_SESSION_S:g} s: fenced",
                _SESSION_S + 1,
                _broker_stopped,
            ),
            ("broker-returns", "start after SIGKILL: a partition with one replica serves", 5, _broker_returns),
        ):
            if plan.wants(key):
                yield limited(_row(plan, pair, key, title, work), most)
        for key, title, work in (
            ("group-coordinator-killed", "SIGKILL of a group's coordinator: next commit", _group_coordinator_killed),
            (
                "transaction-coordinator-killed",
                "SIGKILL of a coordinator: next transaction",
                _transaction_coordinator_killed,
            ),
        ):
            if plan.wants(key):
                row = _row(plan, pair, key, title, work)
                yield limited(row, statistics.median(row.figures["apache_kafka"]) + 1)
        if plan.wants("partitions-created"):
            yield _partitions_created(plan, pair[0])
        if plan.wants("idle-commits"):
            yield _idle_commits(plan, pair[0])


def _row(plan: Plan, pair: tuple[Cluster, Cluster], key: str, title: str, work: Callable[[Cluster], float]) -> Row:
    ours, theirs = take_turns(key, plan.rounds, pair, work, "s")
    return compare_times(key, f"three brokers, {title}", ours, theirs, at_least=1, unit="s")


def _admin(*brokers: BrokerProcess) -> AdminClient:
    servers = ",".join(each.bootstrap_servers for each in brokers)
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def _create(client: AdminClient, topic: str, partitions: int = 1, replicas: int = 1) -> bool:
    """Return whether a topic is created, now or by an earlier try."""
    try:
        client.create_topics([NewTopic(topic, partitions, replicas)], request_timeout=5)[topic].result(TIMEOUT_S)
    except KafkaException as error:
        progress(f"creation of {topic}: {error}")
        return str(error.args[0].name()) == "TOPIC_ALREADY_EXISTS"
    return True


def _others(cluster: Cluster, broker: BrokerProcess) -> list[BrokerProcess]:
    return [each for each in cluster.brokers if each is not broker]


def _controller(cluster: Cluster) -> BrokerProcess:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    with WireClient(cluster.brokers[0].bootstrap_servers) as client:
        return cluster.brokers[client.call("DescribeQuorum", 1, topics=topics).topics[0].partitions[0].leader_id]


def _coordinator(cluster: Cluster, kind: int, name: str) -> BrokerProcess:
    with WireClient(cluster.brokers[0].bootstrap_servers) as client:
        found = client.call("FindCoordinator", 4, key_type=kind, coordinator_keys=[name]).coordinators[0]
    return cluster.brokers[found.node_id]


def _until_s(holds: Callable[[], object]) -> float:
    """Return the time until something holds."""
    began_s = time.monotonic()
    wait_until(holds, timeout_s=TIMEOUT_S)
    return time.monotonic() - began_s


def _start_again(cluster: Cluster, broker: BrokerProcess) -> None:
    """Start a broker, and wait until each knows all."""
    if broker.is_running():
        os.killpg(broker.pid, signal.SIGCONT)
    else:
        broker.start()
    for each in cluster.brokers:
        wait_until(lambda each=each: len(_admin(each).list_topics(timeout=10).brokers) == 3, timeout_s=TIMEOUT_S)  # type: ignore[misc]


def _controller_killed(cluster: Cluster) -> float:
    """Producers through the other brokers, of a topic that these lead, get no error meanwhile."""
    controller = _controller(cluster)
    others = _others(cluster, controller)
    topic = f"others-{uuid.uuid4().hex[:8]}"
    client = _admin(*others)
    assert _create(client, topic)
    found = client.list_topics(topic, timeout=10).topics[topic].partitions[0]
    with SteadyProducer(cluster, topic) as producer:
        controller.kill()
        # Each time by a client that knows nothing of the broker that has ended.
        took_s = _until_s(lambda: _create(_admin(*others), f"{topic}-next"))
        if found.leader != controller.broker_id:
            producer.wait_for_progress()
            assert producer.errors == [], producer.errors[:1]
        else:
            _start_again(cluster, controller)  # it led the partition, the only replica
    _start_again(cluster, controller)
    return took_s


def _broker_killed(cluster: Cluster) -> float:
    victim = _others(cluster, _controller(cluster))[0]
    client = _admin(_controller(cluster))
    victim.kill()
    took_s = _until_s(lambda: victim.broker_id not in client.list_topics(timeout=10).brokers)
    _start_again(cluster, victim)
    return took_s


def _broker_stopped(cluster: Cluster) -> float:
    victim = _others(cluster, _controller(cluster))[0]
    client = _admin(_controller(cluster))
    os.killpg(victim.pid, signal.SIGSTOP)
    took_s = _until_s(lambda: victim.broker_id not in client.list_topics(timeout=10).brokers)
    _start_again(cluster, victim)
    return took_s


def _broker_returns(cluster: Cluster) -> float:
    victim = _others(cluster, _controller(cluster))[0]
    topic = f"single-{uuid.uuid4().hex[:8]}"
    client = _admin(*cluster.brokers)
    assert _create(client, topic, partitions=6)

    led: list[int] = []

    def is_led_by_victim() -> bool:
        partitions = (
            client.list_topics(topic, timeout=10).topics[topic].partitions
        )  # of some broker, which learns of it later
        led[:] = [index for index, each in partitions.items() if each.leader == victim.broker_id]
        return bool(led)

    wait_until(is_led_by_victim, timeout_s=TIMEOUT_S)
    victim.kill()
    began_s = time.monotonic()
    victim.launch()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "message.timeout.ms": 60_000})
    producer.produce(topic, b"x", partition=led[0])
    assert producer.flush(TIMEOUT_S) == 0
    took_s = time.monotonic() - began_s
    victim.wait_until_ready()
    _start_again(cluster, victim)
    return took_s


def _group_coordinator_killed(cluster: Cluster) -> float:
    topic, group = "coordinated", f"group-{uuid.uuid4().hex[:8]}"
    if topic not in _admin(*cluster.brokers).list_topics(timeout=10).topics:
        create_replicated(cluster, topic)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        except KafkaException:
            return False
        return True

    wait_until(is_committed, timeout_s=TIMEOUT_S)
    coordinator = _coordinator(cluster, GROUPS, group)
    coordinator.kill()
    took_s = _until_s(is_committed)
    consumer.close()
    _start_again(cluster, coordinator)
    return took_s


def _transaction_coordinator_killed(cluster: Cluster) -> float:
    topic, name = "in-transactions", f"id-{uuid.uuid4().hex[:8]}"
    if topic not in _admin(*cluster.brokers).list_topics(timeout=10).topics:
        create_replicated(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    coordinator = _coordinator(cluster, TRANSACTIONS, name)

    def is_done() -> bool:
        try:
            producer.begin_transaction()
            producer.produce(topic, b"x")
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            progress(f"{cluster.name}: {error}")
            producer.abort_transaction(TIMEOUT_S)
            return False
        return True

    wait_until(is_done, timeout_s=TIMEOUT_S)
    coordinator.kill()
    took_s = _until_s(is_done)
    _start_again(cluster, coordinator)
    return took_s


def _version(cluster: Cluster[Kafkalake]) -> int:
    """Return the version of the table `cluster`."""
    log = paths.table_path(cluster.brokers[0].lake, paths.CLUSTER) / "_delta_log"
    return max(int(each.stem) for each in log.glob("*.json"))


def _partitions_created(plan: Plan, cluster: Cluster[Kafkalake]) -> Row:
    """Ten topics of a thousand partitions with one replica, in one request."""
    count = plan.size(1_000, 100)
    names = [f"many-{number}-{uuid.uuid4().hex[:8]}" for number in range(10)]
    client = _admin(*cluster.brokers)
    before, began_s = _version(cluster), time.monotonic()
    futures = client.create_topics([NewTopic(name, count, 1) for name in names], request_timeout=60)
    for each in futures.values():
        each.result(TIMEOUT_S)
    took_s, commits = time.monotonic() - began_s, _version(cluster) - before

    def is_known(broker: BrokerProcess) -> bool:
        topics = _admin(broker).list_topics(timeout=30).topics
        return all(len(topics[name].partitions) == count for name in names if name in topics) and topics.keys() >= set(
            names
        )

    applied_s = _until_s(lambda: all(map(is_known, cluster.brokers)))
    return _own(
        "partitions-created",
        f"three brokers, {10 * count} partitions created",
        f"{took_s:.1f} s, {commits} commits, applied everywhere after {applied_s:.1f} s",
        "30 s, 1 commit, 1 s",
        holds=took_s <= 30 and commits == 1 and applied_s <= 1,
        created_s=took_s,
        commits=commits,
        applied_s=applied_s,
    )


def _idle_commits(plan: Plan, cluster: Cluster[Kafkalake]) -> Row:
    minutes = plan.size(10, 1)
    time.sleep(10)  # what the measures before it have left is published
    before = _version(cluster)
    time.sleep(60 * minutes)
    commits = _version(cluster) - before
    title = f"three idle brokers, commits to `cluster` in {minutes} minutes"
    return _own("idle-commits", title, str(commits), "0", holds=not commits, commits=commits)


def _own(key: str, measure: str, text: str, promise: str, *, holds: bool, **figures: float) -> Row:
    """Return a row that has no counterpart of Apache Kafka's."""
    return Row(key, measure, text, "", "", promise, holds, dict(figures))
