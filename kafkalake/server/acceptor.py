"""The listening sockets of a broker's listeners and their accepted connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Sequence

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.config.listener import Listener
from kafkalake.config.setting import INT_MAX
from kafkalake.server.connection import Connection
from kafkalake.server.context import ServerContext

logger = logging.getLogger(__name__)

_LOOPBACK = ("127.0.0.1", "::1")

RECEIVE_BUFFER_BYTES = 256 * 1024
_IDLE_CHECK_MS_MAX = 10_000
_HELD_MAX = 1_000
"""The most connections beyond a quota of addresses that stay open for a while, so that their clients do not return at once."""


class Acceptor:
    """Accepts connections up to the limits, closes idle ones, and stops gracefully."""

    def __init__(self, context: ServerContext, listeners: Sequence[Listener], connections_max: int = INT_MAX) -> None:
        """`connections_max`: connections for which there are file descriptors, a bound beside `max.connections`.

        The bounds are the broker's, over all listeners.
        """
        self._context = context
        self._listeners = listeners
        self._connections_max = connections_max
        self._connections: set[Connection] = set()
        self._per_address: Counter[str] = Counter()
        self._held: set[Connection] = set()
        """Connections that are not admitted and about to be closed."""
        self._servers: list[asyncio.Server] = []
        self._shared = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._check_due_ms = context.clock.monotonic_ms()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def start(self) -> tuple[Listener, ...]:
        """Bind the listeners and return them with their ports. Connections are accepted by `serve`.

        Raise `OSError` with the address if one cannot be bound. Then none stays bound.
        """
        try:
            return tuple([await self._bind(listener) for listener in self._listeners])
        except OSError:
            self._close_servers()
            raise

    async def _bind(self, listener: Listener) -> Listener:
        loop = asyncio.get_running_loop()
        backlog = self._context.broker.config.socket_listen_backlog_size

        def connection() -> Connection:
            return Connection(self._context, self, listener, self._shared)

        try:
            if listener.host:
                server = await loop.create_server(
                    connection, listener.host, listener.port, backlog=backlog, start_serving=False
                )
            else:
                bound = _bind_every_address(listener.port)
                server = await loop.create_server(connection, sock=bound, backlog=backlog, start_serving=False)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"cannot listen on {listener.address}: {reason}") from error
        self._servers.append(server)
        return listener.bound_to(int(server.sockets[0].getsockname()[1]))

    async def serve(self) -> None:
        """Accept connections."""
        for server in self._servers:
            await server.start_serving()
        self._context.broker.scheduler.every("idle connections", self._check_interval_ms, self._check_idle, first_ms=0)

    async def stop(self, timeout_s: float) -> None:
        """Stop accepting and reading. Close each connection when its requests are answered, at the latest after `timeout_s`."""
        loop = asyncio.get_running_loop()
        self._close_servers()
        for connection in self._connections:
            call_isolated(CallbackLoop.CONNECTION, connection.stop_reading)
        self._context.broker.finish_waiting()
        deadline = loop.time() + timeout_s
        while self._connections and loop.time() < deadline:
            for connection in [each for each in self._connections if not each.has_requests]:
                call_isolated(CallbackLoop.CONNECTION, connection.close_quietly)
            await asyncio.sleep(0.005)
        self._abort_connections()
        self._context.turns.stop()

    def abort(self) -> None:
        """Close all connections now, without responses."""
        self._context.turns.stop()
        self._close_servers()
        self._abort_connections()

    def _abort_connections(self) -> None:
        for connection in (*self._connections, *self._held):
            call_isolated(CallbackLoop.CONNECTION, connection.abort)

    def _close_servers(self) -> None:
        for server in self._servers:
            server.close()

    def admit(self, connection: Connection) -> bool:
        """Return whether a new connection is admitted: `max.connections`, `max.connections.per.ip`, descriptors, quotas.

        One that is not is closed.
        """
        delay_ms = self._context.quotas.admit_connection(connection.address)
        if delay_ms:
            self._hold(connection, delay_ms)
        elif self._has_room(connection):
            return True
        else:
            connection.abort()
        return False

    def _hold(self, connection: Connection, delay_ms: int) -> None:
        """Close a connection that is too much for the quota of its address, after a while if it does not keep others out."""
        logger.warning("connection refused peer=%s reason='connection_creation_rate of its address'", connection.peer)
        if len(self._held) < min(_HELD_MAX, self._connections_max // 10):
            self._held.add(connection)
            connection.hold()
            self._context.broker.timers.schedule(delay_ms, connection.abort)
        else:
            connection.abort()

    def _has_room(self, connection: Connection) -> bool:
        config = self._context.broker.config
        if connection.address in _LOOPBACK and not self._per_address[connection.address]:
            self._remember(connection)  # one local connection, to fix a limit set too low
            return True
        if len(self._connections) >= min(config.max_connections, self._connections_max - len(self._held)):
            logger.warning(
                "connection refused peer=%s reason='max.connections is %d, and there are descriptors for %d'",
                connection.peer,
                config.max_connections,
                self._connections_max,
            )
            return False
        if self._per_address[connection.address] >= config.max_connections_per_ip:
            logger.warning(
                "connection refused peer=%s reason='max.connections.per.ip is %d'",
                connection.peer,
                config.max_connections_per_ip,
            )
            return False
        self._remember(connection)
        return True

    def _remember(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._per_address[connection.address] += 1

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._held.discard(connection)
        if connection in self._connections:
            self._connections.remove(connection)
            self._per_address[connection.address] -= 1
            if not self._per_address[connection.address]:
                del self._per_address[connection.address]

    def _idle_limits_ms(self) -> tuple[int, int]:
        """Return how long a connection may be idle, and how long a request may stay unfinished."""
        config = self._context.broker.config
        idle_ms = config.connections_max_idle_ms if config.connections_max_idle_ms >= 0 else INT_MAX
        return idle_ms, config.connection_max_unfinished_ms

    def _check_interval_ms(self) -> int:
        return min(max(min(self._idle_limits_ms()) // 4, 50), _IDLE_CHECK_MS_MAX)

    def _check_idle(self) -> None:
        """Close connections that are idle for too long, and those with an unfinished request."""
        idle_ms, unfinished_ms = self._idle_limits_ms()
        now_ms = self._context.clock.monotonic_ms()
        # After a pause of the process, bytes received meanwhile are still unread.
        was_paused = now_ms - self._check_due_ms > unfinished_ms // 2
        for connection in list(self._connections):
            limits = idle_ms, None if was_paused else unfinished_ms
            call_isolated(CallbackLoop.CONNECTION, connection.check, now_ms, *limits)
        self._check_due_ms = now_ms + self._check_interval_ms()


def _bind_every_address(port: int) -> socket.socket:
    """Return a socket bound to a port of all addresses, of IPv6 too where the machine has it."""
    if socket.has_dualstack_ipv6():
        try:
            return _bind_family(socket.AF_INET6, port)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # the kernel knows IPv6, and no interface has it
                raise
    return _bind_family(socket.AF_INET, port)


def _bind_family(family: socket.AddressFamily, port: int) -> socket.socket:
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(("", port))
    except OSError:
        bound.close()
        raise
    return bound
