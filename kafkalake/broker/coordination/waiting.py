"""Waits of coroutines: for calls of the coordinators' callbacks, and for work that is done in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")


async def wait_for_call(ask: Callable[[Callable[[T], None]], None]) -> T:
    """Call `ask` with a callback, and return the value that the callback is called with first, at once or later."""
    called: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def call(value: T) -> None:
        if not called.done():
            called.set_result(value)

    ask(call)
    return await called


async def in_turns(steps: Generator[None, None, T], now_ns: Callable[[], int] = lambda: 0, turn_ns: int = 0) -> T:
    """Return what `steps` return. Other work of the event loop goes on where they yield, `turn_ns` after it did last or later."""
    end_ns = now_ns() + turn_ns
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: T = stop.value
            return found
        if now_ns() >= end_ns:
            await asyncio.sleep(0)
            end_ns = now_ns() + turn_ns
