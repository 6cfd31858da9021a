"""Runs long work of a request in short turns, so that no request blocks the event loop.

A handler whose work grows with its request is a generator: it yields between elements, and returns the response's values. A small
request runs to its end at once, at the cost of the yields. One that takes longer than `TURN_NS` continues in turns: one turn of
one request per iteration of the event loop, in request order, so that many long requests block it no longer than one.
Coroutine handlers wait for their next turn with `await request.turn()`. A connection of which very many small requests come at once
handles them in such turns, too.

A response with many elements is encoded in such turns as well (`Request.reply`), a few responses at a time. Decoding a large
request cannot yield. It runs in a thread (`ServerContext.run_in_thread`), from which the event loop regains the interpreter within
5 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.clock import Clock
from kafkalake.run_blocking import TURN_NS

LARGE_FRAME_BYTES = 32 * 1024
"""Requests from this size on are decoded in a thread, except Produce, which has its own decoding."""
TRIMMED_FRAME_BYTES = 4 * 1024 * 1024
"""After requests from this size on, free heap is returned to the system: their fields take many times their size."""

Steps = Generator[None, None, Any]
Finished = Callable[[Any], None]
"""Is called with what the steps return."""


class Turns:
    """The long work in progress, of all requests. Used by the event loop's thread only."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], clock: Clock) -> None:
        self._call_soon = call_soon
        self._now_ns = clock.monotonic_ns
        self._waiting: deque[Callable[[], None]] = deque()

    def run(
        self,
        steps: Steps,
        is_wanted: Callable[[], bool],
        finished: Finished,
        failed: Callable[[Exception], None],
    ) -> None:
        """Run `steps` to their end, while `is_wanted`.

        Errors in the first turn are raised. For later ones `failed` is called.
        """
        end_ns = self._now_ns() + TURN_NS
        try:
            while True:
                next(steps)
                if self._now_ns() >= end_ns:
                    break
        except StopIteration as stop:
            finished(stop.value)
            return

        def go_on() -> None:
            if not is_wanted():
                steps.close()
                return
            try:
                self.run(steps, is_wanted, finished, failed)
            except Exception as error:
                failed(error)

        self.later(go_on)

    def wait(self) -> Awaitable[None]:
        """Return a future that completes in the next turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.later(lambda: None if turn.done() else turn.set_result(None))
        return turn

    def stop(self) -> None:
        """Drop all remaining work."""
        self._waiting.clear()

    def later(self, turn: Callable[[], None]) -> None:
        """Call `turn` in an iteration of the event loop of its own, behind those that wait."""
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._call_soon(self._next)

    def _next(self) -> None:
        if not self._waiting:
            return
        call_isolated(CallbackLoop.LONG_WORK, self._waiting[0])
        if self._waiting:
            self._waiting.popleft()
        if self._waiting:
            self._call_soon(self._next)


class FewAtATime:
    """Long work of which only a part is in progress and the rest waits: work that takes memory while it goes on."""

    def __init__(self, turns: Turns, in_progress_max: int) -> None:
        self._turns = turns
        self._room = in_progress_max
        self._waiting: deque[Callable[[], None]] = deque()

    def run(
        self,
        steps: Steps,
        is_wanted: Callable[[], bool],
        finished: Finished,
        failed: Callable[[Exception], None],
    ) -> None:
        """Run `steps` as `Turns.run`, now or once there is room."""

        def begin() -> None:
            self._turns.run(self._until_over(steps), is_wanted, finished, failed)

        def begin_late() -> None:
            if not is_wanted():
                self._give_room()
                return
            try:
                begin()
            except Exception as error:
                failed(error)

        if self._room:
            self._room -= 1
            begin()
        else:
            self._waiting.append(begin_late)

    def _until_over(self, steps: Steps) -> Steps:
        """Run `steps`, and give the room to others when they have ended, failed or are no longer wanted."""
        try:
            return (yield from steps)
        finally:
            self._give_room()

    def _give_room(self) -> None:
        if self._waiting:
            self._turns.later(self._waiting.popleft())
        else:
            self._room += 1
