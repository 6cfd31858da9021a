"""Hands due records of one journal partition over to their targets: intent, append, finished.

    add(rows)          they queue at their targets
    write()            one append to the journal: what was finished, and an intent for each target that is free
    acknowledged       each intent's batch is sent to its target
    the target has it  finished: its target is free

Nothing is aborted. A write to the journal or to a target that fails is repeated as it was, after a pause. What has come of it is
known by the journal's order and by the target's sequences. Only a target that has refused a batch for good gets another intent in
its place, or none.

Runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from functools import partial
from itertools import islice

import numpy as np

from kafkalake.broker.callbacks import Done
from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.delayed.dead_letters import DeadLetters, Read
from kafkalake.broker.delayed.due_runs import Entries
from kafkalake.broker.delayed.fault_points import DelayedPoint
from kafkalake.broker.delayed.hand_overs import HandOvers, Target
from kafkalake.broker.delayed.made_batches import Append, append_made
from kafkalake.broker.delayed.parked import Parked
from kafkalake.broker.delayed.queued import HandOver, Queued, parts_to_try, pause_after, take
from kafkalake.broker.delayed.rows import WaitingRows, delivered_batch
from kafkalake.broker.delayed.targets import OUT_OF_SEQUENCE, REFUSED, TOO_LARGE, UNKNOWN, Metrics, Targets
from kafkalake.broker.partitions.append_queue import TURN_NS
from kafkalake.clock import Clock
from kafkalake.delayed_journal import NOWHERE, Kind, Note, Reason, encode_notes, note
from kafkalake.errors import KafkaError, UnknownTopicIdError, error_for_code
from kafkalake.record.arrays import Int64s
from kafkalake.record.batch import ProducerBatch

logger = logging.getLogger(__name__)

BATCH_ROWS_MAX = 2_000
BATCH_BYTES_MAX = 512 << 10
"""The maximum of one batch for a target, if one record is not larger."""
TARGETS_MAX = 1_000
"""The maximum number of intents in one write."""
HELD_BYTES_MAX = 8 << 20
"""The bytes of records that wait for their targets above which no more are added."""
GATHER_MS = 1
"""How long acknowledgements are gathered before the next write."""
FINISHED_WITHIN_MS = 100
"""How long finished hand-overs may wait for intents to be written with."""
PARK_AFTER = 5
"""Failures of a hand-over after which the records behind it are parked."""
APART_BYTES_MAX = 64 << 20
"""The bytes of hand-overs that fail and are not counted among those that are held: others go on meanwhile."""
GONE_AFTER_MS = 30_000
"""How long a topic must have been unknown until it is taken for deleted."""

_NONE: Int64s = np.zeros(0, dtype=np.int64)
_NOWHERE: Target = NOWHERE, -1


class Delivery:
    """The hand-overs of one journal partition."""

    def __init__(
        self,
        producer_id: int,
        hand_overs: HandOvers,
        append: Append,
        targets: Targets,
        clock: Clock,
        timers: Timers,
        metrics: Metrics,
        reach: Callable[[Enum], None],
        unblocked: Callable[[], None],
        read: Read,
    ) -> None:
        """`unblocked` is called when parked records are to be taken and added again. read: of records that are given up."""
        self.parked = Parked()
        self._dead_letters = DeadLetters(
            targets.dead_letter, read, self._hand_to_dead_letters, pause_after, BATCH_ROWS_MAX, BATCH_BYTES_MAX, timers
        )
        self.queued = 0
        """The number of records that have been added and are not finished."""
        self.held_bytes = 0
        """The bytes of these."""
        self.is_closed = False
        self._producer_id = producer_id
        self._hand_overs = hand_overs
        self._append = append
        self._targets = targets
        self._clock = clock
        self._timers = timers
        self._metrics = metrics
        self._reach = reach
        self._unblocked = unblocked
        self._apart_bytes = 0
        self._unknown_since_ms: dict[Target, int] = {}
        self._queues: dict[Target, deque[Queued]] = {}
        self._under_way: dict[Target, HandOver] = {}
        self._to_write: list[HandOver] = []
        self._to_send: deque[HandOver] = deque()
        self._finished: list[Note] = []
        self._apart: deque[tuple[Callable[[], ProducerBatch], Done]] = deque()
        self._is_writing = False
        self._is_scheduled = False
        self._room = asyncio.Event()

    async def have_room(self) -> None:
        """Wait until less than `HELD_BYTES_MAX` are held."""
        while self.held_bytes > HELD_BYTES_MAX:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """Send and write nothing more. The next coordinator repeats what is open."""
        self.is_closed = True
        self._dead_letters.close()

    def add(self, rows: WaitingRows) -> Generator[None, None, None]:
        """Queue records that are due, behind those added before. Yields after each `TURN_NS`."""
        self._count(len(rows), int(rows.sizes.sum()))
        end_ns = self._clock.monotonic_ns() + TURN_NS
        for target, part in rows.by_target():
            if target in self.parked:
                self._park(target, [part])
            else:
                self._enqueue(target, Queued(part))
            if self._clock.monotonic_ns() >= end_ns:
                yield
                end_ns = self._clock.monotonic_ns() + TURN_NS
        self._write_within(GATHER_MS)

    def take_unblocked(self) -> Entries:
        """Return the entries of records that were added and parked, and whose targets take records again."""
        entries = self.parked.take()
        self.queued -= len(entries)
        return entries

    def _park(self, target: Target, parts: list[WaitingRows]) -> None:
        self.parked.park(target, parts)
        self.held_bytes -= sum(int(each.sizes.sum()) for each in parts)

    def resume(self, hand_over: HandOver) -> None:
        """Repeat an open intent of an earlier coordinator, with its records."""
        self._under_way[hand_over.note.target] = hand_over
        self._count(len(hand_over.note.offsets), hand_over.size_bytes)
        self._send_soon(hand_over)

    def finish(self, offsets: Int64s, reason: Reason) -> None:
        """Note that records wait no longer, without a hand-over."""
        self._finished.append(Note(Kind.FINISHED, _NOWHERE, -1, -1, offsets, reason))
        self._write_within(FINISHED_WITHIN_MS)

    def _count(self, records: int, size_bytes: int) -> None:
        self.queued += records
        self.held_bytes += size_bytes

    def _enqueue(self, target: Target, queued: Queued) -> None:
        self._queues.setdefault(target, deque()).append(queued)

    # The journal

    def write_apart(self, make: Callable[[], ProducerBatch], done: Done) -> None:
        """Append a batch when no other write is under way, made then. Call `done` when the state has followed it, or failed."""
        self._apart.append((make, done))
        self.write()

    def _write_one_apart(self) -> None:
        make, done = self._apart.popleft()

        def written(error: KafkaError | None) -> None:
            self._is_writing = False
            if not self.is_closed:
                done(error)
                self._write_within(GATHER_MS)

        self._is_writing = True
        append_made(self._append, make, written)

    def _write_within(self, delay_ms: int) -> None:
        if not self._is_scheduled or delay_ms == GATHER_MS:
            self._is_scheduled = True
            self._timers.schedule(delay_ms, self.write)

    def write(self) -> None:
        """Write what is finished and the next intents, unless a write is under way: then they follow it."""
        self._is_scheduled = False
        if self._is_writing or self.is_closed:
            return
        if self._apart:
            self._write_one_apart()
            return
        hand_overs, self._to_write = self._to_write, []
        end_ns = self._clock.monotonic_ns() + TURN_NS
        for target in self._free_targets(TARGETS_MAX - len(hand_overs)):
            if self._clock.monotonic_ns() >= end_ns:
                break
            hand_over = self._under_way[target] = self._next(target)
            hand_overs.append(hand_over)
        finished, self._finished = self._finished, []
        if hand_overs or finished:
            self._is_writing = True
            notes = [note(each) for each in (*finished, *(hand_over.note for hand_over in hand_overs))]
            self._append_notes(notes, hand_overs, 0)

    def _free_targets(self, limit: int) -> list[Target]:
        return list(islice((each for each in self._queues if each not in self._under_way), limit))

    def _next(self, target: Target) -> HandOver:
        """Take the next batch of records from a target's queue, with its intent. The others come before its next one."""
        queue = self._queues.pop(target)
        error_code = queue[0].error_code
        rows, size_bytes = take(queue, error_code, BATCH_ROWS_MAX, BATCH_BYTES_MAX)
        if queue:
            self._queues[target] = queue
        return HandOver(self._hand_overs.intent(target, rows.offsets, error_code), rows, size_bytes)

    def _written(self, notes: list[bytes], hand_overs: list[HandOver], failures: int, error: KafkaError | None) -> None:
        if self.is_closed:
            return
        if error is not None:
            logger.warning("journal of delayed delivery not written, to be repeated error=%s", error)
            self._timers.schedule(pause_after(failures), partial(self._write_again, notes, hand_overs, failures + 1))
            return
        self._is_writing = False
        if hand_overs:
            self._reach(DelayedPoint.INTENTS_JOURNALLED)
        if len(notes) > len(hand_overs):
            self._reach(DelayedPoint.FINISHED_JOURNALLED)
        is_sending = bool(self._to_send)
        for hand_over in hand_overs:
            if hand_over.rows is None:
                del self._under_way[hand_over.note.target]
            else:
                self._to_send.append(hand_over)
        if not is_sending:
            self._send_some()
        if self._queues or self._to_write or self._finished or self._apart:
            self._write_within(GATHER_MS)

    def _write_again(self, notes: list[bytes], hand_overs: list[HandOver], failures: int) -> None:
        if not self.is_closed:
            self._append_notes(notes, hand_overs, failures)

    def _append_notes(self, notes: list[bytes], hand_overs: list[HandOver], failures: int) -> None:
        written = partial(self._written, notes, hand_overs, failures)
        append_made(self._append, partial(encode_notes, notes), written)

    # The targets

    def _send_soon(self, hand_over: HandOver) -> None:
        if not self._to_send:
            self._timers.schedule(GATHER_MS, self._send_some)
        self._to_send.append(hand_over)

    def _send_some(self) -> None:
        """Send what is to be sent, for about `TURN_NS`, and the rest in later turns of the event loop."""
        end_ns = self._clock.monotonic_ns() + TURN_NS
        try:
            while self._to_send and self._clock.monotonic_ns() < end_ns:
                self._send(self._to_send.popleft())
        finally:
            if self._to_send:
                self._timers.schedule(GATHER_MS, self._send_some)

    def _send(self, hand_over: HandOver) -> None:
        if self.is_closed:
            return
        rows, intent = hand_over.rows, hand_over.note
        assert rows is not None
        reason = error_for_code(intent.error_code).label if intent.reason is Reason.DEAD_LETTERED else ""
        batch = delivered_batch(rows, intent, self._producer_id, self._clock.now_ms(), reason)
        self._targets.append(intent.target, batch, partial(self._sent, hand_over, rows))

    def _sent(self, hand_over: HandOver, rows: WaitingRows, error: KafkaError | None) -> None:
        if self.is_closed:
            return
        self._count_apart(hand_over, 0)
        if error is None:
            self._reach(DelayedPoint.TARGET_APPENDED)
            self._finish(hand_over, rows)
        elif isinstance(error, OUT_OF_SEQUENCE):
            logger.error("target of delayed records has lost records target=%s error=%s", hand_over.note.target, error)
            changed = hand_over.note._replace(epoch=hand_over.note.epoch + 1, first_sequence=0)
            self._write_instead(HandOver(changed, rows, hand_over.size_bytes))
        elif (parts := parts_to_try(rows, hand_over.note, error)) is not None:
            self._split(hand_over, *parts)
        elif isinstance(error, (*TOO_LARGE, *REFUSED)) or self._is_gone(hand_over, error):
            self._give_up(hand_over, rows, error)
        else:
            self._send_later(hand_over, error)
            return
        self._unblock(hand_over.note.target)

    def _unblock(self, target: Target) -> None:
        if target in self.parked:
            self.parked.unblock(target)
            self._unblocked()

    def _finish(self, hand_over: HandOver, rows: WaitingRows) -> None:
        intent, now_ms = hand_over.note, self._clock.now_ms()
        del self._under_way[intent.target]
        self._finished.append(intent._replace(kind=Kind.FINISHED))
        self._count(-len(rows), -hand_over.size_bytes)
        self._room.set()
        if intent.reason is Reason.DEAD_LETTERED:
            self._metrics.dead_lettered(len(rows))
            self._dead_letters.finished(rows)
        else:
            self._metrics.handed_over(now_ms - rows.due_ms, now_ms)
        self._write_within(GATHER_MS if intent.target in self._queues else FINISHED_WITHIN_MS)

    def _write_instead(self, instead: HandOver) -> None:
        """Write another intent of a target that has refused the one before it, and has none of its records."""
        self._under_way[instead.note.target] = instead
        self._to_write.append(instead)
        self._write_within(GATHER_MS)

    def _split(self, hand_over: HandOver, first: WaitingRows, rest: WaitingRows) -> None:
        queue = self._queues.setdefault(hand_over.note.target, deque())
        queue.appendleft(Queued(rest, hand_over.note.error_code, stays=True))
        changed = hand_over.note._replace(offsets=first.offsets)
        self._write_instead(HandOver(changed, first, int(first.sizes.sum())))

    def _is_gone(self, hand_over: HandOver, error: KafkaError) -> bool:
        """Return whether the target's topic has been deleted. It may be one that is new, or not known here yet."""
        target = hand_over.note.target
        if not isinstance(error, UNKNOWN) or self._targets.exists(target):
            self._unknown_since_ms.pop(target, None)
            return False
        now_ms = self._clock.monotonic_ms()
        return now_ms - self._unknown_since_ms.setdefault(target, now_ms) >= GONE_AFTER_MS

    def _send_later(self, hand_over: HandOver, error: KafkaError) -> None:
        if not hand_over.failures:
            logger.warning(
                "delayed records not handed over, to be repeated target=%s error=%s", hand_over.note.target, error
            )
        self._timers.schedule(pause_after(hand_over.failures), partial(self._send_soon, hand_over))
        hand_over.failures += 1
        if hand_over.failures >= PARK_AFTER:
            self._step_aside(hand_over)

    def _step_aside(self, hand_over: HandOver) -> None:
        """Make room for other targets: park the records behind a hand-over that fails, and count its own apart."""
        target = hand_over.note.target
        queue = self._queues.pop(target, deque())
        self._park(target, [each.rows for each in queue if not each.stays])
        if any(each.stays for each in queue):
            self._queues[target] = deque(each for each in queue if each.stays)
        if self._apart_bytes + hand_over.size_bytes <= APART_BYTES_MAX:
            self._count_apart(hand_over, hand_over.size_bytes)
        self._room.set()

    def _count_apart(self, hand_over: HandOver, size_bytes: int) -> None:
        more = size_bytes - hand_over.apart_bytes
        hand_over.apart_bytes = size_bytes
        self._apart_bytes += more
        self.held_bytes -= more

    # Dead letters

    def _give_up(self, hand_over: HandOver, rows: WaitingRows, error: KafkaError) -> None:
        """Withdraw an intent, and give its records up. Those behind them follow if the topic is gone.

        If it is the dead-letter topic that is gone, there is another one. Its settings may refuse records too.
        """
        target = hand_over.note.target
        logger.error("delayed records not delivered target=%s records=%d error=%s", target, len(rows), error)
        self._write_instead(HandOver(hand_over.note._replace(offsets=_NONE), None, 0))
        self._release(rows)
        if hand_over.note.reason is not Reason.DEAD_LETTERED:
            self._dead_letters.add(rows, error.code)
        elif isinstance(error, UNKNOWN):
            self._dead_letters.return_batch(rows, hand_over.note.error_code)
        else:
            self._dead_letters.refused(rows, hand_over.note.error_code)
        for each in self._queues.pop(target, ()) if isinstance(error, UNKNOWN) else ():
            self._release(each.rows)
            self._dead_letters.add(each.rows, each.error_code or UnknownTopicIdError.code)

    def _release(self, rows: WaitingRows) -> None:
        """Let go of the bytes of records that are read again before they are handed over."""
        self.held_bytes -= int(rows.sizes.sum())
        self._room.set()

    def _hand_to_dead_letters(self, target: Target, rows: WaitingRows, error_code: int) -> None:
        self.held_bytes += int(rows.sizes.sum())
        self._enqueue(target, Queued(rows, error_code, stays=True))
        self._write_within(GATHER_MS)
