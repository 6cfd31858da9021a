"""One request in progress, and its place in the response order of its connection."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from kafkalake.buffers import Buffer
from kafkalake.clock import Deadline
from kafkalake.config.listener import Listener
from kafkalake.error_sentences import SENTENCES
from kafkalake.errors import KafkaError
from kafkalake.run_blocking import TURN_NS
from kafkalake.server.authorizer import Operation, Principal, Resource
from kafkalake.wire.messages.codec import encode_response, encode_response_in_steps
from kafkalake.wire.messages.message import Response
from kafkalake.wire.messages.writing import ManyElementsError

if TYPE_CHECKING:
    from kafkalake.server.context import ServerContext
    from kafkalake.server.registry import Api

T = TypeVar("T")
Body = TypeVar("Body", covariant=True)

_ELEMENTS_AT_ONCE_MAX = 500
"""A response with more structs and strings is encoded in turns: so many take about half a millisecond."""

Answer = Response | Coroutine[object, object, Response | None] | Generator[None, None, Response | None] | None
"""The response, a coroutine or generator (`server.turns`) that returns it, or None if the handler replies itself."""


class Origin(Protocol):
    """The connection of a request, as far as the request needs it, or its stand-in for a request that a broker has forwarded."""

    listener: Listener
    """The one that the client is connected to."""
    principal: Principal
    peer: str
    address: str
    logs_requests: bool
    is_forwarded: bool
    """Whether a broker has forwarded the request, after its own checks."""

    @property
    def is_closing(self) -> bool:
        """Return whether no answer can be sent any more."""
        ...

    @property
    def owe(self) -> Callable[[int], None]:
        """Returns a function that counts more bytes as those of pending requests."""
        ...

    def answered(self, request: Request[Any]) -> None:
        """Send the answer of a request, which is complete."""
        ...

    def fail(self, error: Exception) -> None:
        """Leave a request unanswered because of `error`."""
        ...

    def close(self, reason: str) -> None:
        """Close the connection. `reason` is logged."""
        ...


class Request(Generic[Body]):
    """A request as passed to a handler, which returns the response, or None and calls a `reply` method later, once.

    body: the message (see `wire.messages`), None once it is answered or forgotten. Its `bytes` fields are views of a receive buffer
    that is reused after the handler has returned, unless `body_is_kept`.
    """

    __slots__ = (
        "_on_abandoned",
        "_on_followed",
        "answer",
        "api",
        "began_ns",
        "body",
        "body_is_kept",
        "client_id",
        "connection",
        "context",
        "correlation_id",
        "done",
        "frame_bytes",
        "has_task",
        "size",
        "throttle_ms",
        "turn_ends_ns",
        "version",
    )

    def __init__(
        self,
        connection: Origin,
        context: ServerContext,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: Body,
        size: int,
        *,
        body_is_kept: bool,
    ) -> None:
        """`size`: bytes of the frame."""
        self.connection = connection
        self.context = context
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.body_is_kept = body_is_kept
        self.done = False
        self.has_task = False
        """Whether a task works on it. It has not yet taken effect, so no later request may start."""
        self.size = self.frame_bytes = size
        self.began_ns = context.clock.monotonic_ns() if connection.logs_requests else 0
        self.turn_ends_ns = 0
        """End of the current turn (see `turn`), 0 before the first one."""
        self.answer: Sequence[Buffer] = ()
        self.throttle_ms = 0
        """For how long the client is to send nothing, as its response says."""
        self._on_abandoned: Callable[[], object] | None = None
        self._on_followed: Callable[[], object] | None = None

    # Before the answer.

    def handle(self, handler: Callable[[Request[Body]], Answer]) -> None:
        """Run the handler of the request's API and reply with its result, now or when it is there."""
        answer = handler(self)
        if answer is None:
            return
        if isinstance(answer, Generator):
            self.work(answer)
        elif isinstance(answer, Coroutine):
            self.start_task(self._finish(answer))
        else:
            self.reply(answer)

    async def _finish(self, answer: Coroutine[Any, Any, Response | None]) -> None:
        values = await answer
        if values is not None and not self.connection.is_closing:
            self.reply(values)

    def decoded(self, client_id: str | None, body: Any) -> None:
        """Take over what was decoded after the request was made."""
        self.client_id = client_id
        self.body = body

    def forget_body(self) -> None:
        """Keep the message no longer: all that the answer needs of it has been taken. For requests that may wait for days."""
        self.body = cast(Body, None)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, which replies, as a task. Its exception fails the request."""
        self.has_task = True
        self.context.start_task(self._guard(work))

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.fail(error)

    def error_text(self, error: BaseException) -> str:
        """Return an error's text for the client, with paths relative to the lake."""
        lake = self.context.broker.logs.root.parent.parent
        return str(error).replace(f"{lake.absolute()}/", "").replace(f"{lake}/", "")

    def specific_text(self, error: KafkaError) -> str | None:
        """Return an error's text for the client, None if it is but Kafka's message for the code, which every client has itself.

        So it is in Kafka's answers where the error was raised as an exception.
        """
        return None if str(error) == SENTENCES.get(error.code) else self.error_text(error)

    def grow(self, count: int) -> None:
        """Add `count` bytes of decompressed data to the request's size. That leaves less room for requests queued behind it."""
        self.size += count
        self.connection.owe(count)

    def call_if_abandoned(self, cancel: Callable[[], object]) -> None:
        """Call `cancel` if the connection is lost before the reply."""
        self._on_abandoned = cancel

    def call_if_followed(self, answer: Callable[[], object]) -> None:
        """Call `answer` once the client has sent another request, which is handled only after this one."""
        self._on_followed = answer

    def hasten(self) -> None:
        """Answer without waiting longer, if the request can: the client waits for another one."""
        answer, self._on_followed = self._on_followed, None
        if answer is not None:
            answer()

    def abandon(self) -> None:
        """Cancel the pending work of this request, whose connection is lost."""
        cancel, self._on_abandoned = self._on_abandoned, None
        if cancel is not None:
            cancel()

    def guarded(self, answer: Callable[..., None]) -> Callable[..., None]:
        """Return `answer`, to be called later, wrapped to fail the request if it raises.

        A client that gets neither a response nor a closed connection would wait forever.
        """

        def guarded(*arguments: Any) -> None:
            try:
                answer(*arguments)
            except Exception as error:
                self.fail(error)
                raise

        return guarded

    def deadline(self, timeout_ms: int) -> Deadline:
        """Return the end of the request's timeout, which begins now."""
        return Deadline(self.context.clock, timeout_ms)

    @property
    def listener(self) -> str:
        """The name of the listener that the client is connected to. It reaches other brokers at their listener of this name."""
        return self.connection.listener.name

    @property
    def api_key(self) -> int:
        """The API's number."""
        return self.api.key

    def allows(self, resource: Resource, name: str, operation: Operation | None = None) -> bool:
        """Return whether the principal may do the API's operation, or another `operation`, on the resource of that name."""
        operation = operation or self.api.operations[resource]
        return self.context.authorizer.allows(self.connection.principal, operation, resource, name)

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

    def work(self, steps: Generator[None, None, Response | Sequence[Buffer] | None]) -> None:
        """Run `steps` in turns and reply with their result: a message, or an encoded response in pieces."""

        def finished(answer: Response | Sequence[Buffer] | None) -> None:
            if answer is None or self.done or self.connection.is_closing:
                return
            if isinstance(answer, Response):
                self.reply(answer)
            else:
                self.reply_buffers(answer)

        self.context.turns.run(steps, lambda: not self.connection.is_closing, finished, self.fail)

    # The end: an answer, or a failure.

    async def reply_from_thread(self, encode: Callable[[], Sequence[Buffer]]) -> None:
        """Reply like `reply_buffers` with what `encode` returns, called in a thread."""
        encoded = await self.context.run_in_thread(encode)
        if not self.connection.is_closing:
            self.reply_buffers(encoded)

    def reply(self, message: Response) -> None:
        """Reply with `message`, encoded for the request's version: now, or in turns if it has many elements."""
        self.throttle_ms = message.throttle_time
        key, version, correlation_id = self.api.key, self.version, self.correlation_id
        bytes_max = self.context.broker.config.max_request_response_bytes
        try:
            encoded = encode_response(key, version, correlation_id, message, bytes_max, _ELEMENTS_AT_ONCE_MAX)
        except ManyElementsError:
            self._forget_request()
            steps = encode_response_in_steps(key, version, correlation_id, message, bytes_max)
            self.context.encodings.run(steps, lambda: not self.connection.is_closing, self._encoded, self.fail)
        else:
            self.reply_buffers((encoded,))

    def _encoded(self, answer: Buffer) -> None:
        if not self.connection.is_closing:
            self.reply_buffers((answer,))

    def _forget_request(self) -> None:
        """Forget what the answer does not need: the message, and what refers to this request."""
        self.forget_body()
        self._on_abandoned = self._on_followed = None

    def reply_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Reply with an encoded response including its size prefix, in pieces, or with nothing (acks=0)."""
        assert not self.done, "a request is answered once"
        self.done = True
        self.answer = buffers
        self._forget_request()
        self.connection.answered(self)

    def fail(self, error: Exception) -> None:
        """Leave the request unanswered because of `error` and close its connection."""
        self.connection.fail(error)
