"""The transaction coordinator on `__transaction_state` in a running broker.

After a start a prepared transaction gets its markers (again) before the first request is served.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Protocol

from kafkalake.broker.admin.producer_ids import ProducerIds
from kafkalake.broker.coordination.journal_lifecycle import JournalHost, JournalLifecycle
from kafkalake.broker.coordination.journal_writer import JournalWriter
from kafkalake.broker.partitions.purgatory import Timers
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.transactions.admission import Admission
from kafkalake.broker.transactions.config import TransactionConfig
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.fault_points import kill_as_asked
from kafkalake.broker.transactions.held_offsets import HeldOffsets
from kafkalake.broker.transactions.markers import MarkerWriter, TransactionalOffsets
from kafkalake.broker.transactions.orphans import end_orphans
from kafkalake.broker.transactions.published import changed_transaction
from kafkalake.config.part import part_of
from kafkalake.internal_topics import TRANSACTION_JOURNAL
from kafkalake.metadata.tables.schemas import TransactionRow
from kafkalake.topic_partition import TopicPartition


class TransactionHost(JournalHost, Protocol):
    """The parts of a broker that its transaction coordinator needs."""

    producer_ids: ProducerIds
    timers: Timers
    scheduler: Scheduler

    held_offsets: HeldOffsets


class TransactionService:
    """The transaction coordinator of one broker. Runs on the event loop's thread. Loading at start blocks it."""

    def __init__(self, host: TransactionHost, offsets: TransactionalOffsets) -> None:
        self._host = host
        self._offsets = offsets
        config = host.config
        self.markers = MarkerWriter(host.topics, host.append_queue, host.held_offsets, host.moved, offsets)
        writer = JournalWriter(host.append_queue, config.transaction_state_log_num_partitions)
        self.coordinator = TransactionCoordinator(
            part_of(config, TransactionConfig),
            host.clock,
            host.timers,
            writer,
            self.markers,
            host.producer_ids.next_id,
            kill_as_asked(os.environ),
        )
        self.admission = Admission(self.coordinator, host.timers)
        self.journal = JournalLifecycle(
            TRANSACTION_JOURNAL,
            config.transaction_state_log_segment_bytes,
            host,
            writer,
            self.coordinator.journaled,
        )

    def start(
        self,
        published: Iterable[TransactionRow],
        positions: Mapping[int, int],
        stable_offsets: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Load the journal at the broker's start, after the groups', and resume unfinished transactions.

        `published`, `positions` and `stable_offsets` (of partitions) come from Delta. See `JournalLifecycle.start`.
        """
        self._host.held_offsets.resume(stable_offsets or {})
        self.journal.start(map(changed_transaction, published), positions)
        self.journal.flush()
        self._host.held_offsets.resumed()
        table = self.coordinator.table
        # With an offline journal partition the owners are not all known: no transaction counts as an orphan.
        if table.is_whole and (table.is_damaged or self._offsets.is_damaged):
            end_orphans(self._host.topics, self._offsets, table, self.markers)
            self.journal.flush()
        self.coordinator.start_expiry(self._host.scheduler)
