"""Incremental fetch sessions: a consumer names its partitions once, and then only changes. Source: KIP-227.

A request identifies its session by id and epoch:

    epoch      id      meaning
    -1         any     a full fetch without a session, closing a session with that id
     0         0       a full fetch that requests a session
     0         other   the same, closing the session with that id
    n > 0      other   the next fetch of the session: its partitions with the request's changes

The response to an incremental fetch omits unchanged partitions: no records, no error, high watermark and log start as in the last
response. Slots are bounded. A session is evicted for a new one after two minutes idle, or two minutes after its creation if it is
smaller than the new one. Without a slot the response has session id 0 and the client continues with full fetches.

Pure: time and random ids are parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from kafkalake.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
IDLE_MS = 120_000
UNKNOWN_PARTITIONS_MAX = 64
"""The limit on unknown partitions in one session."""
_EPOCH_MAX = 2**31 - 1

TopicKey = str | UUID
PartitionKey = tuple[TopicKey, int]


@dataclass(slots=True)
class FetchPartition:
    """A client's fetch parameters for one partition. `topic` is a name or, from protocol version 13 on, a topic id.

    Epochs are -1 if the client has none. `sent_high_watermark` and `sent_log_start_offset` are those of the session's last
    response.
    """

    topic: TopicKey
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1

    @property
    def key(self) -> PartitionKey:
        return (self.topic, self.partition)


@dataclass(slots=True)
class FetchSession:
    """A client's partitions in the order of service. Its next request must carry `epoch`."""

    session_id: int
    uses_topic_ids: bool
    created_ms: int
    last_used_ms: int
    epoch: int = 1
    unknown: int = 0
    """The number of partitions that were unknown when added."""
    partitions: dict[PartitionKey, FetchPartition] = field(default_factory=dict)


@dataclass(slots=True)
class FetchContext:
    """The partitions of one request, its session (None: none) and whether its response is incremental."""

    partitions: list[FetchPartition]
    session: FetchSession | None
    incremental: bool

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.session_id

    def must_tell(self, partition: FetchPartition, high_watermark: int, log_start_offset: int) -> bool:
        """Return whether the response must include these offsets of a partition without records or error. -1: not known now."""
        return not self.incremental or (
            high_watermark >= 0
            and (partition.sent_high_watermark != high_watermark or partition.sent_log_start_offset != log_start_offset)
        )

    def told(self, partition: FetchPartition, high_watermark: int, log_start_offset: int, *, had_records: bool) -> None:
        """Record the offsets sent in the response. A partition with records moves to the end, for fairness."""
        partition.sent_high_watermark = high_watermark
        partition.sent_log_start_offset = log_start_offset
        if had_records and self.session is not None and self.session.partitions.pop(partition.key, None) is not None:
            self.session.partitions[partition.key] = partition

    def told_error(self, partition: FetchPartition) -> None:
        """Record that the response has an error for the partition. The next response includes its offsets again."""
        partition.sent_high_watermark = -1
        partition.sent_log_start_offset = -1


def _once(partitions: Sequence[FetchPartition]) -> list[FetchPartition]:
    """Return the partitions without duplicates. The last of a duplicate counts, as in Apache Kafka."""
    if len(partitions) <= 1:
        return list(partitions)
    return list({partition.key: partition for partition in partitions}.values())


class FetchSessionCache:
    """The sessions of all clients."""

    def __init__(
        self,
        slots: int,
        random_id: Callable[[], int],
        partitions_max: int = 2**31 - 1,
        is_known: Callable[[FetchPartition], bool] = lambda partition: True,
    ) -> None:
        """Create an empty cache. `random_id` returns integers in [1, 2**31). `partitions_max` bounds the sum over all sessions.

        A session keeps only a few unknown partitions (a topic just deleted, say). A client with more of them gets no session and
        continues with full fetches.
        """
        self._slots = slots
        self._random_id = random_id
        self._partitions_max = partitions_max
        self._is_known = is_known
        self._kept = 0
        """The number of partitions in all sessions."""
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        partitions: Sequence[FetchPartition],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchContext:
        """Return the context of a request: its partitions and session.

        Raise `FetchSessionIdNotFoundError` if there is no such session or it cannot take the changes,
        `InvalidFetchSessionEpochError` if the epoch is not the expected one, `FetchSessionTopicIdError` if the use of topic ids
        has changed. The client then starts again with a full fetch.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._close(session_id)
            session = None
            partitions = _once(partitions)
            if epoch == INITIAL_EPOCH and partitions:
                session = self._create(partitions, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
            return FetchContext(partitions, session, incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFoundError()
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError()
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError()
        if not self._update(session, partitions, forgotten):
            self._close(session_id)
            raise FetchSessionIdNotFoundError()  # the client sends a full fetch, which gets no session
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.last_used_ms = now_ms
        del self._sessions[session_id]
        if not session.partitions:
            return FetchContext([], None, incremental=True)
        self._sessions[session_id] = session
        return FetchContext(list(session.partitions.values()), session, incremental=True)

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._kept -= len(session.partitions)

    def _may_keep(self, partitions: Sequence[FetchPartition], unknown: int) -> bool:
        return self._kept + len(partitions) <= self._partitions_max and unknown <= UNKNOWN_PARTITIONS_MAX

    def _count_unknown(self, partitions: Sequence[FetchPartition]) -> int:
        unknown = (partition for partition in partitions if not self._is_known(partition))
        return sum(1 for _ in islice(unknown, UNKNOWN_PARTITIONS_MAX + 1))

    def _update(
        self, session: FetchSession, partitions: Sequence[FetchPartition], forgotten: Iterable[PartitionKey]
    ) -> bool:
        """Apply a request's changes to its session and return whether the session can be kept."""
        new = [partition for partition in partitions if partition.key not in session.partitions] if partitions else []
        if new:
            session.unknown += self._count_unknown(new)
            if not self._may_keep(new, session.unknown):
                return False
        before = len(session.partitions)
        for partition in partitions:
            known = session.partitions.get(partition.key)
            if known is None:
                session.partitions[partition.key] = partition
            else:
                known.fetch_offset = partition.fetch_offset
                known.partition_max_bytes = partition.partition_max_bytes
                known.current_leader_epoch = partition.current_leader_epoch
                known.last_fetched_epoch = partition.last_fetched_epoch
        for key in forgotten:
            session.partitions.pop(key, None)
        self._kept += len(session.partitions) - before
        return True

    def _create(
        self, partitions: Sequence[FetchPartition], *, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        unknown = self._count_unknown(partitions)
        if not self._may_keep(partitions, unknown) or not self._make_room(len(partitions), now_ms):
            return None
        session_id = self._random_id()
        while session_id in self._sessions:
            session_id = self._random_id()
        session = FetchSession(session_id, uses_topic_ids, now_ms, now_ms)
        session.unknown = unknown
        session.partitions = {partition.key: partition for partition in partitions}
        self._sessions[session_id] = session
        self._kept += len(session.partitions)
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        idle = next(iter(self._sessions.values()))
        if now_ms - idle.last_used_ms > IDLE_MS:
            self._close(idle.session_id)
            return True
        settled = [each for each in self._sessions.values() if now_ms - each.created_ms > IDLE_MS]
        smallest = min(settled, key=lambda each: len(each.partitions), default=None)
        if smallest is not None and len(smallest.partitions) < size:
            self._close(smallest.session_id)
            return True
        return False
