"""fsyncs that hang stop what waits for them, and nothing else: the lease is kept, other partitions are written and published."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pytest
from broker_that_hangs import hanging_command
from kafka_clients import create_topic
from kafka_reference import Kafkalake

from kafkalake.metadata.delta import DeltaMetadataStore

pytestmark = pytest.mark.process
LEASE_MS = 5_000
HUNG_PARTITIONS = 6
"""More than there are threads for the disk."""


class Hanging(Kafkalake):
    """A broker whose fsync of the topic `hung` does not return while `flag` is there."""

    def __init__(self, lake: Path, directory: Path, flag: Path) -> None:
        super().__init__(lake, directory=directory, settings={"lease.duration.ms": str(LEASE_MS)})
        self._flag = flag

    def _command(self) -> Sequence[str]:
        return hanging_command(super()._command(), self._flag, "/hung-")


def test_hanging_fsyncs_stop_neither_the_lease_nor_publishing(tmp_path: Path) -> None:
    flag = tmp_path / "hang"
    with Hanging(tmp_path / "lake", tmp_path / "broker", flag) as broker:
        create_topic(broker.bootstrap_servers, "hung", HUNG_PARTITIONS, {"flush.messages": "1"})
        create_topic(broker.bootstrap_servers, "well")
        store = DeltaMetadataStore(tmp_path / "lake", create=False)
        (lease,) = store.load_brokers()
        flag.touch()
        acknowledged: list[int] = []
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        for number in range(HUNG_PARTITIONS):
            producer.produce(
                "hung",
                b"x",
                partition=number,
                on_delivery=lambda error, message: None if error else acknowledged.append(message.partition()),
            )
        producer.poll(0)
        until, written = time.monotonic() + 1.5 * LEASE_MS / 1000, 0
        other = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        while time.monotonic() < until:
            other.produce("well", b"x", partition=0)
            assert other.flush(20) == 0
            written += 1
        producer.poll(0)
        assert acknowledged == []
        deadline = time.monotonic() + 20
        while not [row for row in store.load_partitions() if row.topic == "well" and row.high_watermark >= written]:
            assert time.monotonic() < deadline, "Delta stands still"
            time.sleep(0.05)
        (kept,) = store.load_brokers()
        assert kept.lease_id == lease.lease_id and kept.lease_expires_at_ms > lease.lease_expires_at_ms
        flag.unlink()
        assert producer.flush(30) == 0
        assert sorted(acknowledged) == list(range(HUNG_PARTITIONS))
