"""One request in progress, and its place in the response order of its connection."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kafkalake.server.turns import TURN_NS
from kafkalake.wire.responses import encode_response

if TYPE_CHECKING:
    from kafkalake.server.connection import Connection
    from kafkalake.server.context import ServerContext

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview


class Request:
    """A request as passed to a handler, which returns the response's values, or None and calls a `reply` method later, once.

    body: the message of `wire.requests`. Its `bytes` fields are views of a receive buffer that is reused after the handler
    has returned, unless `body_is_kept`.
    """

    __slots__ = (
        "answer",
        "api_key",
        "began_ns",
        "body",
        "body_is_kept",
        "client_id",
        "connection",
        "context",
        "correlation_id",
        "done",
        "has_task",
        "on_abandoned",
        "size",
        "turn_ends_ns",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        context: ServerContext,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: Any,
        *,
        body_is_kept: bool,
    ) -> None:
        self.connection = connection
        self.context = context
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.body_is_kept = body_is_kept
        self.done = False
        self.has_task = False
        """Whether a task works on it. It has not yet taken effect, so no later request may start."""
        self.size = 0
        self.began_ns = 0
        """Start time, set only if requests are logged."""
        self.turn_ends_ns = 0
        """End of the current turn (see `turn`), 0 before the first one."""
        self.answer: Sequence[Buffer] = ()
        self.on_abandoned: Any = None

    def error_text(self, error: BaseException) -> str:
        """Return an error's text for the client, with paths relative to the lake."""
        lake = self.context.broker.logs.root.parent.parent
        return str(error).replace(f"{lake.absolute()}/", "").replace(f"{lake}/", "")

    def grow(self, count: int) -> None:
        """Add `count` bytes of decompressed data to the request's size. That leaves less room for requests queued behind it."""
        self.size += count
        self.connection.owes(count)

    def abandon(self) -> None:
        """Cancel the pending work of this request, whose connection is lost."""
        abandoned, self.on_abandoned = self.on_abandoned, None
        if abandoned is not None and not self.done:
            abandoned()

    def guarded(self, answer: Callable[..., None]) -> Callable[..., None]:
        """Return `answer`, to be called later, wrapped to close the client's connection if it raises.

        A client that gets neither a response nor a closed connection would wait forever.
        """

        def guarded(*arguments: Any) -> None:
            try:
                answer(*arguments)
            except Exception:
                self.connection.fail(self)
                raise

        return guarded

    @property
    def caller(self) -> str:
        """The caller for the log: principal, address and client id."""
        return f"{self.connection.principal}@{self.connection.peer}/{self.client_id or ''}"

    async def turn(self) -> None:
        """Yield the event loop if this request's turn is over. See `server.turns`."""
        clock = self.context.clock
        now_ns = clock.monotonic_ns()
        if not self.turn_ends_ns:
            self.turn_ends_ns = now_ns + TURN_NS
        elif now_ns >= self.turn_ends_ns:
            await self.context.turns.wait()
            self.turn_ends_ns = clock.monotonic_ns() + TURN_NS

    async def in_turns(self, steps: Generator[None, None, T]) -> T:
        """Run `steps` to their end from a coroutine, in turns. Return their result."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return cast(T, stop.value)
            await self.turn()

    def work(self, steps: Generator[None, None, Mapping[str, Any] | Sequence[Buffer] | None]) -> None:
        """Run `steps` in turns and reply with their result: values, or an encoded response in pieces."""
        clock = self.context.clock
        began_ns = clock.monotonic_ns()

        def finished(answer: Mapping[str, Any] | Sequence[Buffer] | None) -> None:
            if answer is None or self.done or self.connection.is_closing:
                return
            if not isinstance(answer, Mapping):
                self.reply_buffers(answer)
            elif clock.monotonic_ns() - began_ns < TURN_NS:
                self.reply(answer)
            else:
                self.context.start_task(self.reply_large(answer))

        self.context.turns.run(
            steps,
            lambda: not self.connection.is_closing,
            finished,
            lambda: self.connection.fail(self),
        )

    async def reply_large(self, values: Mapping[str, Any]) -> None:
        """Reply like `reply`, encoding in a thread."""
        await self.encode_large(lambda: self._encode(values))

    async def encode_large(self, encode: Callable[[], bytearray]) -> None:
        """Reply with the encoded response that `encode` returns, called in a thread."""
        try:
            encoded = await self.context.run_in_thread(encode)
            if not self.connection.is_closing:
                self.reply_buffers((encoded,))
        except Exception:
            self.connection.fail(self)

    def _encode(self, values: Mapping[str, Any]) -> bytearray:
        bytes_max = self.context.broker.config.max_request_response_bytes
        return encode_response(self.api_key, self.version, self.correlation_id, values, bytes_max)

    def reply(self, values: Mapping[str, Any]) -> None:
        """Reply with the fields of `values`, encoded for the request's version."""
        self.reply_buffers((self._encode(values),))

    def reply_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Reply with an encoded response including its size prefix, in pieces."""
        assert not self.done, "a request is answered once"
        self.done = True
        self.answer = buffers
        self.body = None
        self.connection.answered()

    def reply_nothing(self) -> None:
        """Complete a request without a response (acks=0)."""
        self.reply_buffers(())
