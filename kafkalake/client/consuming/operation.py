"""Something under way in a consumer, with a result or an error at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kafkalake.errors import KafkaLakeError

T = TypeVar("T")


class Operation(Generic[T]):
    """See the module. deadline_ms: when it fails for lack of an answer. is_repeated: whether it is tried again until then."""

    __slots__ = ("_calls", "_error", "_value", "deadline_ms", "is_abandoned", "is_done", "is_repeated")

    def __init__(self, deadline_ms: int, *, is_repeated: bool = True) -> None:
        self.deadline_ms = deadline_ms
        self.is_repeated = is_repeated
        self.is_done = self.is_abandoned = False
        self._calls: list[Callable[[], None]] = []
        self._value: T | None = None
        self._error: KafkaLakeError | None = None

    def complete(self, value: T) -> None:
        """End with a result."""
        self._value = value
        self._end()

    def fail(self, error: KafkaLakeError) -> None:
        """End with an error."""
        self._error = error
        self._end()

    def abandon(self) -> None:
        """Begin no further attempt: who waited for the end has left."""
        self.is_abandoned = True

    def may_repeat(self, now_ms: int) -> bool:
        """Return whether there is time for another attempt, and somebody who waits for it."""
        return self.is_repeated and not self.is_abandoned and now_ms < self.deadline_ms

    def when_done(self, call: Callable[[], None]) -> None:
        """Have `call` called at the end."""
        if self.is_done:
            call()
        else:
            self._calls.append(call)

    @property
    def error(self) -> KafkaLakeError | None:
        """The error at the end, None as long as there is none."""
        return self._error

    def result(self) -> T:
        """Return the result. Raise the error. Call it at the end only."""
        assert self.is_done
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # T may be None

    def _end(self) -> None:
        self.is_done = True
        calls, self._calls = self._calls, []
        for call in calls:
            call()
