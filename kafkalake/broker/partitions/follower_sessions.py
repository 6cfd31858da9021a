"""Incremental fetch sessions of followers, on the leader's side (KIP-227). The follower's side is `fetch_session`.

A session watches the partitions that its follower has named. A fetch reads only those that the follower asks for otherwise than
before, and those that have moved since they were last read: of a thousand partitions with one that is written to, that one. The
others count as fetched again at the same offset, when that matters (`IsrChanges.note_repeated`).

Sessions are of one incarnation of a registered broker. They are bounded by number for each broker, have only partitions that are
led here, and end two minutes after their last use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kafkalake.broker.partitions.fetch_sessions import FINAL_EPOCH, IDLE_MS, INITIAL_EPOCH
from kafkalake.broker.partitions.follower_fetch import FollowedAnswer, FollowedPartition, FollowerFetch
from kafkalake.broker.partitions.leader_replicas import ReplicaId
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.purgatory import DelayedOperation, Purgatory
from kafkalake.errors import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError

SESSIONS_MAX = 16
"""The limit on sessions of one broker. The one that was used least recently ends for another."""

Repeated = Callable[[Partition, int, int], None]
"""Called with a partition, the broker that follows it, and the time (ms) of a fetch that asked for the same as the one before."""


class Followed:
    """A partition in a session, as its follower last asked for it.

    bytes_seen: those appended when it was last read. told: the offsets of the last answer, None before.
    """

    __slots__ = ("asked", "bytes_seen", "partition", "told")

    def __init__(self, asked: FollowedPartition) -> None:
        self.asked = asked
        self.partition: Partition | None = None
        self.bytes_seen = 0
        self.told: tuple[int, ...] | None = None

    def count_appended(self, partition: Partition) -> int:
        """Return the bytes appended since it was last read, or counted."""
        before, self.bytes_seen = self.bytes_seen, partition.appended_bytes
        return partition.appended_bytes - before


class FollowerSession:
    """The partitions of one session. `changed`: those to read at the next fetch, the one that was read last comes last."""

    def __init__(self, session_id: int, fetch: FollowerFetch, purgatory: Purgatory, repeated: Repeated) -> None:
        self.session_id = session_id
        self.broker_id = fetch.broker_id
        self.broker_epoch = fetch.broker_epoch
        self.registered_epoch = -1
        self.epoch = 1
        self.fetched_ms = 0
        self.changed: dict[ReplicaId, None] = {}
        self.waiting: DelayedOperation | None = None
        """The fetch that waits for one of the partitions to move."""
        self._purgatory = purgatory
        self._repeated = repeated
        self._followed: dict[ReplicaId, Followed] = {}
        self._watched: dict[Partition, ReplicaId] = {}

    def find(self, key: ReplicaId) -> Followed | None:
        """Return a partition, None if it was forgotten."""
        return self._followed.get(key)

    def take(self, named: Iterable[FollowedPartition], forgotten: Iterable[ReplicaId]) -> None:
        """Take over what a request names and forgets."""
        for key in forgotten:
            if (gone := self._followed.pop(key, None)) is not None:
                self._watch(key, gone, None)
            self.changed.pop(key, None)
        for asked in named:
            key = asked.topic_id, asked.number
            known = self._followed.get(key)
            if known is None:
                self._followed[key] = Followed(asked)
            else:
                known.asked = asked
            self.changed[key] = None

    def all_changed(self) -> None:
        """Read everything at the next fetch."""
        self.changed = dict.fromkeys(self._followed)

    def take_changed(self) -> list[ReplicaId]:
        """Return the partitions to read now. What moves from now on is read again."""
        keys, self.changed = list(self.changed), {}
        return keys

    def read(self, partition: Partition, asked: FollowedPartition) -> None:
        """Note that a partition is read, as it was asked for."""
        key = asked.topic_id, asked.number
        if (followed := self._followed.get(key)) is not None:
            if followed.partition is not partition:
                self._watch(key, followed, partition)
            followed.bytes_seen = partition.appended_bytes

    def _watch(self, key: ReplicaId, followed: Followed, partition: Partition | None) -> None:
        before, followed.partition = followed.partition, partition
        if before is not None:
            del self._watched[before]
            self._purgatory.forget(before, self._moved)
        if partition is not None:
            self._watched[partition] = key
            self._purgatory.observe(partition, self._moved)

    def _moved(self, partition: Partition) -> None:
        key = self._watched[partition]
        if key not in self.changed:
            self._repeated(partition, self.broker_id, self.fetched_ms)
            self.changed[key] = None
        if self.waiting is not None and self.waiting.is_complete(partition):
            self._purgatory.finish(self.waiting)

    def find_moved(self) -> list[Partition]:
        """Return the partitions to read at the next fetch, as far as they are watched."""
        found = [self._followed[key].partition for key in self.changed if key in self._followed]
        return [partition for partition in found if partition is not None]

    def followed(self, partition: Partition) -> Followed | None:
        """Return what is followed of a partition, None if the session does not watch it."""
        key = self._watched.get(partition)
        return None if key is None else self._followed[key]

    def wait(self, operation: DelayedOperation, wait_ms: int) -> None:
        """Complete a fetch when a partition has moved as it waits for, or after a time. One fetch waits, the newest."""
        self.answer_waiting()
        self.waiting = operation
        self._purgatory.watch(operation, (), wait_ms)

    def waited(self, operation: DelayedOperation) -> None:
        """Note that a fetch does not wait any more."""
        if self.waiting is operation:
            self.waiting = None

    def answer_waiting(self) -> None:
        """Answer the fetch that waits."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self._purgatory.finish(waiting)

    def keep_changed(self, answers: Iterable[FollowedAnswer]) -> None:
        """Read these again before they are answered, if there is something to tell, or something to wait for."""
        for answer in answers:
            if self._has_news(answer) or self._is_read_again(answer):
                self.changed[answer.asked.topic_id, answer.asked.number] = None

    def settle(self, answers: Sequence[FollowedAnswer]) -> list[FollowedAnswer]:
        """Return the answers that tell something new, which are sent now."""
        news = []
        for answer in answers:
            key = answer.asked.topic_id, answer.asked.number
            if self._has_news(answer):
                news.append(answer)
            if answer.error is not None:
                self.take((), [key])  # which the follower names again, after a pause or from another offset
            elif (followed := self._followed.get(key)) is not None:
                followed.told = answer.offsets
                if self._is_read_again(answer):
                    self.changed[key] = None
        return news

    def _has_news(self, answer: FollowedAnswer) -> bool:
        followed = self._followed.get((answer.asked.topic_id, answer.asked.number))
        return answer.has_content or followed is None or followed.told != answer.offsets

    def _is_read_again(self, answer: FollowedAnswer) -> bool:
        """Return whether the next fetch is to read it whatever happens: as long as it has news, or may let the follower join."""
        if answer.has_content or answer.read is None:
            return True
        followed = self._followed.get((answer.asked.topic_id, answer.asked.number))
        partition = None if followed is None else followed.partition
        return partition is None or self.broker_id not in partition.leadership.isr

    def count_repeated(self) -> None:
        """Count the last fetch of all partitions that it did not read."""
        for partition, key in self._watched.items():
            if key not in self.changed:
                self._repeated(partition, self.broker_id, self.fetched_ms)

    def close(self) -> None:
        """Watch nothing any more, and answer what waits."""
        for key, followed in self._followed.items():
            self._watch(key, followed, None)
        self._followed = {}
        self.answer_waiting()


