"""An awaitable interface to the transaction coordinator for one writing application.

It ends transactions as older clients do (the epoch is bumped at the beginning, not at the end), so the coordinator's final state of
a transaction names the producer that began it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from enum import Enum
from functools import partial
from typing import TypeVar

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.coordination.waiting import wait_for_call
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.ending import EndRequest
from kafkalake.broker.transactions.requests import ProducerResult
from kafkalake.broker.transactions.states import State
from kafkalake.errors import (
    ConcurrentTransactionsError,
    RequestTimedOutError,
    TransactionalIdNotFoundError,
)
from kafkalake.topic_partition import TopicPartition

ANSWER_TIMEOUT_S = 30.0

T = TypeVar("T")


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

    async def begin(self, timeout_ms: int) -> ProducerIdAndEpoch:
        """Return a new producer and abort a transaction left open by an earlier one. Raise `KafkaError` if that fails."""
        async with _time_limit("the transaction coordinator did not answer in time"):
            while True:
                result: ProducerResult = await wait_for_call(
                    lambda reply: self._coordinator.init_producer_id(self._id, timeout_ms, None, reply)
                )
                if result.error is None:
                    return ProducerIdAndEpoch(result.producer_id, result.epoch)
                if result.error is not ConcurrentTransactionsError:
                    raise result.error()
                await self._between_steps()

    async def add(self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction. Raise `KafkaError` if that fails."""
        error: ErrorClass | None = await _answer(
            lambda reply: self._coordinator.add_partitions(self._id, producer, tuple(partitions), reply)
        )
        if error is not None:
            raise error()

    async def end(self, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        """Commit or abort. Durable on return, though markers may be missing. Raise `KafkaError` if that fails."""
        request = EndRequest(producer, committed, version_2=False)
        result: ProducerResult = await _answer(lambda reply: self._coordinator.end(self._id, request, reply))
        if result.error is not None:
            raise result.error()

    def outcome(self, producer: ProducerIdAndEpoch) -> Outcome:
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

    async def settled(self, producer: ProducerIdAndEpoch) -> Outcome:
        """Return `outcome` once no decision or commit marker is pending.

        Raise `KafkaError` if it cannot be determined, `RequestTimedOutError` if it is still pending after `ANSWER_TIMEOUT_S`.
        """
        async with _time_limit("the end of a transaction could not be written in time"):
            while (outcome := self.outcome(producer)) in (Outcome.COMMITTING, Outcome.UNDECIDED):
                await self._between_steps()
        return outcome

    async def _between_steps(self) -> None:
        await wait_for_call(partial(self._coordinator.when_between_steps, self._id))


_OUTCOMES = {
    State.ONGOING.label: Outcome.OPEN,
    State.PREPARE_COMMIT.label: Outcome.COMMITTING,
    State.COMPLETE_COMMIT.label: Outcome.COMMITTED,
}


async def _answer(ask: Callable[[Callable[[T], None]], None]) -> T:
    """Return the value that `ask` passes to its callback. Raise `RequestTimedOutError` after `ANSWER_TIMEOUT_S` without one."""
    async with _time_limit("the transaction coordinator did not answer in time"):
        return await wait_for_call(ask)


@contextlib.asynccontextmanager
async def _time_limit(message: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            yield
    except TimeoutError:
        raise RequestTimedOutError(message) from None
