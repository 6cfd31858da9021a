"""Batches on their way to other brokers: each gets an answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from kafkalake.broker.callbacks import CallbackLoop, Done, call_isolated
from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.coordination.lanes import Lanes, ask_each
from kafkalake.errors import KafkaError

REQUEST_BYTES = 4 << 20
"""Bytes of batches from which on a request takes no more."""
REQUEST_BATCHES = 1_000

T = TypeVar("T")
Ask = Callable[[int, Sequence[T]], Awaitable[Sequence[KafkaError | None]]]
"""Sends batches to a broker and returns the error of each, or None. Raises `BrokerUnavailableError` if it does not answer."""


class _Waiting(NamedTuple, Generic[T]):
    batch: T
    size: int
    done: Done


class SentBatches(Generic[T]):
    """The batches of one kind that wait for other brokers, in order. Runs on the event loop's thread."""

    def __init__(self, ask: Ask[T], timers: Timers) -> None:
        self._ask = ask
        self._lanes: Lanes[int, _Waiting[T]] = Lanes(_take, self._send, timers)

    def send(self, broker_id: int, batch: T, size: int, done: Done) -> None:
        """Send a batch of `size` bytes. Call `done` once: with None, the broker's error, or `NetworkExceptionError`."""
        self._lanes.send(broker_id, _Waiting(batch, size, done))

    def stop(self) -> None:
        """Send nothing more."""
        self._lanes.stop()

    async def _send(self, broker_id: int, taken: Sequence[_Waiting[T]]) -> bool:
        answers = await ask_each(self._ask, broker_id, [each.batch for each in taken], "batches")
        errors = [answers] * len(taken) if isinstance(answers, KafkaError) else answers
        for each, error in zip(taken, errors, strict=True):
            call_isolated(CallbackLoop.COORDINATED, each.done, error)
        return True


def _take(broker_id: int, waiting: deque[_Waiting[T]]) -> list[_Waiting[T]]:
    taken = [waiting.popleft()]
    size = taken[0].size
    while waiting and size < REQUEST_BYTES and len(taken) < REQUEST_BATCHES:
        taken.append(waiting.popleft())
        size += taken[-1].size
    return taken
