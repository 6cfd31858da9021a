"""Leaders and followers in one process: real logs, and between them a network of calls that tests cut, hold and corrupt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from broker.throttled import Throttle
from manual_clock import ManualClock
from storage.partition_logs import open_log

from kafkalake.broker.partitions.fetchers import Fetchers
from kafkalake.broker.partitions.followed_reads import FollowedReads
from kafkalake.broker.partitions.followers import Follower
from kafkalake.broker.partitions.leader_replicas import (
    AskedReplica,
    AskedSegment,
    FetchedReplica,
    FetchLimits,
    ReplicaId,
    SegmentPart,
)
from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.replication import EpochEnd, diverging_epoch
from kafkalake.config.layers import Settings
from kafkalake.errors import (
    BrokerRefusedError,
    FencedLeaderEpochError,
    KafkaError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from kafkalake.storage.files import REAL_FILES, Files
from kafkalake.storage.log import Log
from kafkalake.storage.replica_read import NEVER
from kafkalake.storage.segment_names import DATA_SUFFIX

TOPIC = UUID(int=7)
LEADER, FOLLOWER = 1, 2
TURNS = 50
PART_BYTES = 1_000


class LeadersHere:
    """`LeaderReplicas` over logs in this process. Each answer is that of the leader's broker.

    refused: the partitions that answer with an error. is_cut: no broker is reached. `asked`: every request. A request with
    nothing to answer waits until `appended` is called.
    """

    def __init__(self) -> None:
        self.logs: dict[ReplicaId, tuple[Log, int]] = {}
        self.refused: dict[ReplicaId, KafkaError] = {}
        self.is_cut = False
        self.asked: list[Sequence[AskedReplica]] = []
        self.parts: list[int] = []
        self.whole_from_bytes = NEVER
        self.breaks_after: int | None = None
        """The number of parts of segments after which one connection breaks."""
        self.change: Callable[[FetchedReplica], None] = lambda fetched: None
        self._moved = asyncio.Event()
        self._known: dict[ReplicaId, int] = {}

    def lead(self, replica: ReplicaId, log: Log, epoch: int) -> None:
        self.logs[replica] = log, epoch
        self.appended()

    def appended(self) -> None:
        self._moved.set()

    async def fetch(
        self,
        leader_id: int,
        fetcher: int,
        replicas: Mapping[ReplicaId, AskedReplica],
        changed: Collection[ReplicaId],
        limits: FetchLimits,
    ) -> Sequence[FetchedReplica]:
        asked = list(replicas.values())
        self.asked.append(asked)
        while True:
            if self.is_cut:
                raise BrokerRefusedError("cut off")
            self._moved.clear()
            answers = [self._answer(each, limits) for each in asked]
            found = [each for each, question in zip(answers, asked, strict=True) if self._is_news(each, question)]
            if found:
                for each in found:
                    self.change(each)
                return found
            await self._moved.wait()

    def _is_news(self, answer: FetchedReplica, asked: AskedReplica) -> bool:
        return (
            len(answer.messages) > 0
            or answer.error is not None
            or answer.diverging is not None
            or answer.whole is not None
            or answer.high_watermark > asked.high_watermark
            or answer.log_start_offset > asked.log_start_offset
        )

    def _answer(self, asked: AskedReplica, limits: FetchLimits) -> FetchedReplica:
        try:
            return self._read(asked)
        except OffsetOutOfRangeError as error:
            log, _ = self.logs[asked.replica]
            return FetchedReplica(
                asked.replica,
                error,
                log.high_watermark,
                log.log_start_offset,
                segment_base_offset=log.replica_start_offset,
            )
        except KafkaError as error:
            return FetchedReplica(asked.replica, error)

    def _read(self, asked: AskedReplica) -> FetchedReplica:
        if asked.replica in self.refused:
            raise self.refused[asked.replica]
        if asked.replica not in self.logs:
            raise NotLeaderOrFollowerError()
        log, epoch = self.logs[asked.replica]
        if asked.leader_epoch != epoch:
            raise FencedLeaderEpochError() if asked.leader_epoch < epoch else UnknownLeaderEpochError()
        answer = FetchedReplica(asked.replica, None, log.high_watermark, log.log_start_offset)
        if asked.last_epoch >= 0:
            own = EpochEnd(*log.end_offset_for_epoch(asked.last_epoch))
            answer.diverging = diverging_epoch(asked.last_epoch, asked.offset, own, log.log_start_offset)
        if answer.diverging is None:
            read = log.read_replica(asked.offset, asked.max_bytes, self.whole_from_bytes)
            answer.messages, answer.segment_base_offset = read.messages, read.segment_base_offset
            answer.ends_segment, answer.whole = read.ends_segment, read.whole
        return answer

    async def fetch_segment(self, leader_id: int, asked: AskedSegment, position: int, timeout_ms: int) -> SegmentPart:
        self.parts.append(position)
        if self.is_cut or len(self.parts) - 1 == self.breaks_after:
            raise BrokerRefusedError("cut off")
        if asked.replica in self.refused:
            raise self.refused[asked.replica]
        log, _ = self.logs[asked.replica]
        whole = log.segment_reference(asked.base_offset, asked.generation)
        return SegmentPart(whole, memoryview(log.read_segment_file(whole, position, PART_BYTES)))


class ReplicaPairs:
    """A broker that follows partitions 0, 1, ... of one topic. Its clock, and so its pauses, moves by `advance` only."""

    def __init__(
        self, root: Path, files: Files = REAL_FILES, leaders: LeadersHere | None = None, **settings: Any
    ) -> None:
        self.root = root
        self.clock = ManualClock()
        self.files = files
        self.leaders = leaders or LeadersHere()
        self.failed: dict[ReplicaId, KafkaError] = {}
        self.eligible: set[ReplicaId] = set()
        self.in_thread = 0
        self._later: list[tuple[int, Callable[[], None]]] = []
        config = Settings({name.replace("_", "."): str(value) for name, value in settings.items()}).broker
        self.topics = Topics(ClusterImage("lake"))
        self.topics.add(Topic("t", TOPIC, {}, Settings({}).topic({}), 0))
        self.throttled = Throttle(self.clock, self.topics, self._do_later)
        self.purgatory = Purgatory(Timers(self.clock))
        self.reads = FollowedReads(lambda replica: self.fetchers.find(replica), self.purgatory)
        self.fetchers = Fetchers(
            self.leaders,
            self.clock,
            lambda: config,
            self._run_blocking,
            self._do_later,
            self.reads,
            self.throttled.throttle,
            lambda follower, error: self.failed.update({follower.replica: error}),
            lambda replica: replica in self.eligible,
        )

    def _do_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._later.append((self.clock.monotonic_ms() + delay_ms, action))

    async def _run_blocking(self, work: Callable[[], Any]) -> Any:
        self.in_thread += 1
        return await asyncio.to_thread(work)

    def log(self, broker: str, number: int = 0, **config: object) -> Log:
        """The log of a replica, opened anew each time."""
        config.setdefault("segment_bytes", 5_000)
        files = self.files if broker == "follower" else REAL_FILES
        return open_log(self.root / broker / str(number), self.clock, files, **config)

    def follow(self, log: Log, epoch: int, number: int = 0) -> Follower:
        """Have a log follow the leader of its partition in an epoch."""
        follower = Follower((TOPIC, number), f"t-{number}", log, LEADER, epoch)
        self.fetchers.follow(follower)
        return follower

    async def advance(self, milliseconds: int) -> None:
        """Move the clock, and let what is due run."""
        self.clock.advance(milliseconds)
        due = [each for each in self._later if each[0] <= self.clock.monotonic_ms()]
        self._later = [each for each in self._later if each not in due]
        for _, action in due:
            action()
        await self.turns()

    async def pass_pause(self, follower: Follower) -> None:
        """Wait until a follower pauses after an error, and let its pause pass."""
        await self.until(lambda: follower.retry_ms > self.clock.monotonic_ms())
        await self.advance(follower.retry_ms - self.clock.monotonic_ms())

    async def turns(self) -> None:
        """Let everything run that is ready."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition. Time stands still."""
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.001)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test on an event loop of its own."""

    async def main() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(main())


def data_of(log: Log) -> dict[str, bytes]:
    """The data files of a log, without one that is removed meanwhile, as by a follower that begins anew."""
    found = {}
    for each in sorted(Path(log.directory).iterdir()):
        if each.suffix == DATA_SUFFIX:
            with suppress(FileNotFoundError):
                found[each.name] = each.read_bytes()
    return found
