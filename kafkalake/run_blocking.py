"""How work that blocks (files, locks, Delta tables), or takes long, is run beside an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work that yields where other work may have its turn, and returns its result."""

TURN_NS = 5_000_000
"""For how long work may hold the event loop before other work has its turn."""


class RunBlocking(Protocol):
    """Run `work` in a thread of an executor; what it returns or raises is the awaited result."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


def retrieve_error(work: asyncio.Future[T]) -> None:
    """Retrieve the error of work that has ended. asyncio logs one that is not, as that of work which nobody waits for any more."""
    if not work.cancelled():
        work.exception()


def take_all(steps: Steps[T]) -> T:
    """Take all steps at once, and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result


async def in_turns(steps: Steps[T], now_ns: Callable[[], int] = lambda: 0, turn_ns: int = 0) -> T:
    """Return what `steps` return. Other work of the event loop goes on where they yield, `turn_ns` after it did last or later."""
    from asyncio import sleep  # which commands without an event loop do not import

    end_ns = now_ns() + turn_ns
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: T = stop.value
            return found
        if now_ns() >= end_ns:
            await sleep(0)
            end_ns = now_ns() + turn_ns


async def iterate_in_turns(items: Iterable[T], now_ns: Callable[[], int]) -> AsyncIterator[T]:
    """Yield items. Whenever what is done with them has taken `TURN_NS`, other work of the event loop has its turn."""
    from asyncio import sleep  # which commands without an event loop do not import

    end_ns = now_ns() + TURN_NS
    for each in items:
        yield each
        if now_ns() >= end_ns:
            await sleep(0)
            end_ns = now_ns() + TURN_NS
