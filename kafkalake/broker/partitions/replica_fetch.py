"""Fetches of the brokers that follow partitions led here: whole Arrow messages up to the log end, as they lie in the files.

A fetch at an offset is also the follower's word that it has all before, which moves the high watermark and the ISR (`isr_changes`).
It waits for bytes beyond the log end, not the high watermark. A follower that does not know the newest watermark of its records is
answered within `WATERMARK_MS`, with the next records if they come before, so that records cost it one fetch and not two; at once if
consumers may read from it (`replica.selector.class`). A fetch in a session (`follower_sessions`) reads what has changed.

A partition's answer has at least one message if there is one and no partition before it has any; a message is never cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field

from kafkalake.broker.partitions.fetch import corrupt
from kafkalake.broker.partitions.follower_fetch import FollowedAnswer, FollowedPartition, FollowerFetch
from kafkalake.broker.partitions.follower_sessions import FollowerSession, FollowerSessions
from kafkalake.broker.partitions.isr_changes import IsrChanges
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.purgatory import DelayedOperation, Purgatory
from kafkalake.broker.partitions.replication_throttle import ReplicationThrottle
from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.partition_changes import ANY_EPOCH
from kafkalake.cluster.replication import EpochEnd, ReplicaFetch, check_replica, diverging_epoch
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import (
    CorruptSegmentError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    as_value,
)
from kafkalake.storage.replica_read import SegmentRef

logger = logging.getLogger(__name__)

WATERMARK_MS = 25
"""How long a follower that waits for records may not know the newest high watermark."""
SEGMENT_BYTES_MAX = 4 * 1024 * 1024
"""The limit on bytes of a segment's file in one answer."""
WHOLE_FROM_BYTES = 2 * SEGMENT_BYTES_MAX
"""The size from which on a sealed segment is copied as a file by a follower that has nothing of it."""


@dataclass(slots=True)
class _Pass:
    """The result of one pass over the partitions. watched: of each partition the bytes appended when it was read."""

    answers: list[FollowedAnswer] = field(default_factory=list)
    watched: dict[Partition, int] = field(default_factory=dict)
    asked: dict[Partition, FollowedPartition] = field(default_factory=dict)
    bytes: int = 0
    is_urgent: bool = False
    is_behind: bool = False


Reply = Callable[[list[FollowedAnswer], int], None]
"""Called with the answers and the id of the session, 0 without one."""


