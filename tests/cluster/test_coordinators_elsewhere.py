"""Three brokers, whose coordinators are killed or have lost records: transactions end, and retention waits for groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.test_brokers_on_one_lake import consume, leaders, numbers, produce
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from contract.wire_client import WireClient
from kafka_reference import BROKERS, Cluster, Kafkalake, kafkalake_cluster, topic_name
from staged_jobs import addresses, append, consumed, describe, numbered, stage, wait_for_settled
from waiting import wait_until
from watermarks import may_pass, watermarks

from kafkalake.broker.staged.service import TRANSACTIONAL_ID_PREFIX, StagedFaultPoint
from kafkalake.broker.transactions.fault_points import KILL_AT
from kafkalake.client.staged_append import ask_until
from kafkalake.errors import BrokerUnavailableError, KafkaError

pytestmark = pytest.mark.process

PARTITIONS = 6
TIMEOUT_S = 30.0
GROUP, TRANSACTION = 0, 1
SETTINGS = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "metadata.publish.interval.ms": "1000000",
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "3",
}
ONE_REPLICA = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, one replica of each journal. A test leaves them running."""
    with kafkalake_cluster(tmp_path_factory.mktemp("coordinators"), SETTINGS | ONE_REPLICA) as cluster:
        yield cluster


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers, three replicas of each journal."""
    with kafkalake_cluster(tmp_path, SETTINGS) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, *, replicas: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, PARTITIONS, replicas, config=settings)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.create_topics([new])[topic].result(TIMEOUT_S)
    for each in cluster.brokers:
        wait_until(lambda each=each: sorted(leaders(each, topic)) == [0, 0, 1, 1, 2, 2])


def coordinator_of(cluster: Cluster, kind: int, name: str) -> Kafkalake:
    """Return the broker that coordinates a group or a transactional id, once there is one."""
    found = []

    def is_found() -> bool:
        with WireClient(cluster.brokers[0].bootstrap_servers) as client:
            answer = client.call("FindCoordinator", 4, key_type=kind, coordinator_keys=[name]).coordinators[0]
        found[:] = [] if answer.error_code else [answer.node_id]
        return bool(found)

    wait_until(is_found)
    return cluster.brokers[found[0]]


def offsets(cluster: Cluster, topic: str, spec: OffsetSpec, level: IsolationLevel) -> list[int]:
    """Return offsets of all partitions, none while one has no leader that is known."""
    asked = {TopicPartition(topic, index): spec for index in range(PARTITIONS)}
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    found = client.list_offsets(asked, isolation_level=level, request_timeout=10)
    try:
        return [found[each].result(20).offset for each in asked]
    except KafkaException as error:
        if not may_pass(error):
            raise
        return []


def stable(cluster: Cluster, topic: str) -> list[int]:
    return offsets(cluster, topic, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)


def starts(cluster: Cluster, topic: str) -> list[int]:
    return offsets(cluster, topic, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)


def begin(cluster: Cluster, name: str, topic: str, *, timeout_ms: int) -> Producer:
    """Begin a transaction with a record in each partition, one after the other."""
    settings = {"transactional.id": name, "transaction.timeout.ms": timeout_ms, "log_level": 0}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.produce(topic, b"x", partition=index)
        assert producer.flush(TIMEOUT_S) == 0
    return producer


def test_a_transaction_times_out_although_its_coordinator_was_killed(replicated: Cluster) -> None:
    """Another broker coordinates it then, and has markers written by all leaders."""
    topic, name = topic_name(), topic_name()
    create(replicated, topic, replicas=3)
    left = begin(replicated, name, topic, timeout_ms=8_000)
    wait_until(lambda: stable(replicated, topic) == [0] * PARTITIONS)
    killed = coordinator_of(replicated, TRANSACTION, name)
    killed.kill()
    wait_until(lambda: stable(replicated, topic) == [2] * PARTITIONS)
    killed.start()
    begin(replicated, name, topic, timeout_ms=60_000).commit_transaction(TIMEOUT_S)
    found = consume(replicated.brokers[0], topic, PARTITIONS, topic, **{"isolation.level": "read_committed"})
    assert found == {b"x": PARTITIONS}, "of the second transaction alone"
    del left


def is_killed_by(broker: Kafkalake, request: dict[str, Any]) -> bool:
    """Return whether a broker dies of a job's request, which it does not take before it has loaded what it coordinates."""
    try:
        append(broker, request)
    except BrokerUnavailableError:
        return True
    except KafkaError as error:
        assert error.retriable, error
        return False
    raise AssertionError("it has answered")


