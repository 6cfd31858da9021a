"""Removes the transactional ids that were not used for `transactional.id.expiration.ms`.

Ids that a job takes for each of its runs end together, and a coordinator may have a million. So they are looked at in short turns,
and a bounded number of tombstones is on its way to the journal at a time. One that cannot be written is left to the next look.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.table import TransactionEntry
from kafkalake.run_blocking import TURN_NS

TOMBSTONES_MAX = 500
"""The most that are on their way to the journal."""
RETRY_MS = 100
"""The pause until others are looked at when there are so many."""


class Expiry:
    """The expiry of a coordinator's ids. Runs on the event loop's thread."""

    def __init__(self, coordinator: TransactionCoordinator, timers: Timers) -> None:
        self._coordinator = coordinator
        self._timers = timers
        self._looked_at: Iterator[TransactionEntry] | None = None
        self._under_way: list[TransactionEntry] = []

    def start(self, scheduler: Scheduler) -> None:
        """Look for expired ids every `transaction.remove.expired.transaction.cleanup.interval.ms` from now on."""
        interval_ms = self._coordinator.config.transaction_remove_expired_transaction_cleanup_interval_ms
        scheduler.every("expiry of transactional ids", lambda: interval_ms, self.expire)

    def expire(self) -> None:
        """Begin to remove the expired ids, unless an earlier look at them goes on."""
        if self._looked_at is None:
            self._looked_at = iter(self._coordinator.table)
            self._go_on()

    def _go_on(self) -> None:
        clock, looked_at = self._coordinator.clock, self._looked_at
        assert looked_at is not None
        end_ns = clock.monotonic_ns() + TURN_NS
        self._under_way = [entry for entry in self._under_way if entry.transaction.has_step]
        while len(self._under_way) < TOMBSTONES_MAX:
            entry = next(looked_at, None)
            if entry is None:
                self._looked_at = None
                return
            call_isolated(CallbackLoop.COORDINATED, self._look_at, entry)
            if clock.monotonic_ns() >= end_ns:
                self._timers.schedule(0, self._go_on)
                return
        self._timers.schedule(RETRY_MS, self._go_on)

    def _look_at(self, entry: TransactionEntry) -> None:
        coordinator, transaction = self._coordinator, entry.transaction
        if coordinator.table.find(entry.name) is not entry:
            return  # coordinated elsewhere by now, or gone
        if transaction.expire():
            coordinator.effects.run(entry)
            if transaction.has_step:
                self._under_way.append(entry)
