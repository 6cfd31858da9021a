"""Administration through our client: the same calls, the same answers from kafkalake and from Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from kafka_reference import BrokerProcess, topic_name
from waiting import wait_until

from kafkalake.client import admin, broker_admin
from kafkalake.client.broker_admin import describe_cluster, eligible_leaders, unregister_broker
from kafkalake.client.cluster import Cluster
from kafkalake.client.producer import Producer
from kafkalake.errors import (
    BrokerIdNotRegisteredError,
    BrokerUnavailableError,
    ConfigurationError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)


@pytest.fixture
def cluster(any_broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(any_broker.bootstrap_servers) as opened:
        yield opened


def exists(cluster: Cluster, topic: str) -> bool:
    return topic in [found.name for found in cluster.topics()]


def write(cluster: Cluster, topic: str, timestamps: list[int], partition: int = 0) -> None:
    values = [f"value {index}".encode() for index in range(len(timestamps))]
    records = pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array(timestamps, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))],
        names=["value", "timestamp"],
    )
    with Producer(cluster, topic, partition=partition) as producer:
        producer.send(records)


def test_a_topic_is_created_described_grown_and_deleted(cluster: Cluster, topic: str) -> None:
    created = admin.create_topic(cluster, topic, partitions=2, config={"retention.ms": "123456"})
    assert (created.partitions, created.replication_factor) == (2, 1)
    info = cluster.topic(topic, wait_ms=10_000)
    assert info.topic_id == created.topic_id
    assert [(part.partition, part.replicas, part.isr) for part in info.partitions] == [(0, (0,), (0,)), (1, (0,), (0,))]
    assert exists(cluster, topic)

    admin.create_partitions(cluster, topic, 5)
    wait_until(lambda: len(cluster.topic(topic).partitions) == 5, timeout_s=10)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions(cluster, topic, 4)

    assert admin.delete_topics(cluster, [topic]) == {}
    wait_until(lambda: not exists(cluster, topic), timeout_s=10)
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.topic(topic)
    (missing,) = admin.delete_topics(cluster, [topic]).values()
    assert isinstance(missing, UnknownTopicOrPartitionError)


def test_settings_are_set_described_and_returned_to_their_default(cluster: Cluster, topic: str) -> None:
    admin.create_topic(cluster, topic, config={"retention.ms": "123456"})
    cluster.topic(topic, wait_ms=10_000)

    def retention() -> admin.ConfigEntry:
        (entries,) = admin.describe_configs(cluster, admin.TOPIC_RESOURCE, [topic], documentation=True).values()
        return next(entry for entry in entries if entry.name == "retention.ms")

    assert (retention().value, retention().source, retention().is_default) == ("123456", "DYNAMIC_TOPIC_CONFIG", False)
    assert retention().documentation
    admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, set_values={"retention.ms": "99"})
    wait_until(lambda: retention().value == "99", timeout_s=10)
    admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, delete=["retention.ms"])
    wait_until(lambda: (retention().value, retention().is_default) == ("604800000", True), timeout_s=10)


def test_settings_of_a_broker_are_described(cluster: Cluster) -> None:
    (entries,) = admin.describe_configs(cluster, admin.BROKER_RESOURCE, ["0"]).values()
    assert {"num.partitions", "log.segment.bytes", "message.max.bytes"} <= {entry.name for entry in entries}


def test_what_cannot_be_created(cluster: Cluster, topic: str) -> None:
    admin.create_topic(cluster, topic)
    with pytest.raises(TopicAlreadyExistsError, match=topic):
        admin.create_topic(cluster, topic)
    with pytest.raises(InvalidTopicError):
        admin.create_topic(cluster, "not a name")
    with pytest.raises(InvalidPartitionsError):
        admin.create_topic(cluster, topic_name(), partitions=0)
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topic(cluster, topic_name(), replication_factor=3)
    with pytest.raises(InvalidConfigError):
        admin.create_topic(cluster, topic_name(), config={"retention.ms": "soon"})
    with pytest.raises(InvalidConfigError, match=r"no\.such\.setting"):
        admin.create_topic(cluster, topic_name(), config={"no.such.setting": "1"})


def test_a_topic_that_is_only_validated_is_not_there(cluster: Cluster, topic: str) -> None:
    admin.create_topic(cluster, topic, validate_only=True)
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.topic(topic)


def test_a_misspelt_topic_is_told_apart_from_its_neighbour(cluster: Cluster, topic: str) -> None:
    admin.create_topic(cluster, topic)
    cluster.topic(topic, wait_ms=10_000)
    with pytest.raises(UnknownTopicOrPartitionError, match=f"did you mean '{topic}'"):
        cluster.topic(topic[:-1] + "_")
    with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 7; it has 1"):
        admin.list_offsets(cluster, topic, {7: admin.LATEST})


def test_offsets_are_found_by_place_and_by_time(cluster: Cluster, topic: str) -> None:
    admin.create_topic(cluster, topic, partitions=2)
    cluster.topic(topic, wait_ms=10_000)
    write(cluster, topic, [1_000, 5_000, 3_000, 5_000])

    def offset(time: int, partition: int = 0) -> tuple[int, int]:
        found = admin.list_offsets(cluster, topic, {partition: time})[partition]
        return found.offset, found.timestamp_ms

    assert offset(admin.EARLIEST) == (0, -1)
    assert offset(admin.LATEST) == (4, -1)
    assert offset(admin.MAX_TIMESTAMP) == (1, 5_000)
    assert offset(0) == (0, 1_000)
    assert offset(2_000) == (1, 5_000)
    assert offset(5_001) == (-1, -1)
    assert offset(admin.LATEST, 1) == (0, -1)


def test_records_are_deleted_up_to_an_offset(cluster: Cluster, topic: str) -> None:
    admin.create_topic(cluster, topic)
    cluster.topic(topic, wait_ms=10_000)
    write(cluster, topic, [1, 2, 3, 4, 5])
    assert admin.delete_records(cluster, topic, {0: 2}) == {0: 2}
    assert admin.list_offsets(cluster, topic, {0: admin.EARLIEST})[0].offset == 2
    assert admin.delete_records(cluster, topic, {0: -1}) == {0: 5}
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records(cluster, topic, {0: 6})


def test_the_cluster_names_its_brokers(cluster: Cluster, any_broker: BrokerProcess) -> None:
    described = describe_cluster(cluster)
    assert described.cluster_id
    assert [(node.broker_id, node.host, node.port) for node in described.brokers] == [(0, "127.0.0.1", any_broker.port)]
    assert described.brokers == tuple(cluster.brokers())


def test_a_broker_that_is_not_registered_cannot_be_unregistered(cluster: Cluster) -> None:
    with pytest.raises(BrokerIdNotRegisteredError):
        unregister_broker(cluster, 99)


def test_who_may_lead_beside_the_isr_is_asked_in_pages(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.create_topic(cluster, topic, partitions=5)
    cluster.topic(topic, wait_ms=10_000)
    monkeypatch.setattr(broker_admin, "_PARTITIONS_AT_ONCE", 2)
    assert eligible_leaders(cluster, [topic]) == {(topic, partition): ((), ()) for partition in range(5)}


def test_a_request_after_a_restart_is_answered_on_a_new_connection(cluster: Cluster, any_broker: BrokerProcess) -> None:
    assert cluster.brokers()
    any_broker.restart()
    assert describe_cluster(cluster).brokers


def test_a_cluster_that_is_away_is_an_error_at_once(any_broker: BrokerProcess) -> None:
    any_broker.kill()
    with (
        Cluster(any_broker.bootstrap_servers) as cluster,
        pytest.raises(BrokerUnavailableError, match="no broker answers"),
    ):
        cluster.topics()


def test_an_address_that_is_none_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigurationError, match="'localhost:x' is not HOST:PORT"):
        Cluster("localhost:x")
