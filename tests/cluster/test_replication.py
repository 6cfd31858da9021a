"""Replication by three real brokers: leaders and followers are killed, stopped and emptied, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from contract.wire_client import WireClient, batch, code, produce_values
from kafka_reference import BROKERS, Cluster, Kafkalake, kafkalake_cluster, topic_name
from rewritten_segments import rewritten
from waiting import wait_until
from watermarks import watermarks
from whole_transactions import TransactionLoad, committed_offsets

from kafkalake.clock import SystemClock
from kafkalake.cluster.image import PartitionRegistration
from kafkalake.errors import NotLeaderOrFollowerError
from kafkalake.metadata.cleaning import swap
from kafkalake.metadata.delta import DeltaMetadataStore

pytestmark = pytest.mark.process

SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "metadata.publish.interval.ms": "200",
    "replica.lag.time.max.ms": "3000",
}
IMPATIENT = {"reconnect.backoff.max.ms": 200}
"""Of clients: else they wait up to ten seconds before they look for a broker again that was killed."""
ATTENTIVE = {"request.timeout.ms": 1_000, "socket.timeout.ms": 1_000, "topic.metadata.refresh.interval.ms": 200}
"""Of a producer that asks again when a broker does not answer: else it waits for that for a minute."""
TIMEOUT_S = 30.0


def knows(client: WireClient, topic: str, partitions: int, in_sync: int) -> bool:
    """Return whether a broker has a topic with so many replicas in sync of each partition."""
    (found,) = client.call("Metadata", 9, topics=[{"name": topic}]).topics
    return [len(each.isr_nodes) for each in found.partitions] == [in_sync] * partitions


class Replicating:
    """Three brokers on one lake. A test leaves them running, with every replica in sync."""

    def __init__(self, cluster: Cluster[Kafkalake]) -> None:
        self.brokers = cluster.brokers
        self.lake = self.brokers[0].lake
        self.servers = cluster.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0} | IMPATIENT)

    def create(self, partitions: int = 1, replicas: Sequence[int] = (), **config: str) -> str:
        """Create a topic with three replicas, or one partition with those given, and return its name."""
        topic = topic_name()
        where = {"replica_assignment": [list(replicas)]} if replicas else {"replication_factor": BROKERS}
        new = NewTopic(
            topic,
            num_partitions=partitions,
            **where,
            config={"min.insync.replicas": "2"} | {name.replace("_", "."): value for name, value in config.items()},
        )
        for future in self.admin.create_topics([new]).values():
            future.result(TIMEOUT_S)
        for broker in self.brokers:
            with WireClient(broker.bootstrap_servers) as client:
                wait_until(lambda client=client: knows(client, topic, partitions, len(replicas or range(BROKERS))))  # type: ignore[misc]
        return topic

    def _partitions(self, topic: str) -> dict[int, Any]:
        try:
            return dict(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)
        except KafkaException:
            return {}

    def isrs(self, topic: str) -> list[list[int]]:
        """The ISR of each partition, as one of the brokers knows it; nothing if it knows no such topic, or does not answer."""
        found = self._partitions(topic)
        return [found[index].isrs for index in sorted(found)]

    def leader(self, topic: str, partition: int = 0) -> int:
        """As one of the brokers knows it; -1 if it knows none."""
        found = self._partitions(topic)
        return int(found[partition].leader) if partition in found else -1

    def replicas(self, topic: str) -> list[int]:
        """The replicas of the first partition."""
        found = self._partitions(topic)
        return list(found[0].replicas) if found else []

    def reassign(self, topic: str, replicas: Sequence[int]) -> None:
        """Give the first partition other replicas, as Kafka's tool asks for it. It takes its time."""
        partition = {"partition_index": 0, "replicas": list(replicas)}
        topics = [{"name": topic, "partitions": [partition]}]
        with WireClient(self.brokers[0].bootstrap_servers) as client:
            answer = client.call("AlterPartitionReassignments", 0, timeout=10_000, topics=topics)
        assert code(answer.responses[0].partitions[0].error_code) == 0, answer

    def controllers(self) -> set[int]:
        """Return whom each broker takes for the controller."""
        asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        found = set()
        for each in self.brokers:
            with WireClient(each.bootstrap_servers) as client:
                answer = client.call("DescribeQuorum", 0, topics=asked)
            found.add(int(answer.topics[0].partitions[0].leader_id))
        return found

    def registration(self, topic: str) -> PartitionRegistration:
        """The first partition as the control store has it."""
        store = DeltaMetadataStore(self.lake, create=False)
        topic_id = next(UUID(row.topic_id) for row in store.load_topics() if row.topic == topic)
        found = store.newest_image().partition((topic_id, 0))
        assert found is not None
        return found

    def ends(self, topic: str, partitions: int) -> dict[int, int]:
        """The high watermarks."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "none", "log_level": 0})
        try:
            return {each: watermarks(consumer, topic, each)[1] for each in range(partitions)}
        finally:
            consumer.close()

    def wait_in_sync(self, topic: str) -> None:
        def are_in_sync() -> bool:
            found = self.isrs(topic)
            return bool(found) and all(len(isr) == BROKERS for isr in found)

        wait_until(are_in_sync, lambda: self.isrs(topic))

    def directory(self, broker: int, topic: str, partition: int = 0) -> Path:
        return self.lake / "logs" / str(broker) / f"{topic}-{partition}"

    def files(self, broker: int, topic: str, partition: int = 0) -> dict[str, bytes]:
        """The data files of a replica, without those that are deleted meanwhile."""
        found = {}
        for each in self.directory(broker, topic, partition).glob("*.arrow"):
            with contextlib.suppress(FileNotFoundError):
                found[each.name] = each.read_bytes()
        return found

    def wait_equal(self, topic: str, partitions: int = 1) -> None:
        """Wait until the files of all replicas are equal, as they are once all is acknowledged."""

        def are_equal() -> bool:
            return all(
                self.files(0, topic, each) == self.files(1, topic, each) == self.files(2, topic, each) != {}
                for each in range(partitions)
            )

        wait_until(are_equal, lambda: [{n: len(d) for n, d in self.files(b, topic).items()} for b in range(BROKERS)])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicating]:
    with kafkalake_cluster(tmp_path_factory.mktemp("replication"), SETTINGS) as started:
        yield Replicating(started)


class Producing:
    """A thread that produces numbered values with acks=all until it is stopped, as fast as they are acknowledged."""

    def __init__(self, cluster: Replicating, topic: str, **settings: object) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "log_level": 0,
                "message.timeout.ms": 60_000,
                **IMPATIENT,
                **settings,
            }
        )
        self._topic = topic
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed: list[KafkaError] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[message.partition(), message.offset()] = message.value()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            for _ in range(20):
                self._producer.produce(self._topic, b"%d" % number + bytes(200), on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.01)
            while len(self._producer) > 200:
                self._producer.poll(0.05)
        self._producer.flush(TIMEOUT_S)

    def __enter__(self) -> Producing:
        self._thread.start()
        wait_until(lambda: len(self.acknowledged) > 100)
        return self

    def go_on(self, records: int = 500) -> None:
        """Return once so many more are acknowledged."""
        target = len(self.acknowledged) + records
        wait_until(lambda: len(self.acknowledged) >= target, lambda: f"{len(self.acknowledged)} of {target}")

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def read(cluster: Replicating, topic: str, partitions: int, count: int) -> dict[tuple[int, int], bytes]:
    """All records of a topic, by partition and offset, once there are so many."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.servers, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
        | IMPATIENT
    )
    found: dict[tuple[int, int], bytes] = {}
    ends = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        while len(found) < count and time.monotonic() < ends:
            for message in consumer.consume(1_000, 0.5):
                if message.error() is None:
                    assert (message.partition(), message.offset()) not in found
                    found[message.partition(), message.offset()] = message.value()
    finally:
        consumer.close()
    return found


