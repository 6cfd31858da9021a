"""A log that was lost begins anew, and where its predecessor began is nothing to it."""

from __future__ import annotations

import shutil
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from node_in_thread import NodeInThread
from waiting import wait_until

from kafkalake.cluster.image import PartitionRegistration
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.storage.state import read_state

SETTINGS = {"metadata.publish.interval.ms": "3600000"}
BROKERS = [{"node.id": str(number), "controlled.shutdown.enable": "true"} for number in range(2)]


def produce(servers: str, partition: int, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce("clicks", b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


@pytest.mark.exhaustive
def test_records_of_a_log_that_was_begun_anew_are_not_removed_for_its_predecessors_start(tmp_path: Path) -> None:
    """Another writer commits to `partitions` before the broker has published the new log: the old start still stands there."""
    lake = tmp_path / "lake"
    with NodeInThread(lake, SETTINGS) as node:
        admin = AdminClient({"bootstrap.servers": node.servers})
        admin.create_topics([NewTopic("clicks", 2)])["clicks"].result(30)
        produce(node.servers, 0, 20)
        produce(node.servers, 1, 20)
    store = DeltaMetadataStore(lake, create=False)
    topic_id = store.load_topics()[0].topic_id
    store.raise_log_starts({(topic_id, 0): 20})
    shutil.rmtree(lake / "logs" / "0" / "clicks-0")

    with NodeInThread(lake, SETTINGS) as node:
        produce(node.servers, 0, 5)
        DeltaMetadataStore(lake, create=False).raise_log_starts({(topic_id, 1): 15})
        logs = [node.broker.topics.topic("clicks").replicas[index].log for index in range(2)]
        wait_until(lambda: logs[1].log_start_offset == 15)
        assert (logs[0].log_start_offset, logs[0].log_end_offset) == (0, 5)


@pytest.mark.exhaustive
def test_a_replica_whose_directory_was_lost_between_two_clean_runs_does_not_lead_without_its_records(
    tmp_path: Path,
) -> None:
    """It left an ISR of two of which both must have all, so it could lead with what it had."""
    lake = tmp_path / "lake"
    with NodeInThread(lake, BROKERS[0]) as first:
        with NodeInThread(lake, BROKERS[1]) as second:
            admin = AdminClient({"bootstrap.servers": f"{first.servers},{second.servers}"})
            topic = NewTopic("clicks", 1, 2, config={"min.insync.replicas": "2"})
            admin.create_topics([topic])["clicks"].result(30)
            produce(first.servers, 0, 5)
        wait_until(lambda: registration_of(first).elr == (1,))
    lost = lake / "logs" / "1" / "clicks-0"
    shutil.rmtree(lost)
    with NodeInThread(lake, BROKERS[1]) as second:
        registered = registration_of(second)
        assert (registered.leader, registered.isr, registered.elr) == (-1, (0,), ())
        assert not read_state(lost).was_cut, "the cluster knows it now"
        with NodeInThread(lake, BROKERS[0]) as first:
            wait_until(lambda: registration_of(first).isr in ((0, 1), (1, 0)))
            logs = [each.broker.replicas.find_log(each.broker.topics.topic("clicks"), 0) for each in (first, second)]
            assert [log.log_end_offset for log in logs] == [5, 5]


def registration_of(node: NodeInThread) -> PartitionRegistration:
    return node.broker.topics.topic("clicks").registrations[0]
