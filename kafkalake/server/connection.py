"""One client connection: splits bytes into frames, dispatches them to handlers, and sends responses in the order of the requests.

**Reading.** All connections of a server read into one shared buffer, from which whole frames are handled in place before the next
read. An incomplete frame moves to a buffer of its own. Its size is checked first, but not allocated at once: the buffer
starts small and grows with the received bytes, within a bound over all connections (`request_memory.py`). A frame that makes too
little progress for `connection.max.unfinished.ms` closes its connection (`check_unfinished`).

**Order.** As in Apache Kafka, requests of a connection are handled in order: the next one is dispatched after the previous one is
answered. Produce requests are pipelined for throughput: they queue, and one group commit answers all.

**Back-pressure.** A request that cannot be handled yet (a delayed fetch, a client that does not read its responses, a topic
creation being committed) stays unread: reading pauses, and TCP slows the client down. So a connection holds at most one frame, the
rest of one read and one response, and does not affect other connections.

**Errors.** A malformed request closes the connection, with a line in the log. So does an unexpected exception in a handler: the
client sees a closed connection and retries.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
from collections import deque
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kafkalake.broker.callbacks import Place, call_isolated
from kafkalake.errors import InvalidRequestError
from kafkalake.server.authorizer import ANONYMOUS
from kafkalake.server.handlers import api_versions
from kafkalake.server.registry import API_VERSIONS_KEY, APIS, PRODUCE_KEY
from kafkalake.server.request import Buffer, Request
from kafkalake.server.turns import LARGE_FRAME_BYTES
from kafkalake.wire.produce_request import (
    FEW_PARTITIONS_MAX,
    PARTITIONS_MAX,
    ManyPartitionsError,
    read_produce,
)
from kafkalake.wire.requests import decode_request, read_fixed_header, read_header
from kafkalake.wire.staged_append import API_KEY as APPEND_STAGED_KEY
from kafkalake.wire.staged_append import body_of_request

if TYPE_CHECKING:
    from kafkalake.server.context import ServerContext
    from kafkalake.server.listener import Listener

logger = logging.getLogger(__name__)

_SIZE = struct.Struct(">i")
PRODUCES_IN_FLIGHT_MAX = 256
PRODUCE_BYTES_IN_FLIGHT_MAX = 16 * 1024 * 1024
WRITE_BUFFER_HIGH_BYTES = 4 * 1024
"""Above this write buffer size a connection is not read from, and counts in `unread_answers`. Smaller buffers cost about as much
as a connection does anyway, so `max.connections` bounds them.
"""
_JOINED_BYTES = 16 * 1024
_FIRST_BYTES = 64 * 1024
"""Smallest first buffer of a frame, if the frame is not smaller."""
_GROWTH = 16
"""Ratio of the next buffer to the bytes received. Memory not yet written to costs nothing, but each step costs a copy."""
_PROGRESS_BYTES = 64 * 1024
"""Least progress of an unfinished frame per `connection.max.unfinished.ms`, however slow its client."""


class Connection(asyncio.BufferedProtocol):
    """See the module. `shared` is the server's receive buffer."""

    def __init__(self, context: ServerContext, listener: Listener, shared: memoryview) -> None:
        self._context = context
        self._listener = listener
        self._shared = shared
        self._own: memoryview | None = None
        """The buffer of an incomplete frame, or of its 4-byte size. Its first `_filled` bytes are set."""
        self._filled = 0
        self._frame_size = 0
        """Bytes of the frame in `_own`, 0 while its size is being read."""
        self._own_since_ms = 0
        self._own_before = 0
        """Time and value of `_filled` at the last progress check of `_own`."""
        self._waits_for_memory = False
        self._backlog: memoryview | None = None
        self._requests: deque[Request] = deque()
        self._bytes_owed = 0
        """Bytes of the unanswered requests."""
        self._answers: list[Buffer] = []
        self._send_scheduled = False
        self._writing_paused = False
        self._reading_paused = False
        self._resume_scheduled = False
        self._closing = False
        self._stopping = False
        self._transport: asyncio.Transport | None = None
        self.principal = ANONYMOUS
        self.address = ""
        self.peer = ""
        self.client_software = ""
        self.last_active_ms = context.clock.monotonic_ms()
        self._logs_requests = logger.isEnabledFor(logging.DEBUG)

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit asyncio's
        transport = self._transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        if not self._listener.admit(self):
            self._closing = True
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._listener.forget(self)
        self._context.unread_answers.remove(self)
        for request in self._requests:
            call_isolated(Place.ABANDONED_REQUEST, request.abandon)
        self._requests.clear()
        if self._own is not None:
            self._forget_own()
        self._take_backlog()

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._shared if self._own is None else self._own[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self.last_active_ms = self._context.clock.monotonic_ms()
        own = self._own
        if own is None:
            self._take(self._shared[:count], kept=False)
            return
        self._filled += count
        self._context.request_memory.arriving += count
        if self._filled < self._frame_size:
            self._go_on()
        elif self._filled == len(own):
            self._forget_own()
            if not self._frame_size:
                self._begin_frame(_SIZE.unpack(own)[0], b"")
            elif self._is_blocked(own):
                self._keep(own, with_size=False)
            else:
                self._handle(own.toreadonly(), kept=True)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        if self._transport is not None and not self._closing:
            size = self._transport.get_write_buffer_size()
            self._context.unread_answers.add(self, size, self._close_unread)

    def _close_unread(self) -> None:
        logger.warning("connection closed peer=%s reason='answers that it does not read'", self.peer)
        self.abort()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._context.unread_answers.remove(self)
        self.last_active_ms = self._context.clock.monotonic_ms()
        self._resume_soon()

    # Frames.

    def _take(self, data: memoryview, *, kept: bool) -> None:
        """Handle the whole frames in `data`. The rest starts a new frame, or is set aside while this connection is blocked."""
        position, end = 0, len(data)
        while end - position >= 4 and not self._closing:
            (size,) = _SIZE.unpack_from(data, position)
            if not self._is_acceptable(size):
                return
            begin = position + 4
            if end - begin < size:
                self._begin_frame(size, data[begin:end])
                return
            frame = data[begin : begin + size]
            if self._is_blocked(frame):
                self._keep(data[position:end], with_size=True)
                return
            self._handle(frame.toreadonly(), kept=kept)
            position = begin + size
        if position < end and not self._closing:
            self._begin_own(0, 4, data[position:end])

    def _begin_frame(self, size: int, start: bytes | memoryview) -> None:
        if self._is_acceptable(size):
            self._begin_own(size, min(size, max(_FIRST_BYTES, _GROWTH * len(start))), start)

    def _begin_own(self, frame_size: int, length: int, start: bytes | memoryview) -> None:
        """Continue reading into a separate buffer of `length` bytes, which begins with `start`."""
        self._own = np.empty(length, dtype=np.uint8).data  # a bytearray would be zeroed at once
        self._filled, self._frame_size = len(start), frame_size
        self._own[: self._filled] = start
        self._own_since_ms, self._own_before = self._context.clock.monotonic_ms(), self._filled
        self._context.request_memory.arriving += self._filled

    def _forget_own(self) -> None:
        self._own = None
        self._context.request_memory.arrived(self, self._filled)

    def _go_on(self) -> None:
        """Continue reading the frame, with a larger buffer if this one is full. Pause reading until memory is available."""
        memory, own = self._context.request_memory, self._own
        assert own is not None
        if not memory.may_grow(self):
            if not self._waits_for_memory:
                self._waits_for_memory = True
                memory.call_when_free(self._go_on_later)
            self._pause_reading()
        elif self._filled == len(own):
            self._own = np.empty(min(self._frame_size, _GROWTH * self._filled), dtype=np.uint8).data
            self._own[: self._filled] = own

    def _go_on_later(self) -> None:
        self._waits_for_memory = False
        if self._own is None or self._closing or self._stopping:
            return
        self._own_since_ms, self._own_before = self._context.clock.monotonic_ms(), self._filled
        self._go_on()
        if not self._waits_for_memory:
            self._resume_soon()

    def check_unfinished(self, now_ms: int, unfinished_ms: int) -> None:
        """Close the connection if its frame began `unfinished_ms` ago and makes too little progress."""
        if self._own is None or self._waits_for_memory or now_ms - self._own_since_ms < unfinished_ms:
            return
        if self._filled - self._own_before < _PROGRESS_BYTES:
            logger.warning(
                "connection closed peer=%s reason='a request of which %d bytes came'", self.peer, self._filled
            )
            self.abort()
            return
        self._own_since_ms, self._own_before = now_ms, self._filled

    def _is_acceptable(self, size: int) -> bool:
        limit = self._context.broker.config.socket_request_max_bytes
        if 8 <= size <= limit:
            return True
        self.close(_other_protocol(size) or f"a request of {size} bytes (socket.request.max.bytes is {limit})")
        return False

    def _is_blocked(self, frame: memoryview) -> bool:
        """Return whether `frame` must wait for earlier requests."""
        if self._writing_paused:
            return True
        produces = frame[0] == 0 and frame[1] == PRODUCE_KEY
        if produces and self._context.request_memory.is_full:
            self._context.request_memory.call_when_free(self._resume_soon)
            return True
        requests = self._requests
        if not requests:
            return False
        last = requests[-1]
        if not produces or last.api_key != PRODUCE_KEY or last.has_task or len(requests) >= PRODUCES_IN_FLIGHT_MAX:
            return True
        return self._bytes_owed + len(frame) > PRODUCE_BYTES_IN_FLIGHT_MAX

    def _keep(self, data: memoryview, *, with_size: bool) -> None:
        """Set bytes aside until the connection is no longer blocked, and pause reading."""
        assert self._backlog is None
        self._backlog = memoryview(bytes(data) if with_size else _SIZE.pack(len(data)) + bytes(data))
        self._context.request_memory.arriving += len(self._backlog)
        self._pause_reading()

    def _take_backlog(self) -> memoryview | None:
        backlog, self._backlog = self._backlog, None
        if backlog is not None:
            self._context.request_memory.arrived(self, len(backlog))
        return backlog

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_soon(self) -> None:
        if self._reading_paused and not self._resume_scheduled and not self._closing:
            self._resume_scheduled = True
            self._context.call_soon(self._resume)

    def _resume(self) -> None:
        self._resume_scheduled = False
        if self._closing or self._writing_paused or self._stopping:
            return
        backlog = self._take_backlog()
        if backlog is not None:
            self._take(backlog, kept=True)
        if self._backlog is not None or self._waits_for_memory:
            return
        if self._reading_paused and not self._closing and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    # Requests.

    def _handle(self, frame: memoryview, *, kept: bool) -> None:
        try:
            self._dispatch(frame, kept=kept)
        except InvalidRequestError as error:
            self._close_after_answers(str(error))
        except Exception:
            logger.exception("request failed peer=%s", self.peer)
            self._close_after_answers("an unexpected error")

    def _close_after_answers(self, reason: str) -> None:
        """Close the connection after answering the requests before the failed one."""
        self._context.broker.append_queue.flush()
        self.close(reason)

    def _dispatch(self, frame: memoryview, *, kept: bool) -> None:
        api_key, version, correlation_id = read_fixed_header(frame)
        api = APIS.get(api_key)
        context = self._context
        if api is None:
            raise InvalidRequestError(f"api key {api_key} is not supported")
        if not api.lowest <= version <= api.highest:
            if api_key != API_VERSIONS_KEY:
                raise InvalidRequestError(f"{api.name} version {version} is not supported")
            request = Request(self, context, api_key, 0, correlation_id, None, None, body_is_kept=kept)
            self._requests.append(request)
            request.reply(api_versions.unsupported_version(request))
            return
        is_large = len(frame) >= LARGE_FRAME_BYTES and api_key not in (PRODUCE_KEY, APPEND_STAGED_KEY)
        client_id = body = None
        if not is_large:
            try:
                client_id, body = _read(frame, api_key, version, FEW_PARTITIONS_MAX)
            except ManyPartitionsError:
                is_large = True
        request = Request(self, context, api_key, version, correlation_id, client_id, body, body_is_kept=kept)
        if api_key != PRODUCE_KEY:
            context.broker.append_queue.flush_a_turn()  # make earlier produces of other connections visible to this request
        request.size = len(frame)
        if self._logs_requests:
            request.began_ns = context.clock.monotonic_ns()
        self._bytes_owed += request.size
        self._requests.append(request)
        if is_large:
            request.body_is_kept = request.has_task = True
            context.start_task(self._decode_and_answer(request, frame if kept else memoryview(bytes(frame))))
        else:
            self._answer(request)

    async def _decode_and_answer(self, request: Request, frame: memoryview) -> None:
        """Decode in a thread, then run `_answer`, for a request whose decoding would block the event loop."""
        try:
            request.client_id, request.body = await self._context.run_in_thread(
                lambda: _read(frame, request.api_key, request.version)
            )
            if not self._closing:
                self._answer(request)
        except Exception:
            self.fail(request)

    def _answer(self, request: Request) -> None:
        answer = APIS[request.api_key].handle(request)
        if answer is None:
            return
        if isinstance(answer, Generator):
            request.work(answer)
        elif isinstance(answer, Coroutine):
            request.has_task = True
            self._context.start_task(self._finish(request, answer))
        else:
            request.reply(answer)

    async def _finish(self, request: Request, answer: Coroutine[Any, Any, Any]) -> None:
        try:
            values = await answer
            if values is None or self._closing:
                return
            if request.size >= LARGE_FRAME_BYTES:
                await request.reply_large(values)
            else:
                request.reply(values)
        except Exception:
            self.fail(request)

    def fail(self, request: Request) -> None:
        """Close the connection because of the exception being handled, which leaves `request` unanswered. The client retries."""
        error = sys.exception()
        if isinstance(error, InvalidRequestError):
            self.close(str(error))
            return
        logger.exception("request failed peer=%s api=%s", self.peer, request.api_key)
        self.close(f"an unexpected error (api {request.api_key})")

    def owes(self, count: int) -> None:
        """Add `count` bytes, which an unanswered request takes beyond its received size."""
        self._bytes_owed += count

    @property
    def is_closing(self) -> bool:
        """Whether no response can be sent any more."""
        return self._closing

    def answered(self) -> None:
        """Send the complete responses, from the oldest request on. Called when a request is answered."""
        requests = self._requests
        answers = self._answers
        while requests and requests[0].done:
            request = requests.popleft()
            self._bytes_owed -= request.size
            answers += request.answer
            if self._logs_requests:
                self._log(request)
        if not self._context.is_collecting:
            self._send()
        elif not self._send_scheduled:
            self._send_scheduled = True
            self._context.send_later(self._send)

    def _log(self, request: Request) -> None:
        logger.debug(
            "request peer=%s api=%s version=%d client=%s bytes=%d answer_bytes=%d duration_ms=%.3f",
            self.peer,
            APIS[request.api_key].name,
            request.version,
            request.client_id,
            request.size,
            sum(map(len, request.answer)),
            (self._context.clock.monotonic_ns() - request.began_ns) / 1e6 if request.began_ns else 0.0,
        )

    def _send(self) -> None:
        self._send_scheduled = False
        answers, self._answers = self._answers, []
        if not self._context.may_answer():
            self.abort()
            return
        if answers and self._transport is not None and not self._closing:
            if len(answers) == 1:
                self._transport.write(answers[0])
            elif sum(map(len, answers)) <= _JOINED_BYTES:
                self._transport.write(b"".join(answers))
            else:
                self._transport.writelines(answers)
        if self._reading_paused:
            self._resume_soon()

    # Closing.

    @property
    def has_requests(self) -> bool:
        """Whether there are unanswered requests."""
        return bool(self._requests)

    @property
    def is_waiting(self) -> bool:
        """Whether the connection is idle because the broker has not answered, not because the client does not read."""
        return bool(self._requests) and not self._writing_paused

    def close_idle(self) -> None:
        """Close after `connections.max.idle.ms` without received or sent bytes."""
        logger.info("connection closed peer=%s reason=idle", self.peer)
        self.abort()

    def stop_reading(self) -> None:
        """Take no further request, because the server stops."""
        self._stopping = True
        if not self._closing:
            self._pause_reading()
        self._take_backlog()

    def close(self, reason: str) -> None:
        """Close after sending written responses. `reason` is logged."""
        if not self._closing:
            logger.warning("connection closed peer=%s reason=%r", self.peer, reason)
        self.close_quietly()

    def close_quietly(self) -> None:
        """Close after sending written responses."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now and drop unsent responses."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()


_HTTP_BEGINNINGS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_TLS_HANDSHAKE = b"\x16\x03"


def _other_protocol(size: int) -> str | None:
    """Return an error text if a request's first four bytes, read as this size, belong to another protocol, else None."""
    beginning = _SIZE.pack(size)
    if beginning in _HTTP_BEGINNINGS:
        return "this looks like HTTP: the port speaks Kafka's protocol"
    if beginning.startswith(_TLS_HANDSHAKE):
        return "this looks like TLS: the port speaks Kafka's protocol without encryption (security.protocol=PLAINTEXT)"
    return None


def _read(frame: memoryview, api_key: int, version: int, produced_max: int = PARTITIONS_MAX) -> tuple[str | None, Any]:
    """Return client id and body of a request. Raise `InvalidRequestError`, or `ManyPartitionsError` as `read_produce` does."""
    if api_key == APPEND_STAGED_KEY:
        return None, body_of_request(frame)
    header = read_header(frame)
    if api_key == PRODUCE_KEY:
        return header.client_id, read_produce(frame, header.body, version, produced_max)
    return header.client_id, decode_request(header, frame)
