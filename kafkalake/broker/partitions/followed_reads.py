"""Consumers read replicas that follow (KIP-392): those that the leader sends here, because this broker is in their rack.

They see the records below the high watermark that this broker knows, which is at most the leader's. A fetch waits here as at the
leader. It is completed when the replica follows no more: the consumer then asks the leader again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from kafkalake.broker.partitions.followers import Follower
from kafkalake.broker.partitions.leader_replicas import ReplicaId
from kafkalake.broker.partitions.purgatory import Purgatory
from kafkalake.broker.partitions.topics import Topic
from kafkalake.broker.partitions.wire_cache import EncodedRead
from kafkalake.cluster.replication import check_leader_epoch
from kafkalake.errors import NotLeaderOrFollowerError
from kafkalake.storage.log import Log


class ReadableReplica(Hashable, Protocol):
    """A replica as consumers' fetches read it: a `Partition`, which leads, or a `FollowedReplica`."""

    @property
    def topic(self) -> Topic: ...

    @property
    def log(self) -> Log: ...

    @property
    def is_watermark_behind(self) -> bool:
        """Return whether the watermark is not told, because it is below what consumers were told before."""
        ...

    @property
    def removed(self) -> bool:
        """Return whether it does not serve the partition any more."""
        ...

    @property
    def readable_bytes(self) -> int:
        """Return the bytes so far that became visible. Their growth is the number of new bytes."""
        ...

    @property
    def stable_bytes(self) -> int:
        """Return the same of `read_committed` consumers."""
        ...

    @property
    def reads_generation(self) -> int: ...

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise `FencedLeaderEpochError` or `UnknownLeaderEpochError` for another leader epoch (-1: none is given)."""
        ...

    def read_tail(
        self, offset: int, end_offset: int, bytes_max: int, *, first_whole: bool
    ) -> tuple[list[memoryview], int] | None: ...

    def read_encoded(self, offset: int, end_offset: int, bytes_max: int) -> EncodedRead | None: ...

    def stored_bytes_for(self, bytes_max: int) -> int: ...

    def keep_encoded(self, offset: int, bytes_max: int, read: EncodedRead, *, ahead: bool = False) -> None: ...

    def goes_on(self, offset: int, next_offset: int, bytes_max: int) -> bool: ...


class FollowedReplica:
    """A replica that follows, as consumers read it. Nothing is cached: its log has no producers' bytes."""

    __slots__ = (
        "_appended_bytes",
        "_readable_offset",
        "_stable_offset",
        "follower",
        "readable_bytes",
        "removed",
        "stable_bytes",
        "topic",
    )

    reads_generation = 0
    is_watermark_behind = False
    """A follower tells what it knows, which may be less than the leader has told, as in Kafka."""

    def __init__(self, topic: Topic, follower: Follower) -> None:
        self.topic = topic
        self.follower = follower
        self.removed = False
        self._appended_bytes = self.readable_bytes = self.stable_bytes = 0
        self._readable_offset, self._stable_offset = follower.log.high_watermark, follower.log.last_stable_offset

    @property
    def log(self) -> Log:
        """The log, which a thread may be appending to: reads take no lock."""
        return self.follower.log

    def check_leader_epoch(self, epoch: int) -> None:
        """Check a consumer's leader epoch (-1: none) against the one that is followed. Raise as `Partition.check_leader_epoch`."""
        check_leader_epoch(epoch, self.follower.leader_epoch)

    def advance(self, appended_bytes: int) -> None:
        """Count bytes that were appended. All of them become visible when the watermark moves, at least one byte each time."""
        self._appended_bytes += appended_bytes
        log = self.log
        if log.high_watermark != self._readable_offset:
            self._readable_offset = log.high_watermark
            self.readable_bytes = max(self._appended_bytes, self.readable_bytes + 1)
        if log.last_stable_offset != self._stable_offset:
            self._stable_offset = log.last_stable_offset
            self.stable_bytes = max(self._appended_bytes, self.stable_bytes + 1)

    def stop(self) -> None:
        """Serve no fetch any more."""
        self.removed = True

    def read_tail(self, offset: int, end_offset: int, bytes_max: int, *, first_whole: bool) -> None:
        """Return None: no producers' bytes are cached."""

    def read_encoded(self, offset: int, end_offset: int, bytes_max: int) -> None:
        """Return None: nothing is kept."""

    def stored_bytes_for(self, bytes_max: int) -> int:
        """Return `bytes_max`: what the last read took is not kept."""
        return bytes_max

    def keep_encoded(self, offset: int, bytes_max: int, read: EncodedRead, *, ahead: bool = False) -> None:
        """Keep nothing."""

    def goes_on(self, offset: int, next_offset: int, bytes_max: int) -> bool:
        """Return False: as nothing is kept, nothing is to be read ahead."""
        return False


class FollowedReads:
    """The replicas here that follow and are read by consumers. `find_follower` returns one, None if it follows nobody."""

    def __init__(self, find_follower: Callable[[ReplicaId], Follower | None], purgatory: Purgatory) -> None:
        self._find_follower = find_follower
        self._purgatory = purgatory
        self._read: dict[ReplicaId, FollowedReplica] = {}

    def find(self, topic: Topic, index: int) -> FollowedReplica:
        """Return a replica of an existing partition. Raise `NotLeaderOrFollowerError` if it does not follow here."""
        replica = topic.topic_id, index
        follower = self._find_follower(replica)
        if follower is None:
            raise NotLeaderOrFollowerError()
        read = self._read.get(replica)
        if read is None or read.follower is not follower:
            read = self._read[replica] = FollowedReplica(topic, follower)
        return read

    def advanced(self, follower: Follower, appended_bytes: int) -> None:
        """Complete the fetches that wait for what a follower has got."""
        if self._read and (read := self._read.get(follower.replica)) is not None:
            read.advance(appended_bytes)
            self._purgatory.check(read)

    def end(self, stopped: Iterable[Follower]) -> None:
        """Complete the fetches that wait at followers which are none any more."""
        for follower in stopped:
            if (read := self._read.pop(follower.replica, None)) is not None:
                read.stop()
                self._purgatory.check(read)
