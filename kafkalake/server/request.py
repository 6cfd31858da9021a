"""One request on its way through the server, and its place in the line of answers of its connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalake.wire.responses import encode_response

if TYPE_CHECKING:
    from kafkalake.server.connection import Connection
    from kafkalake.server.context import ServerContext

Buffer = bytes | bytearray | memoryview


class Request:
    """What a handler gets. It returns the answer's values, or None and calls one of the `reply` methods later, once.

    body: the message of `wire.requests`. Its `bytes` fields are views of a receive buffer that is used again after the handler
    has returned, unless `body_is_kept`.
    """

    __slots__ = (
        "answer",
        "api_key",
        "began_s",
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
        """Whether a task works on it: it has not yet taken effect, so nothing may follow it."""
        self.size = 0
        self.began_s = 0.0
        """When it was taken, where requests are logged."""
        self.answer: Sequence[Buffer] = ()
        self.on_abandoned: Any = None

    def error_text(self, error: BaseException) -> str:
        """Return what a client is told of an error: paths in it are relative to the lake, wherever that lies."""
        lake = self.context.broker.logs.root.parent.parent
        return str(error).replace(f"{lake.absolute()}/", "").replace(f"{lake}/", "")

    def grow(self, count: int) -> None:
        """The request has become `count` bytes larger: what it holds was decompressed. So much less may wait behind it."""
        self.size += count
        self.connection.owes(count)

    def abandon(self) -> None:
        """The connection is lost: have what waits for this request let go of it, and let go of what waits."""
        abandoned, self.on_abandoned = self.on_abandoned, None
        if abandoned is not None and not self.done:
            abandoned()

    def guarded(self, answer: Callable[..., None]) -> Callable[..., None]:
        """Return `answer`, to be called later, such that the client's connection is closed where it fails.

        A client that gets neither an answer nor a closed connection would wait for ever.
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
        """Who asks, for the log: principal, address and client id."""
        return f"{self.connection.principal}@{self.connection.peer}/{self.client_id or ''}"

    def reply(self, values: Mapping[str, Any]) -> None:
        """Answer with the fields of `values`, encoded for the request's version."""
        self.reply_buffers((encode_response(self.api_key, self.version, self.correlation_id, values),))

    def reply_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Answer with a whole response, its size in front, in pieces."""
        assert not self.done, "a request is answered once"
        self.done = True
        self.answer = buffers
        self.body = None
        self.connection.answered()

    def reply_nothing(self) -> None:
        """There is no answer to this request (acks=0)."""
        self.reply_buffers(())
