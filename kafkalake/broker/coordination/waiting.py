"""Waits of coroutines: for calls of the coordinators' callbacks, and for work that is done in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
