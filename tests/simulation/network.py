"""The simulated network: connections of clients and of brokers, which it delays, cuts and heals, each way for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from simulation.processes import Process

if TYPE_CHECKING:
    from simulation.universe import Universe

LATENCY_MS = 3
"""The longest way of a message."""
CLIENT = -1
_Way = tuple[int, int]
_Delivery = tuple[Context, Callable[..., None], tuple[Any, ...]]


class Network:
    """Which ways between brokers are cut or slow. Clients reach every broker."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._cut: set[_Way] = set()
        self._slow_ms: dict[_Way, float] = {}
        self._held: dict[_Way, list[_Delivery]] = {}
        self.connected = 0

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cut

    def latency_s(self, source: int, target: int) -> float:
        longest_ms = self._slow_ms.get((source, target), LATENCY_MS)
        return self._universe.random.random() * longest_ms / 1000

    def cut(self, source: int, target: int) -> None:
        """Hold back what is sent on a way from now on, and new connections."""
        self._universe.trace.add("cut", source, target)
        self._cut.add((source, target))

    def slow(self, source: int, target: int, longest_ms: float) -> None:
        self._universe.trace.add("slow", source, target, longest_ms)
        self._slow_ms[source, target] = longest_ms

    def heal(self) -> None:
        """Deliver what was held back, in order, and be fast again."""
        self._universe.trace.add("heal")
        self._cut.clear()
        self._slow_ms.clear()
        held, self._held = self._held, {}
        for way in sorted(held):
            for context, deliver, args in held[way]:
                self._universe.loop.call_soon(deliver, *args, context=context)

    def arrive(self, way: _Way, context: Context, deliver: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Deliver what has arrived, or hold it back."""
        if way in self._cut:
            self._held.setdefault(way, []).append((context, deliver, args))
        else:
            deliver(*args)


class Link(asyncio.Transport):
    """A connection to a broker: the broker's transport, and the other end, of a client or another broker."""

    def __init__(
        self,
        universe: Universe,
        source: int,
        process: Process,
        received: Callable[[bytes | None], None],
        context: Context,
    ) -> None:
        """`received` is called in `context` with the broker's bytes, and at the end with None."""
        universe.network.connected += 1
        self._number = universe.network.connected
        super().__init__({"peername": ("127.0.0.1", 50_000 + self._number)})
        self._universe = universe
        self._source = source
        self._process = process
        self._received = received
        self._context = context
        self._arrived = bytearray()
        self._paused = False
        self._is_closed = False
        self._times = [0.0, 0.0]
        assert process.accept is not None
        self.protocol: Any = process.context.copy().run(process.accept)
        process.accepted.append(self)
        process.context.copy().run(self.protocol.connection_made, self)

    def _later(
        self, way: int, context: Context, deliver: Callable[..., None], *args: Any, delay_s: float | None = None
    ) -> None:
        """Deliver in the order of sending, after a random time unless it is given."""
        loop, network = self._universe.loop, self._universe.network
        ends = (self._source, self._process.broker_id) if way == 0 else (self._process.broker_id, self._source)
        delay_s = network.latency_s(*ends) if delay_s is None else delay_s
        at = self._times[way] = max(self._times[way] + 1e-6, loop.time() + delay_s)
        loop.call_at(at, network.arrive, ends, context, deliver, args, context=context)

    # The other end.

    def send(self, data: bytes) -> None:
        random = self._universe.random
        cut = random.randrange(len(data)) if random.random() < 0.1 else len(data)
        for part in filter(None, (data[:cut], data[cut:])):
            self._later(0, self._process.context, self._arrive, part)

    def hang_up(self) -> None:
        self._later(0, self._process.context, self._lose, delay_s=self._own_delay_s)

    def lost(self) -> None:
        """End the connection for the other end."""
        self._is_closed = True
        self._later(1, self._context, self._received, None, delay_s=self._own_delay_s)

    @property
    def _own_delay_s(self) -> float:
        """Not by chance: a broker that stops closes its connections in the order of a set, which differs from run to run."""
        return (LATENCY_MS + self._number % 997 / 997) / 1000

    # The broker's end.

    def _arrive(self, data: bytes = b"") -> None:
        self._arrived += data
        while self._arrived and not self._paused and not self._is_closed:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(self._arrived))
            buffer[:count] = self._arrived[:count]
            del self._arrived[:count]
            self.protocol.buffer_updated(count)

    def _lose(self) -> None:
        if self in self._process.accepted:
            self._process.accepted.remove(self)
            self.lost()
            self.protocol.connection_lost(None)

    def write(self, data: Any) -> None:
        if not self._is_closed and not self._process.is_dead:
            self._later(1, self._context, self._received, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._universe.loop.call_soon(self._arrive)

    def close(self) -> None:
        self._universe.loop.call_soon(self._lose)

    abort = close

    def is_closing(self) -> bool:
        return self._is_closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the other end always reads."""

    def get_write_buffer_size(self) -> int:
        return 0


class PeerTransport(asyncio.Transport):
    """The end of a connection in the broker that opened it."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._is_closed = False
        self._link: Link
        self._protocol: Any

    def begin(self, link: Link, protocol: Any) -> None:
        self._link, self._protocol = link, protocol
        protocol.connection_made(self)

    def received(self, data: bytes | None) -> None:
        if self._is_closed:
            return
        if data is not None:
            self._receive(data)
            return
        self._forget()
        self._protocol.connection_lost(None)

    def _receive(self, data: bytes) -> None:
        while data:
            buffer = self._protocol.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self._protocol.buffer_updated(count)

    def write(self, data: Any) -> None:
        if not self._is_closed:
            self._link.send(bytes(data))

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        if not self._is_closed:
            self._forget()
            self._link.hang_up()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def _forget(self) -> None:
        self._is_closed = True
        if self._link in self._process.opened:
            self._process.opened.remove(self._link)
