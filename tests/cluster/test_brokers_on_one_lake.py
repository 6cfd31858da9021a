"""Three brokers on one lake, real processes that are really killed: any client reaches any topic through any of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewPartitions, NewTopic, OffsetSpec
from contract.test_configs_contract import BROKER, SET, eventually_setting, incremental, settings
from contract.wire_client import WireClient
from kafka_reference import BROKERS, Kafkalake, create_topic, kafkalake_cluster, topic_name
from waiting import wait_until

from kafkalake.dataset import topic_reader
from kafkalake.errors import (
    CoordinatorLoadInProgressError,
    DuplicateBrokerRegistrationError,
    InvalidRequestError,
    TopicAlreadyExistsError,
)
from kafkalake.metadata.delta import DeltaMetadataStore

pytestmark = pytest.mark.process

GROUP = 32
SETTINGS = {"metadata.publish.interval.ms": "200"}
TIMEOUT_S = 30.0


def committed(broker: Kafkalake, topic: str, group: str, partitions: int) -> int:
    """Return the sum of a group's committed offsets, asked through one broker."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], timeout=TIMEOUT_S)
        return sum(each.offset for each in found)
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Kafkalake]]:
    """Three brokers of one lake. A test leaves them running."""
    with kafkalake_cluster(tmp_path_factory.mktemp("brokers"), SETTINGS) as cluster:
        yield list(cluster.brokers)


def admin(*brokers: Kafkalake) -> AdminClient:
    servers = ",".join(each.bootstrap_servers for each in brokers)
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def metadata(broker: Kafkalake, topic: str | None = None) -> ClusterMetadata:
    return admin(broker).list_topics(topic, timeout=10)


def leaders(broker: Kafkalake, topic: str) -> list[int]:
    found = metadata(broker, topic).topics[topic].partitions
    return [found[index].leader for index in sorted(found)]


def controller_of(brokers: list[Kafkalake]) -> Kafkalake:
    """Return the broker that the control store names as the controller."""
    store = DeltaMetadataStore(brokers[0].lake, create=False).control_store
    return brokers[store.load().controller_id]


