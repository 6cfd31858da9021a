"""The other brokers of the cluster, to be asked by a broker from its event loop: typed requests and their responses.

A connection to a broker is opened when it is first asked. A lost one fails what waits on it, and the next request opens another;
nothing is sent again by itself, as a broker may have done what it did not answer. Responses come in the order of requests, so a
slow one holds up those behind it. Requests that must not wait so long, as heartbeats, have a connection of their own,
`Channel.CONTROL`, and so have those that may be slow: what clients ask of the controller, `Channel.FORWARDED`, and what the
controller asks for Delta, `Channel.REPORTS`. Those of followers wait for records: each of their tasks has a connection of its own,
`Channel.FETCH`, by its number; files have `Channel.SEGMENTS`. Batches for delayed delivery have two of `Channel.DELAYED`: in, out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from kafkalake.client.address import CONNECT_TIMEOUT_MS, Address
from kafkalake.client.peer_connection import PeerConnection, open_connection
from kafkalake.client.requests import A, ClientApi, Q
from kafkalake.errors import BrokerRefusedError, BrokerUnavailableError, ResponseTimedOutError, as_value


class Channel(Enum):
    """The connections to one broker."""

    REQUESTS = "requests"
    CONTROL = "control"
    FORWARDED = "forwarded"
    FETCH = "fetch"
    SEGMENTS = "segments"
    REPORTS = "reports"
    DELAYED = "delayed"


_Key = tuple[int, Channel, int]


class Peers(Protocol):
    """The other brokers. A simulation has its own."""

    async def ask(
        self,
        broker_id: int,
        api: ClientApi[Q, A],
        message: Q,
        *,
        timeout_ms: int | None = None,
        channel: Channel = Channel.REQUESTS,
        number: int = 0,
    ) -> A:
        """Return a broker's response to `message`. `number`: of one of several connections of a channel.

        Raise `BrokerRefusedError` if nothing listens at its address, `ResponseTimedOutError` without a response in `timeout_ms`,
        `ConnectionLostError` if the connection broke, `BrokerUnavailableError` otherwise, all of them such an error, and
        `UnsupportedVersionError` if the broker lacks the API.
        """
        ...


class ConnectedPeers:
    """The other brokers by TCP."""

    def __init__(
        self,
        address: Callable[[int], Address | None],
        *,
        client_id: str,
        request_timeout_ms: Callable[[], int],
        lost: Callable[[int], None] | None = None,
    ) -> None:
        """`address`: returns the address of a broker, None if it has none. It is asked for each request.

        `request_timeout_ms`: returns the timeout of a request without its own. `lost` is called with a broker's id when that
        broker, or the network, ended a connection, and when nothing listens at its address.
        """
        self._address = address
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._lost = lost
        self._openings: dict[_Key, _Opening] = {}
        self._is_stopped = False

    async def ask(
        self,
        broker_id: int,
        api: ClientApi[Q, A],
        message: Q,
        *,
        timeout_ms: int | None = None,
        channel: Channel = Channel.REQUESTS,
        number: int = 0,
    ) -> A:
        loop = asyncio.get_running_loop()
        timeout_s = (self._request_timeout_ms() if timeout_ms is None else timeout_ms) / 1000
        ends = loop.time() + timeout_s
        opening = self._opening((broker_id, channel, number))
        if not opening.task.done():
            await asyncio.wait({opening.task}, timeout=timeout_s)  # which others may wait for too
        if not opening.task.done():
            raise ResponseTimedOutError(
                f"no connection to broker {broker_id} at {opening.address} in {timeout_s * 1000:.0f} ms"
            )
        return await opening.connection().request(api, message, max(ends - loop.time(), 0.001))

    def stop(self) -> None:
        """Close all connections, and fail what waits on them and every later request."""
        self._is_stopped = True
        for key in list(self._openings):
            self._forget(key)

    def _opening(self, key: _Key) -> _Opening:
        """Return the connection to a broker, open or being opened, at the address that it has now."""
        if self._is_stopped:
            raise BrokerUnavailableError("this broker is stopping")
        broker_id = key[0]
        address = self._address(broker_id)
        opening = self._openings.get(key)
        if opening is not None and opening.address == address:
            return opening
        self._forget(key)
        if address is None:
            raise BrokerUnavailableError(f"broker {broker_id} has no address")
        made = _Opening(address, self._client_id, lambda by_peer: self._ended(key, made, by_peer))
        self._openings[key] = made
        made.task.add_done_callback(lambda _: self._opened(key, made))
        return made

    def _opened(self, key: _Key, opening: _Opening) -> None:
        """Keep nothing of a failure but for those that wait."""
        failed = opening.task.cancelled() or opening.task.exception() is not None
        if failed and self._openings.get(key) is opening:
            del self._openings[key]
        if opening.is_refused:
            self._note_loss(key)

    def _ended(self, key: _Key, opening: _Opening, by_peer: bool) -> None:
        if self._openings.get(key) is opening:
            del self._openings[key]
        if by_peer:
            self._note_loss(key)

    def _note_loss(self, key: _Key) -> None:
        if self._lost is not None and not self._is_stopped:
            self._lost(key[0])

    def _forget(self, key: _Key) -> None:
        opening = self._openings.pop(key, None)
        if opening is not None:
            opening.close()


class _Opening:
    """A connection that is being opened, is open, or could not be opened."""

    def __init__(self, address: Address, client_id: str, ended: Callable[[bool], None]) -> None:
        self.address = address
        self.task = asyncio.get_running_loop().create_task(
            open_connection(address, client_id, CONNECT_TIMEOUT_MS / 1000, ended)
        )

    @property
    def is_refused(self) -> bool:
        """Return whether it could not be opened because nothing listens."""
        return not self.task.cancelled() and isinstance(self.task.exception(), BrokerRefusedError)

    def connection(self) -> PeerConnection:
        """Return the open connection. Raise `BrokerUnavailableError` if it could not be opened."""
        if self.task.cancelled():
            raise BrokerUnavailableError(f"the connection to {self.address} is not wanted any more")
        error = self.task.exception()
        if isinstance(error, BrokerUnavailableError):
            raise as_value(type(error)(*error.args))  # several may wait for it, each raises its own
        return self.task.result()

    def close(self) -> None:
        """Close the connection, or stop opening it."""
        if self.task.done() and not self.task.cancelled() and self.task.exception() is None:
            self.task.result().close()
        else:
            self.task.cancel()
