"""Keeps a journal partition short: carries out cancels, carries the last waiting records of old segments to the end, and trims.

    look   cancels that have come since the last pass: one pass over the headers, and the records that they name wait no longer
           most of the log does not wait any more: the waiting records of its first segments are appended again, with the note that
           the copies stand for them, in one batch
           the first segments have no waiting record: a snapshot of what only their notes say, then the log starts behind them

Records that are due soon are left alone, and those that were taken to be handed over, before the wall clock went back or while the
journal could not be written: they are on their way. A copy counts only if its original still waits there,
so that a batch that is written twice does not double anything. Originals of copies of unknown outcome are left alone: the copies
are in the log, and come when the replicas in sync have them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from kafkalake.broker.coordination.waiting import wait_for_call
from kafkalake.broker.delayed.cancels import Cancels
from kafkalake.broker.delayed.delivery import Delivery
from kafkalake.broker.delayed.fault_points import DelayedPoint
from kafkalake.broker.delayed.hand_ins import UNCERTAIN
from kafkalake.broker.delayed.hand_overs import Target
from kafkalake.broker.delayed.journal_reading import scan_undamaged
from kafkalake.broker.delayed.journal_state import COLUMNS, JournalState
from kafkalake.broker.delayed.rows import WaitingRows, carried_rows
from kafkalake.broker.partitions.partition import Partition
from kafkalake.clock import Clock
from kafkalake.delayed_journal import (
    NOWHERE,
    Kind,
    Note,
    Reason,
    encode_notes,
    note,
    producers_note,
    read_fields,
    sequences_note,
    settled_note,
)
from kafkalake.errors import CorruptSegmentError, KafkaError
from kafkalake.record.arrays import Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.build import build_from_arrow
from kafkalake.record.message_set import to_arrow
from kafkalake.run_blocking import RunBlocking

logger = logging.getLogger(__name__)

LOOK_MS = 30_000
SOON_MS = 120_000
"""Records that are due within this time are not carried and not searched for: they may be on their way."""
SETTLED_AFTER_MS = 300_000
"""How long a cancel is kept after it has come: a hand-in that is repeated may arrive after it."""
CARRY_RECORDS = 5_000
OFFSETS_IN_NOTE = 50_000
ENTRIES_IN_NOTE = 4_000


class Read(Protocol):
    """Read the waiting records at offsets, see `rows.read_waiting`."""

    def __call__(self, offsets: Int64s) -> Awaitable[WaitingRows]: ...


class _Pass(NamedTuple):
    """A pass that has carried out the cancels below the offset `end`, but for the records that are due before `soon_ms`.

    at_ms: when, by a clock that never goes back. soon_ms: since 1970.
    """

    at_ms: int
    soon_ms: int
    end: int


class Space:
    """The space of one journal partition. `look` at it from time to time.

    exists: whether a target is in the cluster's image. `trimmed` is called when the log's start has moved.
    """

    def __init__(
        self,
        partition: Partition,
        state: JournalState,
        delivery: Delivery,
        read: Read,
        clock: Clock,
        run_blocking: RunBlocking,
        exists: Callable[[Target], bool],
        trimmed: Callable[[], None],
        reach: Callable[[Enum], None],
    ) -> None:
        self._partition = partition
        self._log = partition.log
        self._state = state
        self._delivery = delivery
        self._read = read
        self._clock = clock
        self._run_blocking = run_blocking
        self._exists = exists
        self._trimmed = trimmed
        self._reach = reach
        self._settled_to = 0
        self._passes: list[_Pass] = []

    async def look(self) -> None:
        """Do what is to be done now. Raise `KafkaLakeError` if the journal cannot be read or written: look again later."""
        await self._settle_cancels()
        while await self._carry_some():
            pass
        await self._trim()

    # Cancels

    async def _settle_cancels(self) -> None:
        """Find the records that newer cancels name. Forget the cancels for which nothing more can arrive."""
        state, now_ms = self._state, self._clock.monotonic_ms()
        if not len(state.cancels):
            return
        if state.cancels.newest_offset >= self._settled_to:
            end, cancels = state.position, state.cancels.copy()
            soon_ms = self._clock.now_ms() + SOON_MS
            offsets = await self._run_blocking(partial(self._cancelled, end, cancels, soon_ms))
            offsets = offsets[state.is_free(offsets)]
            for begin in range(0, len(offsets), OFFSETS_IN_NOTE):
                await self._write(partial(_cancelling, offsets[begin : begin + OFFSETS_IN_NOTE]))
            self._settled_to = end
            self._passes.append(_Pass(now_ms, soon_ms, min(end, state.first_undecided)))
        old = [each.end for each in self._passes if now_ms - each.at_ms >= SETTLED_AFTER_MS and self._is_over(each)]
        if old and state.cancels.lowest_offset(state.position) < old[-1]:
            await self._write(lambda: encode_notes([settled_note(old[-1])]))
            self._passes = [each for each in self._passes if each.end > old[-1]]

    def _is_over(self, found: _Pass) -> bool:
        """Return whether the records that a pass has left alone have come due since, and been dropped if they were cancelled."""
        next_due_ms = self._state.index.next_due_ms
        return next_due_ms is None or next_due_ms > found.soon_ms

    def _cancelled(self, end: int, cancels: Cancels, soon_ms: int) -> Int64s:
        """Return the offsets of the cancelled records below `end` that are not due before `soon_ms`. Blocks."""
        found: list[Int64s] = []
        for messages in scan_undamaged(self._log, self._log.log_start_offset, end):
            table = to_arrow(messages, COLUMNS)
            headers = table.column("headers")
            fields = read_fields(headers)
            cancelled = cancels.are_cancelled(headers, fields) & (fields["kind"] == Kind.WAITING)
            cancelled &= table.column("timestamp").view(pa.int64()).to_numpy() > soon_ms
            found.append(table.column("offset").to_numpy()[cancelled])
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    # Carrying

    async def _carry_some(self) -> bool:
        """Carry the first records that wait if most of those behind them do not, and return whether some were carried."""
        log, waiting = self._log, self._state.waiting
        end = log.high_watermark
        first = waiting.first(end)
        following = [each for each in log.sealed_base_offsets if each > first]
        if not following or 2 * len(waiting) >= end - first:
            return False
        offsets = waiting.offsets(first, following[0])
        offsets = offsets[self._state.is_free(offsets)][:CARRY_RECORDS]
        if not len(offsets):
            return False
        try:
            rows = await self._read(offsets)
        except CorruptSegmentError as error:
            logger.error("damaged delayed records stay where they are log=%s error=%s", self._log.directory, error)
            return False
        if int(rows.due_ms.min()) <= max(self._clock.now_ms() + SOON_MS, self._state.index.taken_to_ms):
            return False
        await self._carry(rows)
        self._reach(DelayedPoint.CARRIED)
        return True

    async def _carry(self, rows: WaitingRows) -> None:
        """Write copies of those that have not been taken since. Those of unknown outcome come when the replicas have them."""
        state, carried = self._state, rows

        def make() -> ProducerBatch:
            nonlocal carried
            carried = rows.take(np.flatnonzero(state.is_free(rows.offsets) & (rows.due_ms > state.index.taken_to_ms)))
            return _carrying(carried)

        try:
            await self._write(make)
        except UNCERTAIN:
            state.claim([carried.offsets])
            raise

    # Trimming

    async def _trim(self) -> None:
        """Let the log start behind the segments without anything that counts."""
        log, state = self._log, self._state
        bases = [each for each in log.sealed_base_offsets if each <= self._first_needed()]
        start = bases[-1] if bases else 0
        if start <= log.log_start_offset:
            return
        state.hand_overs.forget_deleted(self._exists)
        await self._write(lambda: encode_notes(_snapshot(state)))
        start = min(start, self._first_needed())
        await self._partition.change_log(self._run_blocking, lambda: log.delete_records_before(start))
        state.trim(log.log_start_offset)
        self._reach(DelayedPoint.TRIMMED)
        self._trimmed()

    def _first_needed(self) -> int:
        state, end = self._state, self._state.position
        return min(state.waiting.first(end), state.first_undecided, state.cancels.lowest_offset(end))

    async def _write(self, make: Callable[[], ProducerBatch]) -> None:
        error: KafkaError | None = await wait_for_call(partial(self._delivery.write_apart, make))
        if error is not None:
            raise error


def _cancelling(offsets: Int64s) -> ProducerBatch:
    """Return the note that cancelled records wait no longer. It is followed before any of them is carried."""
    return encode_notes([note(Note(Kind.FINISHED, (NOWHERE, -1), -1, -1, offsets, Reason.CANCELLED))])


def _carrying(rows: WaitingRows) -> ProducerBatch:
    """Return the batch of copies, behind the note of what they stand for."""
    carried = Note(Kind.FINISHED, (NOWHERE, -1), -1, -1, rows.offsets, Reason.CARRIED)
    parts = [encode_notes([note(carried)]).to_arrow(), *([carried_rows(rows)] if len(rows) else [])]
    whole = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    offsets = pa.array(np.arange(len(whole)))
    return build_from_arrow(whole.set_column(0, whole.schema.field(0), offsets))


def _snapshot(state: JournalState) -> list[bytes]:
    """Return the notes of what trimmed notes may have said: sequences, open intents, producers."""
    return [
        *map(sequences_note, state.hand_overs.snapshots(ENTRIES_IN_NOTE)),
        *(note(each) for each in state.hand_overs.open.values()),
        *map(producers_note, state.doubles.snapshots(ENTRIES_IN_NOTE)),
    ]
