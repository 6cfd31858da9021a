"""`kafkalake consume --group`: reads the partitions that a group assigns, from its committed offsets."""

from __future__ import annotations

import contextlib
import time

from kafkalake.cli.consume import end_offsets, new_fetcher, start_positions
from kafkalake.client.cluster import Cluster
from kafkalake.client.fetcher import Fetcher, OutOfRange
from kafkalake.client.group_admin import committed_offsets
from kafkalake.client.group_member import GroupMember
from kafkalake.errors import BrokerUnavailableError, KafkaError

COMMIT_INTERVAL_S = 5.0


class GroupPositions:
    """A group member. A partition without a committed offset starts at its end, or with `from_beginning` at its start."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        group: str,
        from_beginning: bool,
        commits: bool,
        read_committed: bool,
        exit_at_end: bool,
    ) -> None:
        cluster.topic(topic, wait_ms=300)
        self._cluster = cluster
        self._member = GroupMember(cluster, group, topic)
        self._place: OutOfRange = "earliest" if from_beginning else "latest"
        self._commits = commits
        self._read_committed = read_committed
        self._exit_at_end = exit_at_end
        self._printed: dict[int, int] = {}
        """Offsets to commit, by partition."""
        self._committed: dict[int, int | None] = {}
        """The offsets last seen or committed, by partition of this member."""
        self._committed_at = time.monotonic()
        self.fetcher: Fetcher
        self.ends: dict[int, int] | None = None
        self._join()

    def printed(self, partition: int, next_offset: int) -> None:
        """Note the offset to commit."""
        self._printed[partition] = next_offset

    def turn(self) -> None:
        """Send due heartbeats, commit, and take over new assignments."""
        if time.monotonic() - self._committed_at >= COMMIT_INTERVAL_S:
            self._commit()
        if self._member.is_due() and not self._member.heartbeat():
            self._commit()
            self._join()

    def close(self) -> None:
        """Commit and leave the group, so that other members continue at once."""
        self._cluster.close()  # after Ctrl-C a connection may still await the answer to a fetch
        self._commit()
        with contextlib.suppress(KafkaError, BrokerUnavailableError):  # the session ends by itself
            self._member.leave()

    def _join(self) -> None:
        topic = self._member.topic
        partitions = self._member.join()
        known = committed_offsets(self._cluster, self._member.group_id)
        positions = {number: known[topic, number].offset for number in partitions if (topic, number) in known}
        # Keep uncommitted offsets if the partition is again this member's and its committed offset has not changed in between.
        self._printed = {
            number: offset
            for number, offset in self._printed.items()
            if number in partitions and self._committed[number] == positions.get(number)
        }
        self._committed = {number: positions.get(number) for number in partitions}
        positions |= self._printed
        new = [number for number in partitions if number not in positions]
        if new:
            positions |= start_positions(self._cluster, topic, new, self._place, None, self._read_committed)
        self.fetcher = new_fetcher(self._cluster, topic, positions, self._read_committed, self._place)
        if self._exit_at_end:
            self.ends = end_offsets(self._cluster, topic, partitions, self._read_committed) if partitions else {}
        self._commit()

    def _commit(self) -> None:
        """Commit the printed offsets. Those refused during a rebalance are kept until it ends."""
        self._committed_at = time.monotonic()
        if self._commits and self._printed and self._member.commit(self._printed):
            self._committed |= self._printed
            self._printed = {}
