"""What a coordinator has to report for its table, and the trimming of its journal behind what is published.

Changes are collected on the event loop. Those of a report that was not acknowledged are put back before the next are taken, so the
positions of a report never pass a change that Delta lacks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Generic, Protocol, TypeVar

from kafkalake.broker.coordination.table import Changed, Changes
from kafkalake.broker.groups.published import published_row as published_offset
from kafkalake.broker.groups.table import ChangedOffset
from kafkalake.broker.publishing.reports import JournalReport, JournalRow
from kafkalake.broker.transactions.published import published_row as published_transaction
from kafkalake.broker.transactions.table import ChangedTransaction
from kafkalake.clock import Clock
from kafkalake.run_blocking import TURN_NS, in_turns

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=Changed)


class Journaled(Protocol[C]):
    """The changes of a coordinator's journal that Delta lacks, as `JournalLifecycle` keeps them."""

    @property
    def has_changes(self) -> bool: ...

    def take_changes(self) -> Changes[C]: ...

    def collect_changes(self) -> Generator[None, None, Changes[C]]: ...

    def put_back(self, changes: Changes[C]) -> None: ...

    async def trim(self, resume_at: Mapping[int, int]) -> None: ...


class JournalReporter(Generic[C]):
    """The reports of one coordinator. Runs on the event loop's thread. `row_of` makes a change, with the time in ms, a row."""

    def __init__(self, journal: Journaled[C], row_of: Callable[[C, int], JournalRow], clock: Clock) -> None:
        self._journal = journal
        self._row_of = row_of
        self._clock = clock
        self._sequence = clock.now_ms()
        self._reported: Changes[C] | None = None
        self._collecting = asyncio.Lock()
        self._trimming: asyncio.Task[None] | None = None

    @property
    def has_changes(self) -> bool:
        """Return whether there is anything to report."""
        return self._reported is not None or self._journal.has_changes

    async def report(self) -> JournalReport:
        """Return everything that was not acknowledged. It is collected in turns: a publish may be behind by very many rows."""
        async with self._collecting:
            reported, self._reported = self._reported, None
            if reported is not None and reported.rows:
                self._journal.put_back(reported)
            now_ns = self._clock.monotonic_ns
            changes = self._reported = await in_turns(self._journal.collect_changes(), now_ns, TURN_NS)
            self._sequence += 1
            return await in_turns(self._as_report(changes, self._sequence), now_ns, TURN_NS)

    def _as_report(self, changes: Changes[C], sequence: int) -> Generator[None, None, JournalReport]:
        now_ms, rows, positions = self._clock.now_ms(), [], {}
        for row in changes.rows:
            rows.append(self._row_of(row, now_ms))
            positions[row.journal_partition] = changes.resume_at[row.journal_partition]
            yield
        return JournalReport(sequence, rows, positions)

    def acknowledge(self, sequence: int) -> None:
        """Forget the last report if it is this one, and trim the journal up to where Delta has it."""
        changes, self._reported = self._reported, None if sequence == self._sequence else self._reported
        if changes is None and not self._journal.has_changes:
            changes = self._journal.take_changes()  # no rows: positions alone
        if changes is not None and self._reported is None and (self._trimming is None or self._trimming.done()):
            self._trimming = asyncio.ensure_future(self._trim(changes.resume_at))

    async def _trim(self, resume_at: Mapping[int, int]) -> None:
        try:
            await self._journal.trim(resume_at)
        except Exception:
            logger.exception("journal not trimmed")

    async def stop(self) -> None:
        """Wait for a trim that is under way."""
        if self._trimming is not None:
            await asyncio.wait([self._trimming])


def report_group_offsets(journal: Journaled[ChangedOffset], clock: Clock) -> JournalReporter[ChangedOffset]:
    """Return the reports for `group_offsets`."""
    return JournalReporter(journal, published_offset, clock)


def report_transactions(journal: Journaled[ChangedTransaction], clock: Clock) -> JournalReporter[ChangedTransaction]:
    """Return the reports for `transactions`."""
    return JournalReporter(journal, published_transaction, clock)
