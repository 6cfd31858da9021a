"""One connection to another broker, on the event loop: pipelined requests, each with a timeout, and their responses in order.

A request that timed out keeps its place, since its response may still come; that is dropped then. If the oldest request has timed
out when another one does, nothing comes any more: the connection is closed. What waits on a connection that ends fails with it.

One timer serves all requests: it is set to the earliest end of a timeout, and an answer leaves it as it is. One for each request,
begun and cancelled, took 3 % of a follower's processor time.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from kafkalake.buffers import Buffer
from kafkalake.client.address import Address, not_kafkas, reason, unreachable
from kafkalake.client.exchange import Exchange, Pending
from kafkalake.client.received_frames import ReceivedFrames
from kafkalake.client.requests import A, ClientApi, MalformedResponseError, Q
from kafkalake.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    ConnectionLostError,
    KafkaError,
    ResponseTimedOutError,
    as_value,
)

REQUESTS_MAX = 1_000
REQUEST_BYTES_MAX = 64 * 1024 * 1024
"""Bounds on the requests of one connection without a response: their number, and the bytes of all but the first."""


class _Waiting:
    """A request without a response. `response`: of its frame, decoded by the taker."""

    __slots__ = ("ends", "is_overdue", "pending", "response", "size", "timeout_s")

    def __init__(
        self, pending: Pending[Any, Any], size: int, response: asyncio.Future[Buffer], now: float, timeout_s: float
    ) -> None:
        self.pending = pending
        self.size = size
        self.response = response
        self.timeout_s = timeout_s
        self.ends = now + timeout_s
        self.is_overdue = False

    def fail(self, error: BrokerUnavailableError) -> None:
        if not self.response.done():
            self.response.set_exception(error)


class PeerConnection(asyncio.BufferedProtocol):
    """See the module. Made by `open_connection`."""

    def __init__(self, address: Address, client_id: str, ended: Callable[[bool], None]) -> None:
        self.address = address
        self.is_open = False
        self._ended = ended
        self._exchange = Exchange(address, client_id)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = ReceivedFrames(self._exchange.response_size)
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ends = 0.0
        """The loop's time at which the timer runs."""

    async def request(self, api: ClientApi[Q, A], message: Q, timeout_s: float) -> A:
        """Send a request and return its response. Raise `BrokerUnavailableError` or `UnsupportedVersionError`."""
        pending, frame = self._exchange.encode(api, message)
        data = await self._send(pending, frame, timeout_s)
        try:
            return self._exchange.decode(pending, data)
        except MalformedResponseError as error:
            self.close()
            raise not_kafkas(self.address, error) from error

    async def agree_on_versions(self, timeout_s: float) -> None:
        """Negotiate the versions of all APIs, before any request. Raise as `request` does."""
        try:
            while True:
                pending, frame = self._exchange.ask_versions()
                if self._exchange.take_versions(pending, await self._send(pending, frame, timeout_s)):
                    return
        except MalformedResponseError as error:
            raise not_kafkas(self.address, error) from error
        except KafkaError as error:
            raise BrokerUnavailableError(str(error)) from error

    def close(self) -> None:
        """Close, and fail what waits."""
        self._end(lambda waiting: ConnectionLostError(f"the connection to {self.address} is closed"), by_peer=False)

    def _send(self, pending: Pending[Any, Any], frame: bytes, timeout_s: float) -> asyncio.Future[Buffer]:
        if not self.is_open or self._transport is None:
            raise ConnectionLostError(f"the connection to {self.address} is closed")
        too_large = self._waiting_bytes + len(frame) > REQUEST_BYTES_MAX
        if self._waiting and (too_large or len(self._waiting) >= REQUESTS_MAX):
            raise BrokerUnavailableError(
                f"{len(self._waiting)} requests of {self._waiting_bytes} bytes already wait for {self.address}"
            )
        now = self._loop.time()
        waiting = _Waiting(pending, len(frame), self._loop.create_future(), now, timeout_s)
        if self._timer is None or waiting.ends < self._timer_ends:
            self._set_timer(waiting.ends, now)
        self._waiting.append(waiting)
        self._waiting_bytes += len(frame)
        self._transport.write(frame)
        return waiting.response

    def _set_timer(self, ends: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ends = ends
        self._timer = self._loop.call_later(max(ends - now, 0), self._look_at_timeouts)

    def _look_at_timeouts(self) -> None:
        """Fail the requests whose timeout is over, and set the timer to the next end of one."""
        self._timer = None
        now = self._loop.time()
        ended = max(now, self._timer_ends)  # a timer may run a little early
        for waiting in [each for each in self._waiting if not each.is_overdue and each.ends <= ended]:
            self._time_out(waiting)
        if ends := [each.ends for each in self._waiting if not each.is_overdue]:
            self._set_timer(min(ends), now)

    def _time_out(self, waiting: _Waiting) -> None:
        waiting.is_overdue = True
        text = (
            f"{self.address} did not answer a {waiting.pending.api.name} request in {waiting.timeout_s * 1000:.0f} ms"
        )
        waiting.fail(ResponseTimedOutError(text))
        if self._waiting and self._waiting[0].is_overdue:
            self._end(lambda each: ConnectionLostError(f"{text}, and its connection was closed"), by_peer=False)

    def _end(self, error: Callable[[_Waiting], BrokerUnavailableError], *, by_peer: bool) -> None:
        """Close at once and fail each request with an error of its own, as each is raised to somebody else."""
        if not self.is_open:
            return
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.fail(error(waiting))
        self._ended(by_peer)

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit asyncio's
        self.is_open = True

    def connection_lost(self, error: Exception | None) -> None:
        why = "connection closed by the other side" if error is None else reason(error)
        self._end(
            lambda waiting: ConnectionLostError(
                f"the connection to {self.address} broke before its answer to {waiting.pending.api.name}: {why}"
            ),
            by_peer=True,
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._take(frame)
        except MalformedResponseError as error:
            malformed = as_value(error)
            self._end(lambda waiting: not_kafkas(self.address, malformed), by_peer=False)

    def _take(self, frame: Buffer) -> None:
        if not self._waiting:
            raise MalformedResponseError("a response to no request")
        waiting = self._waiting[0]
        answered = int.from_bytes(frame[:4], "big", signed=True)
        if answered != waiting.pending.correlation_id:
            raise MalformedResponseError(f"response {answered} instead of {waiting.pending.correlation_id}")
        self._waiting.popleft()
        self._waiting_bytes -= waiting.size
        if not waiting.response.done():
            waiting.response.set_result(frame)


async def open_connection(
    address: Address, client_id: str, timeout_s: float, ended: Callable[[bool], None]
) -> PeerConnection:
    """Return a connection with negotiated versions. Raise as `Peers.ask` does.

    `ended` is called when the connection has ended, with whether the other side or the network ended it.
    """
    connection: PeerConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = await _connect(address, lambda: PeerConnection(address, client_id, ended))
            await connection.agree_on_versions(timeout_s)
            return connection
    except TimeoutError as error:
        if connection is not None:
            connection.close()
        raise BrokerUnavailableError(
            f"no broker answers at {address}: timed out after {timeout_s * 1000:.0f} ms"
        ) from error
    except (OSError, UnicodeError) as error:
        raise unreachable(address, error) from error
    except BaseException:
        if connection is not None:
            connection.close()
        raise


async def _connect(address: Address, make: Callable[[], PeerConnection]) -> PeerConnection:
    """Connect to the first address of the host that takes it. Raise `BrokerRefusedError` if all refuse, or `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    failures: list[OSError] = []
    for family, _, _, _, (host, port, *_) in found:
        try:
            _, connection = await loop.create_connection(make, str(host), int(port), family=family)
            return connection
        except OSError as error:
            failures.append(as_value(error))
    if all(isinstance(each, ConnectionRefusedError) for each in failures):
        raise BrokerRefusedError(f"no broker answers at {address}: {reason(failures[0])}")
    raise next(each for each in failures if not isinstance(each, ConnectionRefusedError))
