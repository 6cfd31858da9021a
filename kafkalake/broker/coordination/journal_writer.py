"""An internal topic as a coordinator's journal, written through the append queue like any topic and read again at start.

Batches of all requests in one turn of the event loop become one append of the log (group commit). The topic is attached
when it is created or when the broker starts. Until then the journal has the number of partitions for its creation.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalake.broker.coordination.journal import Appended, JournalRecord, ProducerIdAndEpoch
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition, PendingAppend
from kafkalake.broker.partitions.topics import Topic
from kafkalake.errors import KafkaError, MessageTooLargeError, NotLeaderOrFollowerError
from kafkalake.record.build import build_batch


class JournalWriter:
    """A `Journal` over one topic. Runs on the event loop's thread."""

    def __init__(self, queue: AppendQueue, partitions: int) -> None:
        """Set up a journal whose topic will be created with `partitions` partitions."""
        self._queue = queue
        self._partitions = partitions
        self._topic: Topic | None = None

    @property
    def topic(self) -> Topic | None:
        """The topic, None until it is attached."""
        return self._topic

    @property
    def partitions(self) -> int:
        return self._partitions

    def attach(self, topic: Topic) -> None:
        """Attach the existing topic. Its number of partitions applies from now on."""
        self._topic = topic
        self._partitions = len(topic.registrations)

    def partition(self, index: int) -> Partition:
        """Return one partition of the attached topic."""
        assert self._topic is not None
        return self._topic.leader(index)

    def append(
        self,
        partition: int,
        records: Sequence[JournalRecord],
        timestamp_ms: int,
        producer: ProducerIdAndEpoch | None,
        done: Appended,
    ) -> None:
        if self._topic is None:
            done(-1, NotLeaderOrFollowerError())
            return
        batch = build_batch(
            records,
            timestamp_ms,
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            transactional=producer is not None,
        )
        if len(batch.body) > self._topic.config.max_message_bytes:
            done(-1, MessageTooLargeError())
            return
        pending = PendingAppend(self.partition(partition), batch, None)
        self._queue.add(pending, lambda: _tell(pending, done))


def _tell(pending: PendingAppend, done: Appended) -> None:
    """Call `done` with the result of the append."""
    result = pending.result
    if result is None or isinstance(result, KafkaError):
        done(-1, result or NotLeaderOrFollowerError())
    else:
        done(result.base_offset, None)
