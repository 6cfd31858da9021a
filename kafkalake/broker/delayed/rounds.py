"""The rounds of one journal partition: when records are due, they are taken from the index and given to the delivery.

A round takes at most `ROUND_RECORDS`. After a full one the next follows while there is room for what it has given, else
`ROUND_INTERVAL_MS` later: a round of few records costs about as much as one of many, and rounds without a pause would keep the
event loop from handing over what they have taken. If the journal is too large to be read in each round, the records of the next
seconds are read ahead, in one pass for a window of time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import numpy as np

from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.delayed.delivery import Delivery
from kafkalake.broker.delayed.due_runs import DUE, OFFSET, Entries
from kafkalake.broker.delayed.journal_state import JournalState
from kafkalake.broker.delayed.payloads import Payloads, Room
from kafkalake.broker.delayed.rows import WaitingRows, read_waiting, waiting_rows
from kafkalake.clock import Clock
from kafkalake.delayed_journal import Reason
from kafkalake.errors import CorruptSegmentError, KafkaLakeError
from kafkalake.record.arrays import Int64s
from kafkalake.record.message_set import MessageSet
from kafkalake.run_blocking import RunBlocking, in_turns
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

ROUND_RECORDS = 5_000
ROUND_BYTES = 16 << 20
ROUND_INTERVAL_MS = 10
"""From the beginning of a round to that of the next one, unless more was due than a round takes."""
LOOK_MS = 30_000
"""The longest time until the next look at the index: the wall clock may jump."""
PAUSE_MS = 1_000
READ_AHEAD_ABOVE_BYTES = 256 << 10
"""The size of a journal partition from which records are read ahead."""
AHEAD_MS = 2_000
"""How long before its beginning a window is read."""
WINDOW_MS = 60_000
WINDOW_RECORDS = 100_000


class Rounds:
    """The rounds over a state that follows `log`. `failed` is called if the index has to be built again."""

    def __init__(
        self,
        log: Log,
        state: JournalState,
        delivery: Delivery,
        room: Room,
        clock: Clock,
        timers: Timers,
        run_blocking: RunBlocking,
        failed: Callable[[OSError], None],
    ) -> None:
        self._log = log
        self._state = state
        self._delivery = delivery
        self._room = room
        self._clock = clock
        self._timers = timers
        self._run_blocking = run_blocking
        self._failed = failed
        self._payloads = Payloads(self._read, room)
        self._ready_until_ms = 0
        self._wakes_at_ms: int | None = None
        self._next_round_ms = 0
        """The earliest time of the next round (monotonic)."""
        self._round: asyncio.Task[None] | None = None
        self._ahead: asyncio.Task[None] | None = None
        self._is_closed = False

    def close(self) -> None:
        """Begin no more rounds."""
        self._is_closed = True
        for task in (self._round, self._ahead):
            if task is not None:
                task.cancel()
        self._payloads.close()

    def followed(self, messages: MessageSet, added: Entries) -> None:
        """Note entries that the state has taken from messages, and wake if they are due before the others."""
        soon = added[added[:, DUE] < self._ready_until_ms, OFFSET] if len(added) else _NONE
        if len(soon) and self._room.free_bytes:
            within = soon[(soon >= messages.base_offset) & (soon < messages.next_offset)]
            self._payloads.keep(waiting_rows(messages, np.sort(within)))
        self.wake()

    def wake(self) -> None:
        """Begin a round if records are due, or set the alarm for the first that is due. Read ahead if it is time to."""
        if self._is_closed or (self._round is not None and not self._round.done()):
            return
        due_ms, now_ms = self._state.index.next_due_ms, self._clock.now_ms()
        if self._delivery.parked.has_unblocked:
            due_ms = now_ms
        if due_ms is None:
            return
        pause_ms = self._next_round_ms - self._clock.monotonic_ms()
        if due_ms <= now_ms and pause_ms <= 0:
            self._round = asyncio.ensure_future(self._deliver())
            self._round.add_done_callback(self._ended)
            return
        self._read_ahead(now_ms)
        ahead_ms = AHEAD_MS if due_ms - now_ms > AHEAD_MS else 0
        delay_ms = min(max(due_ms - now_ms - ahead_ms, pause_ms), LOOK_MS)
        at_ms = self._clock.monotonic_ms() + delay_ms
        if self._wakes_at_ms is None or at_ms < self._wakes_at_ms:
            self._wakes_at_ms = at_ms
            self._timers.schedule(delay_ms, partial(self._alarm, at_ms))

    def _alarm(self, at_ms: int) -> None:
        if self._wakes_at_ms == at_ms:
            self._wakes_at_ms = None
        self.wake()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._is_closed:
            return
        error = task.exception()
        if error is None:
            self.wake()
            return
        logger.error("delayed records not handed over log=%s error=%s", self._log.directory, error)
        if isinstance(error, OSError):
            self._failed(error)
        else:
            self._timers.schedule(PAUSE_MS, self.wake)

    # What is due

    async def _deliver(self) -> None:
        """Hand over what is due now, and move what is due soon.

        Raise `OSError` if the index cannot be read, `KafkaLakeError` if the journal cannot.
        """
        while await self._deliver_some():
            await asyncio.sleep(0)

    async def _deliver_some(self) -> bool:
        """Hand over what a round takes, and return whether there may be more of it at once."""
        self._next_round_ms = self._clock.monotonic_ms() + ROUND_INTERVAL_MS
        state, now_ms = self._state, self._clock.now_ms()
        state.index.add(self._delivery.take_unblocked())
        is_moving = state.index.advance(now_ms)
        self._read_ahead(now_ms)
        limit = self._records_of(ROUND_BYTES, ROUND_RECORDS)
        entries = state.index.take(now_ms, limit)
        if not len(entries):
            return is_moving
        free = entries[state.is_free(entries[:, OFFSET])]
        if len(free):
            try:
                found = await self.read_undamaged(free[:, OFFSET])
            except Exception:
                state.index.add(free)
                raise
            for rows in found:
                await self._queue(rows)
        self._payloads.forget_before(int(entries[-1, DUE]))
        await self._delivery.have_room()
        return is_moving or len(entries) == limit

    async def read_undamaged(self, offsets: Int64s) -> list[WaitingRows]:
        """Return the records at these offsets, in order and in parts, without those that are damaged: they keep no others back."""
        try:
            return [await self._payloads.take(offsets)]
        except CorruptSegmentError as error:
            if len(offsets) == 1:
                logger.error(
                    "a delayed record is damaged, and waits on log=%s offset=%d error=%s",
                    self._log.directory,
                    offsets[0],
                    error,
                )
                return []
        half = len(offsets) // 2
        return await self.read_undamaged(offsets[:half]) + await self.read_undamaged(offsets[half:])

    async def _queue(self, rows: WaitingRows) -> None:
        cancelled = self._state.cancels.are_cancelled(rows.batch.column("headers"), rows.fields)
        if cancelled.any():
            self._delivery.finish(rows.offsets[cancelled], Reason.CANCELLED)
            rows = rows.take(np.flatnonzero(~cancelled))
        if len(rows):
            await in_turns(self._delivery.add(rows))

    def _records_of(self, size_bytes: int, records_max: int) -> int:
        """Return the number of records of about this size, from the average of the log."""
        log = self._log
        record_bytes = log.size_bytes // max(log.log_end_offset - log.replica_start_offset, 1) + 1
        return max(1, min(records_max, size_bytes // record_bytes))

    async def _read(self, offsets: Int64s) -> WaitingRows:
        log = self._log
        found: WaitingRows = await self._run_blocking(lambda: read_waiting(log, offsets, log.high_watermark))
        return found

    # What is due soon

    def _read_ahead(self, now_ms: int) -> None:
        if self._ready_until_ms >= now_ms + AHEAD_MS or (self._ahead is not None and not self._ahead.done()):
            return
        if self._log.size_bytes >= READ_AHEAD_ABOVE_BYTES and self._room.free_bytes:
            self._ahead = asyncio.ensure_future(self._read_window(now_ms))

    async def _read_window(self, now_ms: int) -> None:
        """Read the records of the next window, as many as there is room for."""
        index = self._state.index
        while index.advance(now_ms):
            await asyncio.sleep(0)
        until_ms = min(now_ms + WINDOW_MS, index.complete_ms)
        limit = self._records_of(self._room.free_bytes // 2, WINDOW_RECORDS)
        entries = index.peek(until_ms - 1, limit)
        if len(entries) < index.count_due(until_ms - 1):
            until_ms = int(entries[-1, DUE])
        self._ready_until_ms = max(until_ms, now_ms + AHEAD_MS // 2)
        offsets = entries[:, OFFSET]
        try:
            await self._payloads.prefetch(offsets[self._state.is_free(offsets)])
        except KafkaLakeError as error:
            logger.warning("delayed records not read ahead log=%s error=%s", self._log.directory, error)


_NONE: Int64s = np.zeros(0, dtype=np.int64)
