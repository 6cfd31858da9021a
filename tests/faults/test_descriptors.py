"""Few file descriptors: every partition can be written to, clients never take the last ones, and the lease is kept.

`PARTITIONS`, `CONNECTIONS` and `HOLD_S` make it longer: `scripts/soak` has 1,000 partitions, 2,000 connections and five minutes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_clients import Confluent, Record, create_topic
from kafka_reference import Kafkalake
from recording_producer import RecordingProducer, check_nothing_lost_nothing_twice
from waiting import wait_until

from kafkalake.descriptors import share_out
from kafkalake.metadata.delta import DeltaMetadataStore

pytestmark = pytest.mark.process
PARTITIONS = int(os.environ.get("PARTITIONS", "200"))
CONNECTIONS = int(os.environ.get("CONNECTIONS", "500"))
HOLD_S = float(os.environ.get("HOLD_S", "6"))
LIMIT = int(os.environ.get("DESCRIPTORS", "256"))
LEASE_MS = 5_000 if HOLD_S < 60 else 30_000
TOPIC = "many"
STANDARD_STREAMS = 3


class WithFewDescriptors(Kafkalake):
    """The broker of a shell with `ulimit -n`, hard and soft."""

    def _command(self) -> Sequence[str]:
        return ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "broker", *super()._command()]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


@pytest.fixture
def silent() -> Iterator[list[socket.socket]]:
    connections: list[socket.socket] = []
    yield connections
    for connection in connections:
        connection.close()


def write_to_all(servers: str) -> list[int]:
    """One record to each partition; those that acknowledged it."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "message.timeout.ms": 60_000})
    acknowledged: list[int] = []
    for number in range(PARTITIONS):
        producer.produce(
            TOPIC,
            b"x",
            partition=number,
            on_delivery=lambda error, message: None if error else acknowledged.append(message.partition()),
        )
    producer.flush(90)
    return sorted(acknowledged)


def test_every_partition_can_be_written_and_the_lease_is_kept(tmp_path: Path, silent: list[socket.socket]) -> None:
    settings = {"lease.duration.ms": str(LEASE_MS), "max.connections.per.ip": "2147483647"}
    with WithFewDescriptors(tmp_path / "lake", directory=tmp_path / "broker", settings=settings) as broker:
        assert isinstance(broker, WithFewDescriptors)
        shares = share_out(LIMIT, 1_000)
        line = f"descriptors limit={LIMIT} segment_files={shares.segment_files} connections={shares.connections}"
        assert line in broker.stderr_path.read_text()
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        every = list(range(PARTITIONS))
        assert write_to_all(broker.bootstrap_servers) == every

        for _ in range(CONNECTIONS):
            with contextlib.suppress(OSError):
                silent.append(socket.create_connection(("127.0.0.1", broker.port), timeout=10))
        (renewed,) = DeltaMetadataStore(broker.lake, create=False).load_brokers()
        deadline, most = time.monotonic() + HOLD_S, 0
        while time.monotonic() < deadline:
            most = max(most, broker.descriptors())
            assert broker.is_running()
            time.sleep(0.05)
        assert most <= LIMIT - shares.reserve // 2, "clients took what is kept for the lease and Delta"
        (row,) = DeltaMetadataStore(broker.lake, create=False).load_brokers()
        assert (row.lease_id, row.lease_expires_at_ms > renewed.lease_expires_at_ms) == (renewed.lease_id, True)
        for connection in silent[: len(silent) - len(silent) // 4]:
            connection.close()
        assert write_to_all(broker.bootstrap_servers) == every
        said = broker.stderr_path.read_text()
        assert "there are descriptors for" in said
        assert "Too many open files" not in said and "lease lost" not in said


def test_descriptors_that_are_used_up_are_missed_only_while_they_are(
    kafkalake_broker: Callable[..., Kafkalake], topic: str
) -> None:
    """Appends, rolls, topics and commits to Delta fail: that says nothing of the disk, and no partition stays away for it."""
    broker = kafkalake_broker(settings={"internal.segment.bytes": "20000", "metadata.publish.interval.ms": "200"})
    servers = broker.bootstrap_servers
    create_topic(servers, topic, partitions=2)
    producer = RecordingProducer(servers, topic, 2, in_flight=1).start()
    producer.wait_for_acknowledged(200, timeout_s=60)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (STANDARD_STREAMS, limits[1]))
    wait_until(lambda: "doing=append" in broker.stderr_path.read_text())
    wait_until(lambda: "publishing of partitions failed" in broker.stderr_path.read_text())
    with pytest.raises(confluent_kafka.KafkaException):
        admin.create_topics([NewTopic("new", 2, 1)], request_timeout=3)["new"].result(10)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
    producer.wait_for_acknowledged(200, timeout_s=60)
    create_topic(servers, "new", partitions=2)
    assert len(Confluent().write(servers, "new", 1, [Record(None, b"x")] * 3, "none")) == 3
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "etl", "log_level": 0})
    offset = confluent_kafka.TopicPartition(topic, 0, 7)
    assert consumer.commit(offsets=[offset], asynchronous=False)[0].error is None
    consumer.close()
    producer.stop()
    assert not producer.failed, producer.failed[0]
    wait_until(lambda: "publishing of partitions works again" in broker.stderr_path.read_text())
    broker.restart()
    check_nothing_lost_nothing_twice(servers, topic, producer)


@pytest.mark.parametrize(
    ("limit", "open_files_max", "files", "connections"),
    [
        (1024, 1000, 512, 256),
        (256, 1000, 128, 64),
        (1 << 20, 1000, 1000, (1 << 20) - 1000 - 256),
        (1024, 100, 100, 668),
    ],
)
def test_how_descriptors_are_shared_out(limit: int, open_files_max: int, files: int, connections: int) -> None:
    shares = share_out(limit, open_files_max)
    assert (shares.segment_files, shares.connections) == (files, connections)
    assert shares.segment_files + shares.connections + shares.reserve <= limit
