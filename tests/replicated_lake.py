"""A written lake whose partitions have replicas: copies of a partition's directory among the logs of other brokers.

Broker `written_lake.BROKER` wrote the records. Who leads is committed to the table `cluster`, as a controller does it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from written_lake import BROKER, WrittenLake

from kafkalake.clock import SystemClock
from kafkalake.cluster.image import NO_LEADER, PartitionRegistration
from kafkalake.metadata import paths
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.state import STATE_FILE, encode_slot, read_state

BROKERS = (BROKER, 1, 2)


class ReplicatedLake(WrittenLake):
    """A lake of three brokers. Broker 0 leads what it has written until `elect` says otherwise."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._epochs: dict[tuple[str, int], int] = {}

    def directory_of(self, broker_id: int, topic: str, partition: int = 0) -> Path:
        return paths.partition_path(self.path, broker_id, topic, partition)

    def replicate(self, topic: str, partition: int = 0) -> None:
        """Make the replicas of brokers 1 and 2 equal to what broker 0 has, and broker 0 the leader."""
        for broker_id in BROKERS[1:]:
            target = self.directory_of(broker_id, topic, partition)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(self.directory(topic, partition), target)
        self.elect(topic, BROKER, partition)

    def elect(
        self, topic: str, leader: int, partition: int = 0, *, isr: tuple[int, ...] = BROKERS, elr: tuple[int, ...] = ()
    ) -> int:
        """Commit a leader, in a new leader epoch unless it leads already; return the epoch."""
        image = self.store.control_store.load()
        topic_id = uuid.UUID(self.topics[topic].topic_id)
        registered = list(image.partitions.get(topic_id, ()))
        registered += [PartitionRegistration(NO_LEADER, -1, BROKERS)] * (
            self.topics[topic].partitions - len(registered)
        )
        before = registered[partition]
        epoch = before.leader_epoch + (before.leader != leader)
        registered[partition] = replace(before, leader=leader, leader_epoch=epoch, isr=isr, elr=elr)
        self.store.control_store.commit(image.with_topics({topic_id: tuple(registered)}))
        return epoch

    def change_state(self, broker_id: int, topic: str, partition: int = 0, **fields: object) -> None:
        """Write a replica's `state` with other fields, as its broker does."""
        path = self.directory_of(broker_id, topic, partition) / STATE_FILE
        state = read_state(path)._replace(**fields)  # type: ignore[arg-type]
        with path.open("r+b") as file:  # not truncated: who reads meanwhile finds a valid slot
            file.write(encode_slot(state, 1_000_000) + encode_slot(state, 1_000_001))

    def open_replica(self, broker_id: int, topic: str, partition: int = 0, **config: object) -> Log:
        """Open the log of a replica that is not broker 0's. The caller closes it."""
        directory = str(self.directory_of(broker_id, topic, partition))
        topic_id = uuid.UUID(self.topics[topic].topic_id)
        return Log.open(directory, LogConfig(**config), SystemClock(), topic_id=topic_id)  # type: ignore[arg-type]


@contextmanager
def replicated_clicks(directory: Path) -> Iterator[ReplicatedLake]:
    """`clicks`: one partition of 30 records in three segments, two sealed and in Delta, on three brokers."""
    lake = ReplicatedLake(directory)
    lake.create("clicks")
    for part in range(3):
        lake.append_values("clicks", 0, [b"%d" % (10 * part + i) for i in range(10)])
        if part < 2:
            lake.roll("clicks")
    lake.publish()
    lake.replicate("clicks")
    try:
        yield lake
    finally:
        lake.close()
