"""The transaction coordinator on `__transaction_state` in a running broker.

After a start a prepared transaction gets its markers (again) before the first request is served.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from kafkalake.broker.admin.producer_ids import ProducerIds
from kafkalake.broker.coordination.journal_lifecycle import JournalHost, JournalLifecycle
from kafkalake.broker.coordination.journal_loading import Published
from kafkalake.broker.coordination.journal_writer import JournalWriter
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.purgatory import Timers
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.transactions.admission import Admission
from kafkalake.broker.transactions.config import TransactionConfig
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.expiry import Expiry
from kafkalake.broker.transactions.fault_points import kill_as_asked
from kafkalake.broker.transactions.markers import MarkerWriter, TransactionalOffsets
from kafkalake.broker.transactions.orphans import Orphans
from kafkalake.broker.transactions.published import changed_transaction
from kafkalake.broker.transactions.remote_admission import MarkerWatch, RemoteAdmission
from kafkalake.broker.transactions.remote_markers import RemoteMarkers
from kafkalake.broker.transactions.table import ChangedTransaction, TransactionEntry
from kafkalake.broker.transactions.transaction_peers import TransactionPeers
from kafkalake.broker.transactions.waves import Waves
from kafkalake.cluster.image import NO_LEADER
from kafkalake.config.part import part_of
from kafkalake.errors import CoordinatorLoadInProgressError
from kafkalake.internal_topics import TRANSACTION_JOURNAL
from kafkalake.metadata.store import JournalTables


class TransactionHost(JournalHost, Protocol):
    """The parts of a broker that its transaction coordinator needs."""

    producer_ids: ProducerIds
    timers: Timers
    scheduler: Scheduler

    broker_id: int
    transaction_peers: TransactionPeers

    @property
    def store(self) -> JournalTables: ...

    def marked(self, partition: Partition, is_written: bool) -> None: ...

    def transactions_loaded(self) -> None: ...


class TransactionService:
    """The transaction coordinator of one broker. Runs on the event loop's thread. Loading at start blocks it."""

    def __init__(self, host: TransactionHost, offsets: TransactionalOffsets) -> None:
        self._host = host
        self._offsets = offsets
        config, settings = host.config, part_of(host.config, TransactionConfig)
        watch, reached = MarkerWatch(), kill_as_asked(os.environ)
        self.waves = Waves(host.timers)
        self._coordinated_last: frozenset[int] | None = None
        self.markers = MarkerWriter(
            host.topics,
            host.append_queue,
            self.waves,
            host.marked,
            offsets,
            watch,
            lambda write: RemoteMarkers(
                host.broker_id, host.topics.leader_id, host.transaction_peers, host.timers, write
            ),
        )
        partitions = config.transaction_state_log_num_partitions
        writer = JournalWriter(host.topics, TRANSACTION_JOURNAL, host.append_queue, partitions)
        self.coordinator = TransactionCoordinator(
            settings,
            host.clock,
            host.timers,
            writer,
            self.markers,
            host.producer_ids.next_id,
            self.waves,
            reached,
        )
        self._expiry = Expiry(self.coordinator, host.timers)
        self.orphans = Orphans(host, offsets, self.coordinator.table, self.markers, host.transaction_peers.known)
        self._remote = RemoteAdmission(host.topics, host.transaction_peers, host.timers, watch, settings.remote_wait_ms)
        self.admission = Admission(self.coordinator, host.timers, self._remote, self.coordinator_elsewhere)
        self.journal = JournalLifecycle(
            TRANSACTION_JOURNAL,
            config.transaction_state_log_segment_bytes,
            "transaction.state.log.replication.factor",
            host,
            writer,
            self.coordinator.journaled,
            self._published,
            loaded=host.transactions_loaded,
            resigned=self._resigned,
            reached=reached,
            config={"min.insync.replicas": str(config.transaction_state_log_min_isr)},
        )

    def stop(self) -> None:
        """Stop serving, see `JournalLifecycle.stop`. The next leader of a journal partition sends the markers that are missing."""
        self._coordinated_last = self.coordinated
        self.waves.stop()
        self.journal.stop()
        self.markers.stop()
        self._remote.stop()

    @property
    def coordinated(self) -> frozenset[int]:
        """The partitions of the journal that are coordinated here, or were until the stop."""
        last = self._coordinated_last
        return self.coordinator.table.serving if last is None else last

    def coordinator_elsewhere(self, transactional_id: str) -> int | None:
        """Return the id of the broker that coordinates a transactional id, None if no other one does."""
        partition = self.coordinator.table.partition_of(transactional_id)
        if self.coordinator.table.shard(partition) is not None or not self.journal.exists:
            return None
        leader = self._host.topics.leader_id((TRANSACTION_JOURNAL, partition))
        return None if leader in (NO_LEADER, self._host.broker_id) else leader

    def epoch_of(self, transactional_id: str) -> int:
        """Return the epoch in which this broker coordinates a transactional id, 0 if nothing is coordinated in the lake yet.

        Raise `CoordinatorLoadInProgressError` if it is not loaded here.
        """
        table = self.coordinator.table
        shard = table.shard(table.partition_of(transactional_id))
        if shard is None and self.journal.exists:
            raise CoordinatorLoadInProgressError
        return 0 if shard is None else shard.leader_epoch

    def _resigned(self, entries: Sequence[TransactionEntry]) -> None:
        for entry in entries:
            current = entry.transaction.current
            if current is not None and current.state.is_prepared:
                self.markers.abandon(current.producer_id)

    async def start(self) -> None:
        """Load the journal at the broker's start, after the groups', and resume unfinished transactions.

        See `JournalLifecycle.start`.
        """
        await self.journal.start()
        self.journal.flush()
        table = self.coordinator.table
        if table.is_whole and (table.is_damaged or self._offsets.is_damaged):
            await self.orphans.end_known()
            self.journal.flush()
        self._expiry.start(self._host.scheduler)
        self._host.scheduler.every(
            "orphaned transactions",
            lambda: self._host.config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.orphans.look,
        )

    def _published(self) -> Published[ChangedTransaction]:
        transactions = self._host.store.load_transactions()
        return Published(map(changed_transaction, transactions.rows), transactions.positions)
