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


TURN_NS = 5_000_000
"""The duration of a turn of long work on the event loop."""


async def in_short_turns(steps: Generator[None, None, T], now_ns: Callable[[], int]) -> T:
    """Return what `steps` return. After about `TURN_NS` other work of the event loop goes on."""
    end_ns = now_ns() + TURN_NS
    try:
        while True:
            next(steps)
            if now_ns() >= end_ns:
                await asyncio.sleep(0)
                end_ns = now_ns() + TURN_NS
    except StopIteration as stop:
        found: T = stop.value
        return found


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Return what `steps` return. Where they yield, other work of the event loop goes on."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: T = stop.value
            return found
        await asyncio.sleep(0)
