"""What an application may hang into a consumer: a rebalance listener, interceptors, callbacks of commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from kafkalake.client.consuming.records import DeserializedRecord
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.errors import KafkaLakeError
from kafkalake.topic_partition import TopicPartition

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaLakeError | None], object]
"""Called with the offsets of a commit, and its error or None."""


class RebalanceListener:
    """Hears in `poll` of the partitions that the group assigns and takes away. With `aio.Consumer` methods may be coroutines.

    Methods may call the consumer, as for `seek` and `commit`, except its `poll` and `poll_arrow`.
    """

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> object:
        """Take the news that partitions are about to go to other members. Offsets can still be committed."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> object:
        """Take the news of new partitions, none at the end of a rebalance that brought none."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> object:
        """Take the news that partitions are gone: other members may have them already. By default as if they were revoked."""
        return self.on_partitions_revoked(partitions)


class ConsumerInterceptor(Protocol):
    """Sees records before the application, and commits. One that raises is logged and skipped.

    Called in calls of the consumer, by the thread that calls it, while heartbeats go on.
    """

    def on_consume(self, records: Sequence[DeserializedRecord]) -> Sequence[DeserializedRecord]:
        """Return the records that the application, or the next interceptor, gets."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> object:
        """Take the news of a commit, also of an automatic one."""
        ...