def test_what_a_job_has_committed_is_known_before_it_asks_again(tmp_path: Path) -> None:
    """Its coordinator was killed, and another one may forget the transaction before that (transactional.id.expiration.ms)."""
    kills = [tmp_path / f"kill-{each}" for each in range(BROKERS)]
    for each in kills:
        each.write_text("")
    with kafkalake_cluster(tmp_path, SETTINGS, [{KILL_AT: str(each)} for each in kills]) as cluster:
        topic = topic_name()
        create(cluster, topic, replicas=3)
        described = describe(cluster.brokers[0], topic)
        requests = [stage(cluster.brokers[0].lake, described, "job", [[numbered(0, 100)]], version=n) for n in range(2)]
        killed = coordinator_of(cluster, TRANSACTION, TRANSACTIONAL_ID_PREFIX + requests[0]["application"])
        other = next(each for each in cluster.brokers if each is not killed)
        kills[killed.broker_id].write_text(StagedFaultPoint.COMMITTED.value)
        wait_until(lambda: is_killed_by(killed, requests[0]))
        killed.kill()
        assert wait_for_settled(killed.lake) == 0
        for request, again in ((requests[0], True), (requests[1], False), (requests[1], True)):
            answer = ask_until(lambda: addresses(other), request, TIMEOUT_S)
            assert (answer["records"], answer["again"]) == (100, again)
        assert len(consumed(other.bootstrap_servers, topic, "read_committed")) == 200


def test_a_transaction_of_which_the_journal_has_lost_records_ends_at_all_leaders(cluster: Cluster) -> None:
    for _ in range(2):
        topic, name = topic_name(), topic_name()
        create(cluster, topic)
        left = begin(cluster, name, topic, timeout_ms=60_000)
        coordinator = coordinator_of(cluster, TRANSACTION, name)
        coordinator.kill()
        logs = (coordinator.lake / "logs" / str(coordinator.broker_id)).glob("__transaction_state-*/*.arrow")
        for path in logs:
            if path.stat().st_size > 1_000:
                os.truncate(path, path.stat().st_size - 64)  # the last message of the newest segment is gone
        coordinator.start()
        wait_until(lambda topic=topic: stable(cluster, topic) == [2] * PARTITIONS)  # type: ignore[misc]
        begin(cluster, name, topic, timeout_ms=60_000).commit_transaction(TIMEOUT_S)
        wait_until(lambda topic=topic: stable(cluster, topic) == [4] * PARTITIONS)  # type: ignore[misc]
        del left


def commit(cluster: Cluster, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, index, offset) for index in range(PARTITIONS)], asynchronous=False)
    consumer.close()


def test_retention_waits_for_groups_that_other_brokers_coordinate(cluster: Cluster) -> None:
    guarded, group = topic_name(), topic_name()
    create(cluster, guarded, retention_ms="1", retention_groups_guard="block")
    commit(cluster, group, guarded, 0)
    coordinator = coordinator_of(cluster, GROUP, group)
    elsewhere = [
        index for index, leader in enumerate(leaders(cluster.brokers[0], guarded)) if leader != coordinator.broker_id
    ]
    produce(cluster.brokers[0], guarded, numbers(120))
    ends: list[int] = []

    def are_known() -> bool:
        ends[:] = offsets(cluster, guarded, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        return bool(ends)

    wait_until(are_known)

    def wait_for_retention() -> None:
        """Until each broker has enforced it on another topic, that has no guard."""
        other = topic_name()
        create(cluster, other, retention_ms="1")
        produce(cluster.brokers[0], other, numbers(120))
        wait_until(lambda: min(starts(cluster, other), default=0) > 0)

    wait_for_retention()
    wait_until(lambda: starts(cluster, guarded) == [0] * PARTITIONS)  # they never go back
    coordinator.kill()
    servers = next(each for each in cluster.brokers if each is not coordinator).bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "any", "log_level": 0})
    low = [watermarks(consumer, guarded, index)[0] for index in elsewhere]
    consumer.close()
    assert low == [0] * len(elsewhere), "nobody says what its groups have committed"
    coordinator.start()
    for each in cluster.brokers:
        wait_until(lambda each=each: sorted(leaders(each, guarded)) == [0, 0, 1, 1, 2, 2])
    wait_for_retention()
    wait_until(lambda: starts(cluster, guarded) == [0] * PARTITIONS)  # they never go back
    commit(cluster, group, guarded, max(ends))
    wait_until(lambda: starts(cluster, guarded) == ends)
