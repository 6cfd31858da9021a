"""Batches on their way to other brokers: one request under way to each, and what comes meanwhile goes with the next one."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.errors import KafkaError, KafkaLakeError, NetworkExceptionError, as_value

logger = logging.getLogger(__name__)

REQUEST_BYTES = 4 << 20
"""Bytes of batches from which on a request takes no more."""
REQUEST_BATCHES = 1_000

T = TypeVar("T")
Done = Callable[[KafkaError | None], None]
Ask = Callable[[int, Sequence[T]], Awaitable[Sequence[KafkaError | None]]]
"""Sends batches to a broker and returns the error of each, or None. Raises `BrokerUnavailableError` if it does not answer."""


class _Waiting(NamedTuple, Generic[T]):
    batch: T
    size: int
    done: Done


class Lanes(Generic[T]):
    """The batches of one kind that wait for other brokers, in order. Runs on the event loop's thread."""

    def __init__(self, ask: Ask[T]) -> None:
        self._ask = ask
        self._waiting: dict[int, deque[_Waiting[T]]] = {}
        self._work: dict[int, asyncio.Task[None]] = {}

    def send(self, broker_id: int, batch: T, size: int, done: Done) -> None:
        """Send a batch of `size` bytes. Call `done` once: with None, the broker's error, or `NetworkExceptionError`."""
        self._waiting.setdefault(broker_id, deque()).append(_Waiting(batch, size, done))
        if broker_id not in self._work:
            self._work[broker_id] = asyncio.ensure_future(self._serve(broker_id))

    def stop(self) -> None:
        """Send nothing more."""
        for task in self._work.values():
            task.cancel()

    async def _serve(self, broker_id: int) -> None:
        waiting = self._waiting[broker_id]
        try:
            await asyncio.sleep(0)  # those of this turn go together
            while waiting:
                taken = _take(waiting)
                for each, error in zip(taken, await self._answers(broker_id, taken), strict=True):
                    call_isolated(CallbackLoop.COORDINATED, each.done, error)
        finally:
            del self._work[broker_id], self._waiting[broker_id]

    async def _answers(self, broker_id: int, taken: Sequence[_Waiting[T]]) -> Sequence[KafkaError | None]:
        error: KafkaError
        try:
            answers = await self._ask(broker_id, [each.batch for each in taken])
            if len(answers) == len(taken):
                return answers
            error = NetworkExceptionError(f"broker {broker_id} gave {len(answers)} answers to {len(taken)} batches")
        except KafkaLakeError as unavailable:
            error = as_value(NetworkExceptionError(f"broker {broker_id} does not answer: {unavailable}"))
        except Exception:
            logger.exception("batches not sent broker=%d batches=%d", broker_id, len(taken))
            error = NetworkExceptionError(f"broker {broker_id} could not be asked")
        return [error] * len(taken)


def _take(waiting: deque[_Waiting[T]]) -> list[_Waiting[T]]:
    taken = [waiting.popleft()]
    size = taken[0].size
    while waiting and size < REQUEST_BYTES and len(taken) < REQUEST_BATCHES:
        taken.append(waiting.popleft())
        size += taken[-1].size
    return taken
