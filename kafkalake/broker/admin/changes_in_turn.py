"""Changes of topics, one after another. A request waits for its own as long as it asked to; a change that has begun then goes on.

One whose turn has not come is dropped, as in Kafka: those that wait are of requests that wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from typing import TypeVar

from kafkalake.errors import KafkaError, NotControllerError, RequestTimedOutError, as_value

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ChangesInTurn:
    """The changes in progress. One begins when those before it have ended, if this broker is still the controller then."""

    def __init__(self, is_active: Callable[[], bool]) -> None:
        self._is_active = is_active
        self._lock = asyncio.Lock()
        self._under_way: set[asyncio.Task[object]] = set()

    async def finish(self, work: Coroutine[object, object, T], timeout_ms: int) -> T:
        """Return what `work` returns, made in its turn. Raise `NotControllerError`, what `work` raises, or after `timeout_ms`
        `RequestTimedOutError`, with the work going on if it has begun, or may begin at once. Without any time it does not begin."""
        if timeout_ms <= 0:
            work.close()
            raise RequestTimedOutError()
        task = asyncio.create_task(self._in_turn(work))
        self._keep(task)
        try:
            return await asyncio.wait_for(asyncio.shield(task), timeout_ms / 1000)
        except TimeoutError:
            if self._lock.locked() and getcoroutinestate(work) == CORO_CREATED:
                task.cancel()
                work.close()
            raise RequestTimedOutError() from None
        except KafkaError as error:
            raise as_value(error) from None  # without frames that reference the futures holding it
        finally:
            del task

    def begin(self, work: Coroutine[object, object, object]) -> None:
        """Make a change in its turn that nobody waits for."""
        self._keep(asyncio.create_task(self._in_turn(work)))

    async def wait(self) -> None:
        """Wait until no change is in progress."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    async def _in_turn(self, work: Coroutine[object, object, T]) -> T:
        async with self._lock:
            if not self._is_active():
                work.close()
                raise NotControllerError()
            return await work

    def _keep(self, task: asyncio.Task[T]) -> None:
        self._under_way.add(task)
        task.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[object]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), KafkaError):
            logger.error("change of topics failed error=%r", task.exception())
