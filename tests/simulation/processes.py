"""One life of a simulated broker: what is known of it to the machine, the network and the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.machine import ProcessFiles, SimulatedNode
    from simulation.network import Link


class Killed(KeyboardInterrupt):
    """The process ends here. Only these exceptions leave an event loop."""


class Process:
    """A life of a broker. boot: the start of its machine. work_ms: the longest work of its threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker_id: int, number: int, boot: int, work_ms: float) -> None:
        self.broker_id = broker_id
        self.number = number
        self.boot = boot
        self.work_ms = work_ms
        self.is_dead = False
        self.ended: asyncio.Future[None] = loop.create_future()
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)
        self.accepted: list[Link] = []
        self.opened: list[Link] = []
        """The connections to it, and those of it to other brokers."""
        self.accept: Callable[[], Any] | None = None
        self.files: ProcessFiles
        self.node: SimulatedNode

    def end(self) -> None:
        """Let nothing more be done in it."""
        self.is_dead = True
        if not self.ended.done():
            self.ended.set_result(None)


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