def test_a_killed_leader_loses_nothing_and_returns_to_the_isr(cluster: Replicating) -> None:
    topic = cluster.create(partitions=3)
    with Producing(cluster, topic) as producing:
        leader = cluster.leader(topic)
        cluster.brokers[leader].kill()
        producing.go_on()
        cluster.brokers[leader].start()
        cluster.wait_in_sync(topic)
        producing.go_on()
    assert producing.failed == []
    assert read(cluster, topic, 3, len(producing.acknowledged)) == producing.acknowledged
    cluster.wait_equal(topic, 3)


def test_a_leader_and_controller_that_was_stopped_for_longer_than_its_session_goes_on_as_neither(
    cluster: Replicating,
) -> None:
    """What was sent to it meanwhile is refused, or done by the ones that took over."""
    (old,) = cluster.controllers()
    others = [each for each in range(BROKERS) if each != old]
    topic, later = cluster.create(replicas=[old, *others]), topic_name()
    stopped = cluster.brokers[old]
    creation = {"name": later, "num_partitions": 1, "replication_factor": BROKERS}
    with Producing(cluster, topic, **ATTENTIVE) as producing, ExitStack() as stack:
        writer, creator = (stack.enter_context(WireClient(stopped.bootstrap_servers, TIMEOUT_S)) for _ in range(2))
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            sent = writer.send("Produce", 9, **produce_values(topic, batch([(None, b"late")])))
            asked = creator.send("CreateTopics", 5, topics=[creation], timeout=20_000)
            producing.go_on()
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        written = writer.receive("Produce", 9, sent).responses[0].partition_responses[0]
        created = creator.receive("CreateTopics", 5, asked).topics[0]
        cluster.wait_in_sync(topic)
        producing.go_on()
    assert code(written.error_code) == NotLeaderOrFollowerError.code
    assert code(created.error_code) == 0, created
    wait_until(lambda: cluster.leader(topic) not in (old, -1))  # which it knows in a moment too
    wait_until(lambda: len(cluster.controllers()) == 1 and old not in cluster.controllers(), cluster.controllers)
    assert producing.failed == []
    assert read(cluster, topic, 1, len(producing.acknowledged)) == producing.acknowledged
    cluster.wait_equal(topic)


