"""The coordinator of one journal partition of delayed delivery: it loads it, follows it, and hands over what is due.

    the journal's watermark moves  ->  follow: the state takes in what was appended, whoever has
    the first record is due        ->  a round: entries in order, their records, one queue for each target (`Delivery`)

It keeps no state of its own that the journal does not have, so that any broker that leads the partition goes on. Reading the
journal in bulk (at the start, and the records of a round) is done in threads, all else on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol

from kafkalake.broker.callbacks import Done
from kafkalake.broker.delayed.delivery import Delivery
from kafkalake.broker.delayed.due_index import BucketFiles, DueIndex
from kafkalake.broker.delayed.fault_points import DelayedPoint
from kafkalake.broker.delayed.hand_ins import HandIns
from kafkalake.broker.delayed.hand_overs import hand_over_producer_id
from kafkalake.broker.delayed.journal_reading import take_in
from kafkalake.broker.delayed.journal_state import COLUMNS, JournalState
from kafkalake.broker.delayed.payloads import Room
from kafkalake.broker.delayed.queued import HandOver
from kafkalake.broker.delayed.rounds import Rounds
from kafkalake.broker.delayed.rows import WaitingRows, read_waiting
from kafkalake.broker.delayed.space import LOOK_MS, Space
from kafkalake.broker.delayed.targets import Metrics, Targets
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.clock import Clock
from kafkalake.delayed_journal import Note, Reason
from kafkalake.errors import (
    CoordinatorLoadInProgressError,
    CorruptSegmentError,
    KafkaError,
    KafkaLakeError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
)
from kafkalake.record.arrays import Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.run_blocking import RunBlocking

logger = logging.getLogger(__name__)

FOLLOW_BYTES = 1 << 20
IN_MEMORY_MAX = 32 << 10
"""Entries of far due times that a journal partition keeps in memory."""
PAUSE_MS = 1_000


class DelayedHost(Protocol):
    """The parts of a broker that a coordinator of delayed delivery needs."""

    append_queue: AppendQueue
    clock: Clock
    purgatory: Purgatory
    run_blocking: RunBlocking
    timers: Timers

    def moved(self, partition: Partition) -> None: ...


@dataclass(frozen=True, slots=True)
class JournalDescription:
    """A journal partition: the records that wait, those of them that are due and not handed over, and the next due time."""

    index: int
    is_loaded: bool
    waiting: int = 0
    overdue: int = 0
    next_due_ms: int | None = None


@dataclass(slots=True, eq=False)
class _Loaded:
    """The parts of a coordinator that has loaded its partition."""

    state: JournalState
    delivery: Delivery
    hand_ins: HandIns
    rounds: Rounds
    space: Space


class JournalCoordinator:
    """The coordinator of a journal partition that this broker leads. `start` it, and `close` it when it is led here no more.

    new_files: returns the files of a load, which no other one uses: a thread of a load that was given up may write yet.
    count_cancels: returns the `cancels` of all coordinators of the broker.
    """

    def __init__(
        self,
        partition: Partition,
        host: DelayedHost,
        targets: Targets,
        new_files: Callable[[], BucketFiles],
        room: Room,
        metrics: Metrics,
        reach: Callable[[Enum], None],
        count_cancels: Callable[[], int],
    ) -> None:
        self.partition = partition
        self._host = host
        self._targets = targets
        self._new_files = new_files
        self._room = room
        self._metrics = metrics
        self._reach = reach
        self._count_cancels = count_cancels
        self._loaded: _Loaded | None = None
        self._is_closed = False
        self._is_following = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Load the partition in the background, once all that earlier leaders acknowledged can be read."""
        self._host.append_queue.when_caught_up(self.partition, self._load_soon)

    def close(self) -> None:
        """Stop. Pending requests fail with NOT_COORDINATOR."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        self._unload()

    def _unload(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            self._host.purgatory.forget(self.partition, self._moved)
            loaded.rounds.close()
            loaded.delivery.close()
            loaded.hand_ins.close()
            _remove_files(loaded.state)

    def _load_soon(self) -> None:
        if not self._is_closed:
            task = asyncio.ensure_future(self._load())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def is_loaded(self) -> bool:
        """Return whether hand-ins are taken."""
        return self._loaded is not None

    @property
    def cancels(self) -> int:
        """The number of cancels in memory."""
        return 0 if self._loaded is None else self._loaded.state.cancels_held

    def describe(self) -> JournalDescription:
        """Return the numbers of the partition."""
        if self._loaded is None:
            return JournalDescription(self.partition.index, is_loaded=False)
        state, delivery = self._loaded.state, self._loaded.delivery
        return JournalDescription(
            self.partition.index,
            is_loaded=True,
            waiting=len(state.waiting),
            overdue=delivery.queued + state.index.count_due(self._host.clock.now_ms()),
            next_due_ms=state.index.next_due_ms,
        )

    # In

    def hand_in(self, batch: ProducerBatch, done: Done) -> None:
        """Append a batch of waiting records unless the journal has it. Call `done` when they are durable, or with the error."""
        if self._loaded is None:
            done(NotCoordinatorError() if self._is_closed else CoordinatorLoadInProgressError())
        else:
            self._loaded.hand_ins.take(batch, done)

    def _append_hand_in(self, batch: ProducerBatch, done: Done) -> None:
        def appended(error: KafkaError | None) -> None:
            if error is None:
                self._reach(DelayedPoint.HAND_IN_JOURNALLED)
            done(error)

        self._append(batch, appended)

    def _append(self, batch: ProducerBatch, done: Done) -> None:
        pending = PendingAppend(self.partition, batch, None)

        def settled() -> None:
            result = pending.result
            if result is None or isinstance(result, KafkaError):
                done(result or NotLeaderOrFollowerError())
            else:
                done(None)

        self._host.append_queue.add(pending, settled)

    def _append_notes(self, batch: ProducerBatch, done: Done) -> None:
        """Append notes, and call `done` when the state has followed them."""
        loaded = self._loaded

        def appended(error: KafkaError | None) -> None:
            if error is not None:
                done(error)
            elif loaded is None or self._loaded is not loaded:
                return  # nobody waits for it any more
            elif self._follow_all():
                done(None)
            else:
                self._host.timers.schedule(PAUSE_MS, partial(appended, None))

        self._append(batch, appended)

    # Loading

    async def _load(self) -> None:
        while not self._is_closed:
            state = self._new_state()
            try:
                await self._host.run_blocking(partial(self._read_journal, state))
                opened = [await self._read_opened(each) for each in state.hand_overs.open.values()]
            except Exception as error:
                _remove_files(state)
                logger.warning(
                    "journal of delayed delivery not loaded partition=%s error=%r", self.partition.name, error
                )
                await asyncio.sleep(PAUSE_MS / 1000)
            else:
                self._begin(state, opened)
                return

    def _new_state(self) -> JournalState:
        index = DueIndex(self._host.clock.now_ms(), self._new_files(), IN_MEMORY_MAX)
        return JournalState(self.partition.log.log_start_offset, index)

    def _read_journal(self, state: JournalState) -> None:
        """Let a new state follow the journal to the high watermark. Blocks."""
        log = self.partition.log
        while state.position < log.high_watermark and not self._is_closed:
            state.skip(log.log_start_offset)
            begin = state.position
            try:
                for messages in log.scan(state.position, log.high_watermark, COLUMNS):
                    state.follow(messages)
                    if self._is_closed:
                        break
            except CorruptSegmentError as error:
                logger.warning("journal of delayed delivery is read around damage error=%s", error)
            if state.position == begin:
                take_in(self.partition, state, FOLLOW_BYTES)
        if self._is_closed:
            _remove_files(state)

    async def _read_opened(self, intent: Note) -> HandOver:
        """Return an open intent with its records, without them if they are damaged: the target may have them or not."""
        try:
            rows = await self._read(intent.offsets)
            return HandOver(intent, rows, int(rows.sizes.sum()))
        except CorruptSegmentError as error:
            logger.error(
                "delayed records damaged that may have been delivered target=%s offsets=%s error=%s",
                intent.target,
                intent.offsets.tolist()[:10],
                error,
            )
            return HandOver(intent, None, 0)

    def _begin(self, state: JournalState, opened: Sequence[HandOver]) -> None:
        """Serve the partition, and repeat the intents that are open."""
        if self._is_closed:
            return
        rounds: Rounds
        delivery = Delivery(
            hand_over_producer_id(self.partition.replica),
            state.hand_overs,
            self._append_notes,
            self._targets,
            self._host.clock,
            self._host.timers,
            self._metrics,
            self._reach,
            lambda: rounds.wake(),
            lambda offsets: rounds.read_undamaged(offsets),
        )
        hand_ins = HandIns(state.doubles, self._append_hand_in, self._host.timers, self._count_cancels)
        rounds = Rounds(
            self.partition.log,
            state,
            delivery,
            self._room,
            self._host.clock,
            self._host.timers,
            self._host.run_blocking,
            self._reload,
        )
        space = Space(
            self.partition,
            state,
            delivery,
            self._read,
            self._host.clock,
            self._host.run_blocking,
            self._targets.exists,
            lambda: self._host.moved(self.partition),
            self._reach,
        )
        self._loaded = _Loaded(state, delivery, hand_ins, rounds, space)
        self._host.timers.schedule(LOOK_MS, partial(self._look, self._loaded))
        state.claim(each.note.offsets for each in opened)
        self._host.purgatory.observe(self.partition, self._moved)
        for each in [each for each in opened if each.rows is not None]:
            delivery.resume(each)
        logger.info("delayed records loaded partition=%s waiting=%d", self.partition.name, len(state.waiting))
        self._follow_soon()

    def _look(self, loaded: _Loaded) -> None:
        if self._loaded is loaded:
            task = asyncio.ensure_future(self._keep_short(loaded))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _keep_short(self, loaded: _Loaded) -> None:
        try:
            await loaded.space.look()
        except Exception as error:
            logger.warning("journal of delayed delivery not trimmed partition=%s error=%r", self.partition.name, error)
        finally:
            self._host.timers.schedule(LOOK_MS, partial(self._look, loaded))

    def _reload(self, error: OSError) -> None:
        """Build the state again: the index is only derived from the journal."""
        logger.error(
            "far due times cannot be read, to be loaded again partition=%s error=%s", self.partition.name, error
        )
        self._unload()
        self._load_soon()

    # Following

    def _moved(self, partition: Partition) -> None:
        loaded = self._loaded
        if loaded is not None and loaded.state.position < partition.log.high_watermark:
            self._follow_soon()

    def _follow_soon(self) -> None:
        if not self._is_following:
            self._is_following = True
            self._host.timers.schedule(1, self._follow)

    def _follow(self) -> None:
        """Take in a part of what was appended, and the rest in later turns of the event loop."""
        self._is_following = False
        loaded = self._loaded
        if loaded is None or self._is_closed:
            return
        if not self._follow_some(loaded):
            self._host.timers.schedule(PAUSE_MS, self._follow_soon)
            return
        if loaded.state.position < self.partition.log.high_watermark:
            self._follow_soon()
        loaded.rounds.wake()

    def _follow_some(self, loaded: _Loaded) -> bool:
        """Take in a part of what was appended, and return whether it could be read."""
        if loaded.state.position < self.partition.log.high_watermark:
            try:
                messages, added = take_in(self.partition, loaded.state, FOLLOW_BYTES)
            except KafkaLakeError as error:
                logger.error("journal of delayed delivery not read partition=%s error=%s", self.partition.name, error)
                return False
            loaded.hand_ins.followed()
            loaded.rounds.followed(messages, added)
            for offsets in loaded.state.take_superseded():
                loaded.delivery.finish(offsets, Reason.CARRIED_TWICE)
        return True

    def _follow_all(self) -> bool:
        """Take in all that is below the watermark now, notes that the next step needs, and return whether it could be read."""
        loaded = self._loaded
        assert loaded is not None
        while loaded.state.position < self.partition.log.high_watermark:
            if not self._follow_some(loaded):
                return False
        return True

    async def _read(self, offsets: Int64s) -> WaitingRows:
        log = self.partition.log
        found: WaitingRows = await self._host.run_blocking(lambda: read_waiting(log, offsets, log.high_watermark))
        return found


def _remove_files(state: JournalState) -> None:
    with contextlib.suppress(OSError):
        state.index.close()
