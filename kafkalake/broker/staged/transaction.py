"""The transaction coordinator as one writing application sees it: awaitable, and free of who waits for what.

Ends its transactions as older clients do (the epoch stays at the end and grows at the beginning), so that the coordinator's last
word on a transaction names the very producer that began it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from kafkalake.broker.coordination.journal import Producer
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.ending import EndRequest
from kafkalake.broker.transactions.records import PartitionKey
from kafkalake.broker.transactions.states import State
from kafkalake.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    RequestTimedOutError,
    TransactionalIdNotFoundError,
)

ANSWER_TIMEOUT_S = 30.0
PAUSE_S = 0.002
LONGEST_PAUSE_S = 0.1
_AGAIN = (ConcurrentTransactionsError, CoordinatorLoadInProgressError)


class Outcome(Enum):
    """How a producer's transaction stands.

    `UNDECIDED`: its next state is on its way to the journal, a decision perhaps. `COMMITTING`: decided, markers are missing.
    """

    OPEN = "open"
    UNDECIDED = "undecided"
    COMMITTING = "committing"
    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"


class ApplicationTransaction:
    """The transactions of one transactional id. On the event loop's thread."""

    def __init__(self, coordinator: TransactionCoordinator, transactional_id: str) -> None:
        self._coordinator = coordinator
        self._id = transactional_id

    async def begin(self, timeout_ms: int) -> Producer:
        """A fresh producer; what an earlier one left open is aborted. Raises `KafkaError`."""
        deadline = _now() + ANSWER_TIMEOUT_S
        pause = PAUSE_S
        while True:
            result = await _answer(lambda reply: self._coordinator.init_producer_id(self._id, timeout_ms, None, reply))
            if result.error is None:
                return Producer(result.producer_id, result.epoch)
            if result.error not in _AGAIN or _now() > deadline:
                raise result.error()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def add(self, producer: Producer, partitions: Iterable[PartitionKey]) -> None:
        """What the transaction writes to. Raises `KafkaError`."""
        error = await _answer(
            lambda reply: self._coordinator.add_partitions(self._id, producer, tuple(partitions), reply)
        )
        if error is not None:
            raise error()

    async def end(self, producer: Producer, *, committed: bool) -> None:
        """Decide it; durable on return, markers may be missing. Raises `KafkaError`."""
        request = EndRequest(producer, committed, version_2=False)
        result = await _answer(lambda reply: self._coordinator.end(self._id, request, reply))
        if result.error is not None:
            raise result.error()

    def outcome(self, producer: Producer) -> Outcome:
        """What became of the transaction of `producer`. Raises `KafkaError` while the coordinator does not know yet."""
        try:
            if self._coordinator.is_deciding(self._id):
                return Outcome.UNDECIDED
            found = self._coordinator.describe(self._id)
        except TransactionalIdNotFoundError:
            return Outcome.NOT_COMMITTED
        if (found.producer_id, found.epoch) != (producer.producer_id, producer.epoch):
            return Outcome.NOT_COMMITTED
        return _OUTCOMES.get(found.state, Outcome.NOT_COMMITTED)

    async def settled(self, producer: Producer) -> Outcome:
        """As `outcome`, once nothing of it is under way: no decision, no marker of a commit.

        Raises `KafkaError`, `RequestTimedOutError`: what became of it is still not known then.
        """
        deadline = _now() + ANSWER_TIMEOUT_S
        pause = PAUSE_S
        while True:
            try:
                outcome = self.outcome(producer)
            except CoordinatorLoadInProgressError:
                outcome = Outcome.UNDECIDED
            if outcome not in (Outcome.COMMITTING, Outcome.UNDECIDED):
                return outcome
            if _now() > deadline:
                raise RequestTimedOutError(
                    f"the end of a transaction could not be written in time: it is {outcome.value}"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


_OUTCOMES = {
    State.ONGOING.label: Outcome.OPEN,
    State.PREPARE_COMMIT.label: Outcome.COMMITTING,
    State.COMPLETE_COMMIT.label: Outcome.COMMITTED,
}


async def _answer(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    """What `ask` is answered through the function that it is given, at once or later. Raises `RequestTimedOutError`."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def reply(result: Any) -> None:
        if not answered.done():
            answered.set_result(result)

    ask(reply)
    try:
        return await asyncio.wait_for(answered, ANSWER_TIMEOUT_S)
    except TimeoutError:
        raise RequestTimedOutError("the transaction coordinator did not answer in time") from None


def _now() -> float:
    return asyncio.get_running_loop().time()
