"""The transaction coordinator on `__transaction_state` in a running broker, from the broker's start to its stop.

The topic is created when the first client looks for a transaction's coordinator, as in Kafka. This broker leads all its partitions.
At start Delta's `transactions` is loaded first, then the journal beyond it. A prepared transaction then gets its markers (again)
before the first request is served. The journal is trimmed up to Delta's position: only the newest state of each id is ever needed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkalake.broker.coordination.journal import JournalRecord
from kafkalake.broker.coordination.journal_topic import JournalTopic
from kafkalake.broker.coordination.unpublished import Unpublished
from kafkalake.broker.transactions.admission import Admission
from kafkalake.broker.transactions.config import TransactionConfig
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.fault_points import kill_as_asked
from kafkalake.broker.transactions.markers import MarkerWriter
from kafkalake.broker.transactions.orphans import end_orphans
from kafkalake.broker.transactions.published import record_of
from kafkalake.broker.transactions.records import TransactionRecord, TransactionTombstone, encode
from kafkalake.broker.transactions.table import Changes
from kafkalake.config.broker import BrokerConfig
from kafkalake.internal_topics import TRANSACTION_JOURNAL
from kafkalake.metadata.tables.schemas import TransactionRow
from kafkalake.record.build import ReadBatch
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kafkalake.broker.broker import Broker

_FLUSHES_MAX = 10


class TransactionService:
    """The transaction coordinator of one broker. Runs on the event loop's thread. Loading at start blocks it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config
        self.topic = JournalTopic(
            broker,
            TRANSACTION_JOURNAL,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_segment_bytes,
        )
        self.markers = MarkerWriter(broker)
        self.coordinator = TransactionCoordinator(
            transaction_config(config),
            broker.clock,
            broker.timers,
            self.topic.journal,
            self.markers,
            broker.producer_ids.next_id,
            kill_as_asked(os.environ),
        )
        self.admission = Admission(self.coordinator, broker.timers)
        self._unpublished = Unpublished(self.coordinator.table, Changes([], {}))
        self._damaged = False
        self._is_whole = True

    @property
    def is_ready(self) -> bool:
        """Whether the journal's topic exists."""
        return self.topic.is_ready

    async def make_ready(self) -> None:
        """Create the journal's topic if it does not exist. Raise `CoordinatorNotAvailableError` if that fails."""
        await self.topic.make_ready(lambda: self._serve((), {}))

    def start(
        self,
        published: Iterable[TransactionRow],
        positions: Mapping[int, int],
        stable_offsets: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Load the journal at the broker's start, after the groups', and resume unfinished transactions.

        `published`, `positions` and `stable_offsets` (of partitions) come from Delta. Damage in the journal is logged. Raise
        `KafkaStorageError` on I/O errors.
        """
        if self.topic.attach():
            self._broker.held_offsets.resume(stable_offsets or {})
            self._serve(published, positions)
            self._flush()
            self._broker.held_offsets.resumed()
            # With an offline journal partition the owners are not all known: no transaction counts as an orphan.
            if self._is_whole and (self._damaged or self._broker.groups.damaged):
                end_orphans(self._broker, self.coordinator.table, self.markers)
                self._flush()
        self.coordinator.start_expiry()

    def stop(self) -> None:
        """Stop serving. Pending requests fail with NOT_COORDINATOR. Unpublished changes are kept for the last `take_changes`."""
        if self._unpublished.is_stopped:
            return
        self._flush()
        self.topic.closed = True
        table = self.coordinator.table
        self._unpublished.stop()
        for partition in table.partitions:
            self.coordinator.unload(partition)

    def _flush(self) -> None:
        """Write pending batches and their consequences: a Prepare state leads to markers, these to the completion."""
        for _ in range(_FLUSHES_MAX):
            if not self._broker.append_queue.flush():
                return

    # For Delta

    def take_changes(self) -> Changes:
        """Return the changes that `transactions` lacks. After `stop`, return the last of them once."""
        return self._unpublished.take()

    def put_back(self, changes: Changes) -> None:
        """Restore `changes` after a failed publish."""
        self._unpublished.put_back(changes)

    async def trim(self, resume_at: Mapping[int, int]) -> None:
        """Trim the journal up to `resume_at`, where Delta has the states and it is worth it. Failures are retried."""
        await self.topic.trim(resume_at)

    # Loading

    def _serve(self, published: Iterable[TransactionRow], positions: Mapping[int, int]) -> None:
        rows: dict[int, list[TransactionRecord]] = defaultdict(list)
        for row in published:
            rows[row.journal_partition].append(record_of(row))
        journal = self.topic.journal
        lost: dict[int, list[range]] = {}
        filler = encode(TransactionTombstone(""))
        served = [index for index in range(journal.partitions) if not journal.is_offline(index)]
        for index in served:
            position = positions.get(index, 0)
            self.topic.fill(index, position, filler)
            partition = journal.partition(index)
            begin = max(position, partition.log.log_start_offset)
            self.coordinator.begin_load(index, partition.leader_epoch, begin, rows[index])
            lost[index] = self.topic.replay(index, partial(self._follow, index, begin))
        # All partitions are loaded before any resumes: their markers are written together, before the next publish.
        for index in served:
            self.coordinator.finish_load(index, journal.partition(index).log.high_watermark, lost[index])
        self._damaged = any(lost.values())
        self._is_whole = len(served) == journal.partitions

    def _follow(self, index: int, begin: int, batch: ReadBatch) -> None:
        """Apply the records of one journal batch that Delta does not have."""
        records = [JournalRecord(key or b"", value) for key, value in batch.pairs]
        known = max(begin - batch.base_offset, 0)
        if known < len(records):
            self.coordinator.load(index, batch.base_offset + known, records[known:])


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    """Return the coordinator's settings from the broker's."""
    return TransactionConfig(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transactional_ids_max=config.transactional_ids_max,
        transaction_remove_expired_transaction_cleanup_interval_ms=(
            config.transaction_remove_expired_transaction_cleanup_interval_ms
        ),
    )
