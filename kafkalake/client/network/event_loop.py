"""Carries out a machine's actions by the transports of the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import cast

from kafkalake.buffers import Buffer
from kafkalake.client.address import reason, unreachable
from kafkalake.client.errors import IllegalStateError
from kafkalake.client.network.machine import Action, Connect, Machine, Write
from kafkalake.clock import Clock
from kafkalake.errors import BrokerUnavailableError, ConnectionLostError, as_value

_AFTER_FAILURE_S = 0.1


class _Link(asyncio.BufferedProtocol):
    """The connection of one node. What comes after `drop` is not reported."""

    def __init__(self, edge: EventLoopEdge, node_id: int) -> None:
        self._edge = edge
        self._node_id = node_id
        self._transport: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None

    def begin(self, opening: asyncio.Task[None]) -> None:
        """Take over the task that opens the connection."""
        self.opening = opening

    def write(self, parts: Sequence[Buffer]) -> None:
        """Send a frame."""
        if self._transport is not None:
            self._transport.writelines(parts)

    def drop(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit asyncio's
        self._edge.opened(self._node_id, self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._edge.buffer(self._node_id, self)

    def buffer_updated(self, nbytes: int) -> None:
        self._edge.received(self._node_id, self, nbytes)

    def connection_lost(self, error: Exception | None) -> None:
        why = "connection closed by the other side" if error is None else reason(error)
        self._edge.lost(self._node_id, self, ConnectionLostError(why))


class EventLoopEdge:
    """See the module. All methods are called on the loop, `wake_up` and `abandon` excepted."""

    def __init__(
        self, machine: Machine, clock: Clock, failed: Callable[[Exception], None] = lambda error: None
    ) -> None:
        """`failed` is called with an error of the machine, which is polled again a little later."""
        self._failed = failed
        self._machine = machine
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, _Link] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_scheduled = False
        self._is_closed = False
        self._waiting: list[tuple[asyncio.Future[Exception | None], Callable[[], bool]]] = []

    def schedule(self) -> None:
        """Do what is to be done in the next turn of the loop."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self.turn)

    def wake_up(self) -> None:
        """Have `next_turn` return soon. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.turn)

    def check_loop(self) -> None:
        """Raise `IllegalStateError` if another event loop runs than that of the client, which may be over."""
        if asyncio.get_running_loop() is not self._loop:
            over = ", which is closed" if self.is_over else ""
            raise IllegalStateError(
                f"the client was made on another event loop{over}: each loop needs a client of its own"
            )

    @property
    def is_over(self) -> bool:
        """Return whether the client's event loop is closed."""
        return self._loop.is_closed()

    def turn(self) -> None:
        """Do what the machine decides on now, and come back when something is due."""
        self._is_scheduled = False
        if self._is_closed:
            return
        error: Exception | None = None
        try:
            wait_s = self._poll()
        except Exception as failure:
            error, wait_s = as_value(failure), _AFTER_FAILURE_S
            self._failed(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_s is not None and not self._is_closed:
            self._timer = self._loop.call_later(wait_s, self.turn)
        self._tell(error)

    def _tell(self, error: Exception | None) -> None:
        """Have those who wait for a turn go on, if they are due or the machine has failed."""
        waiting, self._waiting = self._waiting, []
        for turned, is_due in waiting:
            if turned.done():
                continue
            if error is not None or self._is_closed or is_due():
                turned.set_result(error)
            else:
                self._waiting.append((turned, is_due))

    def _poll(self) -> float | None:
        """Do what the machine decides on now. Return the seconds after which it is to be polled again."""
        for action in self._machine.poll(self._clock.monotonic_ms()):
            self._act(action)
        now_ms = self._clock.monotonic_ms()
        deadline_ms = self._machine.next_deadline_ms(now_ms)
        return None if deadline_ms is None else max(deadline_ms - now_ms, 0) / 1000

    async def next_turn(self, timeout_s: float, is_due: Callable[[], bool] = lambda: True) -> None:
        """Wait until `turn` has run again, at most `timeout_s`. Raise the error with which the machine failed in it.

        is_due: tells after a turn whether it was worth waiting for. With very many who wait, few are concerned by each.
        """
        turned = self._loop.create_future()
        self._waiting.append((turned, is_due))
        try:
            await asyncio.wait([turned], timeout=timeout_s)
        finally:
            turned.cancel()  # without effect if it is done: nobody waits for it any more
        if not turned.cancelled() and (error := turned.result()) is not None:
            raise error

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        links, self._links = self._links, {}
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it all connections
            for link in links.values():
                link.drop()
            self._tell(None)

    def abandon(self, client: object) -> None:
        """Warn that a client was dropped without having been closed, and close its connections. From any thread."""
        warnings.warn(
            f"unclosed {type(client).__module__}.{type(client).__name__}", ResourceWarning, stacklevel=3, source=client
        )
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.close)

    def opened(self, node_id: int, link: _Link) -> None:
        """Report an open connection."""
        if self._links.get(node_id) is link:
            self._machine.connected(node_id, self._clock.monotonic_ms())
            self.schedule()

    def buffer(self, node_id: int, link: _Link) -> memoryview:
        """Return where the bytes of a connection belong."""
        return self._machine.buffer(node_id) if self._links.get(node_id) is link else memoryview(bytearray(1))

    def received(self, node_id: int, link: _Link, count: int) -> None:
        """Report bytes. A part of a response is no news."""
        if self._links.get(node_id) is link and self._machine.received(node_id, count, self._clock.monotonic_ms()):
            self.schedule()

    def lost(self, node_id: int, link: _Link, error: BrokerUnavailableError) -> None:
        """Report the end of a connection, unless the machine ended it."""
        if self._links.get(node_id) is link:
            del self._links[node_id]
            self._machine.disconnected(node_id, error, self._clock.monotonic_ms())
            self.schedule()

    def _act(self, action: Action) -> None:
        if isinstance(action, Connect):
            link = self._links[action.node_id] = _Link(self, action.node_id)
            link.begin(self._loop.create_task(self._open(action, link)))
        elif isinstance(action, Write):
            if action.node_id in self._links:
                self._links[action.node_id].write(action.parts)
        elif action.node_id in self._links:
            self._links.pop(action.node_id).drop()

    async def _open(self, action: Connect, link: _Link) -> None:
        try:
            await self._loop.create_connection(lambda: link, action.address.host, action.address.port)
        except (OSError, UnicodeError) as error:
            self.lost(action.node_id, link, unreachable(action.address, error))
