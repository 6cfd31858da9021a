"""The internal topic behind a coordinator's journal, from its creation to its trimming.

It is created on first use, as in Kafka, and this broker leads all its partitions. At start each partition is read again. It is
trimmed up to Delta's position, so that it stays short without compaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from kafkalake.broker.admin.topic_admin import NewTopic
from kafkalake.broker.coordination.journal import JournalRecord
from kafkalake.broker.coordination.topic_journal import READ_BYTES, TopicJournal
from kafkalake.config.definitions import TOPIC_SETTINGS
from kafkalake.errors import CoordinatorNotAvailableError, KafkaError, KafkaLakeError, TopicAlreadyExistsError
from kafkalake.record.build import ReadBatch, build_batch, read_batches
from kafkalake.storage.lost_records import lost_ranges

if TYPE_CHECKING:
    from kafkalake.broker.broker import Broker

logger = logging.getLogger(__name__)

TRIM_RECORDS = 5_000
"""Number of trimmable offsets from which a journal partition is trimmed. A damaged one is trimmed once Delta is past the damage."""

FILL_RECORDS = 500
NEVER = 1 << 63


def _size_setting(segment_bytes: int) -> str:
    """Return the topic setting that accepts this size: Kafka's settings of its journals have no minimum."""
    minimum = TOPIC_SETTINGS["segment.bytes"].minimum
    return "segment.bytes" if minimum is None or segment_bytes >= minimum else "internal.segment.bytes"


class JournalTopic:
    """One journal's topic. Runs on the event loop's thread. Reading blocks it."""

    def __init__(self, broker: Broker, name: str, partitions: int, segment_bytes: int) -> None:
        """Set up the topic. `partitions` and `segment_bytes` apply to its creation."""
        self.journal = TopicJournal(broker.append_queue, partitions)
        self.closed = False
        """True once the broker stops: the topic is no longer created or trimmed."""
        self._broker = broker
        self._name = name
        self._segment_bytes = segment_bytes
        self._creating = asyncio.Lock()
        self._trimming: set[int] = set()
        self._damage_ends_at: dict[int, int] = {}

    @property
    def is_ready(self) -> bool:
        """Whether the topic exists."""
        return self.journal.topic is not None

    def attach(self) -> bool:
        """Attach the topic if it exists, and return whether it does."""
        topic = self._broker.topics.find(self._name)
        if topic is not None:
            self.journal.attach(topic)
        return topic is not None

    async def make_ready(self, created: Callable[[], None]) -> None:
        """Create the topic if it does not exist, and call `created`. Raise `CoordinatorNotAvailableError` if that fails."""
        async with self._creating:
            if self.is_ready:
                return
            if self.closed:
                raise CoordinatorNotAvailableError
            new = NewTopic(
                self._name,
                self.journal.partitions,
                config={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    _size_setting(self._segment_bytes): str(self._segment_bytes),
                },
            )
            try:
                topic = await self._broker.topic_admin.create(new, timeout_ms=self._broker.config.request_timeout_ms)
            except TopicAlreadyExistsError as error:
                found = self._broker.topics.find(self._name)
                if found is None:  # left in Delta by a creation of unknown outcome: it is removed and created again
                    raise CoordinatorNotAvailableError from error
                topic = found
            except KafkaError as error:
                logger.warning("%s not created error=%s", self._name, error)
                raise CoordinatorNotAvailableError from error
            self.journal.attach(topic)
            created()

    # Reading

    def replay(self, index: int, follow: Callable[[ReadBatch], None]) -> list[range]:
        """Call `follow` with every batch of a partition. Return the ranges of offsets that are damaged or lost.

        Damage is logged and skipped up to the next whole message, wherever that is. The partition is trimmed behind the damage as
        soon as Delta has what follows it.
        """
        log = self.journal.partition(index).log
        at = log.log_start_offset
        lost: list[range] = []

        def lose(end: int, reason: str) -> None:
            logger.error(
                "damaged journal topic=%s partition=%d offsets=[%d, %d) error=%s", self._name, index, at, end, reason
            )
            lost.append(range(at, end))

        while at < log.high_watermark:
            reason = "nothing is there"
            try:
                messages = log.read(at, READ_BYTES)
            except KafkaLakeError as error:
                messages, reason = log.read_behind_damage(at, READ_BYTES), str(error)
            if not len(messages):
                lose(log.high_watermark, reason)
                break
            for gone in lost_ranges(messages):
                at = gone.start
                lose(gone.stop, "the machine stopped before they were on the disk")
            for batch in read_batches(messages):
                end = batch.base_offset + max(len(batch.pairs), 1)
                if batch.base_offset > at:
                    lose(batch.base_offset, reason)
                    at = batch.base_offset
                if end > at:
                    try:
                        follow(batch)
                    except KafkaLakeError as error:
                        lose(end, str(error))
                    at = end
            at = max(at, messages.next_offset)
        if lost:
            self._damage_ends_at[index] = lost[-1].stop
        return lost

    def fill(self, index: int, position: int, filler: JournalRecord) -> None:
        """Append `filler` up to `position`: after a power loss the journal may end before Delta's, and no offset may be reused."""
        partition = self.journal.partition(index)
        log = partition.log
        while log.log_end_offset < position:
            count = min(position - log.log_end_offset, FILL_RECORDS)
            batch = build_batch([filler] * count, self._broker.clock.now_ms())
            for result in log.append([batch], partition.leader_epoch):
                if isinstance(result, KafkaError):
                    raise result
            partition.advance_high_watermark()

    # Trimming

    async def trim(
        self, resume_at: Mapping[int, int], keep: Callable[[int, int], Awaitable[None]] | None = None
    ) -> None:
        """Trim the partitions up to `resume_at`, where it is worth it. Failures are retried.

        `keep(index, position)` first writes again what would be lost, and waits until it is durable. It may raise a `KafkaError`.
        """
        for index, position in resume_at.items():
            if self.closed or index in self._trimming:
                continue
            log = self.journal.partition(index).log
            if position - log.log_start_offset < TRIM_RECORDS and position < self._damage_ends_at.get(index, NEVER):
                continue
            self._trimming.add(index)
            try:
                if keep is not None:
                    await keep(index, position)
                await self._cut(index, position)
                if position >= self._damage_ends_at.get(index, NEVER):
                    del self._damage_ends_at[index]
            except KafkaLakeError as error:
                logger.warning("journal not trimmed topic=%s partition=%d error=%s", self._name, index, error)
            finally:
                self._trimming.discard(index)

    async def _cut(self, index: int, position: int) -> None:
        partition = self.journal.partition(index)

        def cut() -> None:
            partition.log.roll()
            partition.log.delete_records_before(position)

        await self._broker.run_blocking(cut)
        self._broker.moved(partition)