def produce(broker: Kafkalake, topic: str, values: list[bytes], **settings: Any) -> None:
    """Produce through one broker, and return once all are acknowledged."""
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "linger.ms": 5, **settings})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"%d" % number, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def consume(broker: Kafkalake, topic: str, count: int, group: str, **settings: Any) -> Counter[bytes]:
    """Consume through one broker in a group and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    found: Counter[bytes] = Counter()
    ends = time.monotonic() + TIMEOUT_S
    try:
        consumer.subscribe([topic])
        while found.total() < count and time.monotonic() < ends:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found[message.value()] += 1
        if found:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_any_broker_takes_any_topic(brokers: list[Kafkalake]) -> None:
    topic = topic_name()
    create_topic(brokers[2], topic, partitions=6)
    for each in brokers:
        wait_until(lambda each=each: sorted(leaders(each, topic)) == [0, 0, 1, 1, 2, 2])
    assert leaders(brokers[0], topic) == leaders(brokers[1], topic) == leaders(brokers[2], topic)
    for number, each in enumerate(brokers):
        produce(each, topic, [b"%d-%d" % (number, index) for index in range(100)])
    expected = Counter(b"%d-%d" % (number, index) for number in range(BROKERS) for index in range(100))
    for number, each in enumerate(brokers):
        assert consume(each, topic, 300, f"{topic}-{number}") == expected
    assert committed(brokers[1], topic, f"{topic}-0", 6) == 300


def test_the_lake_has_the_records_of_all_brokers(brokers: list[Kafkalake]) -> None:
    topic = topic_name()
    create_topic(brokers[0], topic, partitions=6)
    wait_until(lambda: sorted(leaders(brokers[1], topic)) == [0, 0, 1, 1, 2, 2])
    produce(brokers[1], topic, numbers(600))
    found = topic_reader(brokers[0].lake, topic).read_all()
    assert sorted(found["value"].to_pylist()) == sorted(numbers(600))


def test_changes_of_topics_are_made_through_any_broker(brokers: list[Kafkalake]) -> None:
    topic = topic_name()
    create_topic(brokers[0], topic, partitions=2)
    for each in brokers:
        wait_until(lambda each=each: len(leaders(each, topic)) == 2)
    client = admin(brokers[1])
    client.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    for each in brokers:
        wait_until(lambda each=each: len(leaders(each, topic)) == 5)
    produce(brokers[2], topic, numbers(50))
    client = admin(brokers[2])
    client.delete_topics([topic])[topic].result(TIMEOUT_S)
    for each in brokers:
        wait_until(lambda each=each: topic not in metadata(each).topics)
    create_topic(brokers[1], topic, partitions=3)  # the same name again
    for each in brokers:
        wait_until(lambda each=each: sorted(leaders(each, topic)) == [0, 1, 2])
    produce(brokers[0], topic, numbers(30))
    assert consume(brokers[2], topic, 30, topic) == Counter(numbers(30))


def test_a_transaction_over_all_brokers_is_whole(brokers: list[Kafkalake]) -> None:
    topic = topic_name()
    create_topic(brokers[0], topic, partitions=6)
    wait_until(lambda: sorted(leaders(brokers[1], topic)) == [0, 0, 1, 1, 2, 2])
    for number in range(4):
        producer = Producer(
            {
                "bootstrap.servers": brokers[number % BROKERS].bootstrap_servers,
                "transactional.id": f"{topic}-{number}",
                "log_level": 0,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        for commits in (True, False):
            producer.begin_transaction()
            for index in range(60):
                producer.produce(topic, b"%d-%d-%d" % (number, commits, index), key=b"%d" % index)
            if commits:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
    expected = Counter(b"%d-1-%d" % (number, index) for number in range(4) for index in range(60))
    assert consume(brokers[1], topic, 240, topic, **{"isolation.level": "read_committed"}) == expected
    rows = topic_reader(brokers[0].lake, topic).read_all()["value"].to_pylist()
    assert Counter(rows) == expected


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_broker_that_is_killed_is_fenced_and_comes_back(brokers: list[Kafkalake], time: str) -> None:
    topic = topic_name()
    create_topic(brokers[0], topic, partitions=6)
    wait_until(lambda: sorted(leaders(brokers[1], topic)) == [0, 0, 1, 1, 2, 2])
    produce(brokers[0], topic, numbers(60))
    controller = controller_of(brokers)
    victim = next(each for each in brokers if each is not controller)
    victim.kill()
    # Another one may have been late too, and this one before it was killed: it is awaited without partitions.
    wait_until(
        lambda: victim.broker_id not in metadata(controller).brokers and -1 in leaders(controller, topic), timeout_s=10
    )
    victim.start()
    for each in brokers:
        wait_until(lambda each=each: sorted(leaders(each, topic)) == [0, 0, 1, 1, 2, 2])
    produce(victim, topic, numbers(60))
    assert consume(brokers[0], topic, 120, topic) == Counter(dict.fromkeys(numbers(60), 2))


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_controller_is_killed_and_another_one_goes_on(brokers: list[Kafkalake], time: str) -> None:
    controller = controller_of(brokers)
    others = [each for each in brokers if each is not controller]
    controller.kill()
    topic = topic_name()
    wait_until(lambda: _is_created(others, topic), timeout_s=10)
    assert controller_of(brokers) in others
    controller.start()
    wait_until(lambda: len(metadata(others[0]).brokers) == BROKERS)
    produce(controller, topic, numbers(10))
    assert consume(others[1], topic, 10, topic) == Counter(numbers(10))


def _is_created(brokers: list[Kafkalake], topic: str) -> bool:
    """Return whether a topic can be created, or was created by an earlier try."""
    client = admin(*brokers)
    try:
        client.create_topics([NewTopic(topic, 4, 1)], request_timeout=5)[topic].result(10)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def _retention_of(topic: str) -> dict[str, Any]:
    return {"resource_type": 2, "resource_name": topic, "configs": [{"name": "retention.ms", "value": "1000000"}]}


def test_a_controller_that_was_stopped_longer_than_its_session_is_refused(brokers: list[Kafkalake]) -> None:
    """Requests that it has received meanwhile are the next controller's. It knows none of the topics that they are about."""
    controller = controller_of(brokers)
    others = [each for each in brokers if each is not controller]
    topic, kept = topic_name(), topic_name()
    asked: list[tuple[str, int, str, dict[str, Any]]] = [
        ("DeleteTopics", 6, "responses", {"topics": [{"name": topic}], "timeout": 10_000}),
        (
            "CreatePartitions",
            3,
            "results",
            {"topics": [{"name": kept, "count": 9, "assignments": None}], "timeout": 10_000},
        ),
        ("IncrementalAlterConfigs", 1, "responses", {"resources": [_retention_of(kept)]}),
        ("AlterConfigs", 2, "responses", {"resources": [_retention_of(kept)], "validate_only": True}),
        ("CreateTopics", 7, "topics", {"topics": [{"name": kept, "num_partitions": 1, "replication_factor": 1}]}),
    ]
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(controller.bootstrap_servers)) for _ in asked]
        for client in clients:
            assert client.call("ApiVersions", 0).api_keys
        os.kill(controller.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: controller_of(brokers) in others, timeout_s=20)
            for name in (topic, kept):
                wait_until(lambda name=name: _is_created(others, name), timeout_s=15)
            sent = [
                client.send(api, version, **values)
                for client, (api, version, _, values) in zip(clients, asked, strict=True)
            ]
        finally:
            os.kill(controller.pid, signal.SIGCONT)
        found = [
            [each.error_code for each in getattr(client.receive(api, version, number), field)]
            for client, (api, version, field, _), number in zip(clients, asked, sent, strict=True)
        ]
    assert found == [[0], [0], [0], [0], [TopicAlreadyExistsError.code]]
    later = topic_name()
    wait_until(lambda: _is_created([controller], later), timeout_s=20)  # forwarded, or refused and asked again
    assert controller_of(brokers) in others
    for each in brokers:
        wait_until(lambda each=each: {kept, later} <= metadata(each).topics.keys())
        wait_until(lambda each=each: topic not in metadata(each).topics)
        wait_until(lambda each=each: len(leaders(each, kept)) == 9)
        wait_until(lambda each=each: len(metadata(each).brokers) == BROKERS)


