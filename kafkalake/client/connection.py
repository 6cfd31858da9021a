"""One TCP connection to one broker: size-prefixed requests out, responses in, in order, each with a timeout.

Uses blocking sockets: the command line is synchronous anyway, and two connections work in parallel by sending on both before
receiving on either. A connection that failed or timed out is closed for good, since the next response on it would belong to an
abandoned request.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from kafkalake.client.exchange import SIZE_BYTES, Exchange, Pending
from kafkalake.client.requests import A, ClientApi, MalformedResponseError, Q
from kafkalake.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    ConnectionLostError,
    KafkaError,
    ResponseTimedOutError,
)
from kafkalake.wire.messages.message import Message

CONNECT_TIMEOUT_MS = 5_000


@dataclass(frozen=True)
class Address:
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BrokerConnection:
    """A connection with negotiated API versions. Raise `BrokerUnavailableError` if no broker answers."""

    def __init__(self, address: Address, *, client_id: str = "kafkalake", request_timeout_ms: int = 30_000) -> None:
        self.address = address
        self.is_open = False
        self._request_timeout_ms = request_timeout_ms
        self._pending: deque[Pending[Any, Any]] = deque()
        self._answers: deque[Message] = deque()
        self._exchange = Exchange(address, client_id)
        self.version = self._exchange.version
        self._socket = self._connect()
        self.is_open = True
        self._agree_on_versions()

    def request(self, api: ClientApi[Q, A], message: Q, *, timeout_ms: int | None = None) -> A:
        """Send one request and return its response. Earlier pending responses are kept for `receive`."""
        self.send(api, message)
        while len(self._pending) > 1:
            self._answers.append(self._receive(timeout_ms))
        answer = self._receive(timeout_ms)
        assert isinstance(answer, api.response)
        return answer

    def send(self, api: ClientApi[Q, A], message: Q, *, answered: bool = True) -> None:
        """Send one request. A later `receive` returns its response, if it has one (none with `acks=0`: `answered` False)."""
        pending, frame = self._exchange.encode(api, message)
        self._send(frame)
        if answered:
            self._pending.append(pending)

    def _send(self, frame: bytes) -> None:
        try:
            self._socket.settimeout(self._request_timeout_ms / 1000)
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise ConnectionLostError(
                f"the connection to {self.address} broke while a request was sent: {reason(error)}"
            ) from error

    def receive(self, timeout_ms: int | None = None) -> Message:
        """Return the response to the oldest request of `send` that is still pending. Raise `ConnectionLostError`."""
        if self._answers:
            return self._answers.popleft()
        if not self.is_open:
            raise ConnectionLostError(f"the connection to {self.address} is closed")
        return self._receive(timeout_ms)

    def _receive(self, timeout_ms: int | None) -> Message:
        pending = self._pending.popleft()
        timeout_ms = timeout_ms or self._request_timeout_ms
        try:
            answer: Message = self._exchange.decode(pending, self._read_frame(timeout_ms))
            return answer
        except TimeoutError as error:
            self.close()
            raise ResponseTimedOutError(
                f"{self.address} did not answer a {pending.api.name} request in {timeout_ms} ms"
            ) from error
        except OSError as error:
            self.close()
            raise ConnectionLostError(
                f"the connection to {self.address} broke before its answer to {pending.api.name}: {reason(error)}"
            ) from error
        except MalformedResponseError as error:
            self.close()
            raise not_kafkas(self.address, error) from error
        except KeyboardInterrupt:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket and drop pending requests."""
        self.is_open = False
        self._pending.clear()
        with contextlib.suppress(OSError):
            self._socket.close()

    def _connect(self) -> socket.socket:
        try:
            connected = socket.create_connection((self.address.host, self.address.port), CONNECT_TIMEOUT_MS / 1000)
        except TimeoutError as error:
            raise BrokerUnavailableError(
                f"no broker answers at {self.address}: timed out after {CONNECT_TIMEOUT_MS} ms"
            ) from error
        except (OSError, UnicodeError) as error:
            raise unreachable(self.address, error) from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def _agree_on_versions(self) -> None:
        try:
            while True:
                pending, frame = self._exchange.ask_versions()
                self._send(frame)
                if self._exchange.take_versions(pending, self._read_frame(self._request_timeout_ms)):
                    return
        except OSError as error:
            self.close()
            raise unreachable(self.address, error) from error
        except MalformedResponseError as error:
            self.close()
            raise not_kafkas(self.address, error) from error
        except KafkaError:
            self.close()
            raise

    def _read_frame(self, timeout_ms: int) -> bytes:
        deadline = time.monotonic() + timeout_ms / 1000
        return self._read(self._exchange.response_size(self._read(SIZE_BYTES, deadline)), deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        filled = 0
        while filled < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            received = self._socket.recv_into(view[filled:])
            if not received:
                raise ConnectionResetError("connection closed by the other side")
            filled += received
        return bytes(data)


def unreachable(address: Address, error: OSError | UnicodeError) -> BrokerUnavailableError:
    """Return the error for an address to which no connection could be made, because of `error`."""
    kind = BrokerRefusedError if isinstance(error, ConnectionRefusedError) else BrokerUnavailableError
    return kind(f"no broker answers at {address}: {reason(error)}")


def not_kafkas(address: Address, error: MalformedResponseError) -> BrokerUnavailableError:
    """Return the error for an address at which something else than a broker answers."""
    return BrokerUnavailableError(f"what answers at {address} does not speak Kafka's protocol: {error}")


def reason(error: Exception) -> str:
    """Return why a connection failed, in words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "this host name is not known"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def parse_addresses(bootstrap_servers: str) -> list[Address]:
    """Parse `host:port[,host:port...]`, with `[::1]:9092` for IPv6. Raise `ValueError` with one sentence if it is malformed."""
    addresses = []
    for part in bootstrap_servers.split(","):
        text = part.strip()
        if not text:
            continue
        host, colon, port = text.rpartition(":")
        if not colon:
            host, port = text, "9092"
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536 or (":" in host and not host.startswith("[")):
            raise ValueError(f"'{text}' is not HOST:PORT")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no HOST:PORT given")
    return addresses
