"""Our administration client: the same calls, the same answers from kafkalake and from Apache Kafka; and what fails, in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from kafka_reference import BrokerProcess, topic_name
from waiting import wait_until

from kafkalake import Admin, Consumer, Producer, aio
from kafkalake.client.administration import brokers
from kafkalake.client.administration.configs import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, ConfigEntry
from kafkalake.client.administration.partition_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from kafkalake.client.administration.reassignments import Election
from kafkalake.client.cluster import TopicInfo
from kafkalake.client.errors import ClientClosedError
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.errors import (
    BrokerIdNotRegisteredError,
    ElectionNotNeededError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidProducerEpochError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    TopicAlreadyExistsError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)


@pytest.fixture
def admin(any_broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=any_broker.bootstrap_servers) as opened:
        yield opened


def exists(admin: Admin, topic: str) -> bool:
    return topic in [found.name for found in admin.list_topics()]


def create(admin: Admin, topic: str, partitions: int = 1) -> TopicInfo:
    admin.create_topic(topic, partitions=partitions)
    return admin.describe_topic(topic, wait_s=10)


def write(broker: BrokerProcess, topic: str, timestamps: Sequence[int]) -> None:
    values = [f"value {index}".encode() for index in range(len(timestamps))]
    moments = pa.array(timestamps, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_arrow(topic, pa.table({"value": values, "timestamp": moments}), partition=0).get(30)


def test_a_topic_is_created_described_grown_and_deleted(admin: Admin, topic: str) -> None:
    created = admin.create_topic(topic, partitions=2, config={"retention.ms": "123456"})
    assert (created.partitions, created.replication_factor) == (2, 1)
    info = admin.describe_topic(topic, wait_s=10)
    assert info.topic_id == created.topic_id
    assert [(part.partition, part.replicas, part.isr) for part in info.partitions] == [(0, (0,), (0,)), (1, (0,), (0,))]
    assert exists(admin, topic)
    admin.create_partitions(topic, 5)
    wait_until(lambda: len(admin.describe_topic(topic).partitions) == 5, timeout_s=10)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions(topic, 4)
    assert admin.delete_topics([topic]) == {}
    wait_until(lambda: not exists(admin, topic), timeout_s=10)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_topic(topic)
    (missing,) = admin.delete_topics([topic]).values()
    assert isinstance(missing, UnknownTopicOrPartitionError)


def test_what_cannot_be_created_and_what_is_misspelt(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, validate_only=True)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_topic(topic)
    create(admin, topic)
    with pytest.raises(TopicAlreadyExistsError, match=topic):
        admin.create_topic(topic)
    with pytest.raises(InvalidTopicError):
        admin.create_topic("not a name")
    with pytest.raises(InvalidPartitionsError):
        admin.create_topic(topic_name(), partitions=0)
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topic(topic_name(), replication_factor=3)
    with pytest.raises(InvalidConfigError):
        admin.create_topic(topic_name(), config={"retention.ms": "soon"})
    with pytest.raises(InvalidConfigError, match=r"no\.such\.setting"):
        admin.create_topic(topic_name(), config={"no.such.setting": "1"})
    with pytest.raises(UnknownTopicOrPartitionError, match=f"did you mean '{topic}'"):
        admin.describe_topic(topic[:-1] + "_")
    with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 7; it has 1"):
        admin.list_offsets({(topic, 7): LATEST})


def test_settings_are_set_described_and_returned_to_their_default(admin: Admin, topic: str) -> None:
    create(admin, topic)

    def entry(name: str) -> ConfigEntry:
        (entries,) = admin.describe_configs(TOPIC_RESOURCE, [topic], documentation=True).values()
        return next(entry for entry in entries if entry.name == name)

    def alter(name: str, wanted: str, **change: object) -> None:
        admin.alter_configs(TOPIC_RESOURCE, topic, **change)  # type: ignore[arg-type]
        wait_until(lambda: entry(name).value == wanted, timeout_s=10)

    assert entry("retention.ms").is_default and entry("retention.ms").documentation
    alter("retention.ms", "99", set_values={"retention.ms": "99"})
    assert (entry("retention.ms").source, entry("retention.ms").is_default) == ("DYNAMIC_TOPIC_CONFIG", False)
    alter("retention.ms", "604800000", delete=["retention.ms"])
    alter("cleanup.policy", "delete,compact", append={"cleanup.policy": "compact"})
    alter("cleanup.policy", "compact", subtract={"cleanup.policy": "delete"})
    with pytest.raises(InvalidConfigError):
        admin.alter_configs(TOPIC_RESOURCE, topic, set_values={"retention.ms": "soon"})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.alter_configs(TOPIC_RESOURCE, topic_name(), set_values={"retention.ms": "1"})
    (entries,) = admin.describe_configs(BROKER_RESOURCE, ["0"]).values()
    assert {"num.partitions", "log.segment.bytes", "message.max.bytes"} <= {entry.name for entry in entries}
    group = topic_name("group")
    admin.alter_configs(GROUP_RESOURCE, group, set_values={"consumer.session.timeout.ms": "45001"})
    wait_until(lambda: _values(admin, group)["consumer.session.timeout.ms"] == "45001", timeout_s=10)
    admin.alter_configs(GROUP_RESOURCE, group, delete=["consumer.session.timeout.ms"])


def _values(admin: Admin, group: str) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in admin.describe_configs(GROUP_RESOURCE, [group])[group]}


def test_offsets_are_found_by_place_and_by_time_and_records_deleted(
    admin: Admin, any_broker: BrokerProcess, topic: str
) -> None:
    create(admin, topic, partitions=2)
    write(any_broker, topic, [1_000, 5_000, 3_000, 5_000])

    def offset(time: int, partition: int = 0) -> tuple[int, int]:
        found = admin.list_offsets({(topic, partition): time})[topic, partition]
        return found.offset, found.timestamp_ms

    assert offset(EARLIEST) == (0, -1)
    assert offset(LATEST) == (4, -1)
    assert offset(MAX_TIMESTAMP) == (1, 5_000)
    assert offset(0) == (0, 1_000)
    assert offset(2_000) == (1, 5_000)
    assert offset(5_001) == (-1, -1)
    assert offset(LATEST, 1) == (0, -1)
    assert admin.delete_records({(topic, 0): 2, (topic, 1): 0}) == {(topic, 0): 2, (topic, 1): 0}
    assert offset(EARLIEST) == (2, -1)
    assert admin.delete_records({(topic, 0): -1}) == {(topic, 0): 4}
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({(topic, 0): 5})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols_and_their_offsets(
    admin: Admin, any_broker: BrokerProcess, topic: str, protocol: str
) -> None:
    create(admin, topic)
    write(any_broker, topic, [1, 2, 3])
    group = topic_name("group")
    with pytest.raises(GroupIdNotFoundError, match=f"group '{group}' does not exist"):
        admin.describe_group(group)
    settings = {"bootstrap.servers": any_broker.bootstrap_servers, "group.id": group, "client.id": "reads"}
    with Consumer({**settings, "auto.offset.reset": "earliest", "group.protocol": protocol}) as consumer:
        consumer.subscribe(topic)
        wait_until(lambda: consumer.poll(0.1))
        consumer.commit()
        described = admin.describe_group(group)
        assert (described.state, described.group_type) == ("Stable", protocol)
        assert [(each.client_id, each.partitions) for each in described.members] == [("reads", ((topic, 0),))]
        assert described.coordinator.broker_id == 0
        assert (group, "consumer") in [(each.group_id, each.protocol_type) for each in admin.list_groups()]
        with pytest.raises(NonEmptyGroupError, match="still has members"):
            admin.delete_group(group)
        with pytest.raises(GroupSubscribedToTopicError):
            admin.delete_offsets(group, [(topic, 0)])
    wait_until(lambda: not admin.describe_group(group).members)
    assert admin.committed_offsets(group)[topic, 0].offset == 3
    admin.alter_offsets(group, {(topic, 0): OffsetAndMetadata(1, metadata="here")})
    assert admin.committed_offsets(group) == {(topic, 0): OffsetAndMetadata(1, None, "here")}
    admin.delete_offsets(group, [(topic, 0)])
    assert admin.committed_offsets(group) == {}
    admin.alter_offsets(group, {(topic, 0): 2})
    admin.delete_group(group)
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group(group)


def test_transactions_are_listed_described_fenced_and_aborted(
    admin: Admin, any_broker: BrokerProcess, topic: str
) -> None:
    create(admin, topic)
    with pytest.raises(TransactionalIdNotFoundError, match=f"'{topic}' does not exist"):
        admin.describe_transaction(topic)
    producer = Producer(bootstrap_servers=any_broker.bootstrap_servers, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"open").get(30)
    described = admin.describe_transaction(topic)
    assert (described.state, described.is_open, described.partitions) == ("Ongoing", True, ((topic, 0),))
    listed = admin.list_transactions(producer_ids=[described.producer_id], states=["Ongoing"])
    assert [(each.transactional_id, each.coordinator_id) for each in listed] == [(topic, 0)]
    (active,) = admin.describe_producers(topic, 0)
    assert (active.producer_id, active.transaction_start_offset) == (described.producer_id, 0)
    assert admin.list_offsets({(topic, 0): LATEST}, read_committed=True)[topic, 0].offset == 0
    admin.fence_producer(topic, timeout_ms=described.timeout_ms)
    assert not admin.describe_transaction(topic).is_open
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        producer.send(topic, b"fenced").get(30)
        producer.commit_transaction()
    producer.close(0)
    with Producer(bootstrap_servers=any_broker.bootstrap_servers, transactional_id=topic) as another:
        another.init_transactions()
        another.begin_transaction()
        another.send(topic, b"hangs").get(30)
        (hangs,) = [each for each in admin.describe_producers(topic, 0) if each.transaction_start_offset is not None]
        admin.write_abort_marker(
            topic,
            0,
            producer_id=hangs.producer_id,
            producer_epoch=hangs.producer_epoch,
            coordinator_epoch=max(hangs.coordinator_epoch, 0),
        )
        wait_until(lambda: all(each.transaction_start_offset is None for each in admin.describe_producers(topic, 0)))
        another.abort_transaction()


def test_the_cluster_its_quorum_and_its_log_directories(admin: Admin, any_broker: BrokerProcess, topic: str) -> None:
    create(admin, topic)
    write(any_broker, topic, [1, 2, 3])
    described = admin.describe_cluster()
    assert described.cluster_id and described.cluster_id == admin.cluster_id()
    assert [(node.broker_id, node.host, node.port) for node in described.brokers] == [(0, "127.0.0.1", any_broker.port)]
    assert described.brokers == tuple(admin.list_brokers())
    quorum = admin.describe_quorum()
    assert (quorum.leader_id, [each.replica_id for each in quorum.voters]) == (0, [0])
    assert quorum.high_watermark > 0
    (directory,) = admin.describe_log_dirs([0], [(topic, 0)])[0]
    assert directory.path and directory.total_bytes and directory.usable_bytes
    assert list(directory.replicas) == [(topic, 0)]
    assert directory.replicas[topic, 0].size_bytes > 0 and not directory.replicas[topic, 0].is_future
    assert (topic, 0) in admin.describe_log_dirs([0])[0][0].replicas
    with pytest.raises(BrokerIdNotRegisteredError):
        admin.unregister_broker(99)


def test_leaders_and_reassignments(admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create(admin, topic, partitions=5)
    monkeypatch.setattr(brokers, "_DESCRIBED_AT_ONCE", 2)
    assert admin.eligible_leaders([topic]) == {(topic, partition): ((), ()) for partition in range(5)}
    elected = admin.elect_leaders(Election.PREFERRED, [(topic, 0), (topic, 9)])
    assert isinstance(elected[topic, 0], ElectionNotNeededError)
    assert isinstance(elected[topic, 9], UnknownTopicOrPartitionError)
    errors = admin.alter_reassignments({(topic, 0): [9], (topic, 1): [0]})
    assert {at: type(error) for at, error in errors.items()} == {(topic, 0): InvalidReplicaAssignmentError}
    assert admin.list_reassignments() == {}


@pytest.mark.long("apache-kafka")
def test_a_broker_is_killed_in_between(admin: Admin, any_broker: BrokerProcess, topic: str) -> None:
    create(admin, topic)
    any_broker.kill()
    restart = threading.Thread(target=any_broker.start)
    restart.start()
    assert admin.describe_cluster().brokers and exists(admin, topic)
    restart.join()
    assert admin.list_offsets({(topic, 0): LATEST})[topic, 0].offset == 0


def test_many_tasks_ask_at_once(any_broker: BrokerProcess, topic: str) -> None:
    async def ask() -> None:
        async with aio.Admin(bootstrap_servers=any_broker.bootstrap_servers) as admin:
            names = [f"{topic}-{number}" for number in range(5)]
            made = await asyncio.gather(*(admin.create_topic(name, partitions=2) for name in names))
            assert [each.name for each in made] == names
            found = await asyncio.gather(*(admin.describe_topic(name, wait_s=10) for name in names))
            assert [len(each.partitions) for each in found] == [2] * 5
            with pytest.raises(TopicAlreadyExistsError):
                await admin.create_topic(names[0])
            assert await admin.delete_topics(names) == {}
        with pytest.raises(ClientClosedError):
            await admin.list_topics()

    asyncio.run(ask())