class ReplicaFetchService:
    """The reader of followers' fetches."""

    def __init__(
        self,
        topics: Topics,
        purgatory: Purgatory,
        changes: IsrChanges,
        sessions: FollowerSessions,
        throttle: ReplicationThrottle,
        config: Callable[[], BrokerConfig],
    ) -> None:
        """`sessions`: of the followers. `throttle`: of what is sent to them."""
        self._topics = topics
        self._purgatory = purgatory
        self._changes = changes
        self._sessions = sessions
        self._throttle = throttle
        self._config = config

    def fetch(self, request: FollowerFetch, reply: Reply) -> Generator[None, None, DelayedOperation | None]:
        """Answer now and return None, or return the operation that waits in the purgatory. Yields between partitions.

        Raise as `FollowerSessions.begin`.
        """
        session = self._sessions.begin(request, self._registered_epoch(request))
        if session is not None:
            return (yield from self._fetch_in(session, request, reply))
        found = _Pass()
        yield from self._read_into(found, request, request.partitions, is_new=True)
        if self._is_ready(found, request) or not request.partitions:
            reply(found.answers, 0)
            return None
        operation = _WaitingFetch(self, request, found, reply)
        if any(operation.is_complete(partition) for partition in found.watched):
            operation.complete()
            return None
        self._purgatory.watch(operation, found.watched, operation.wait_ms)
        return operation

    def _fetch_in(
        self, session: FollowerSession, request: FollowerFetch, reply: Reply
    ) -> Generator[None, None, DelayedOperation | None]:
        found = _Pass()
        yield from self._read_changed(found, session, request, is_new=True)
        if self._is_ready(found, request):
            reply(session.settle(found.answers), session.session_id)
            return None
        session.keep_changed(found.answers)
        operation = _WaitingInSession(self, session, request, found, reply)
        if any(operation.is_complete(partition) for partition in (*found.watched, *session.find_moved())):
            operation.complete()
            return None
        session.wait(operation, operation.wait_ms)
        return operation

    def _is_ready(self, found: _Pass, request: FollowerFetch) -> bool:
        if found.is_behind and self.tells_watermarks_at_once:
            return True
        return found.is_urgent or found.bytes >= request.bytes_min or request.wait_ms <= 0

    @property
    def tells_watermarks_at_once(self) -> bool:
        """Return whether consumers may read from followers, up to the watermark that those know."""
        return self._config().replica_selector_class is not None

    def hasten(self, operation: DelayedOperation) -> None:
        """Answer a fetch that waits within `WATERMARK_MS`."""
        self._purgatory.hasten(operation, WATERMARK_MS)

    def read_again(self, request: FollowerFetch) -> list[FollowedAnswer]:
        """Return the answers of a request that has waited."""
        found = _Pass()
        for _ in self._read_into(found, request, request.partitions, is_new=False):
            pass
        return found.answers

    def read_changed(self, session: FollowerSession, request: FollowerFetch) -> list[FollowedAnswer]:
        """Return the answers of a request of a session that has waited."""
        found = _Pass()
        for _ in self._read_changed(found, session, request, is_new=False):
            pass
        return session.settle(found.answers)

    def _read_changed(
        self, found: _Pass, session: FollowerSession, request: FollowerFetch, *, is_new: bool
    ) -> Generator[None, None, None]:
        keys = session.take_changed()
        asked = [followed.asked for key in keys if (followed := session.find(key)) is not None]
        yield from self._read_into(found, request, asked, is_new=is_new, session=session)

    def segment(self, request: FollowerFetch, generation: int) -> tuple[Partition, SegmentRef]:
        """Return the partition and the whole segment that begin at the offset asked for.

        Raise as a fetch, `OffsetOutOfRangeError` if no segment of that generation begins there.
        """
        (asked,) = request.partitions
        partition = self._find(request, asked)
        return partition, partition.log.segment_reference(asked.offset, generation)

    def _read_into(
        self,
        found: _Pass,
        request: FollowerFetch,
        partitions: Sequence[FollowedPartition],
        *,
        is_new: bool,
        session: FollowerSession | None = None,
    ) -> Generator[None, None, None]:
        for asked in partitions:
            answer = FollowedAnswer(asked)
            try:
                partition = self._find(request, asked)
                if session is not None:
                    session.read(partition, asked)
                found.watched[partition] = partition.appended_bytes
                found.asked[partition] = asked
                left = request.bytes_max - found.bytes
                limit = 0 if self.is_held_back(partition, request) else left if found.bytes else max(left, 1)
                self._read(partition, request, answer, limit, is_new=is_new)
                self._throttle.count(partition.replica, answer.bytes)
            except KafkaError as error:
                answer.error = as_value(error)
            except CorruptSegmentError as error:
                answer.error = corrupt(error)
            except Exception:  # one bad partition must not affect the others
                logger.exception("replica fetch failed topic_id=%s partition=%d", asked.topic_id, asked.number)
                answer.error = KafkaError("the partition cannot be read")
            if answer.error is not None:
                answer.read = None
            found.bytes += answer.bytes
            found.is_urgent |= answer.is_urgent
            found.is_behind |= answer.is_behind
            found.answers.append(answer)
            yield

    def is_held_back(self, partition: Partition, request: FollowerFetch) -> bool:
        """Return whether a throttle keeps the records of a partition from a follower now. It is outside of the ISR."""
        return request.broker_id not in partition.leadership.isr and self._throttle.holds_back(partition.replica)

    async def pause(self, partition: Partition, request: FollowerFetch, size: int) -> None:
        """Wait while a throttle keeps a partition from a follower, then count the bytes of a segment that are sent."""
        if self.is_held_back(partition, request):
            await self._throttle.pause(partition.replica)
        self._throttle.count(partition.replica, size)

    def _find(self, request: FollowerFetch, asked: FollowedPartition) -> Partition:
        """Return the partition.

        Raise `UnknownTopicIdError`, `NotLeaderOrFollowerError`, the error of another leader epoch, that of `check_replica`.
        """
        topic = self._topics.find_id(asked.topic_id)
        if topic is None:
            raise UnknownTopicIdError()
        partition = topic.leader(asked.number)
        partition.check_leader_epoch(asked.leader_epoch)
        registered = self._registered_epoch(request)
        check_replica(partition.leadership, _fetch_of(request, asked), ANY_EPOCH if registered is None else registered)
        return partition

    def _registered_epoch(self, request: FollowerFetch) -> int | None:
        broker = self._topics.image.brokers.get(request.broker_id)
        return None if broker is None else broker.epoch

    def _read(
        self, partition: Partition, request: FollowerFetch, answer: FollowedAnswer, bytes_max: int, *, is_new: bool
    ) -> None:
        """Fill the answer, after counting the fetch. `bytes_max` 0: without messages."""
        asked, log = answer.asked, partition.log
        answer.log_start_offset, answer.high_watermark = log.log_start_offset, log.high_watermark
        try:
            if asked.last_fetched_epoch >= 0:
                own = EpochEnd(*log.end_offset_for_epoch(asked.last_fetched_epoch))
                answer.diverging = diverging_epoch(
                    asked.last_fetched_epoch, asked.offset, own, log.replica_start_offset
                )
            if answer.diverging is not None:
                return  # whatever the offset is: a log that parts from this one may be longer
            if bytes_max > 0 or asked.offset == log.log_end_offset:
                answer.read = log.read_replica(asked.offset, min(asked.bytes_max, bytes_max), WHOLE_FROM_BYTES)
            elif not log.replica_start_offset <= asked.offset <= log.log_end_offset:
                raise OffsetOutOfRangeError()
        except OffsetOutOfRangeError:
            answer.segment_base_offset = log.replica_start_offset
            raise
        if is_new:
            self._changes.note_fetch(partition, _fetch_of(request, asked))
        answer.high_watermark, answer.last_stable_offset = log.high_watermark, log.last_stable_offset
        if answer.read is not None:
            answer.segment_base_offset = answer.read.segment_base_offset


