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

from kafkalake import __version__
from kafkalake.client.requests import (
    API_VERSIONS,
    A,
    ClientApi,
    MalformedResponseError,
    Q,
    decode_response,
    encode_request,
)
from kafkalake.errors import BrokerUnavailableError, UnsupportedVersionError, error_for_code
from kafkalake.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from kafkalake.wire.messages.message import Message

LARGEST_RESPONSE_BYTES = 256 * 1024 * 1024
CONNECT_TIMEOUT_MS = 5_000
UNSUPPORTED_VERSION = 35


@dataclass(frozen=True)
class Address:
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectionLostError(BrokerUnavailableError):
    """The connection broke, or the response timed out. The broker may or may not have processed the request."""


@dataclass(frozen=True)
class _Pending:
    api: ClientApi[Any, Any]
    version: int
    correlation_id: int


class BrokerConnection:
    """A connection with negotiated API versions. Raise `BrokerUnavailableError` if no broker answers."""

    def __init__(self, address: Address, *, client_id: str = "kafkalake", request_timeout_ms: int = 30_000) -> None:
        self.address = address
        self.is_open = False
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._pending: deque[_Pending] = deque()
        self._answers: deque[Message] = deque()
        self._next_correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
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
        version = self.version(api)
        correlation_id = self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request(api, version, correlation_id, self._client_id, message)
        try:
            self._socket.settimeout(self._request_timeout_ms / 1000)
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(
                f"the connection to {self.address} broke while a request was sent: {_reason(error)}"
            ) from error
        if answered:
            self._pending.append(_Pending(api, version, correlation_id))

    def receive(self, timeout_ms: int | None = None) -> Message:
        """Return the response to the oldest request of `send` that is still pending. Raise `ConnectionLostError`."""
        if self._answers:
            return self._answers.popleft()
        if not self.is_open:
            raise self._lost(f"the connection to {self.address} is closed")
        return self._receive(timeout_ms)

    def _receive(self, timeout_ms: int | None) -> Message:
        pending = self._pending.popleft()
        timeout_ms = timeout_ms or self._request_timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            size = int.from_bytes(self._read(4, deadline), "big", signed=True)
            if not 4 <= size <= LARGEST_RESPONSE_BYTES:
                raise MalformedResponseError(f"a response of {size} bytes")
            data = self._read(size, deadline)
            answer: Message = decode_response(pending.api, pending.version, pending.correlation_id, data)
            return answer
        except TimeoutError as error:
            raise self._lost(
                f"{self.address} did not answer a {pending.api.name} request in {timeout_ms} ms"
            ) from error
        except OSError as error:
            raise self._lost(
                f"the connection to {self.address} broke before its answer to {pending.api.name}: {_reason(error)}"
            ) from error
        except MalformedResponseError as error:
            self.close()
            raise BrokerUnavailableError(
                f"what answers at {self.address} does not speak Kafka's protocol: {error}"
            ) from error
        except KeyboardInterrupt:
            self.close()
            raise

    def version(self, api: ClientApi[Q, A]) -> int:
        """Return the highest version of `api` that both sides support. Raise `UnsupportedVersionError` if there is none."""
        lowest, highest = self._versions.get(api.key, (0, -1))
        version = min(highest, api.highest)
        if version < max(lowest, api.lowest):
            offered = f"offers versions {lowest} to {highest}" if highest >= 0 else "does not offer it"
            raise UnsupportedVersionError(
                f"{api.name} versions {api.lowest} to {api.highest} are needed; the broker at {self.address} {offered}"
            )
        return version

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
            raise BrokerUnavailableError(f"no broker answers at {self.address}: {_reason(error)}") from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def _agree_on_versions(self) -> None:
        """Negotiate versions (KIP-511): send the newest request. A broker that lacks it responds in version 0 with its versions."""
        about = ApiVersionsRequest(client_software_name="kafkalake", client_software_version=__version__)
        self._versions[API_VERSIONS.key] = (API_VERSIONS.lowest, API_VERSIONS.highest)
        self.send(API_VERSIONS, about)
        answer = self._receive_versions()
        if answer.error_code == UNSUPPORTED_VERSION:
            self._versions[API_VERSIONS.key] = (0, 0)
            self.send(API_VERSIONS, ApiVersionsRequest())
            answer = self._receive_versions()
        if answer.error_code:
            self.close()
            raise error_for_code(answer.error_code, f"{self.address} refused to name its API versions")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _receive_versions(self) -> ApiVersionsResponse:
        """Receive a response to ApiVersions, also one in version 0 (an error) to a newer request."""
        pending = self._pending[0]
        data = b""
        try:
            deadline = time.monotonic() + self._request_timeout_ms / 1000
            size = int.from_bytes(self._read(4, deadline), "big", signed=True)
            if not 4 <= size <= 1024 * 1024:
                raise MalformedResponseError(f"a response of {size} bytes")
            data = self._read(size, deadline)
            self._pending.popleft()
            if data[4:6] == UNSUPPORTED_VERSION.to_bytes(2, "big"):
                return decode_response(API_VERSIONS, 0, pending.correlation_id, data)
            return decode_response(API_VERSIONS, pending.version, pending.correlation_id, data)
        except OSError as error:
            self.close()
            raise BrokerUnavailableError(f"no broker answers at {self.address}: {_reason(error)}") from error
        except MalformedResponseError as error:
            self.close()
            raise BrokerUnavailableError(
                f"what answers at {self.address} does not speak Kafka's protocol: {error}"
            ) from error

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

    def _lost(self, message: str) -> ConnectionLostError:
        self.close()
        return ConnectionLostError(message)


def _reason(error: Exception) -> str:
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
