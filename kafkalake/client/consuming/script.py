"""A call of a consumer as a script: a generator that says when it waits, and what of the application is called.

So `consumer.Consumer`, which blocks, and `aio.Consumer`, which awaits, are the same code: both run the scripts of `calls`, and
differ in how they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class Wait(NamedTuple):
    """Let the edge work until there is news, at most until a time, and at least once."""

    until_ms: int


class Call(NamedTuple):
    """Call something of the application, and wait for it."""

    call: Callable[[], object]


Script: TypeAlias = Generator[Wait | Call, object, T]