@pytest.mark.long  # test_brokers_on_one_lake.py restarts one after the other in the run
def test_a_rolling_restart_gives_no_producer_an_error_and_keeps_transactions_whole(cluster: Replicating) -> None:
    topic, whole = cluster.create(partitions=3), cluster.create(partitions=3)
    load = TransactionLoad(cluster.servers, whole, 3, producers=1)
    load.start()
    try:
        wait_until(lambda: load.committed > 0)  # the journal is made: not while one of three brokers is about to end
        with Producing(cluster, topic) as producing:
            for broker in cluster.brokers:
                broker.stop()
                producing.go_on()
                broker.start()
                cluster.wait_in_sync(topic)
    finally:
        load.stop()
    assert producing.failed == []
    assert read(cluster, topic, 3, len(producing.acknowledged)) == producing.acknowledged
    cluster.wait_equal(topic, 3)
    transactions = committed_offsets(cluster.servers, whole, cluster.ends(whole, 3))
    assert len(transactions) >= load.committed > 0
    assert all(len(offsets) == 3 for offsets in transactions.values())


def test_a_replica_whose_directory_was_deleted_is_refilled(cluster: Replicating) -> None:
    topic = cluster.create(segment_bytes="1048576")
    with Producing(cluster, topic) as producing:
        producing.go_on(20_000)
    follower = (cluster.leader(topic) + 1) % BROKERS
    cluster.brokers[follower].kill()
    shutil.rmtree(cluster.directory(follower, topic))
    cluster.brokers[follower].start()
    cluster.wait_in_sync(topic)
    cluster.wait_equal(topic)
    assert len(cluster.files(follower, topic)) > 2
    assert read(cluster, topic, 1, len(producing.acknowledged)) == producing.acknowledged


def test_records_are_refused_below_the_least_isr_and_taken_again_above_it(cluster: Replicating) -> None:
    topic = cluster.create()
    leader = cluster.leader(topic)
    others = [each for each in range(BROKERS) if each != leader]
    for each in others:
        cluster.brokers[each].kill()
    wait_until(lambda: cluster.isrs(topic) == [[leader]], lambda: cluster.isrs(topic))
    failed: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.servers, "acks": "all", "retries": 0, "log_level": 0})
    producer.produce(topic, b"refused", on_delivery=lambda error, _: failed.append(error))
    producer.flush(TIMEOUT_S)
    assert [error and error.code() for error in failed] == [KafkaError.NOT_ENOUGH_REPLICAS]
    cluster.brokers[others[0]].start()
    with Producing(cluster, topic) as producing:
        producing.go_on()
    assert producing.failed == []
    cluster.brokers[others[1]].start()
    cluster.wait_in_sync(topic)
    cluster.wait_equal(topic)


