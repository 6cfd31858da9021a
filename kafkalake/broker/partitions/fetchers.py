"""Fetches the partitions that this broker follows from their leaders: one request under way for each leader.

A request asks for every partition of that leader that is due, and waits at the leader for records (`replica.fetch.wait.max.ms`).
In a session it names only those that are asked for otherwise than before (`fetch_session`). If partitions become due meanwhile, a
second request follows on the same connection. Answers are applied in turn: small ones at once, large ones and those that read or
force files in a thread. A partition with an error is fetched again after a pause; it delays no other one.

A little more than 400 lines: a fetcher's turn, from what is due to what has become of each answer.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kafkalake.broker.partitions.followed_reads import FollowedReads
from kafkalake.broker.partitions.followers import PAUSE_MS_MIN, Follower
from kafkalake.broker.partitions.leader_replicas import (
    AskedReplica,
    FetchedReplica,
    FetchLimits,
    LeaderReplicas,
    ReplicaId,
    Segment,
)
from kafkalake.broker.partitions.replication_throttle import ReplicationThrottle
from kafkalake.broker.partitions.segment_copies import SegmentCopies
from kafkalake.clock import Clock
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import (
    DivergedLogError,
    KafkaError,
    KafkaLakeError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    as_value,
)
from kafkalake.run_blocking import TURN_NS, RunBlocking
from kafkalake.storage.generations import RewrittenSegment

logger = logging.getLogger(__name__)

INLINE_BYTES = 1024 * 1024
"""Bytes of messages that are appended on the event loop. More are appended in a thread, which costs more processor time.

It is as much as one partition has in an answer by default.
"""
_REQUESTS_MAX = 2

Outcome = tuple[Follower, FetchedReplica, KafkaLakeError | None]


class Fetchers:
    """The replicas that follow, by the leaders that they follow. Used on the event loop's thread."""

    def __init__(
        self,
        leaders: LeaderReplicas,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        run_blocking: RunBlocking,
        later: Callable[[int, Callable[[], None]], object],
        reads: FollowedReads,
        throttle: ReplicationThrottle,
        failed: Callable[[Follower, KafkaError], None],
        may_lead: Callable[[ReplicaId], bool],
    ) -> None:
        """`later(delay_ms, action)` runs an action after a delay. `reads`: by consumers. `throttle`: of what is fetched.

        `failed` is called with a follower whose log cannot be used any more. It is not fetched any more then.
        `may_lead` returns whether a replica may be elected, so that no record of its log may be removed.
        """
        self.leaders = leaders
        self.clock = clock
        self.config = config
        self.run_blocking = run_blocking
        self.later = later
        self.reads = reads
        self.may_lead = may_lead
        self.throttle = throttle
        self.copies = SegmentCopies(leaders, config, run_blocking, throttle)
        self._failed = failed
        self._followers: dict[ReplicaId, Follower] = {}
        self._fetchers: dict[tuple[int, int], _Fetcher] = {}

    def find(self, replica: ReplicaId) -> Follower | None:
        """Return the follower, None if the replica follows nobody."""
        return self._followers.get(replica)

    def followers(self) -> Collection[Follower]:
        """Return all followers."""
        return self._followers.values()

    def follow(self, follower: Follower) -> None:
        """Fetch a replica from its leader from now on."""
        assert follower.replica not in self._followers
        self._followers[follower.replica] = follower
        self._fetcher(follower).add(follower)

    def _fetcher(self, follower: Follower) -> _Fetcher:
        key = follower.leader_id, hash(follower.replica) % max(self.config().num_replica_fetchers, 1)
        found = self._fetchers.get(key)
        if found is None or found.is_ended:
            found = self._fetchers[key] = _Fetcher(self, *key)
        return found

    async def stop(self, replicas: Iterable[ReplicaId]) -> list[Follower]:
        """Fetch these replicas no more and return those that followed, once nothing uses their logs."""
        stopped = [follower for each in replicas if (follower := self._followers.pop(each, None)) is not None]
        for fetcher in list(self._fetchers.values()):
            for follower in stopped:
                fetcher.remove(follower.replica)
        await _end(
            {task for each in stopped for task in each.tasks}, {work for each in stopped for work in each.under_way}
        )
        self.copies.forget(stopped)
        self.reads.end(stopped)
        for key, fetcher in list(self._fetchers.items()):
            if fetcher.is_empty:
                del self._fetchers[key]
                fetcher.stop()
        return stopped

    def take_rewritten(self, follower: Follower, rewritten: Sequence[RewrittenSegment]) -> None:
        """Take newer generations of segments that the follower has, one after the other, while its messages are fetched.

        One may fail, and is then taken later. The files that they replace are removed once `file.delete.delay.ms` is over.
        """

        async def take() -> None:
            log = follower.log
            try:
                for each in rewritten:
                    if not await self.copies.adopt(follower, each):
                        await self.copies.copy(follower, each.base_offset, each.generation)
            except KafkaLakeError as error:
                logger.info("rewritten segment not copied partition=%s error=%s", follower.name, error)
            self.later(log.config.file_delete_delay_ms + 1, log.remove_deleted_files)

        if not follower.tasks:
            follower.copy_by(asyncio.get_running_loop().create_task(take()), is_next=False)

    async def stop_all(self) -> list[Follower]:
        """Fetch nothing more."""
        return await self.stop(list(self._followers))

    async def flush(self, follower: Follower, *, sealed_only: bool = False) -> None:
        """Force a follower's records to disk, or its sealed segments, while more are fetched. It is offline if that fails."""
        if self._followers.get(follower.replica) is not follower:
            return
        work = asyncio.ensure_future(self.run_blocking(partial(follower.flush, sealed_only=sealed_only)))
        follower.work_until(work)
        try:
            await asyncio.shield(work)
        except KafkaStorageError as error:
            self.take_offline(follower, as_value(error))

    def take_offline(self, follower: Follower, error: KafkaError) -> None:
        """Fetch a follower no more, whose log has failed."""
        if self._followers.get(follower.replica) is follower:
            del self._followers[follower.replica]
            for fetcher in self._fetchers.values():
                fetcher.remove(follower.replica)
            for task in follower.tasks:
                task.cancel()
            self.copies.forget([follower])
            self._failed(follower, error)
            self.reads.end([follower])


