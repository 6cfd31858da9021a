"""Three real brokers whose wall clocks are an hour ahead, right, and an hour behind, and jump by two: only times differ by that.

Leases, sessions and elections go by clocks that nobody sets. Records keep the times of their producers, or get the leader's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clocked_broker import BrokerWithClock
from confluent_kafka import Consumer, TopicPartition
from kafka_reference import BROKERS, Cluster
from test_replication import IMPATIENT, SETTINGS, TIMEOUT_S, Producing, Replicating, read
from waiting import wait_until
from whole_transactions import TransactionLoad, committed_offsets

from kafkalake.cluster.image import ClusterImage
from kafkalake.dataset import topic_reader
from kafkalake.metadata.delta import DeltaMetadataStore

pytestmark = pytest.mark.process

HOUR_MS = 3_600_000
SLACK_MS = 60_000
AHEAD_MS = (HOUR_MS, 0, -HOUR_MS)
LEASE_MS = 2_000
OF_CLOCKS = {
    "lease.duration.ms": str(LEASE_MS),
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "500",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}
LONGER = {
    "retention.ms": str(3 * HOUR_MS),
    "message.timestamp.after.max.ms": str(2 * HOUR_MS),
    "internal.segment.bytes": "100000",
}
"""Of topics: longer than the clocks are apart."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster[BrokerWithClock]]:
    brokers = [
        BrokerWithClock(
            tmp_path / "lake",
            directory=tmp_path / f"broker-{each}",
            broker_id=each,
            settings=SETTINGS | OF_CLOCKS,
        )
        for each in range(BROKERS)
    ]
    for broker, ahead_ms in zip(brokers, AHEAD_MS, strict=True):
        broker.move_clock(ahead_ms)
    with Cluster(brokers) as started:
        yield started


def create(replicating: Replicating, **config: str) -> str:
    return replicating.create(3, **{name.replace(".", "_"): value for name, value in (LONGER | config).items()})


def image(lake: Path) -> ClusterImage:
    return DeltaMetadataStore(lake, create=False).newest_image()


def committed(servers: str, group: str, topic: str, offset: int | None = None) -> int:
    """Return a group's offset of the first partition, once `offset` is committed if it is given."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0, **IMPATIENT})
    try:
        if offset is not None:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        return int(consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)[0].offset)
    finally:
        consumer.close()


@pytest.mark.long
def test_clocks_that_are_an_hour_off_cost_nothing_but_the_hour(cluster: Cluster[BrokerWithClock]) -> None:
    replicating = Replicating(cluster)
    began_ms = int(time.time() * 1000)
    sent, stamped = create(replicating), create(replicating, **{"message.timestamp.type": "LogAppendTime"})
    whole = create(replicating)
    load = TransactionLoad(replicating.servers, whole, 3, producers=1)
    load.start()
    try:
        with Producing(replicating, sent) as one, Producing(replicating, stamped) as other:
            for number, broker in enumerate(cluster.brokers):  # each leads, coordinates and is the controller once
                assert committed(replicating.servers, f"group-{number}", sent, number) == number
                broker.kill()
                one.go_on()
                other.go_on()
                broker.start()
                for topic in (sent, stamped, whole):
                    replicating.wait_in_sync(topic)
            before = image(replicating.lake)
            for number in (0, 2):
                cluster.brokers[number].move_clock(-AHEAD_MS[number])
            ends_s = time.monotonic() + 3 * LEASE_MS / 1000
            wait_until(lambda: time.monotonic() > ends_s)
            one.go_on()
            other.go_on()
            after = image(replicating.lake)
    finally:
        load.stop()
    assert (after.controller_epoch, after.brokers) == (before.controller_epoch, before.brokers), "nobody was fenced"
    assert one.failed == other.failed == []
    for topic, producing, off_ms in ((sent, one, 0), (stamped, other, HOUR_MS)):
        assert read(replicating, topic, 3, len(producing.acknowledged)) == producing.acknowledged
        replicating.wait_equal(topic, 3)
        found = topic_reader(replicating.lake, topic, columns=["timestamp"]).read_all()["timestamp"].to_pylist()
        assert len(found) == len(producing.acknowledged), "retention has taken nothing"
        times_ms = [each.timestamp() * 1000 for each in found]
        assert began_ms - off_ms - SLACK_MS < min(times_ms)
        assert max(times_ms) < time.time() * 1000 + off_ms + SLACK_MS
    transactions = committed_offsets(replicating.servers, whole, replicating.ends(whole, 3))
    assert len(transactions) >= load.committed > 0
    assert all(len(offsets) == 3 for offsets in transactions.values())
    assert [committed(replicating.servers, f"group-{number}", sent) for number in range(BROKERS)] == [0, 1, 2]
    for each in cluster.brokers:
        each.stop()
    command = [sys.executable, "-m", "kafkalake", "log", "verify", str(replicating.lake)]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