def test_one_broker_after_the_other_is_restarted(brokers: list[Kafkalake]) -> None:
    topic = topic_name()
    create_topic(brokers[0], topic, partitions=6)
    for number, each in enumerate(brokers):
        each.stop()
        each.start()
        for other in brokers:
            wait_until(lambda other=other: sorted(leaders(other, topic)) == [0, 0, 1, 1, 2, 2])
        produce(brokers[(number + 1) % BROKERS], topic, numbers(60))
    assert consume(brokers[0], topic, 180, topic) == Counter(dict.fromkeys(numbers(60), 3))


def test_an_idle_cluster_commits_nothing(brokers: list[Kafkalake]) -> None:
    store = DeltaMetadataStore(brokers[0].lake, create=False).control_store
    since, known = time.monotonic(), store.load().version

    def is_quiet() -> bool:
        """For six heartbeats of each broker, once what the tests before have changed has come to rest."""
        nonlocal since, known
        version = store.load().version
        if version != known:
            since, known = time.monotonic(), version
        return time.monotonic() - since > 3

    wait_until(is_quiet)


def test_all_brokers_are_started_again(brokers: list[Kafkalake]) -> None:
    topic = topic_name()
    create_topic(brokers[0], topic, partitions=6)
    produce(brokers[0], topic, numbers(60))
    for each in brokers:
        each.kill()
    for each in reversed(brokers):
        each.start()
    wait_until(lambda: sorted(leaders(brokers[0], topic)) == [0, 0, 1, 1, 2, 2])
    assert consume(brokers[0], topic, 60, topic) == Counter(numbers(60))


def test_nobody_registers_for_a_broker_that_lives(brokers: list[Kafkalake]) -> None:
    controller = controller_of(brokers)
    store = DeltaMetadataStore(brokers[0].lake, create=False).control_store
    before = store.load()
    with WireClient(controller.bootstrap_servers) as client:
        for broker in brokers:
            listeners = [{"name": "PLAINTEXT", "host": "127.0.0.1", "port": 1, "security_protocol": 0}]
            answer = client.call(
                "BrokerRegistration",
                3,
                broker_id=broker.broker_id,
                cluster_id=before.cluster_id,
                incarnation_id=uuid.uuid4(),
                listeners=listeners,
            )
            assert answer.error_code == DuplicateBrokerRegistrationError.code
        epoch = before.brokers[controller.broker_id].epoch
        answer = client.call(
            "BrokerHeartbeat", 0, broker_id=controller.broker_id, broker_epoch=epoch, want_shut_down=True
        )
        assert answer.error_code == InvalidRequestError.code
    assert store.load() == before