def _fetch_of(request: FollowerFetch, asked: FollowedPartition) -> ReplicaFetch:
    return ReplicaFetch(request.broker_id, request.broker_epoch, asked.offset, asked.log_start_offset)


class _Waiting(DelayedOperation):
    """A follower's fetch that waits for bytes, a newer watermark, or the end of the leadership."""

    def __init__(self, service: ReplicaFetchService, request: FollowerFetch, found: _Pass, reply: Reply) -> None:
        super().__init__()
        self._service = service
        self._request = request
        self._reply = reply
        self._bytes_wanted = request.bytes_min - found.bytes
        self._is_behind = found.is_behind

    @property
    def wait_ms(self) -> int:
        """Return how long it waits, from its beginning on."""
        return min(self._request.wait_ms, WATERMARK_MS) if self._is_behind else self._request.wait_ms

    def _has_enough(self, partition: Partition, asked: FollowedPartition, appended_bytes: int) -> bool:
        """Return whether it is answered now, after these bytes were appended to a partition."""
        if not self._service.is_held_back(partition, self._request):
            self._bytes_wanted -= appended_bytes
        if self._bytes_wanted <= 0 or _has_moved(partition, asked):
            return True
        if not self._is_behind and asked.is_behind(partition.log.high_watermark):
            self._is_behind = True
            self._service.hasten(self)
        return self._is_behind and self._service.tells_watermarks_at_once


class _WaitingFetch(_Waiting):
    """One without a session."""

    def __init__(self, service: ReplicaFetchService, request: FollowerFetch, found: _Pass, reply: Reply) -> None:
        super().__init__(service, request, found, reply)
        self._asked = found.asked
        self._bytes_seen = found.watched

    def is_complete(self, key: Hashable) -> bool:
        assert isinstance(key, Partition)
        before, self._bytes_seen[key] = self._bytes_seen[key], key.appended_bytes
        return self._has_enough(key, self._asked[key], key.appended_bytes - before)

    def complete(self) -> None:
        self._reply(self._service.read_again(self._request), 0)


class _WaitingInSession(_Waiting):
    """One of a session, which tells it what has moved."""

    def __init__(
        self,
        service: ReplicaFetchService,
        session: FollowerSession,
        request: FollowerFetch,
        found: _Pass,
        reply: Reply,
    ) -> None:
        super().__init__(service, request, found, reply)
        self._session = session

    def is_complete(self, key: Hashable) -> bool:
        assert isinstance(key, Partition)
        followed = self._session.followed(key)
        return followed is None or self._has_enough(key, followed.asked, followed.count_appended(key))

    def complete(self) -> None:
        self._session.waited(self)
        self._reply(self._service.read_changed(self._session, self._request), self._session.session_id)


def _has_moved(partition: Partition, asked: FollowedPartition) -> bool:
    """Return whether a follower is to hear of a partition at once: of its log start, or another leadership."""
    log = partition.log
    if partition.removed or asked.leader_epoch != partition.leader_epoch:
        return True
    return asked.log_start_offset < min(log.log_start_offset, asked.high_watermark)
