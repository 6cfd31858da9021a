"""A broker is killed at each step of a registration, an election, a creation, a growth, a deletion and the load of a coordinator:
life goes on, and it comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kafka_reference import BROKERS, BrokerFailed, Cluster, Kafkalake, kafkalake_cluster
from long_runs import first_of
from waiting import wait_until

from kafkalake.broker.coordination.journal import journal_partition
from kafkalake.broker.transactions.fault_points import KILL_AT
from kafkalake.internal_topics import TRANSACTION_JOURNAL
from kafkalake.metadata.delta import DeltaMetadataStore

pytestmark = pytest.mark.process

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "default.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}


class Brokers:
    """Three brokers of one lake, each of which can be killed at a step."""

    def __init__(self, cluster: Cluster[Kafkalake], kill_at: Sequence[Path]) -> None:
        self.brokers = cluster.brokers
        self.lake = self.brokers[0].lake
        self._kill_at = kill_at

    @property
    def controller(self) -> int:
        """The id of the broker that the control store names as the controller."""
        return DeltaMetadataStore(self.lake, create=False).control_store.load().controller_id

    def arm(self, step: str, *numbers: int) -> None:
        for number in numbers:
            self._kill_at[number].write_text(step)

    def killed(self) -> list[int]:
        return [number for number, each in enumerate(self.brokers) if not each.is_running()]

    def admin(self) -> AdminClient:
        servers = ",".join(each.bootstrap_servers for each in self.brokers if each.is_running())
        return AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def restart_killed(self) -> None:
        for number in self.killed():
            self.arm("", number)
            self.brokers[number].kill()
            self.brokers[number].start()

    def topics(self, number: int) -> dict[str, Any]:
        admin = AdminClient({"bootstrap.servers": self.brokers[number].bootstrap_servers, "log_level": 0})
        return dict(admin.list_topics(timeout=10).topics)

    def check(self, *there: str, gone: tuple[str, ...] = ()) -> None:
        """Wait until every broker shows the same topics, all of them led and in sync."""

        def is_shown(number: int) -> bool:
            found = self.topics(number)
            partitions = [each for name in there if name in found for each in found[name].partitions.values()]
            is_well = all(each.leader >= 0 and len(each.isrs) == BROKERS for each in partitions)
            return is_well and set(there) <= found.keys() and not set(gone) & found.keys()

        for number in range(BROKERS):
            wait_until(lambda number=number: is_shown(number), timeout_s=30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    directory = tmp_path_factory.mktemp("steps")
    kill_at = [directory / f"kill-{number}" for number in range(BROKERS)]
    for each in kill_at:
        each.write_text("")
    with kafkalake_cluster(directory, SETTINGS, [{KILL_AT: str(each)} for each in kill_at]) as started:
        yield Brokers(started, kill_at)


def create(cluster: Brokers, name: str) -> None:
    """Create a topic as a client does: again until there is one."""

    def is_created() -> bool:
        try:
            admin = cluster.admin()
            admin.create_topics([NewTopic(name, 3)], operation_timeout=10, request_timeout=4)[name].result(6)
        except KafkaException as error:
            return bool(error.args[0].name() == "TOPIC_ALREADY_EXISTS")
        except TimeoutError:
            return False
        return True

    wait_until(is_created, timeout_s=30)


def delete(cluster: Brokers, name: str) -> None:
    def is_deleted() -> bool:
        try:
            admin = cluster.admin()
            admin.delete_topics([name], operation_timeout=10, request_timeout=4)[name].result(6)
        except KafkaException as error:
            return bool(error.args[0].name() == "UNKNOWN_TOPIC_OR_PART")
        except TimeoutError:
            return False
        return True

    wait_until(is_deleted, timeout_s=30)


@pytest.mark.parametrize(
    "step", first_of(["version-committed", "topic-rows-added", "version-decided", "version-followed"], 1)
)
def test_a_creation_is_whole_or_repeated(cluster: Brokers, step: str) -> None:
    controller = cluster.controller
    cluster.arm(step, controller)
    create(cluster, f"created-{step}")
    wait_until(lambda: cluster.killed() == [controller])
    cluster.restart_killed()
    create(cluster, f"after-{step}")
    cluster.check(f"created-{step}", f"after-{step}")


@pytest.mark.parametrize("step", first_of(["topic-rows-grown", "topic-rows-altered"], 1))
def test_a_change_that_a_row_alone_has_is_finished_by_the_next_controller(cluster: Brokers, step: str) -> None:
    """New partitions have as many replicas as the others: `check` waits for them."""
    name = f"changed-{step}"
    create(cluster, name)
    controller = cluster.controller
    cluster.arm(step, controller)
    admin = cluster.admin()
    setting = ConfigResource(
        ConfigResource.Type.TOPIC,
        name,
        incremental_configs=[ConfigEntry("retention.ms", "777", incremental_operation=AlterConfigOpType.SET)],
    )
    with suppress(KafkaException, TimeoutError):
        if step == "topic-rows-grown":
            admin.create_partitions([NewPartitions(name, 5)], operation_timeout=10, request_timeout=4)[name].result(6)
        else:
            admin.incremental_alter_configs([setting], request_timeout=4)[setting].result(6)
    wait_until(lambda: cluster.killed() == [controller])
    cluster.restart_killed()

    def is_changed(number: int) -> bool:
        if step == "topic-rows-grown":
            return len(cluster.topics(number)[name].partitions) == 5
        asked = AdminClient({"bootstrap.servers": cluster.brokers[number].bootstrap_servers, "log_level": 0})
        return bool(asked.describe_configs([setting])[setting].result(10)["retention.ms"].value == "777")

    for number in range(BROKERS):
        wait_until(lambda number=number: is_changed(number))  # type: ignore[misc]
    cluster.check(name)


@pytest.mark.parametrize("step", first_of(["topic-rows-deleted", "version-committed"], 1))
def test_a_deletion_is_whole_or_repeated(cluster: Brokers, step: str) -> None:
    name = f"deleted-{step}"
    create(cluster, name)
    controller = cluster.controller
    cluster.arm(step, controller)
    delete(cluster, name)
    wait_until(lambda: cluster.killed() == [controller])
    cluster.restart_killed()
    cluster.check(gone=(name,))
    create(cluster, name)
    cluster.check(name)


@pytest.mark.parametrize("step", first_of(["claim-committed", "claim-decided"], 1))
def test_an_election_is_repeated_by_those_that_are_left(cluster: Brokers, step: str) -> None:
    controller = cluster.controller
    others = [number for number in range(BROKERS) if number != controller]
    cluster.arm(step, *others[:1])
    cluster.brokers[controller].kill()
    wait_until(lambda: cluster.controller != controller, timeout_s=30)
    cluster.arm("", *others)
    cluster.restart_killed()
    create(cluster, f"elected-{step}")
    cluster.check(f"elected-{step}")


def test_a_registration_is_repeated_by_the_next_process(cluster: Brokers) -> None:
    joining = next(number for number in range(BROKERS) if number != cluster.controller)
    cluster.brokers[joining].kill()
    cluster.arm("broker-registered", joining)
    with pytest.raises(BrokerFailed):
        cluster.brokers[joining].start()
    cluster.restart_killed()
    controller = cluster.controller
    joining = next(number for number in range(BROKERS) if number != controller)
    cluster.brokers[joining].kill()
    cluster.arm("version-committed:2", controller)  # after the one that fences it
    with pytest.raises(BrokerFailed):
        cluster.brokers[joining].start()
        raise BrokerFailed("registered with the next controller")
    cluster.restart_killed()
    create(cluster, "registered")
    cluster.check("registered")


@pytest.mark.long
@pytest.mark.parametrize("step", ["coordinator-load-read", "coordinator-load-begun", "coordinator-loaded"])
def test_a_transaction_outlives_the_coordinators_that_die_as_they_take_over(cluster: Brokers, step: str) -> None:
    topic = f"loaded-{step}"
    create(cluster, topic)
    servers = ",".join(each.bootstrap_servers for each in cluster.brokers)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": step, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0
    journal = cluster.admin().list_topics(TRANSACTION_JOURNAL, timeout=10).topics[TRANSACTION_JOURNAL].partitions
    coordinator = journal[journal_partition(step, len(journal))].leader
    cluster.arm(step, *(number for number in range(BROKERS) if number != coordinator))
    cluster.brokers[coordinator].kill()
    wait_until(lambda: len(cluster.killed()) > 1, timeout_s=30)
    cluster.arm("", *range(BROKERS))  # also the third one, which may be about to load
    cluster.restart_killed()
    wait_until(lambda: not cluster.killed() or cluster.restart_killed())
    producer.commit_transaction(60)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": step, "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
        found: set[int | None] = set()

        def is_read() -> bool:
            found.update(each.partition() for each in consumer.consume(3, 0.5) if each.error() is None)
            return found == {0, 1, 2}

        wait_until(is_read, timeout_s=30)
    finally:
        consumer.close()
    cluster.check(topic)
