"""An awaitable interface to the transaction coordinator for one writing application.

It ends transactions as older clients do (the epoch is bumped at the beginning, not at the end), so the coordinator's final state of
a transaction names the producer that began it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from kafkalake.broker.coordination.journal import Producer
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.ending import EndRequest
from kafkalake.broker.transactions.states import State
from kafkalake.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    RequestTimedOutError,
    TransactionalIdNotFoundError,
)
from kafkalake.topic_partition import TopicPartition

ANSWER_TIMEOUT_S = 30.0
PAUSE_S = 0.002
LONGEST_PAUSE_S = 0.1
_AGAIN = (ConcurrentTransactionsError, CoordinatorLoadInProgressError)


class Outcome(Enum):
    """The state of a producer's transaction.

    `UNDECIDED`: its next state, possibly a decision, is being written to the journal. `COMMITTING`: decided, markers are missing.
    """

    OPEN = "open"
    UNDECIDED = "undecided"
    COMMITTING = "committing"
    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"


class ApplicationTransaction:
    """The transactions of one transactional id. Runs on the event loop's thread."""

    def __init__(self, coordinator: TransactionCoordinator, transactional_id: str) -> None:
        self._coordinator = coordinator
        self._id = transactional_id

    async def begin(self, timeout_ms: int) -> Producer:
        """Return a new producer and abort a transaction left open by an earlier one. Raise `KafkaError` if that fails."""
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

    async def add(self, producer: Producer, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction. Raise `KafkaError` if that fails."""
        error = await _answer(
            lambda reply: self._coordinator.add_partitions(self._id, producer, tuple(partitions), reply)
        )
        if error is not None:
            raise error()

    async def end(self, producer: Producer, *, committed: bool) -> None:
        """Commit or abort. Durable on return, though markers may be missing. Raise `KafkaError` if that fails."""
        request = EndRequest(producer, committed, version_2=False)
        result = await _answer(lambda reply: self._coordinator.end(self._id, request, reply))
        if result.error is not None:
            raise result.error()

    def outcome(self, producer: Producer) -> Outcome:
        """Return the state of the transaction of `producer`. Raise `KafkaError` if the coordinator cannot answer (loading, say)."""
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
        """Return `outcome` once no decision or commit marker is pending.

        Raise `KafkaError` if it cannot be determined, `RequestTimedOutError` if it is still pending after `ANSWER_TIMEOUT_S`.
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
    """Return the value that `ask` passes to its callback. Raise `RequestTimedOutError` after `ANSWER_TIMEOUT_S` without one."""
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