class FollowerSessions:
    """The sessions of all followers. `random_id` returns integers in [1, 2**31)."""

    def __init__(
        self, purgatory: Purgatory, random_id: Callable[[], int], now_ms: Callable[[], int], repeated: Repeated
    ) -> None:
        self._purgatory = purgatory
        self._random_id = random_id
        self._now_ms = now_ms
        self._repeated = repeated
        self._sessions: dict[int, FollowerSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, fetch: FollowerFetch, registered_epoch: int | None) -> FollowerSession | None:
        """Return the session of a request, which has taken over what that names, None if it has none.

        A fetch of the session that still waits is answered. registered_epoch: of the follower's broker, None if it is not
        registered. Raise `FetchSessionIdNotFoundError`, `InvalidFetchSessionEpochError`: then the follower asks for a new session.
        """
        if fetch.session_epoch == FINAL_EPOCH or registered_epoch is None:
            self._close(fetch.session_id, fetch.broker_id)
            return None
        if fetch.session_epoch == INITIAL_EPOCH:
            session = self._create(fetch)
        else:
            session = self._find(fetch)
            session.epoch += 1
        session.answer_waiting()
        session.take(fetch.partitions, fetch.forgotten)
        if registered_epoch != session.registered_epoch:
            session.registered_epoch = registered_epoch
            session.all_changed()
        session.fetched_ms = self._now_ms()
        return session

    def _find(self, fetch: FollowerFetch) -> FollowerSession:
        session = self._sessions.pop(fetch.session_id, None)
        if session is None:
            raise FetchSessionIdNotFoundError()
        self._sessions[fetch.session_id] = session
        if (session.broker_id, session.broker_epoch) != (fetch.broker_id, fetch.broker_epoch):
            raise FetchSessionIdNotFoundError()
        if session.epoch != fetch.session_epoch:
            raise InvalidFetchSessionEpochError()
        return session

    def _create(self, fetch: FollowerFetch) -> FollowerSession:
        self._close(fetch.session_id, fetch.broker_id)
        of_broker = [each for each in self._sessions.values() if each.broker_id == fetch.broker_id]
        earlier = [each for each in of_broker if each.broker_epoch != fetch.broker_epoch]
        for each in (*earlier, *of_broker[: max(0, len(of_broker) - SESSIONS_MAX + 1)]):
            self._close(each.session_id, fetch.broker_id)
        session_id = self._random_id()
        while session_id in self._sessions:
            session_id = self._random_id()
        session = self._sessions[session_id] = FollowerSession(session_id, fetch, self._purgatory, self._repeated)
        return session

    def _close(self, session_id: int, broker_id: int) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.broker_id == broker_id:
            del self._sessions[session_id]
            session.close()

    def count_repeated(self) -> None:
        """Count the last fetch of each session for the partitions that it did not read, and end those that are not used."""
        oldest_ms = self._now_ms() - IDLE_MS
        for session in list(self._sessions.values()):
            session.count_repeated()
            if session.fetched_ms < oldest_ms:
                self._close(session.session_id, session.broker_id)
