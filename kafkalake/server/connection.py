"""The transport of one client connection: an asyncio protocol that feeds a `ConnectionState` and sends what it gives back.

The rules (frames, order, back-pressure) are the state's. Here are the socket, the log, and the ways to close.

**Errors.** A malformed request closes the connection, with a line in the log. So does an unexpected exception in a handler: the
client sees a closed connection and retries.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, cast

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.config.listener import Listener
from kafkalake.errors import InvalidRequestError
from kafkalake.run_blocking import TURN_NS
from kafkalake.server.authorizer import authenticate
from kafkalake.server.connection_state import ConnectionState
from kafkalake.server.dispatch import dispatch
from kafkalake.server.request import Request
from kafkalake.wire.repeated_produce import ProducePatterns

if TYPE_CHECKING:
    from kafkalake.server.acceptor import Acceptor
    from kafkalake.server.context import ServerContext

logger = logging.getLogger(__name__)

WRITE_BUFFER_HIGH_BYTES = 4 * 1024
"""Above this write buffer size a connection is not read from, and counts in `unread_answers`. Smaller buffers cost about as much
as a connection does anyway, so `max.connections` bounds them.
"""
_FRAMES_UNTIMED = 8
"""After so many frames of one read, a turn of `TURN_NS` begins: a read may have ten thousand small ones."""
_JOINED_BYTES = 16 * 1024
_IPV4_IN_IPV6 = "::ffff:"
"""The beginning of an IPv4 address at a socket of both kinds of addresses."""


class Connection(asyncio.BufferedProtocol):
    """See the module. `listener` is the one that the client connected to, `shared` the server's receive buffer."""

    is_forwarded = False

    def __init__(self, context: ServerContext, acceptor: Acceptor, listener: Listener, shared: memoryview) -> None:
        self._context = context
        self._acceptor = acceptor
        self.listener = listener
        self._state = ConnectionState(
            shared,
            context.request_memory,
            context.broker.config.socket_request_max_bytes,
            context.clock.monotonic_ms(),
        )
        self.begin = self._state.begin
        self.produce_patterns = ProducePatterns()
        self.owe = self._state.owe
        self._send_scheduled = False
        self._reading_paused = False
        self._resume_scheduled = False
        self._waits_for_memory = False
        self._transport: asyncio.Transport | None = None
        self.principal = authenticate(listener)
        self.address = ""
        self.peer = ""
        self.logs_requests = logger.isEnabledFor(logging.DEBUG)

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit asyncio's
        transport = self._transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = str(peer[0]).removeprefix(_IPV4_IN_IPV6) if "." in peer[0] else str(peer[0])
            self.peer = f"{self.address}:{peer[1]}"
        else:
            self.peer = str(peer)
        if not self._acceptor.admit(self):
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, error: Exception | None) -> None:
        self._acceptor.forget(self)
        self._context.unread_answers.remove(self)
        for request in self._state.end():
            call_isolated(CallbackLoop.ABANDONED_REQUEST, request.abandon)

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._state.buffer()

    def buffer_updated(self, count: int) -> None:
        self._state.received(count, self._context.clock.monotonic_ms())
        self._handle_frames()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._state.block_writing()
        if self._transport is not None and not self.is_closing:
            size = self._transport.get_write_buffer_size()
            self._context.unread_answers.add(self, size, self._close_unread)

    def _close_unread(self) -> None:
        logger.warning("connection closed peer=%s reason='answers that it does not read'", self.peer)
        self.abort()

    def resume_writing(self) -> None:
        self._state.unblock_writing(self._context.clock.monotonic_ms())
        self._context.unread_answers.remove(self)
        self._resume_soon()

    # Requests.

    def _handle_frames(self) -> None:
        state, now_ns = self._state, self._context.clock.monotonic_ns
        handled = end_ns = 0
        try:
            while (frame := state.next_frame()) is not None:
                dispatch(self, self._context, frame, kept=state.frames_are_kept)
                handled += 1
                if handled == _FRAMES_UNTIMED:
                    end_ns = now_ns() + TURN_NS
                elif handled > _FRAMES_UNTIMED and now_ns() >= end_ns and state.put_off():
                    self._context.turns.later(self._begin_turn)
                    break
        except Exception as error:
            self._context.broker.flush()  # answers the requests before the failed one
            self.fail(error)
        if state.is_paused:
            self._pause()
        if (followed := state.followed) is not None:
            call_isolated(CallbackLoop.WAITING_REQUEST, followed.hasten)

    def _begin_turn(self) -> None:
        """Go on with what was put off."""
        self._state.end_put_off()
        if not self.is_closing:
            self._resume()

    def _pause(self) -> None:
        if not self._reading_paused and not self.is_closing and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        if self._state.waits_for_memory and not self._waits_for_memory:
            self._waits_for_memory = True
            self._context.request_memory.call_when_free(self._memory_is_free)

    def _memory_is_free(self) -> None:
        self._waits_for_memory = False
        self._resume_soon()

    def _resume_soon(self) -> None:
        if self._reading_paused and not self._resume_scheduled and not self.is_closing:
            self._resume_scheduled = True
            self._context.call_soon(self._resume)

    def _resume(self) -> None:
        self._resume_scheduled = False
        state = self._state
        state.resume(self._context.clock.monotonic_ms())
        if state.is_paused:
            self._pause()
            return
        self._handle_frames()
        if not state.is_paused and not state.is_closing and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def answered(self, request: Request[object]) -> None:
        """Send the complete answers, from the oldest request on. Called when `request` is answered."""
        if self.logs_requests:
            self._log(request)
        if self._context.quotas.are_set and not self._context.is_brokers(request):
            self._throttle(request)
        if not self._context.is_collecting:
            self._send()
        elif not self._send_scheduled:
            self._send_scheduled = True
            self._context.send_later(self._send)

    def _throttle(self, request: Request[object]) -> None:
        """Read nothing more for a while if the client exceeds a quota, and say so in the answer."""
        delay_ms = self._context.quotas.count(request, self.principal.name)
        if delay_ms and not self.is_closing:
            self._state.throttle(self._context.clock.monotonic_ms() + delay_ms)
            self._pause()
            self._context.broker.timers.schedule(delay_ms, self._end_throttle)

    def _end_throttle(self) -> None:
        self._state.end_throttle(self._context.clock.monotonic_ms())
        self._resume_soon()

    def _log(self, request: Request[object]) -> None:
        logger.debug(
            "request peer=%s api=%s version=%d client=%s bytes=%d answer_bytes=%d duration_ms=%.3f",
            self.peer,
            request.api.name,
            request.version,
            request.client_id,
            request.size,
            sum(map(len, request.answer)),
            (self._context.clock.monotonic_ns() - request.began_ns) / 1e6,
        )

    def _send(self) -> None:
        self._send_scheduled = False
        answers = self._state.take_answers()
        if not self._context.may_answer():
            self.abort()
            return
        if answers and self._transport is not None and not self._state.is_closing:
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
    def is_closing(self) -> bool:
        """Return whether no answer can be sent any more."""
        return self._state.is_closing

    @property
    def has_requests(self) -> bool:
        """Return whether there are unanswered requests."""
        return self._state.has_requests

    def check(self, now_ms: int, idle_ms: int, unfinished_ms: int | None) -> None:
        """Close after `idle_ms` without received or sent bytes, or if a frame makes too little progress in `unfinished_ms`."""
        if self._state.last_active_ms < now_ms - idle_ms and not self._state.is_waiting:
            logger.info("connection closed peer=%s reason=idle", self.peer)
            self.abort()
        elif unfinished_ms is not None:
            stalled = self._state.stalled_bytes(now_ms, unfinished_ms)
            if stalled is not None:
                reason = "a request of which %d bytes came"
                logger.warning("connection closed peer=%s reason='%s'", self.peer, reason % stalled)
                self.abort()

    def stop_reading(self) -> None:
        """Take no further request, because the server stops."""
        self._state.stop_reading()
        self._pause()

    def hold(self) -> None:
        """Take no request, of a new connection that is about to be closed."""
        self._state.stop_reading()
        self._context.call_soon(self._pause)  # uvloop begins to read after `connection_made`

    def fail(self, error: Exception) -> None:
        """Close because of `error`, which leaves a request unanswered. The client retries."""
        if isinstance(error, InvalidRequestError):
            self.close(str(error))
        else:
            logger.error("request failed peer=%s", self.peer, exc_info=error)
            self.close("an unexpected error")

    def close(self, reason: str) -> None:
        """Close after sending written answers. `reason` is logged."""
        if not self.is_closing:
            logger.warning("connection closed peer=%s reason=%r", self.peer, reason)
        self.close_quietly()

    def close_quietly(self) -> None:
        """Close after sending written answers."""
        self._state.close()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now and drop unsent answers."""
        self._state.close()
        if self._transport is not None:
            self._transport.abort()
