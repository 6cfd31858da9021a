"""A replica whose log has lost records goes offline. It leads again in a newer epoch only, and counts for what it has."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
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
from kafkalake.broker.partitions.leader_replicas import AskedReplica, FetchedReplica, ReplicaId
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
from kafkalake.process.upkeep import Upkeep
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.log_events import NoEvents
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.replica_read import NEVER
from kafkalake.storage.state import read_state

TOPIC_ID = UUID(int=7)


def rules(topic_id: UUID) -> ElectionRules:
    return ElectionRules(min_isr=2)


class LeaderOfOne:
    """Broker 1 as broker 0 sees it: the leader of the partition, which has not told its high watermark."""

    def __init__(self, directory: Path) -> None:
        self.log = Log.open(str(directory), LogConfig(), ManualClock())
        self.counted_end = 0
        """The end of the records that the follower has by its own word."""
        self._appended = asyncio.Event()

    def append(self) -> None:
        batch = simple_batch([b"a"])
        assert not isinstance(self.log.append([batch], 5)[0], KafkaError)
        self._appended.set()

    async def fetch(
        self, leader_id: int, fetcher: int, asked: Mapping[ReplicaId, AskedReplica], *_: object
    ) -> list[FetchedReplica]:
        assert leader_id == 1
        (replica, wanted), *_rest = asked.items()
        self.counted_end = wanted.offset
        while wanted.offset == self.log.log_end_offset:
            self._appended.clear()
            await self._appended.wait()
        read = self.log.read_replica(wanted.offset, wanted.max_bytes, NEVER)
        messages, base = memoryview(read.messages), read.segment_base_offset
        return [FetchedReplica(replica, None, 0, 0, messages, base, read.ends_segment)]


class Broker:
    """Broker 0, which leads a partition of two replicas, or follows its `leader`, on a disk that can fail."""

    def __init__(self, directory: Path, leader: LeaderOfOne | None = None, **config: str) -> None:
        clock = self.clock = ManualClock()
        self.files = FaultyFiles()
        self.turns: list[Callable[[], object]] = []
        self.moved: list[int] = []
        self.hangs, self.goes_on = False, asyncio.Event()
        """Whether the disk is to keep the next work of a thread waiting until `goes_on`."""
        ownership = Ownership(clock)
        ownership.renewed(clock.elapsed_ms(), 3_600_000)
        brokers = {each: BrokerRegistration(each, each + 1, UUID(int=each), (), is_fenced=False) for each in range(2)}
        leader_id = 0 if leader is None else 1
        partitions = {TOPIC_ID: (PartitionRegistration(leader_id, 5, (0, 1), (0, 1), partition_epoch=3),)}
        self.image = ClusterImage("lake", version=1, brokers=brokers, partitions=partitions)
        self.topics = Topics(ClusterImage("lake"))
        purgatory = Purgatory(Timers(clock))
        self.queue = AppendQueue(
            purgatory, self.turns.append, self.run_blocking, lambda partition: None, ownership, clock, self._fail
        )
        row = SimpleNamespace(topic_id=str(TOPIC_ID), topic="clicks", config=config, partitions=1, created_at_ms=0)
        observer: Any = SimpleNamespace(
            partition_added=len_of, partition_resigned=len_of, partition_removed=len_of, partition_swapped=len_of
        )
        leaders: Any = SimpleNamespace(fetch=never) if leader is None else leader
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
            run_blocking=self.run_blocking,
            later=lambda delay_ms, action: None,
            advance=self.queue.advance,
            leave=self.queue.leave,
        )

    def _fail(self, partition: Partition) -> None:
        self.replicas.fail(partition)

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        if self.hangs:
            self.hangs = False
            await self.goes_on.wait()
        return work()

    def upkeep(self) -> Upkeep:
        here: Any = SimpleNamespace(
            topics=self.topics,
            replicas=self.replicas,
            run_blocking=self.run_blocking,
            append_queue=self.queue,
            clock=self.clock,
        )
        return Upkeep(here, None, self.run_blocking)  # type: ignore[arg-type]

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
        offline, cut = list(self.replicas.offline()), list(self.replicas.cut())
        after = report_offline_logs(self.image, 0, 1, offline, rules, cut)
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


def test_a_leader_that_has_lost_records_gives_way_without_another_append(tmp_path: Path) -> None:
    """`flush.ms` is kept beside the appends, of which there may be no more."""

    async def run() -> None:
        broker = Broker(tmp_path, **{"flush.ms": "100"})
        upkeep = broker.upkeep()
        await broker.replicas.follow(broker.image, broker.rows)
        assert broker.produce() is None
        broker.clock.advance(100)
        broker.files.failing_syncs = 1
        flushing = upkeep.flush_if_due()
        assert flushing is not None
        await flushing
        assert (broker.partition, list(broker.replicas.offline())) == (None, [(TOPIC_ID, 0)])
        assert upkeep.flush_if_due() is None

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("never true")


def test_a_follower_that_has_lost_what_its_leader_counts_is_not_eligible_when_it_is_back(tmp_path: Path) -> None:
    """Its flush fails: what it has fetched before, and has not forced, is gone. Twice."""

    async def run() -> None:
        leader = LeaderOfOne(tmp_path / "leader")
        broker = Broker(tmp_path / "logs", leader, **{"flush.messages": "2"})
        (tmp_path / "logs").mkdir()
        replica, here = (TOPIC_ID, 0), tmp_path / "logs" / "clicks-0"
        await broker.replicas.follow(broker.image, broker.rows)
        for number in (0, 2):
            leader.append()
            await until(lambda end=number + 1: leader.counted_end == end)  # type: ignore[misc]
            broker.files.failing_syncs = 1
            leader.append()
            await until(lambda: list(broker.replicas.cut()) == [replica])
            state = read_state(here)
            assert (state.log_end_offset, state.was_cut) == (number, True)
            await broker.replicas.reopen_failed()
            assert list(broker.replicas.offline()) == [replica], "it still counts"
            await broker.report()
            registered = broker.image.partitions[TOPIC_ID][0]
            assert (registered.isr, registered.elr, registered.offline) == ((1,), (), (0,))
            await broker.replicas.reopen_failed()
            assert (list(broker.replicas.offline()), list(broker.replicas.cut())) == ([], [])
            assert not read_state(here).was_cut
            await until(lambda end=number + 2: leader.counted_end == end)  # type: ignore[misc]
            isr = replace(registered, isr=(0, 1), offline=(), partition_epoch=registered.partition_epoch + 1)
            broker.image = replace(broker.image, version=broker.image.version + 1, partitions={TOPIC_ID: (isr,)})
            await broker.replicas.follow(broker.image)
        await broker.replicas.stop_following()

    asyncio.run(run())


def test_a_follower_forces_its_records_in_time_though_no_more_come(tmp_path: Path) -> None:
    """One that cannot has lost what its leader counts."""

    async def run() -> None:
        leader = LeaderOfOne(tmp_path / "leader")
        broker = Broker(tmp_path / "logs", leader, **{"flush.ms": "100"})
        (tmp_path / "logs").mkdir()
        upkeep = broker.upkeep()
        await broker.replicas.follow(broker.image, broker.rows)
        for number in (1, 2):
            leader.append()
            await until(lambda end=number: leader.counted_end == end)  # type: ignore[misc]
            assert upkeep.flush_if_due() is None
            broker.clock.advance(100)
            broker.files.failing_syncs = number - 1
            flushing = upkeep.flush_if_due()
            assert flushing is not None
            await flushing
            if (follower := broker.replicas.fetchers.find((TOPIC_ID, 0))) is not None:
                assert follower.log.recovery_point == number == 1
        assert list(broker.replicas.cut()) == [(TOPIC_ID, 0)]
        state = read_state(tmp_path / "logs" / "clicks-0")
        assert (state.log_end_offset, state.was_cut) == (1, True)
        assert upkeep.flush_if_due() is None
        await broker.replicas.stop_following()

    asyncio.run(run())


async def look_after_logs(broker: Broker) -> None:
    """Do the periodic work at the logs."""
    await broker.upkeep()._look_after_logs()


def test_a_follower_that_cannot_force_a_sealed_segment_has_lost_what_its_leader_counts(tmp_path: Path) -> None:
    async def run() -> None:
        leader = LeaderOfOne(tmp_path / "leader")
        broker = Broker(tmp_path / "logs", leader)
        (tmp_path / "logs").mkdir()
        await broker.replicas.follow(broker.image, broker.rows)
        leader.append()
        leader.log.roll()
        leader.append()
        await until(lambda: leader.counted_end == 2)
        broker.files.failing_syncs = 1
        await look_after_logs(broker)
        assert list(broker.replicas.cut()) == [(TOPIC_ID, 0)]
        state = read_state(tmp_path / "logs" / "clicks-0")
        assert (state.log_end_offset, state.was_cut) == (0, True)
        await look_after_logs(broker)
        await broker.replicas.stop_following()

    asyncio.run(run())


def test_a_leader_that_cannot_force_a_sealed_segment_gives_way(tmp_path: Path) -> None:
    """What followers have of it is discarded here, as it is no better forced by the next fsync."""

    async def run() -> None:
        broker = Broker(tmp_path)
        await broker.replicas.follow(broker.image, broker.rows)
        assert broker.produce() is None
        assert broker.partition is not None
        broker.partition.log.roll()
        broker.files.failing_syncs = 1
        await look_after_logs(broker)
        assert (broker.partition, list(broker.replicas.offline())) == (None, [(TOPIC_ID, 0)])
        await broker.report()
        assert broker.image.partitions[TOPIC_ID][0].leader == 1
        await broker.replicas.reopen_failed()
        follower = broker.replicas.fetchers.find((TOPIC_ID, 0))
        assert follower is not None and follower.log.log_end_offset == 0
        await broker.replicas.stop_following()

    asyncio.run(run())


def test_a_follower_whose_directory_is_gone_is_not_eligible_when_it_is_back(tmp_path: Path) -> None:
    async def run() -> None:
        leader = LeaderOfOne(tmp_path / "leader")
        broker = Broker(tmp_path / "logs", leader)
        (tmp_path / "logs").mkdir()
        await broker.replicas.follow(broker.image, broker.rows)
        broker.files.capacity_bytes = 0
        leader.append()
        await until(lambda: list(broker.replicas.offline()) == [(TOPIC_ID, 0)])
        assert list(broker.replicas.cut()) == []
        await broker.report()
        assert broker.image.partitions[TOPIC_ID][0].elr == (0,), "it has what it had"
        shutil.rmtree(tmp_path / "logs" / "clicks-0")
        broker.files.capacity_bytes = None
        await broker.replicas.reopen_failed()
        assert list(broker.replicas.cut()) == [(TOPIC_ID, 0)]
        await broker.report()
        assert broker.image.partitions[TOPIC_ID][0].elr == ()
        await broker.replicas.reopen_failed()
        await until(lambda: leader.counted_end == 1)
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


def test_a_follower_that_loses_what_its_leader_counts_just_as_it_is_elected_does_not_lead(tmp_path: Path) -> None:
    """Its flush hangs, and fails once the election waits for it."""

    async def run() -> None:
        leader, replica = LeaderOfOne(tmp_path / "leader"), (TOPIC_ID, 0)
        broker = Broker(tmp_path / "logs", leader, **{"flush.ms": "100"})
        (tmp_path / "logs").mkdir()
        await broker.replicas.follow(broker.image, broker.rows)
        leader.append()
        await until(lambda: leader.counted_end == 1)
        broker.clock.advance(100)
        broker.hangs = True
        flush = broker.upkeep().flush_if_due()
        assert flush is not None
        flushing = asyncio.ensure_future(flush)
        await until(lambda: not broker.hangs)
        elected = PartitionRegistration(0, 6, (0, 1), (0,), elr=(1,), partition_epoch=4)
        broker.image = replace(broker.image, version=2, partitions={TOPIC_ID: (elected,)})
        following = asyncio.ensure_future(broker.replicas.follow(broker.image))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not flushing.done() and not following.done()
        broker.files.failing_syncs = 1
        broker.goes_on.set()
        await asyncio.gather(flushing, following)
        assert list(broker.replicas.cut()) == [replica]
        assert broker.partition is not None and broker.partition.is_offline
        await broker.report()
        registered = broker.image.partitions[TOPIC_ID][0]
        assert (registered.leader, registered.isr, registered.elr) == (1, (1,), ())
        await broker.replicas.reopen_failed()
        assert broker.replicas.fetchers.find(replica) is not None
        await broker.replicas.stop_following()

    asyncio.run(run())
