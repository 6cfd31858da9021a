"""What waits for other brokers, in lanes: one request under way in each, and what comes meanwhile goes with the next one.

What is sent in one turn of the event loop goes together. Markers, writes that wait to be admitted and batches of delayed records
are sent so. Their senders bound what waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Generic, TypeVar

from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.coordination.waiting import wait_for_call
from kafkalake.errors import KafkaLakeError, NetworkExceptionError, as_value

logger = logging.getLogger(__name__)

L = TypeVar("L", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")

Take = Callable[[L, deque[T]], Sequence[T]]
"""Takes the items of the next request off the left end of a lane's queue: none if nothing that was taken is wanted any more."""
Ask = Callable[[L, Sequence[T]], Awaitable[bool]]
"""Sends items and settles them. Returns False if they are to be sent again, before those that came meanwhile."""


class Pauses(Generic[L]):
    """The pauses between the requests of a lane: none. Subclasses have others."""

    def first_ms(self, lane: L) -> int:
        """Return the time before the first request."""
        return 0

    def next_ms(self, lane: L, before_ms: int, is_answered: bool) -> int:
        """Return the time before the next request, by the pause before the last one and whether that was answered."""
        return 0


class Lanes(Generic[L, T]):
    """The items of one kind on their way, in order. A lane is a broker or a part of what goes to it. On the event loop's thread."""

    def __init__(self, take: Take[L, T], ask: Ask[L, T], timers: Timers, pauses: Pauses[L] | None = None) -> None:
        self._take = take
        self._ask = ask
        self._timers = timers
        self._pauses: Pauses[L] = pauses or Pauses()
        self._waiting: dict[L, deque[T]] = {}
        self._work: dict[L, asyncio.Task[None]] = {}

    def send(self, lane: L, item: T) -> None:
        """Send an item with the next request of a lane."""
        waiting = self._waiting.get(lane)
        if waiting is None:
            self._waiting[lane] = deque((item,))
            self._work[lane] = asyncio.ensure_future(self._serve(lane))
        else:
            waiting.append(item)

    def stop(self) -> None:
        """Send nothing more."""
        for task in self._work.values():
            task.cancel()

    async def _serve(self, lane: L) -> None:
        waiting = self._waiting[lane]
        pause_ms = self._pauses.first_ms(lane)
        try:
            await asyncio.sleep(0)  # those of this turn go together
            while waiting:
                if pause_ms:
                    await wait_for_call(partial(self._later, pause_ms))
                taken = self._take(lane, waiting)
                is_answered = not taken or await self._ask(lane, taken)
                if not is_answered:
                    waiting.extendleft(reversed(taken))
                pause_ms = self._pauses.next_ms(lane, pause_ms, is_answered)
        finally:
            del self._work[lane], self._waiting[lane]

    def _later(self, delay_ms: int, call: Callable[[None], None]) -> None:
        self._timers.schedule(delay_ms, partial(call, None))


async def ask_each(
    ask: Callable[[int, Sequence[T]], Awaitable[Sequence[R]]], broker_id: int, items: Sequence[T], what: str
) -> Sequence[R] | NetworkExceptionError:
    """Return a broker's answer to each of the items, or the error if it has not answered them all, which is logged.

    what: the items, for the log.
    """
    try:
        answers = await ask(broker_id, items)
        if len(answers) == len(items):
            return answers
        reason = f"{len(answers)} answers to {len(items)} {what}"
    except KafkaLakeError as error:
        reason = str(error)
    except Exception as error:
        logger.exception("%s not sent broker=%d number=%d", what, broker_id, len(items))
        return as_value(NetworkExceptionError(f"broker {broker_id} could not be asked: {type(error).__name__}"))
    logger.warning("%s not sent broker=%d number=%d error=%s", what, broker_id, len(items), reason)
    return NetworkExceptionError(f"broker {broker_id} does not answer: {reason}")