def test_jobs_and_verification_work_on_the_logs_of_all_brokers(brokers: list[Kafkalake]) -> None:
    topic, lake = topic_name(), brokers[0].lake
    create_topic(
        brokers[0], topic, partitions=6, config={"internal.segment.bytes": "65536", "retention.bytes": "65536"}
    )
    wait_until(lambda: sorted(leaders(brokers[1], topic)) == [0, 0, 1, 1, 2, 2])
    for number in range(4):
        produce(brokers[number % BROKERS], topic, [b"%d-%d" % (number, index) + b"x" * 100 for index in range(3_000)])
    wait_until(lambda: min(sealed_segments(lake, topic)[each] for each in range(6)) >= 3)  # two are more than stay
    removed = command("jobs", "run", "retention", "--lake", str(lake))
    assert {f"{topic}-{index}" for index in range(6)} <= {line.split()[0] for line in removed.splitlines() if line}
    rows = topic_reader(lake, topic).read_all()
    assert 0 < rows.num_rows < 12_000
    left = Counter(rows["value"].to_pylist())
    for each in brokers:  # each has followed the log starts of the partitions that it leads
        wait_until(lambda each=each: _begin_later(each, topic))
    assert consume(brokers[2], topic, rows.num_rows, topic) == left
    assert "No problems" in command("log", "verify", str(lake))


def sealed_segments(lake: Path, topic: str) -> Counter[int]:
    """Return the number of published segments of each partition."""
    return Counter(row.partition for row in DeltaMetadataStore(lake, create=False).load_segments(topic))


def command(*arguments: str) -> str:
    """Return what a command of kafkalake prints."""
    ran = subprocess.run(
        [sys.executable, "-m", "kafkalake", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _begin_later(broker: Kafkalake, topic: str) -> bool:
    """Return whether every partition that a broker leads begins behind offset 0."""
    client = admin(broker)
    own = [index for index, leader in enumerate(leaders(broker, topic)) if leader == broker.broker_id]
    asked = {TopicPartition(topic, index): OffsetSpec.earliest() for index in own}
    try:
        return all(found.result(TIMEOUT_S).offset > 0 for found in client.list_offsets(asked).values())
    except KafkaException:  # it leads one of them no more
        return False


def test_settings_are_changed_through_any_broker_and_count_on_all(brokers: list[Kafkalake]) -> None:
    group = topic_name("group")
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(each.bootstrap_servers)) for each in brokers]
        for client, value in zip(clients, ("7", "8", "9"), strict=True):
            assert incremental(client, BROKER, "", ("num.io.threads", SET, value)) == 0
            for each, other in enumerate(clients):
                eventually_setting(other, BROKER, str(each), "num.io.threads", (value, 3))
        for each, client in enumerate(clients):
            assert incremental(client, BROKER, str(each), ("num.io.threads", SET, f"{each + 1}")) == 0
            assert incremental(client, BROKER, str((each + 1) % BROKERS), ("num.io.threads", SET, "1")) == 42
            assert incremental(client, GROUP, group, ("consumer.heartbeat.interval.ms", SET, f"{500 + each}")) == 0
            for other in clients:
                eventually_setting(other, GROUP, group, "consumer.heartbeat.interval.ms", (f"{500 + each}", 8))
        for each, client in enumerate(clients):
            eventually_setting(client, BROKER, str(each), "num.io.threads", (f"{each + 1}", 2))
    brokers[2].kill()
    brokers[2].start()
    with WireClient(brokers[2].bootstrap_servers) as client:
        assert settings(client, BROKER, "2")["num.io.threads"] == ("3", 2)


def test_settings_in_files_of_a_broker_that_does_not_control_are_handed_over(brokers: list[Kafkalake]) -> None:
    controller = controller_of(brokers)
    late = next(each for each in brokers if each is not controller)
    late.stop()
    file = late.lake / "logs" / str(late.broker_id) / "broker-settings.json"
    file.write_text('{"default": {"background.threads": "11"}, "broker": {"num.network.threads": "12"}}')
    late.start()
    with WireClient(controller.bootstrap_servers) as client:
        eventually_setting(client, BROKER, str(controller.broker_id), "background.threads", ("11", 3))
    with WireClient(late.bootstrap_servers) as client:
        eventually_setting(client, BROKER, str(late.broker_id), "num.network.threads", ("12", 2))
    assert not file.exists()


def test_a_producer_id_is_given_once_over_kills(brokers: list[Kafkalake]) -> None:
    given: list[int] = []
    for victim in (None, controller_of(brokers), brokers[1]):
        if victim is not None:
            victim.kill()
            victim.start()
        for each in brokers:
            with WireClient(each.bootstrap_servers) as client:
                given += (producer_id(client) for _ in range(400))
    assert len(set(given)) == len(given)


def producer_id(client: WireClient) -> int:
    """Return a new producer id. A broker that has none yet is asked again, as clients do."""
    while True:
        answer = client.call(
            "InitProducerId", 4, transactional_id=None, transaction_timeout=1000, producer_id=-1, producer_epoch=-1
        )
        if not answer.error_code:
            return int(answer.producer_id)
        assert answer.error_code == CoordinatorLoadInProgressError.code
