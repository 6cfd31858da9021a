"""An internal topic as a coordinator's journal, written through the append queue like any topic and read again at start.

Batches of all requests in one turn of the event loop become one append of the log (group commit). Until the topic is created, the
journal has the number of partitions for its creation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kafkalake.broker.coordination.journal import Appended, JournalRecord, ProducerIdAndEpoch
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.errors import KafkaError, KafkaStorageError, MessageTooLargeError, NotLeaderOrFollowerError, as_value
from kafkalake.record.build import build_batch

logger = logging.getLogger(__name__)


class JournalWriter:
    """A `Journal` over one topic. Runs on the event loop's thread."""

    def __init__(self, topics: Topics, name: str, queue: AppendQueue, partitions: int) -> None:
        """Set up a journal whose topic `name` will be created with `partitions` partitions, unless it exists."""
        self._topics = topics
        self._name = name
        self._queue = queue
        self._partitions = partitions

    @property
    def topic(self) -> Topic | None:
        """The topic, None until it exists. It is another one after a creation that has failed and was undone."""
        return self._topics.find(self._name)

    @property
    def partitions(self) -> int:
        topic = self.topic
        return (topic is not None and len(topic.registrations)) or self._partitions

    def partition(self, index: int) -> Partition:
        """Return one partition that this broker leads. Raise `NotLeaderOrFollowerError`."""
        topic = self.topic
        if topic is None:
            raise NotLeaderOrFollowerError
        return topic.leader(index)

    def led(self) -> list[Partition]:
        """Return the partitions that this broker leads, except those whose logs could not be opened.

        The names of an offline one are not served: Delta may lack their newest records.
        """
        topic = self.topic
        return [] if topic is None else [each for each in topic.replicas.values() if not each.is_offline]

    def when_caught_up(self, partition: Partition, action: Callable[[], None]) -> None:
        """Call `action` once all that earlier leaders acknowledged can be read, see `AppendQueue.when_caught_up`."""
        self._queue.when_caught_up(partition, action)

    def append(
        self,
        partition: int,
        records: Sequence[JournalRecord],
        timestamp_ms: int,
        producer: ProducerIdAndEpoch | None,
        done: Appended,
        *,
        is_limited: bool = True,
    ) -> None:
        try:
            leader = self.partition(partition)
            batch = build_batch(
                records,
                timestamp_ms,
                producer_id=-1 if producer is None else producer.producer_id,
                producer_epoch=-1 if producer is None else producer.epoch,
                transactional=producer is not None,
            )
        except KafkaError as error:
            done(-1, as_value(error))
            return
        except Exception as error:  # the memory is used up: what waits for the write goes on
            logger.exception("records not appended topic=%s partition=%d", self._name, partition)
            done(-1, KafkaStorageError(f"not appended: {error!r}"))
            return
        if is_limited and len(batch.body) > leader.topic.config.max_message_bytes:
            done(-1, MessageTooLargeError())
            return
        pending = PendingAppend(leader, batch, None)
        self._queue.add(pending, lambda: _tell(pending, done))


def _tell(pending: PendingAppend, done: Appended) -> None:
    """Call `done` with the result of the append."""
    result = pending.result
    if result is None or isinstance(result, KafkaError):
        done(-1, result or NotLeaderOrFollowerError())
    else:
        done(result.base_offset, None)
