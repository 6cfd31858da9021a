"""A request on its way: what was sent to a node, and its response or error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from kafkalake.client.exchange import Pending
from kafkalake.client.requests import A, ClientApi
from kafkalake.errors import KafkaLakeError
from kafkalake.wire.messages.message import Message


class PendingRequest(Generic[A]):
    """See the module. Once `is_done`, either `error` is set or, if the request is answered at all, `response`."""

    __slots__ = (
        "_done",
        "_expected",
        "_message",
        "api",
        "deadline_ms",
        "error",
        "is_answered",
        "is_done",
        "node_id",
        "response",
        "timeout_ms",
    )

    def __init__(
        self,
        node_id: int,
        api: ClientApi[Any, A],
        message: Message,
        *,
        now_ms: int,
        timeout_ms: int,
        is_answered: bool = True,
        done: Callable[[PendingRequest[A]], None] | None = None,
    ) -> None:
        """`done` is called once, with this request. is_answered: whether the broker sends a response."""
        self.node_id = node_id
        self.api = api
        self.timeout_ms = timeout_ms
        self.deadline_ms = now_ms + timeout_ms
        self.is_answered = is_answered
        self.is_done = False
        self.response: A | None = None
        self.error: KafkaLakeError | None = None
        self._message: Message | None = message
        self._expected: Pending[Any, A] | None = None
        self._done = done

    @property
    def expected(self) -> Pending[Any, A]:
        """By which the response is decoded. Set once the request is written."""
        assert self._expected is not None
        return self._expected

    def take_message(self) -> Message:
        """Return the message, and forget it: it may be large."""
        assert self._message is not None
        message, self._message = self._message, None
        return message

    def expect(self, expected: Pending[Any, A]) -> None:
        """Take over what the response will be decoded by."""
        self._expected = expected

    def complete(self, response: A | None) -> None:
        """End with a response, or with None if there is none to this request."""
        self.response = response
        self._end()

    def fail(self, error: KafkaLakeError) -> None:
        """End with an error."""
        self.error = error
        self._end()

    def result(self) -> A:
        """Return the response. Raise the error."""
        if self.error is not None:
            raise self.error
        assert self.response is not None
        return self.response

    def _end(self) -> None:
        if self.is_done:
            return
        self.is_done = True
        self._message = None
        done, self._done = self._done, None
        if done is not None:
            done(self)
