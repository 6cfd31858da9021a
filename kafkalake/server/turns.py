"""Long work of a request in short turns, so that no request holds the event loop, whatever it asks.

A handler whose work grows with its request is a generator: it yields between two elements, and returns the answer's values. A small
request runs to its end at once, for the price of the yields. One that takes longer than `TURN_S` goes on in turns: one turn of
one request for each turn of the event loop, in the order in which they asked, so that many long requests hold it no longer than
one. Handlers that are coroutines wait for their next turn with `await request.turn()`.

Decoding a large request and encoding the answer to one have no place to yield. They run in a thread
(`ServerContext.run_in_thread`), which shares the interpreter with the event loop: that gets it back within 5 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from kafkalake.broker.callbacks import Place, call_isolated

TURN_S = 0.005
LARGE_FRAME_BYTES = 32 * 1024
"""A request of so many bytes is decoded in a thread, but for Produce, which has its own decoding."""

Steps = Generator[None, None, Any]


class Turns:
    """The work that is under way, of all requests. Used by the event loop's thread only."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], None]] = deque()

    def run(
        self,
        steps: Steps,
        is_wanted: Callable[[], bool],
        finished: Callable[[Any], None],
        failed: Callable[[], None],
    ) -> None:
        """Run `steps` to their end, while `is_wanted`.

        What fails in the first turn is raised; later `failed` is called while it is handled.
        """
        end_s = time.perf_counter() + TURN_S
        try:
            while time.perf_counter() < end_s:
                next(steps)
        except StopIteration as stop:
            finished(stop.value)
            return

        def go_on() -> None:
            if not is_wanted():
                steps.close()
                return
            try:
                self.run(steps, is_wanted, finished, failed)
            except Exception:
                failed()

        self._later(go_on)

    def wait(self) -> Awaitable[None]:
        """Wait for the next turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._later(lambda: None if turn.done() else turn.set_result(None))
        return turn

    def stop(self) -> None:
        """Do nothing more."""
        self._waiting.clear()

    def _later(self, turn: Callable[[], None]) -> None:
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._call_soon(self._next)

    def _next(self) -> None:
        if not self._waiting:
            return
        call_isolated(Place.LONG_WORK, self._waiting[0])
        if self._waiting:
            self._waiting.popleft()
        if self._waiting:
            self._call_soon(self._next)
