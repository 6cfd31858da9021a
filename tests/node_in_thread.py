"""A broker in a thread of this process, for tests that look at it or change it from inside while real clients use it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import uvloop

from kafkalake.broker.broker import Broker
from kafkalake.process.node import Node

T = TypeVar("T")
TIMEOUT_S = 60.0


class NodeInThread:
    """Runs a `Node` on an event loop of its own; use as a context manager."""

    def __init__(self, lake: Path, settings: Mapping[str, str] | None = None) -> None:
        # Tests write records of 1970, which retention would take away.
        self._settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.initial.task.delay.ms": str(24 * 60 * 60 * 1000),
            **(settings or {}),
        }
        self._lake = lake
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: uvloop.run(self._main()), daemon=True)
        self._error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop
        self.node: Node
        self.servers = ""

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.node = Node(self._lake, self._settings)
        try:
            await self.node.start()
            self.servers = f"127.0.0.1:{self.node.listeners[0].port}"
            self._started.set()
            await self._stop.wait()
        except BaseException as error:
            self._error = error
            self._started.set()
        finally:
            await self.node.stop()

    def __enter__(self) -> NodeInThread:
        self._thread.start()
        assert self._started.wait(TIMEOUT_S), "the broker did not start in time"
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop in order, as on SIGTERM."""
        if self._thread.is_alive():
            assert self._stop is not None
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the broker did not stop in time"

    @property
    def broker(self) -> Broker:
        """The parts of the broker; look at them on its loop, see `on_loop`."""
        assert self.node.broker is not None
        return self.node.broker

    def on_loop(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, called on the event loop's thread."""

        async def call() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(TIMEOUT_S)