def test_an_unclean_election_loses_what_the_elected_replica_lacks_and_nothing_before(cluster: Replicating) -> None:
    topic = cluster.create(
        unclean_leader_election_enable="true", min_insync_replicas="1", internal_segment_bytes="50000"
    )
    store = DeltaMetadataStore(cluster.lake, create=False)
    with Producing(cluster, topic) as together:
        together.go_on()
    cluster.wait_equal(topic)
    leader = cluster.leader(topic)
    others = [each for each in range(BROKERS) if each != leader]
    for each in others:
        cluster.brokers[each].kill()
    wait_until(lambda: cluster.isrs(topic) == [[leader]], lambda: cluster.isrs(topic))
    with Producing(cluster, topic) as alone:
        alone.go_on(1_000)
    lost = len(together.acknowledged) + len(alone.acknowledged) // 2
    wait_until(lambda: any(row.base_offset > lost for row in store.load_segments(topic)))
    cluster.brokers[leader].kill()
    cluster.brokers[others[0]].start()
    wait_until(lambda: cluster.leader(topic) == others[0])
    assert cluster.registration(topic).is_recovering
    kept = together.acknowledged
    assert read(cluster, topic, 1, len(kept)) == kept, "all that the elected replica has, and nothing else"
    with Producing(cluster, topic, **{"batch.num.messages": 7}) as after:  # whose segments have other borders
        for each in (leader, others[1]):
            cluster.brokers[each].start()
        cluster.wait_in_sync(topic)
    assert after.failed == []
    assert min(after.acknowledged) == (0, len(kept)), "its log end is where the new leader goes on"
    assert read(cluster, topic, 1, len(kept | after.acknowledged)) == kept | after.acknowledged
    cluster.wait_equal(topic)
    assert not cluster.registration(topic).is_recovering
    borders = sorted(int(name.removesuffix(".arrow")) for name in cluster.files(leader, topic))
    sealed = set(pairwise(borders))

    def wrong_segments() -> set[tuple[int, int]]:
        """Those that Delta has too many, or lacks."""
        return sealed.symmetric_difference((row.base_offset, row.next_offset) for row in store.load_segments(topic))

    wait_until(lambda: not wrong_segments(), wrong_segments)


def test_replicas_are_reassigned_under_load(cluster: Replicating) -> None:
    topic = cluster.create(replicas=[0, 1])
    with Producing(cluster, topic) as producing:
        for replicas in ([1, 2], [2, 0], [2, 0, 1]):
            cluster.reassign(topic, replicas)
            wait_until(lambda replicas=replicas: [set(each) for each in cluster.isrs(topic)] == [set(replicas)])
            wait_until(lambda replicas=replicas: cluster.replicas(topic) == replicas)
            producing.go_on()
    assert producing.failed == []
    assert read(cluster, topic, 1, len(producing.acknowledged)) == producing.acknowledged
    cluster.wait_equal(topic)


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_a_replica_whose_disk_takes_no_more_leaves_the_isr_and_returns(cluster: Replicating, role: str) -> None:
    """By a limit on the size of the files that the broker writes: its segment is at it, all others are far below."""
    topic = cluster.create()
    with Producing(cluster, topic) as producing:
        producing.go_on(3_000)
        leader = cluster.leader(topic)
        full = leader if role == "leader" else next(each for each in range(BROKERS) if each != leader)
        size = sum(map(len, cluster.files(full, topic).values()))
        resource.prlimit(cluster.brokers[full].pid, resource.RLIMIT_FSIZE, (size + 50_000, resource.RLIM_INFINITY))
        try:
            wait_until(lambda: [full in each for each in cluster.isrs(topic)] == [False], lambda: cluster.isrs(topic))
            # Another broker may answer, which follows that version in a moment.
            wait_until(lambda: (cluster.leader(topic) not in (leader, -1)) is (role == "leader"))
            producing.go_on()
        finally:
            limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(cluster.brokers[full].pid, resource.RLIMIT_FSIZE, limit)
        cluster.wait_in_sync(topic)
        producing.go_on()
    assert producing.failed == []
    cluster.wait_equal(topic)
    assert read(cluster, topic, 1, len(producing.acknowledged)) == producing.acknowledged


def test_a_leader_that_lacks_what_a_job_has_rewritten_copies_it_from_the_replica_that_has_it(
    cluster: Replicating,
) -> None:
    """The job wrote into the directory of the broker that led then. Another one has become the leader since."""
    topic = cluster.create(internal_segment_bytes="14000", file_delete_delay_ms="1000")
    with Producing(cluster, topic) as producing:
        producing.go_on()
    cluster.wait_equal(topic)
    store = DeltaMetadataStore(cluster.lake, create=False)
    wait_until(lambda: len(store.load_segments(topic)) > 6)
    others = [each for each in range(BROKERS) if each != cluster.leader(topic)]
    for number, other in enumerate(others):
        rows = store.load_segments(topic)[number : number + 2]
        directory = cluster.directory(other, topic).relative_to(cluster.lake)
        there = [replace(row, broker_id=other, path=str(directory / Path(row.path).name)) for row in rows]
        new = rewritten(cluster.lake, there, 1)
        swap(cluster.lake, store, rows, [new], SystemClock())
        wait_until(lambda name=Path(new.path).name: all(name in cluster.files(each, topic) for each in range(BROKERS)))  # type: ignore[misc]
    cluster.wait_equal(topic)
    assert read(cluster, topic, 1, len(producing.acknowledged)) == producing.acknowledged
