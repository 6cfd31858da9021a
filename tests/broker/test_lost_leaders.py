"""A leader whose log has lost records goes offline, and leads or follows again in a newer epoch only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from broker.throttled import Throttle
from faulty_files import FaultyFiles
from manual_clock import ManualClock
from record_batches import simple_batch

from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.followed_reads import FollowedReads
from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.broker.partitions.replicas import Replicas
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration
from kafkalake.cluster.registration import report_offline_logs
from kafkalake.config.layers import Settings
from kafkalake.errors import KafkaError, KafkaStorageError
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.ownership import Ownership
from kafkalake.storage.log_events import NoEvents
from kafkalake.storage.open_files import OpenFiles

TOPIC_ID = UUID(int=7)


def rules(topic_id: UUID) -> ElectionRules:
    return ElectionRules()


class Broker:
    """Broker 0, which leads a partition of two replicas, on a disk that can fail."""

    def __init__(self, directory: Path) -> None:
        clock = ManualClock()
        self.files = FaultyFiles()
        self.turns: list[Callable[[], object]] = []
        self.moved: list[int] = []
        ownership = Ownership(clock)
        ownership.renewed(clock.elapsed_ms(), 3_600_000)
        brokers = {each: BrokerRegistration(each, each + 1, UUID(int=each), (), is_fenced=False) for each in range(2)}
        partitions = {TOPIC_ID: (PartitionRegistration(0, 5, (0, 1), (0, 1), partition_epoch=3),)}
        self.image = ClusterImage("lake", version=1, brokers=brokers, partitions=partitions)
        self.topics = Topics(ClusterImage("lake"))
        purgatory = Purgatory(Timers(clock))
        self.queue = AppendQueue(
            purgatory, self.turns.append, self._blocking, lambda partition: None, ownership, clock, self._fail
        )
        row = SimpleNamespace(topic_id=str(TOPIC_ID), topic="clicks", config={}, partitions=1, created_at_ms=0)
        observer: Any = SimpleNamespace(
            partition_added=len_of, partition_resigned=len_of, partition_removed=len_of, partition_swapped=len_of
        )
        leaders: Any = SimpleNamespace(fetch=never)
        self.rows: list[TopicRow] = [row]  # type: ignore[list-item]
        self.replicas = Replicas(
            broker_id=0,
            topics=self.topics,
            store=SimpleNamespace(load_topics=lambda: self.rows),  # type: ignore[arg-type]
            logs=LogDirectory(directory, clock, OpenFiles(self.files, 16), lambda *_: NoEvents()),
            cache=WireCache(1 << 20),
            clock=clock,
            settings=lambda: Settings({}, {}, {}),
            leaders=leaders,
            reads=FollowedReads(lambda replica: self.replicas.fetchers.find(replica), purgatory),
            throttle=Throttle(clock).throttle,
            observer=observer,
            changed=lambda name: None,
            moved=lambda topic, index: self.moved.append(index),
            run_blocking=self._blocking,
            later=lambda delay_ms, action: None,
            advance=self.queue.advance,
            leave=self.queue.leave,
        )

    def _fail(self, partition: Partition) -> None:
        self.replicas.fail(partition)

    async def _blocking(self, work: Callable[[], Any]) -> Any:
        return work()

    @property
    def partition(self) -> Partition | None:
        return self.topics.topic("clicks").replicas.get(0)

    def produce(self) -> object:
        assert self.partition is not None
        pending = PendingAppend(self.partition, simple_batch([b"a"]), None, acks=1)
        self.queue.add(pending)
        while self.turns:
            self.turns.pop(0)()
        return pending.result.label if isinstance(pending.result, KafkaError) else None

    async def report(self) -> None:
        """Let the controller hear which replicas are offline, and follow what it decides."""
        after = report_offline_logs(self.image, 0, 1, list(self.replicas.offline()), rules)
        self.image = replace(after, version=self.image.version + 1)
        await self.replicas.follow(self.image)


def len_of(partition: Partition) -> None:
    assert partition.name


async def never(*_: object) -> Awaitable[None]:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_leader_that_has_lost_records_follows_the_next_one_and_does_not_go_on_in_its_epoch(tmp_path: Path) -> None:
    async def run() -> None:
        broker = Broker(tmp_path)
        await broker.replicas.follow(broker.image, broker.rows)
        assert broker.produce() is None
        assert broker.partition is not None
        broker.files.failing_syncs = 1
        with pytest.raises(KafkaStorageError):
            broker.partition.log.flush()
        assert broker.produce() == "KAFKA_STORAGE_ERROR"
        assert (broker.partition, list(broker.replicas.offline())) == (None, [(TOPIC_ID, 0)])
        await broker.replicas.reopen_failed()
        assert broker.partition is None, "the controller has not heard of it"
        await broker.report()
        assert broker.image.partitions[TOPIC_ID][0].leader == 1
        await broker.replicas.reopen_failed()
        assert broker.replicas.fetchers.find((TOPIC_ID, 0)) is not None
        await broker.report()
        assert list(broker.replicas.offline()) == []
        await broker.replicas.stop_following()

    asyncio.run(run())


def test_a_leader_whose_disk_is_full_gives_way_to_a_follower(tmp_path: Path) -> None:
    async def run() -> None:
        broker = Broker(tmp_path)
        await broker.replicas.follow(broker.image, broker.rows)
        assert broker.produce() is None
        broker.files.capacity_bytes = 0
        assert broker.produce() == "KAFKA_STORAGE_ERROR"
        assert (broker.partition, list(broker.replicas.offline())) == (None, [(TOPIC_ID, 0)])
        await broker.report()
        assert broker.image.partitions[TOPIC_ID][0].leader == 1
        broker.files.capacity_bytes = None
        await broker.replicas.reopen_failed()
        assert broker.replicas.fetchers.find((TOPIC_ID, 0)) is not None
        await broker.replicas.stop_following()

    asyncio.run(run())


def test_a_leader_that_is_alone_in_its_isr_leads_again_in_the_next_epoch(tmp_path: Path) -> None:
    async def run() -> None:
        broker = Broker(tmp_path)
        alone = PartitionRegistration(0, 5, (0, 1), (0,), partition_epoch=3)
        broker.image = replace(broker.image, partitions={TOPIC_ID: (alone,)})
        await broker.replicas.follow(broker.image, broker.rows)
        assert broker.produce() is None and broker.partition is not None
        broker.partition.enqueue(PendingAppend(broker.partition, simple_batch([b"not committed"]), None))
        broker.partition.append_queued()
        broker.files.failing_syncs = 1
        with pytest.raises(KafkaStorageError):
            broker.partition.log.flush()
        broker.produce()
        for _ in range(3):
            await broker.report()
            await broker.replicas.reopen_failed()
        assert broker.partition is not None and not broker.partition.is_offline
        assert broker.partition.leader_epoch > 5
        assert broker.produce() is None
        assert broker.partition.log.high_watermark == 2

    asyncio.run(run())
