"""One partition whose log cannot be opened is offline until it can; everything else is served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec
from contract.wire_client import WireClient, batch, code, fetch, produce, values_of
from kafka_clients import create_topic
from kafka_reference import Kafkalake
from waiting import wait_until

from kafkalake.broker.coordination.journal import journal_partition
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    KafkaStorageError,
    LeaderNotAvailableError,
)
from kafkalake.internal_topics import GROUP_JOURNAL
from kafkalake.metadata.delta import DeltaMetadataStore

JOURNAL_PARTITIONS = 4


def kept(directory: Path) -> Path:
    """Where a hidden directory is meanwhile: not below the logs, where a start clears up."""
    return directory.parents[3] / f"{directory.name}.kept"


def hide(directory: Path) -> None:
    """Put something in place of the directory that cannot be opened as one."""
    directory.rename(kept(directory))
    directory.write_text("in the way")


def show(directory: Path) -> None:
    directory.unlink()
    kept(directory).rename(directory)


def group_of(partition: int) -> str:
    return next(name for n in range(100) if journal_partition(name := f"group-{n}", JOURNAL_PARTITIONS) == partition)


def commit(servers: str, group: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 1, offset)], asynchronous=False)
    consumer.close()


def committed(servers: str, group: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    (found,) = consumer.committed([confluent_kafka.TopicPartition("t", 1)], timeout=20)
    consumer.close()
    return int(found.offset)


def coordinator_code(client: WireClient, group: str) -> int:
    answer = client.call("FindCoordinator", 4, key_type=0, coordinator_keys=(group,))
    return code(answer.coordinators[0].error_code)


def test_a_journal_whose_creation_has_failed_is_created_by_a_later_request(
    kafkalake_broker: Callable[..., Kafkalake],
) -> None:
    broker = kafkalake_broker(settings={"offsets.topic.num.partitions": str(JOURNAL_PARTITIONS)})
    servers, obstacle = broker.bootstrap_servers, broker.lake / "logs" / "0" / f"{GROUP_JOURNAL}-2"
    create_topic(servers, "t", 3)
    obstacle.write_text("in the way")
    with WireClient(servers) as client:
        assert coordinator_code(client, group_of(0)) == CoordinatorNotAvailableError.code
        obstacle.unlink(missing_ok=True)  # it may have been retired with the topic
        wait_until(lambda: coordinator_code(client, group_of(0)) == 0)
    for partition in range(JOURNAL_PARTITIONS):
        commit(servers, group_of(partition), 3)
    broker.kill()
    broker.start()
    assert [committed(servers, group_of(partition)) for partition in range(JOURNAL_PARTITIONS)] == [
        3
    ] * JOURNAL_PARTITIONS


@pytest.fixture
def broker(kafkalake_broker: Callable[..., Kafkalake]) -> Kafkalake:
    """A broker with `t` (3 partitions, 5 records each) and two groups, started again without the logs of `t-0` and of a journal."""
    broker = kafkalake_broker(settings={"offsets.topic.num.partitions": str(JOURNAL_PARTITIONS)})
    create_topic(broker.bootstrap_servers, "t", 3)
    create_topic(broker.bootstrap_servers, "gone", 1)
    with WireClient(broker.bootstrap_servers) as client:
        for partition in range(3):
            for number in range(5):
                produce(client, "t", batch([(None, b"%d" % number)]), partition=partition)
        produce(client, "gone", batch([(None, b"x")]))
    for partition in (0, 1):
        commit(broker.bootstrap_servers, group_of(partition), 3)
    broker.stop()
    logs = broker.lake / "logs" / "0"
    for name in ("t-0", "gone-0", f"{GROUP_JOURNAL}-0"):
        hide(logs / name)
    broker.start()
    return broker


def test_it_is_served_again_once_its_log_can_be_opened(broker: Kafkalake) -> None:
    servers, logs = broker.bootstrap_servers, broker.lake / "logs" / "0"
    with WireClient(servers) as client:
        assert code(fetch(client, "t", 3).error_code) == KafkaStorageError.code
        for name in ("t-0", f"{GROUP_JOURNAL}-0"):
            show(logs / name)
        wait_until(lambda: code(fetch(client, "t", 4).error_code) == 0)
        assert values_of(fetch(client, "t", 4).records) == [(4, b"4")]
        assert produce(client, "t", batch([(None, b"new")])).base_offset == 5
        wait_until(lambda: coordinator_code(client, group_of(0)) == 0)
        assert code(fetch(client, "gone", 0).error_code) == KafkaStorageError.code
    assert committed(servers, group_of(0)) == 3
    commit(servers, group_of(0), 4)
    broker.kill()
    broker.start()
    assert committed(servers, group_of(0)) == 4
    with WireClient(servers) as client:
        assert values_of(fetch(client, "t", 5).records) == [(5, b"new")]


def test_one_partition_is_offline_and_the_others_are_served(broker: Kafkalake) -> None:
    servers = broker.bootstrap_servers
    before = {row.partition: row for row in DeltaMetadataStore(broker.lake).load_partitions() if row.topic == "t"}
    with WireClient(servers) as client:
        storage = KafkaStorageError.code
        assert code(fetch(client, "t", 3).error_code) == storage
        assert code(produce(client, "t", batch([(None, b"new")])).error_code) == storage
        for partition in (1, 2):
            assert values_of(fetch(client, "t", 4, partition=partition).records) == [(4, b"4")]
            assert produce(client, "t", batch([(None, b"new")]), partition=partition).base_offset == 5
        answer = client.call(
            "Metadata",
            12,
            topics=({"topic_id": None, "name": "t"},),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        shown = {each.partition_index: each for each in answer.topics[0].partitions}
        assert code(shown[0].error_code) == LeaderNotAvailableError.code
        assert (shown[0].leader_id, tuple(shown[0].offline_replicas)) == (-1, (0,))
        assert [(code(shown[n].error_code), shown[n].leader_id) for n in (1, 2)] == [(0, 0), (0, 0)]
        # Groups of a journal's partition that is offline have no coordinator: what is known of them may be old.
        assert coordinator_code(client, group_of(0)) == CoordinatorNotAvailableError.code
        assert coordinator_code(client, group_of(1)) == 0
    assert committed(servers, group_of(1)) == 3
    admin = AdminClient({"bootstrap.servers": servers})
    with pytest.raises(confluent_kafka.KafkaException):
        partition = confluent_kafka.TopicPartition("t", 0)
        admin.list_offsets({partition: OffsetSpec.latest()}, request_timeout=5)[partition].result(10)
    admin.delete_topics(["gone"])["gone"].result(20)
    create_topic(servers, "gone", 1)
    with WireClient(servers) as client:
        assert produce(client, "gone", batch([(None, b"y")])).base_offset == 0
    broker.stop()
    after = {row.partition: row for row in DeltaMetadataStore(broker.lake).load_partitions() if row.topic == "t"}
    shown = [(row.log_start_offset, row.high_watermark, row.log_end_offset) for row in (before[0], after[0])]
    assert shown == [(0, 5, 5), (0, 5, 5)], "what Delta says of a partition of which nothing is known stays"
    logs = broker.lake / "logs" / "0"
    for name in ("t-0", f"{GROUP_JOURNAL}-0"):
        show(logs / name)
    broker.start()
    with WireClient(servers) as client:
        assert values_of(fetch(client, "t", 4).records) == [(4, b"4")]
        assert produce(client, "t", batch([(None, b"new")])).base_offset == 5
    assert committed(servers, group_of(0)) == 3
