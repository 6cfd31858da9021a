"""The connection to one node: its state, what waits for it, what is in flight on it, and its bytes. No socket."""

from __future__ import annotations

import struct
from collections import deque
from enum import Enum
from typing import Any

from kafkalake.buffers import Buffer
from kafkalake.client.address import Address, not_kafkas
from kafkalake.client.exchange import Exchange, Pending
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.received_frames import ReceivedFrames
from kafkalake.client.requests import MalformedResponseError
from kafkalake.errors import (
    BrokerUnavailableError,
    ConnectionLostError,
    InvalidRequestError,
    KafkaError,
    KafkaLakeError,
    ResponseTimedOutError,
    as_value,
)
from kafkalake.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse


class State(Enum):
    """The state of a connection, in the order of its life."""

    CLOSED = "closed"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    READY = "ready"


class NodeConnection:
    """See the module. It is opened again and again; `failures` counts those in a row that did not become ready."""

    def __init__(self, client_id: str) -> None:
        self.state = State.CLOSED
        self.failures = 0
        self.retry_at_ms = 0
        self.setup_deadline_ms = 0
        self.is_wanted = False
        self.last_error: BrokerUnavailableError | None = None
        self.waiting: deque[PendingRequest[Any]] = deque()
        self.in_flight: deque[PendingRequest[Any]] = deque()
        self._client_id = client_id
        self._address: Address | None = None
        self._exchange = Exchange("", client_id)
        self._versions: Pending[ApiVersionsRequest, ApiVersionsResponse] | None = None
        self._frames = ReceivedFrames(self._response_size)

    @property
    def exchange(self) -> Exchange:
        """Versions and features, as far as they are agreed on."""
        return self._exchange

    @property
    def requests(self) -> int:
        """The number of requests without a response."""
        return len(self.waiting) + len(self.in_flight)

    def want(self) -> None:
        """Ask for a connection although no request waits for it."""
        self.is_wanted = True

    def begin(self, address: Address, setup_deadline_ms: int) -> None:
        """Begin to connect."""
        self.state = State.CONNECTING
        self.setup_deadline_ms = setup_deadline_ms
        self.is_wanted = False
        self._address = address
        self._exchange = Exchange(address, self._client_id)
        self._frames = ReceivedFrames(self._response_size)

    def negotiate(self) -> bytes:
        """Return the frame that asks for the broker's versions."""
        self.state = State.NEGOTIATING
        self._versions, frame = self._exchange.ask_versions()
        return frame

    def write_waiting(self) -> list[list[Buffer]]:
        """Return the frames of the requests that wait, in parts. They are in flight then, or done if they get no response."""
        frames = []
        while self.waiting:
            request = self.waiting.popleft()
            try:
                expected, frame = self._exchange.encode_parts(request.api, request.take_message())
            except KafkaError as error:
                request.fail(as_value(error))
                continue
            except (struct.error, AttributeError, TypeError, ValueError) as error:  # an argument of the application
                request.fail(InvalidRequestError(f"a {request.api.name} request cannot be made of this: {error}"))
                continue
            frames.append(frame)
            request.expect(expected)
            if request.is_answered:
                self.in_flight.append(request)
            else:
                request.complete(None)
        return frames

    def buffer(self) -> memoryview:
        """Return where the next bytes belong."""
        return self._frames.buffer()

    def take(self, count: int) -> tuple[bytes, bool]:
        """Complete the requests whose responses are whole with the first `count` bytes of `buffer`.

        Return bytes to be sent, mostly none, and whether any response was whole. Raise `BrokerUnavailableError` if it is no
        broker's response, or one that refuses to name its versions.
        """
        out = b""
        is_whole = False
        try:
            for frame in self._frames.received(count):
                is_whole = True
                if self.state is State.CLOSED:
                    break
                if self._versions is None:
                    self._answer(frame)
                else:
                    out += self._take_versions(frame)
        except MalformedResponseError as error:
            raise not_kafkas(self._known_address(), error) from error
        except KafkaError as error:
            raise BrokerUnavailableError(str(error)) from error
        return out, is_whole

    def close(self, error: BrokerUnavailableError, retry_at_ms: int, *, is_failure: bool) -> None:
        """End, and fail what is in flight; if the connection was never open, what waits too. Who wants it again says so."""
        was_ready = self.state is State.READY
        self.state = State.CLOSED
        self.is_wanted = False
        self.retry_at_ms = retry_at_ms
        self.last_error = error
        self.failures += is_failure
        self._versions = None
        failed = [(request, self._lost(request, error)) for request in self.in_flight]
        self.in_flight.clear()
        if not was_ready:
            failed += [(request, error) for request in self.waiting]
            self.waiting.clear()
        for request, reason in failed:
            request.fail(as_value(reason))

    def overdue(self, now_ms: int) -> PendingRequest[Any] | None:
        """Return a request in flight whose time is over."""
        return next((each for each in self.in_flight if each.deadline_ms <= now_ms), None)

    def fail_waiting(self, now_ms: int) -> None:
        """Fail the requests whose time is over before they could be sent."""
        for request in [each for each in self.waiting if each.deadline_ms <= now_ms]:
            self.waiting.remove(request)
            why = f": {self.last_error}" if self.last_error is not None else ""
            request.fail(BrokerUnavailableError(f"no connection in {request.timeout_ms} ms{why}"))

    def timed_out(self, request: PendingRequest[Any]) -> ResponseTimedOutError:
        """Return the error of a request whose time is over."""
        return ResponseTimedOutError(
            f"{self._known_address()} did not answer a {request.api.name} request in {request.timeout_ms} ms"
        )

    def _lost(self, request: PendingRequest[Any], error: BrokerUnavailableError) -> KafkaLakeError:
        if isinstance(error, ResponseTimedOutError):
            return error
        return ConnectionLostError(
            f"the connection to {self._known_address()} broke before its answer to {request.api.name}: {error}"
        )

    def _known_address(self) -> Address:
        assert self._address is not None
        return self._address

    def _response_size(self, prefix: memoryview) -> int:
        return self._exchange.response_size(prefix)

    def _answer(self, frame: Buffer) -> None:
        if not self.in_flight:
            raise MalformedResponseError("a response to no request")
        request = self.in_flight[0]
        response = self._exchange.decode(request.expected, frame)
        self.in_flight.popleft()
        request.complete(response)

    def _take_versions(self, frame: Buffer) -> bytes:
        assert self._versions is not None
        if not self._exchange.take_versions(self._versions, frame):
            return self.negotiate()
        self._versions = None
        self.state = State.READY
        self.failures = 0
        self.last_error = None
        return b""
