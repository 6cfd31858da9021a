"""`kafkalake consume --group`: reads the partitions that a group assigns, from its committed offsets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping

from kafkalake.cli.consume import unread
from kafkalake.client.consuming.consumer import Consumer
from kafkalake.client.consuming.listeners import RebalanceListener
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.errors import KafkaLakeError
from kafkalake.topic_partition import TopicPartition

COMMIT_INTERVAL_S = 5.0

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class GroupPositions(RebalanceListener):
    """A group member that commits the offsets of what is printed, every five seconds and before it gives partitions up.

    What it could not commit is not printed again if it gets the partition back and no other member has committed meanwhile.
    """

    def __init__(self, consumer: Consumer, topic: str, commits: bool, exit_at_end: bool) -> None:
        self.consumer = consumer
        self._topic = topic
        self._commits = commits
        self._exit_at_end = exit_at_end
        self._printed: dict[TopicPartition, OffsetAndMetadata] = {}
        """Offsets to commit."""
        self._committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        """The offsets last seen or committed."""
        self._committed_at = time.monotonic()
        self._ends: dict[int, int] | None = None
        consumer.subscribe(topic, listener=self)

    @property
    def left(self) -> dict[int, int] | None:
        """See `consume.Source`. None also before the group has assigned partitions."""
        return None if self._ends is None else unread(self.consumer, self._topic, self._ends)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Begin where the group is, or behind what is printed already; end at the present ends if that is asked for."""
        committed = self.consumer.committed(partitions) if partitions else {}
        for partition in partitions:
            known, printed = self._committed.get(partition), self._printed.get(partition)
            if printed is not None and _offset(committed[partition]) == _offset(known):
                self.consumer.seek(partition, printed.offset)
            else:
                self._printed.pop(partition, None)
        self._committed |= committed
        if self._exit_at_end:
            assigned = self.consumer.assignment()
            found = self.consumer.end_offsets(assigned) if assigned else {}
            self._ends = {number: end for (_, number), end in found.items()}

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what was printed, as far as the group takes it."""
        self._commit()

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Commit nothing: other members may have the partitions."""

    def printed(self, partition: int, next_offset: int) -> None:
        """Note the offset to commit."""
        self._printed[self._topic, partition] = OffsetAndMetadata(next_offset)

    def turn(self) -> None:
        """Commit if it is time."""
        if self._commits and self._printed and time.monotonic() - self._committed_at >= COMMIT_INTERVAL_S:
            self._committed_at = time.monotonic()
            self.consumer.commit_async(self._own(), self._ended)

    def close(self) -> None:
        """Commit and leave the group, so that other members continue at once."""
        try:
            self._commit()
        finally:
            self.consumer.close()

    def _commit(self) -> None:
        offsets = self._own()
        if self._commits and offsets:
            with contextlib.suppress(KafkaLakeError):  # the group's next member prints again what is not committed
                self.consumer.commit(offsets)
                self._ended(offsets, None)

    def _own(self) -> Offsets:
        """Return the offsets to commit of partitions that are this member's."""
        assigned = self.consumer.assignment()
        return {partition: each for partition, each in self._printed.items() if partition in assigned}

    def _ended(self, offsets: Offsets, error: KafkaLakeError | None) -> None:
        """Take the news of a commit."""
        if error is None:
            self._committed |= offsets
            self._printed = {at: each for at, each in self._printed.items() if offsets.get(at) != each}


def _offset(committed: OffsetAndMetadata | None) -> int | None:
    return None if committed is None else committed.offset
