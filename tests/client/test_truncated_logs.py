"""An unclean election takes away records that consumers have read; they notice by their leader epochs, on both kinds of broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_reference import ApacheKafka, Cluster, Kafkalake, kafka_cluster, kafkalake_cluster, topic_name
from waiting import wait_until

from kafkalake import Consumer, Producer
from kafkalake.client.errors import LogTruncationError
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.errors import OffsetOutOfRangeError

pytestmark = [pytest.mark.peer, pytest.mark.long]

KEPT, LOST = [b"a", b"b", b"c"], [b"d", b"e", b"f"]
FIRST, SECOND = 1, 2
"""The replicas. The other broker coordinates groups and keeps the quorum."""
SETTINGS = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "1"}
IMPATIENT: Mapping[str, object] = {"reconnect.backoff.max.ms": 200, "metadata.max.age.ms": 1_000}


@pytest.fixture(params=["kafkalake", "apache-kafka"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster[Kafkalake] | Cluster[ApacheKafka]]:
    new = kafkalake_cluster if request.param == "kafkalake" else kafka_cluster
    with new(tmp_path, SETTINGS) as started:
        yield started


class Truncation:
    """A topic of two replicas; the second is elected although it lacks what was written last."""

    def __init__(self, cluster: Cluster[Kafkalake] | Cluster[ApacheKafka]) -> None:
        self.brokers = cluster.brokers
        self.topic = topic_name("truncated")
        self.place = self.topic, 0
        self.servers = {"bootstrap.servers": cluster.bootstrap_servers, **IMPATIENT}
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        new = NewTopic(self.topic, num_partitions=1, replica_assignment=[[FIRST, SECOND]], config=config)
        self.admin.create_topics([new])[self.topic].result(30)

    def wait_for_isr(self, *expected: int) -> None:
        def is_so() -> bool:
            found = self.admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            return 0 in found and found[0].leader in expected and set(found[0].isrs) == set(expected)

        wait_until(is_so, lambda: self.admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions)

    def produce(self, values: list[bytes]) -> None:
        with Producer(self.servers, enable_idempotence=False, acks="all") as producer:
            for sent in [producer.send(self.topic, value, partition=0) for value in values]:
                sent.get(60)

    def elect(self) -> None:
        """Have the second replica lead, whose log ends behind what was kept, and write one record to it."""
        self.brokers[FIRST].kill()
        self.brokers[SECOND].start()
        self.wait_for_isr(SECOND)
        self.produce([b"D"])
        self.brokers[FIRST].start()

    def consumer(self, reset: str, **more: object) -> Consumer:
        return Consumer({**self.servers, "auto.offset.reset": reset, **more})

    def values(self, reader: Consumer, count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < count:
            found += [each.value for each in reader.poll(60)] or pytest.fail(f"nothing comes after {found}")
        return found


def test_consumers_find_what_an_unclean_election_took_away(
    cluster: Cluster[Kafkalake] | Cluster[ApacheKafka],
) -> None:
    log = Truncation(cluster)
    log.wait_for_isr(FIRST, SECOND)
    log.produce(KEPT)
    cluster.brokers[SECOND].kill()
    log.wait_for_isr(FIRST)
    log.produce(LOST)
    with log.consumer("none") as strict, log.consumer("latest") as lenient:
        for reader in (strict, lenient):
            reader.assign([log.place])
            reader.seek(log.place, 0)
            assert log.values(reader, 6) == KEPT + LOST
        with log.consumer("earliest", group_id="by position", enable_auto_commit=False) as writer:
            writer.assign([log.place])
            assert log.values(writer, 6) == KEPT + LOST
            writer.commit()
            by_position = writer.committed([log.place])[log.place]
        with log.consumer("none", group_id="without epoch", enable_auto_commit=False) as writer:
            writer.commit({log.place: 6})
        log.elect()

        assert by_position is not None and by_position.offset == 6 and by_position.leader_epoch is not None
        divergent = OffsetAndMetadata(3, by_position.leader_epoch)
        with pytest.raises(LogTruncationError) as raised:
            log.values(strict, 1)
        assert (raised.value.position, raised.value.divergent_offset) == (6, divergent)
        strict.seek(log.place, 3)
        assert log.values(strict, 1) == log.values(lenient, 1) == [b"D"]

    for reset, group, expected in (
        ("latest", "by position", [b"D"]),
        ("earliest", "without epoch", [*KEPT, b"D"]),
    ):
        with log.consumer(reset, group_id=group, enable_auto_commit=False) as reader:
            reader.assign([log.place])
            assert log.values(reader, len(expected)) == expected
        with log.consumer("none", group_id=group, enable_auto_commit=False) as reader:
            reader.assign([log.place])
            with pytest.raises(OffsetOutOfRangeError) as refused:
                log.values(reader, 1)
        assert isinstance(refused.value, LogTruncationError) is (group == "by position")
        if isinstance(refused.value, LogTruncationError):
            assert refused.value.divergent_offset == divergent