class _Fetcher:
    """The partitions fetched from one leader."""

    def __init__(self, fetchers: Fetchers, leader_id: int, number: int) -> None:
        self._fetchers = fetchers
        self._leader_id = leader_id
        self._number = number
        self._followers: dict[ReplicaId, Follower] = {}
        self._asked: dict[ReplicaId, AskedReplica] = {}
        """What is asked for of each partition that is due, in turn: those that changed last come last."""
        self._changed: dict[ReplicaId, None] = {}
        """The partitions of which that is to be looked at: what they ask for, or whether they are due, may have changed."""
        self._untold: dict[ReplicaId, None] = {}
        """The partitions of which the leader has not been told since they changed."""
        self.is_ended = False
        self._is_woken = False
        self._under_way = 0
        """The number of requests, or of tasks that look whether there is one."""
        self._retry_ms = 0
        self._pause_ms = 0
        self._held_back_until_ms = 0
        self._applying = asyncio.Lock()
        self._rounds: set[asyncio.Task[None]] = set()

    @property
    def is_empty(self) -> bool:
        return not self._followers

    def add(self, follower: Follower) -> None:
        self._followers[follower.replica] = follower
        self._changed[follower.replica] = None
        self.wake()

    def remove(self, replica: ReplicaId) -> None:
        if self._followers.pop(replica, None) is not None:
            self._changed[replica] = None

    def stop(self) -> None:
        self.is_ended = True
        for each in self._rounds:
            each.cancel()

    def wake(self) -> None:
        """Fetch what is due, without waiting for the answer that is awaited now."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a request if there may be another one. If not, one begins when one of those under way has ended."""
        if self._is_woken and self._under_way < _REQUESTS_MAX and not self.is_ended:
            self._is_woken = False
            self._under_way += 1
            task = asyncio.get_running_loop().create_task(self._fetch_on())
            self._rounds.add(task)
            task.add_done_callback(self._rounds.discard)

    async def _fetch_on(self) -> None:
        """Fetch what is due, again and again, until nothing is due or the other request is enough."""
        try:
            while True:
                self._look_at_changed()
                if not self._asked or self._is_pausing():
                    break
                changed, self._untold = self._untold, {}
                await self._round(dict(self._asked), changed)
                if self._under_way == _REQUESTS_MAX and not self._is_woken:
                    break
                self._is_woken = False
        finally:
            self._under_way -= 1

    def _is_pausing(self) -> bool:
        return self._fetchers.clock.monotonic_ms() < self._retry_ms

    def _is_due(self, follower: Follower, now_ms: int) -> bool:
        """Return whether a follower is fetched now. Those that a throttle holds back are looked at again when it may be over."""
        if not follower.is_due(now_ms):
            return False
        wait_ms = 0 if follower.is_in_sync else self._fetchers.throttle.wait_ms(follower.replica)
        if wait_ms and self._held_back_until_ms <= now_ms:
            self._held_back_until_ms = now_ms + wait_ms
            self._fetchers.later(wait_ms, self.wake)
        return not wait_ms

    def _look_at_changed(self) -> None:
        """Bring what is asked for up to date. Partitions that are not due are looked at again."""
        changed, self._changed = self._changed, {}
        self._untold.update(changed)
        now_ms, max_bytes = self._fetchers.clock.monotonic_ms(), self._fetchers.config().replica_fetch_max_bytes
        for replica in changed:
            self._asked.pop(replica, None)
            if (follower := self._followers.get(replica)) is None:
                continue
            if self._is_due(follower, now_ms):
                self._asked[replica] = follower.ask(max_bytes)
            else:
                self._changed[replica] = None

    async def _round(self, asked: Mapping[ReplicaId, AskedReplica], changed: Collection[ReplicaId]) -> None:
        """Fetch once, and apply the answers. Whatever fails is tried again after a pause."""
        leaders = self._fetchers.leaders
        try:
            answers = await leaders.fetch(self._leader_id, self._number, asked, changed, self._limits())
        except KafkaLakeError as error:
            self._pause(as_value(error))
            return
        except Exception:
            logger.exception("fetching failed leader=%d", self._leader_id)
            self._pause(KafkaError())
            return
        self._pause_ms = 0
        async with self._applying:
            now_ms = self._fetchers.clock.monotonic_ms()
            try:
                await self._apply([pair for each in answers if (pair := self._addressee(each, asked, now_ms))])
            except Exception:
                logger.exception("answers not applied leader=%d", self._leader_id)
                self._changed.update(dict.fromkeys(asked))
                self._pause(KafkaError())

    def _addressee(
        self, fetched: FetchedReplica, asked: Mapping[ReplicaId, AskedReplica], now_ms: int
    ) -> tuple[Follower, FetchedReplica] | None:
        """Return the follower with an answer that still continues its log, None if there is none."""
        follower, question = self._followers.get(fetched.replica), asked.get(fetched.replica)
        if follower is None or question is None or not (follower.is_due(now_ms) and follower.has_answer(question)):
            return None
        return follower, fetched

    def _limits(self) -> FetchLimits:
        config = self._fetchers.config()
        return FetchLimits(
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_socket_timeout_ms,
        )

    def _pause(self, error: KafkaLakeError) -> None:
        """Ask this leader again after a pause."""
        config, clock = self._fetchers.config(), self._fetchers.clock
        if not self._pause_ms:
            logger.warning("leader not reached broker=%d error=%s", self._leader_id, error)
        self._pause_ms = min(max(2 * self._pause_ms, PAUSE_MS_MIN), config.replica_fetch_backoff_ms)
        self._retry_ms = clock.monotonic_ms() + self._pause_ms
        self._fetchers.later(self._pause_ms, self.wake)

    # Answers

    async def _apply(self, fetched: Sequence[tuple[Follower, FetchedReplica]]) -> None:
        usable: list[tuple[Follower, FetchedReplica]] = []
        size, needs_thread = 0, False
        for follower, each in fetched:
            if each.error is not None and not isinstance(each.error, OffsetOutOfRangeError):
                self._put_off(follower, each.error)
            else:
                usable.append((follower, each))
                size += len(each.messages)
                needs_thread = needs_thread or follower.needs_thread(each)
        if size > INLINE_BYTES or needs_thread:
            for outcome in await self._take_in_thread(usable):
                self._settle(*outcome)
            return
        now_ns = self._fetchers.clock.monotonic_ns
        yielded_ns = now_ns()
        for follower, each in usable:
            if follower.replica in self._followers:
                self._settle(follower, each, _take(follower, each))
            if now_ns() - yielded_ns > TURN_NS:
                await asyncio.sleep(0)
                yielded_ns = now_ns()

    async def _take_in_thread(self, usable: Sequence[tuple[Follower, FetchedReplica]]) -> list[Outcome]:
        work: asyncio.Future[list[Outcome]] = asyncio.ensure_future(
            self._fetchers.run_blocking(lambda: [(follower, each, _take(follower, each)) for follower, each in usable])
        )
        for follower, _ in usable:
            follower.work_until(work)
        return await asyncio.shield(work)

    def _settle(self, follower: Follower, fetched: FetchedReplica, error: KafkaLakeError | None) -> None:
        """Note what has become of a follower."""
        if self._followers.get(follower.replica) is not follower:
            return
        self._changed[follower.replica] = None
        if isinstance(error, KafkaStorageError):
            self._fetchers.take_offline(follower, error)
        elif isinstance(error, DivergedLogError):
            self._refill(follower, error)
        elif error is not None:
            self._put_off(follower, error)
        else:
            if follower.succeeded():
                logger.info("replica fetched again partition=%s leader=%d", follower.name, self._leader_id)
            if fetched.whole is not None:
                copying = asyncio.get_running_loop().create_task(self._copy(follower, fetched.whole))
                follower.copy_by(copying, is_next=True)
            elif len(fetched.messages):
                self._fetchers.copies.drop_ahead(follower)
            self._fetchers.throttle.count(follower.replica, len(fetched.messages))
            self._fetchers.reads.advanced(follower, len(fetched.messages))

    async def _copy(self, follower: Follower, segment: Segment) -> None:
        """Copy the segment with which the log continues, and fetch it then."""
        error: KafkaLakeError | None = None
        try:
            await self._fetchers.copies.copy(follower, segment.base_offset, segment.generation)
        except Exception:
            error = _caught(follower)
        if self._followers.get(follower.replica) is follower:
            if isinstance(error, DivergedLogError):
                self._refill(follower, error)
            elif isinstance(error, KafkaStorageError) and follower.log.was_cut:
                self._fetchers.take_offline(follower, error)
            elif error is not None:
                self._put_off(follower, error)
        asyncio.get_running_loop().call_soon(self.wake)  # when this task has ended

    def _refill(self, follower: Follower, error: DivergedLogError) -> None:
        """Have a log copied again that is no prefix of its leader's.

        Not while the replica may be elected: it lags, so its leader has it leave the ISR. And not for ever.
        """
        if self._fetchers.may_lead(follower.replica) or not follower.may_be_refilled:
            self._put_off(follower, error)
            return
        logger.warning("log has parted from its leader's partition=%s error=%s", follower.name, error)
        follower.copy_by(asyncio.get_running_loop().create_task(self._refill_in_thread(follower)), is_next=True)

    async def _refill_in_thread(self, follower: Follower) -> None:
        work = asyncio.ensure_future(self._fetchers.run_blocking(follower.refill))
        follower.work_until(work)
        try:
            await asyncio.shield(work)
        except KafkaStorageError as error:
            if self._followers.get(follower.replica) is follower:
                self._fetchers.take_offline(follower, as_value(error))
        except Exception:
            self._put_off(follower, _caught(follower))
        asyncio.get_running_loop().call_soon(self.wake)  # when this task has ended

    def _put_off(self, follower: Follower, error: KafkaLakeError) -> None:
        """Fetch a partition again after a pause."""
        fetchers = self._fetchers
        self._changed[follower.replica] = None
        pause_ms = follower.pause(fetchers.clock.monotonic_ms(), fetchers.config().replica_fetch_backoff_ms)
        if pause_ms == PAUSE_MS_MIN:
            logger.warning("replica not fetched partition=%s leader=%d error=%s", follower.name, self._leader_id, error)
        fetchers.later(pause_ms, self.wake)


async def _end(tasks: Iterable[asyncio.Task[None]], work: set[asyncio.Future[Any]]) -> None:
    """Cancel the tasks, and wait for them and for the work of threads."""
    waited: set[asyncio.Future[Any]] = set(work)
    for task in tasks:
        task.cancel()
        waited.add(task)
    if waited:
        await asyncio.wait(waited)


def _take(follower: Follower, fetched: FetchedReplica) -> KafkaLakeError | None:
    """Apply an answer, and return its error as a value: one partition's error concerns no other."""
    try:
        follower.take(fetched)
    except Exception:
        return _caught(follower)
    return None


def _caught(follower: Follower) -> KafkaLakeError:
    """Return the error that is being handled as a value. One that nobody expects is logged: its partition is fetched again, too."""
    error = sys.exception()
    if isinstance(error, KafkaLakeError):
        return as_value(error)
    logger.exception("unexpected error of a follower partition=%s", follower.name)
    return KafkaError(repr(error))
