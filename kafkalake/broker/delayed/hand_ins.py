"""The way into one journal partition: each produced batch's delayed records once, however often they are handed in.

A batch whose append has ended without a result, because the replicas in sync have not got it in time, may be below the watermark
later. A repetition of it waits for that, and is not appended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from kafkalake.broker.callbacks import CallbackLoop, Done, call_isolated
from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.delayed.doubles import Doubles
from kafkalake.delayed_journal import NO_DUE_TIME, HandInKey, Kind, hand_in_key, read_fields
from kafkalake.errors import (
    InvalidRecordError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    RequestTimedOutError,
)
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch, body_to_arrow

UNCERTAIN = RequestTimedOutError, NotEnoughReplicasAfterAppendError
"""Errors of batches that are in the log and may yet be committed."""
CANCELS_MAX = 200_000
"""The cancels in the memory of a broker above which no more are taken. Each is kept for five minutes or somewhat more."""
WAIT_MS = 30_000
"""The longest wait of a repetition for the batch that it repeats."""
_NO_ROOM = f"{CANCELS_MAX} cancels of delayed records are kept, the most: to be sent again in some minutes"
_OF_BATCH = (
    "producer_epoch",
    "target_partition",
    "target_id",
    "source_id",
    "source_partition",
    "first_sequence",
    "producer_id",
)
"""The fields that all records of a batch share."""


def check_hand_in(batch: ProducerBatch) -> None:
    """Check that a batch has only records that wait and cancels, all of one produced batch, as `delayed_journal.encode` makes it.

    Raise `InvalidRecordError`: what else the journal has is written by its coordinator alone.
    """
    rows = batch.to_arrow()
    fields = read_fields(rows.column("headers"))
    due_ms = rows.column("timestamp").view(pa.int64()).to_numpy()
    is_cancel = fields["kind"] == Kind.CANCEL
    if not ((is_cancel & (due_ms == NO_DUE_TIME)) | ((fields["kind"] == Kind.WAITING) & (due_ms >= 0))).all():
        raise InvalidRecordError("a record that is handed in neither waits nor cancels others")
    if any((fields[name] != fields[name][0]).any() for name in _OF_BATCH):
        raise InvalidRecordError("records that are handed in together are of several batches")


def count_cancels_in(batch: ProducerBatch) -> int:
    """Return the number of cancels of a batch."""
    due_ms = body_to_arrow(batch.body, batch.layout, at.TIMESTAMP_COLUMN).column("timestamp").view(pa.int64())
    return int(np.count_nonzero(due_ms.to_numpy() == NO_DUE_TIME))


class HandIns:
    """The batches that are being appended to a journal partition, and those of unknown outcome."""

    def __init__(
        self,
        doubles: Doubles,
        append: Callable[[ProducerBatch, Done], None],
        timers: Timers,
        count_cancels: Callable[[], int],
    ) -> None:
        """count_cancels: returns the number of cancels in the broker's memory."""
        self._doubles = doubles
        self._append = append
        self._timers = timers
        self._count_cancels = count_cancels
        self._under_way: dict[HandInKey, list[Done]] = {}
        self._uncertain: set[HandInKey] = set()

    def take(self, batch: ProducerBatch, done: Done) -> None:
        """Append a batch that `delayed_journal.encode` has made, unless the journal has it, and call `done`.

        One with cancels for which there is no room fails with `NotEnoughReplicasAfterAppendError`, which producers send again.
        """
        key = hand_in_key(batch)
        if key.is_idempotent and self._doubles.has(key):
            done(None)
        elif key.is_idempotent and key in self._under_way:
            self._under_way[key].append(done)
            if key in self._uncertain:
                self._timers.schedule(WAIT_MS, partial(self._give_up, key, done))
        elif (cancels := count_cancels_in(batch)) and self._count_cancels() + cancels > CANCELS_MAX:
            done(NotEnoughReplicasAfterAppendError(_NO_ROOM))
        elif not key.is_idempotent:
            self._append(batch, done)
        else:
            self._under_way[key] = [done]
            self._append(batch, partial(self._appended, key))

    def _appended(self, key: HandInKey, error: KafkaError | None) -> None:
        if isinstance(error, UNCERTAIN):
            self._uncertain.add(key)
            waiting, self._under_way[key] = self._under_way[key], []
        else:
            waiting = self._under_way.pop(key, [])
            if error is None:
                self._doubles.add(key)
        for done in waiting:
            call_isolated(CallbackLoop.COORDINATED, done, error)

    def _give_up(self, key: HandInKey, done: Done) -> None:
        waiting = self._under_way.get(key, [])
        if done in waiting:
            waiting.remove(done)
            done(RequestTimedOutError())

    def followed(self) -> None:
        """Answer the repetitions of batches that the journal has by now."""
        for key in [each for each in self._uncertain if self._doubles.has(each)]:
            self._uncertain.discard(key)
            for done in self._under_way.pop(key):
                call_isolated(CallbackLoop.COORDINATED, done, None)

    def close(self) -> None:
        """Refuse the repetitions that wait. Appends under way answer themselves."""
        for key in self._uncertain:
            for done in self._under_way.pop(key):
                call_isolated(CallbackLoop.COORDINATED, done, NotCoordinatorError())
        self._uncertain.clear()
