"""Partitions as their leaders know them, and one with two followers, on a real log and a driven clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from faulty_files import FaultyFiles
from manual_clock import ManualClock
from record_batches import simple_batch

from kafkalake.broker.partitions.append_queue import AppendQueue, ProduceRequest
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import ACKS_ALL, TIMEOUT_MS, PendingAppend
from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.broker.partitions.topics import Topic
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.cluster.image import NO_LEADER, PartitionRegistration
from kafkalake.cluster.replication import Leadership, ReplicaFetch, begin_leadership, note_fetch
from kafkalake.config.layers import Settings
from kafkalake.errors import KafkaError
from kafkalake.ownership import Ownership
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles

TOPIC_ID = UUID(int=7)
THREE = PartitionRegistration(0, 5, (0, 1, 2), (0, 1, 2), partition_epoch=3)
"""Broker 0 leads, and the ISR is complete."""


def sole_replica(broker_id: int, leader_epoch: int, *, is_offline: bool = False) -> PartitionRegistration:
    """Return the registration of a partition whose only replica is on `broker_id`. `is_offline`: its log could not be opened."""
    replicas = (broker_id,)
    if is_offline:
        return PartitionRegistration(NO_LEADER, leader_epoch, replicas, replicas, offline=replicas)
    return PartitionRegistration(broker_id, leader_epoch, replicas, replicas)


def alone(leader_epoch: int = 0) -> Leadership:
    """Return the leadership of broker 0, without other replicas."""
    return begin_leadership(sole_replica(0, leader_epoch), 0, 0, 1, 0)


class LedPartition:
    """A partition that broker 0 leads, with what appends to it. `min.insync.replicas` is 2."""

    def __init__(
        self,
        directory: Path,
        registration: PartitionRegistration = THREE,
        files: FaultyFiles | None = None,
        **config: int,
    ) -> None:
        self.clock = ManualClock(0)
        self.turns: list[Callable[[], object]] = []
        self.files = files or FaultyFiles()
        self.failed: list[Partition] = []
        self.timers = Timers(self.clock)
        self.purgatory = Purgatory(self.timers)
        ownership = Ownership(self.clock)
        ownership.renewed(self.clock.elapsed_ms(), 3_600_000_000)
        self.queue = AppendQueue(
            self.purgatory,
            self.turns.append,
            self._in_thread,
            lambda partition: None,
            ownership,
            self.clock,
            self.failed.append,
        )
        self.log = Log.open(
            directory,
            LogConfig(**config),
            self.clock,
            self.files,
            OpenFiles(self.files, 16),  # type: ignore[arg-type]
        )
        topic = Topic("clicks", TOPIC_ID, {}, Settings({}, {}, {}).topic({}), 0)
        leadership = begin_leadership(registration, 0, self.log.log_end_offset, 2, 0)
        self.partition = topic.replicas[0] = Partition(topic, 0, self.log, WireCache(1 << 20).tail(), leadership)
        self.topic = topic

    async def _in_thread(self, work: Callable[[], None]) -> None:
        work()

    def produce(
        self, *values: bytes, acks: int = ACKS_ALL, timeout_ms: int = TIMEOUT_MS, **producer: int
    ) -> list[int | str]:
        """Produce a batch and return a list that has its base offset, or the label of its error, once it is answered."""
        answers: list[int | str] = []
        batch = simple_batch(values, **producer)
        pending = PendingAppend(self.partition, batch, None, acks=acks, timeout_ms=timeout_ms)

        def answered(produced: ProduceRequest) -> None:
            (result,) = (each.result for each in produced.batches)
            assert isinstance(result, AppendResult | KafkaError)
            answers.append(result.base_offset if isinstance(result, AppendResult) else result.label)

        ProduceRequest([pending], answered).start(self.queue)
        self.turn()
        return answers

    def turn(self) -> None:
        """Run what was put off to the next turn of the event loop."""
        while self.turns:
            self.turns.pop(0)()

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, and the timers that are due."""
        self.clock.advance(milliseconds)
        self.timers.ring()
        self.turn()

    def fetch(self, broker_id: int, offset: int) -> None:
        """Let a follower have all before `offset`."""
        fetch = ReplicaFetch(broker_id, 10 * broker_id, offset)
        now_ms = self.clock.monotonic_ms()
        self.partition.lead(
            note_fetch(self.partition.leadership, fetch, self.log.log_end_offset, 10 * broker_id, now_ms)
        )
        self.queue.advance(self.partition)

    def set_isr(self, *isr: int) -> None:
        """Let a newer registration have another ISR."""
        before = self.partition.leadership
        self.partition.lead(replace(before, isr=isr, partition_epoch=before.partition_epoch + 1))
        self.queue.advance(self.partition)
