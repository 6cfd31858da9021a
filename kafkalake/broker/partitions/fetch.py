"""Reads from several partitions within limits and delays the response until enough bytes are available.

A request is answered when it has `min_bytes`, when it times out, or when a partition has an error or a diverging epoch. A waiting
fetch costs one entry in the purgatory. Appends add to a counter, and only a request with enough bytes reads again.

Records from files are read and encoded on the event loop, so a response holds at most 16 MiB of them, whatever the client's
limits. This bounds the delay of other requests. The client fetches again at once.

A new leader knows at first only a part of what the one before has committed. Until its followers have fetched it serves that part,
and the response has neither a high watermark nor a last stable offset: they would be lower than those shown before. Clients pass
over such offsets, as Kafka's do; a session leaves the partition out if it has no records.

Limits: `max_bytes` over the request and `partition_max_bytes` per partition. The first batch of the first partition that has any
is always returned, so that a consumer with small limits makes progress (KIP-74). Batches are never cut.

Records are returned as stored: views of the producers' bytes from the cache, or verified Arrow messages, which the server encodes.
The bytes of these are known once they are encoded, so the encoder has the last word: it leaves out what does not fit, or refuses
what is damaged. The session then records what the response has (`Fetched.sent`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field

from kafkalake.broker.partitions.fetch_sessions import (
    FetchContext,
    FetchPartition,
    FetchSessionCache,
    PartitionKey,
)
from kafkalake.broker.partitions.fetched import (
    CachedRecords,
    Fetched,
    FetchedPartition,
    Isolation,
    StoredRead,
    StoredRecords,
    readable_end,
)
from kafkalake.broker.partitions.followed_reads import FollowedReads, FollowedReplica, ReadableReplica
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.purgatory import DelayedOperation, Purgatory
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.partitions.wire_cache import STORED_RATIO_MAX
from kafkalake.clock import Clock
from kafkalake.cluster.read_replicas import preferred_read_replica
from kafkalake.cluster.replication import EpochEnd, diverging_epoch
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import (
    CorruptMessageError,
    CorruptSegmentError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    as_value,
)

logger = logging.getLogger(__name__)

STORED_BYTES_MAX = 16 * 1024 * 1024
READ_BYTES_MAX = 32 * 1024 * 1024
"""The limit on bytes of messages read for a response. Messages are read whole and decompressed, however little is needed."""


@dataclass(slots=True)
class FetchRequest:
    """A client's fetch request. The names give the units (bytes, milliseconds)."""

    partitions: Sequence[FetchPartition]
    forgotten: Sequence[PartitionKey]
    session_id: int
    session_epoch: int
    uses_topic_ids: bool
    isolation: Isolation
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    may_read: Callable[[str], bool]
    """Returns whether the client may read the topic of this name."""
    listener: str = ""
    """The name of the listener at which the client is connected."""
    rack: str | None = None
    """The rack of a consumer that may read from followers ("": it named none), None of one that may not."""
    stored_max_bytes: int = STORED_BYTES_MAX
    """The limit on bytes of records read from files."""


class FetchService:
    """The reader of fetch requests from the topics."""

    def __init__(
        self,
        topics: Topics,
        sessions: FetchSessionCache,
        purgatory: Purgatory,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        followed: FollowedReads,
    ) -> None:
        self._topics = topics
        self._followed = followed
        self._sessions = sessions
        self._purgatory = purgatory
        self._clock = clock
        self._config = config

    def fetch(
        self, request: FetchRequest, reply: Callable[[Fetched], None]
    ) -> Generator[None, None, DelayedOperation | None]:
        """Answer now and return None, or return the operation waiting in the purgatory. Yields between partitions."""
        try:
            context = self._sessions.begin(
                request.session_id,
                request.session_epoch,
                request.partitions,
                request.forgotten,
                uses_topic_ids=request.uses_topic_ids,
                now_ms=self._clock.monotonic_ms(),
            )
        except KafkaError as error:
            reply(Fetched(as_value(error), FetchContext([], None, incremental=False)))
            return None
        operation = _FetchOperation(self, request, context, reply)
        return operation if (yield from operation.start(self._purgatory)) else None

    def find(self, asked: FetchPartition, request: FetchRequest) -> ReadableReplica:
        """Return the replica here that is read: the leader, or for a consumer that may read from followers another one.

        Raise `TopicAuthorizationError`, or `UnknownTopicOrPartitionError` or `UnknownTopicIdError` if there is no such partition,
        `NotLeaderOrFollowerError` if there is no such replica here.
        """
        topic = self._topics.find(asked.topic) if isinstance(asked.topic, str) else self._topics.find_id(asked.topic)
        name = asked.topic if topic is None else topic.name
        if isinstance(name, str) and not request.may_read(name):
            raise TopicAuthorizationError()
        if topic is None:
            raise UnknownTopicOrPartitionError() if isinstance(asked.topic, str) else UnknownTopicIdError()
        if request.rack is not None and topic.is_led_elsewhere(asked.partition):
            return self._followed.find(topic, asked.partition)
        return topic.leader(asked.partition)

    def _preferred(self, replica: ReadableReplica, asked: FetchPartition, request: FetchRequest) -> int | None:
        """Return the follower from which the consumer is to read, None: this replica."""
        if not request.rack or not isinstance(replica, Partition) or not self._config().replica_selector_class:
            return None
        image = self._topics.image
        return preferred_read_replica(replica.leadership, image, request.listener, request.rack, asked.fetch_offset)

    def read(self, request: FetchRequest, context: FetchContext) -> _Read:
        """Read all partitions of the request within its limits and return the result."""
        found = _Read()
        for _ in self.read_into(found, request, context):
            pass
        return found

    def read_into(self, found: _Read, request: FetchRequest, context: FetchContext) -> Generator[None, None, None]:
        """Read like `read`, into `found`. Yields between partitions."""
        remaining = min(request.max_bytes, self._config().fetch_max_bytes)
        stored_left, read_left = request.stored_max_bytes, READ_BYTES_MAX
        for asked in context.partitions:
            answer = FetchedPartition(asked)
            try:
                partition = self.find(asked, request)
                found.watched[partition] = readable_bytes(partition, request.isolation)
                answer.preferred_read_replica = self._preferred(partition, asked, request)
                limit = min(remaining, asked.partition_max_bytes)
                first_whole = not found.bytes
                size = read_partition(
                    partition, asked, request.isolation, limit, stored_left, answer, first_whole=first_whole
                )
                remaining -= size
                if isinstance(answer.records, StoredRecords):
                    read_left -= answer.records.messages.size_bytes
                    stored_left = min(stored_left - size, max(read_left, 0) // STORED_RATIO_MAX)
                found.bytes += size
                found.urgent |= answer.diverging is not None or answer.preferred_read_replica is not None
            except KafkaError as error:
                answer.error = as_value(error)
                found.urgent = True
            except CorruptSegmentError as error:
                answer.error = corrupt(error)
                found.urgent = True
            except Exception:  # one bad partition must not affect the others
                logger.exception("fetch failed topic=%s partition=%d", asked.topic, asked.partition)
                answer.refuse(KafkaError("the partition cannot be read"))
                found.urgent = True
            found.answers.append(answer)
            yield


@dataclass(slots=True)
class _Read:
    """The result of one pass over the partitions. `urgent`: the response must not wait for more bytes."""

    answers: list[FetchedPartition] = field(default_factory=list)
    watched: dict[ReadableReplica, int] = field(default_factory=dict)
    """By partition, its `readable_bytes` when it was read."""
    bytes: int = 0
    urgent: bool = False


class _FetchOperation(DelayedOperation):
    """One fetch, possibly delayed."""

    def __init__(
        self, fetcher: FetchService, request: FetchRequest, context: FetchContext, reply: Callable[[Fetched], None]
    ) -> None:
        super().__init__()
        self._fetcher = fetcher
        self._request = request
        self._context = context
        self._reply = reply
        self._bytes_seen: dict[ReadableReplica, int] = {}
        """By partition, its `readable_bytes` when it was last checked."""
        self._bytes_wanted = 0

    def start(self, purgatory: Purgatory) -> Generator[None, None, bool]:
        """Answer at once or enter the purgatory, and return whether the fetch waits. Yields between partitions."""
        request = self._request
        found = _Read()
        yield from self._fetcher.read_into(found, request, self._context)
        if found.urgent or found.bytes >= request.min_bytes or request.max_wait_ms <= 0 or not self._context.partitions:
            self._answer(found)
            return False
        self._bytes_seen = found.watched
        self._bytes_wanted = request.min_bytes - found.bytes
        if any(self.is_complete(partition) for partition in found.watched):
            self.complete()  # new bytes arrived while the other partitions were read
            return False
        purgatory.watch(self, found.watched, request.max_wait_ms)
        return True

    def is_complete(self, key: Hashable) -> bool:
        """Return whether enough new bytes are readable over all partitions, or this partition was removed."""
        assert isinstance(key, Partition | FollowedReplica)
        readable = readable_bytes(key, self._request.isolation)
        self._bytes_wanted -= readable - self._bytes_seen[key]
        self._bytes_seen[key] = readable
        return self._bytes_wanted <= 0 or key.removed

    def complete(self) -> None:
        self._answer(self._fetcher.read(self._request, self._context))

    def _answer(self, found: _Read) -> None:
        context = self._context
        partitions = [
            each
            for each in found.answers
            if each.error is not None
            or each.diverging is not None
            or each.preferred_read_replica is not None
            or each.records is not None
            or context.must_tell(each.asked, each.high_watermark, each.log_start_offset)
        ]
        self._reply(Fetched(None, context, partitions))


def readable_bytes(partition: ReadableReplica, isolation: Isolation) -> int:
    """Return the cumulative bytes appended to a replica and visible at `isolation`. Its growth is the number of new bytes."""
    return partition.stable_bytes if isolation is Isolation.READ_COMMITTED else partition.readable_bytes


def corrupt(error: CorruptSegmentError) -> CorruptMessageError:
    """Return the client's error for a corrupt segment. File and position are logged."""
    logger.error("corrupt segment file=%s position=%d reason=%r", error.path, error.position, error.reason)
    return CorruptMessageError("the records are damaged on the broker's disk")


def read_partition(
    partition: ReadableReplica,
    asked: FetchPartition,
    isolation: Isolation,
    max_bytes: int,
    stored_max_bytes: int,
    answer: FetchedPartition,
    *,
    first_whole: bool,
) -> int:
    """Fill `answer` from one partition and return the approximate size of its records in bytes.

    Read at most `max_bytes`, and at most `stored_max_bytes` from files.

    Raise the partition's error: leader epoch (see `Partition.check_leader_epoch`), `OffsetOutOfRangeError`, `KafkaStorageError`,
    `CorruptSegmentError`.
    """
    log = partition.log
    partition.check_leader_epoch(asked.current_leader_epoch)
    if not partition.is_watermark_behind:
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
    answer.log_start_offset = log.log_start_offset
    answer.codec = partition.topic.config.compression_type
    if answer.preferred_read_replica is not None:
        return 0
    if asked.last_fetched_epoch >= 0:
        own = EpochEnd(*log.end_offset_for_epoch(asked.last_fetched_epoch))
        answer.diverging = diverging_epoch(asked.last_fetched_epoch, asked.fetch_offset, own, log.log_start_offset)
        if answer.diverging is not None:
            return 0
    offset = asked.fetch_offset
    committed = isolation is Isolation.READ_COMMITTED
    end_offset = readable_end(partition, isolation)
    if committed:
        answer.aborted = ()
    limits = max(max_bytes, 0), max(min(max_bytes, stored_max_bytes), 0)
    while True:
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRangeError()
        if offset >= end_offset or (max_bytes <= 0 and not first_whole):
            return 0
        listing = log.listing
        size = _read_records(partition, offset, end_offset, *limits, isolation, answer, first_whole=first_whole)
        if not committed or answer.records is None:
            return size
        answer.aborted = [
            (each.producer_id, each.first_offset)
            for each in log.aborted_transactions(offset, _end_of(answer.records, end_offset))
        ]
        if log.listing is listing:
            return size
        answer.records = None  # the index of aborted transactions may have gone with the segment that they are from


def _end_of(records: CachedRecords | StoredRecords, end_offset: int) -> int:
    """Return an upper bound (exclusive) of the records' offsets."""
    return min(end_offset, records.messages.next_offset if isinstance(records, StoredRecords) else records.end_offset)


def _read_records(
    partition: ReadableReplica,
    offset: int,
    end_offset: int,
    max_bytes: int,
    stored_max_bytes: int,
    isolation: Isolation,
    answer: FetchedPartition,
    *,
    first_whole: bool,
) -> int:
    cached = partition.read_tail(offset, end_offset, max_bytes, first_whole=first_whole)
    if cached is not None:
        views, size = cached
        if views:
            answer.records = CachedRecords(views, size, end_offset)
        return size
    if stored_max_bytes == 0 and not first_whole:
        return 0
    answer.read = StoredRead(partition, offset, stored_max_bytes, isolation)
    kept = partition.read_encoded(offset, end_offset, stored_max_bytes)
    if kept is not None and (first_whole or len(kept.records) <= stored_max_bytes):
        answer.records = CachedRecords([kept.records], len(kept.records), kept.next_offset)
        return len(kept.records)
    stored = read_stored(answer.read, end_offset, first_whole=first_whole)
    answer.records = stored
    return 0 if stored is None else min(stored.messages.size_bytes, max(stored_max_bytes, 1))


def read_stored(read: StoredRead, end_offset: int, *, first_whole: bool) -> StoredRecords | None:
    """Return the messages of a read from files, None if there are none below `end_offset`. Raise as `Log.read`."""
    partition = read.partition
    generation = partition.reads_generation
    messages = partition.log.read(read.offset, partition.stored_bytes_for(read.max_bytes), end_offset)
    return StoredRecords(read, generation, messages, end_offset, first_whole) if len(messages) else None
