"""A clock that tests move."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only by `advance` and `jump`. All readings start at `start_ms`."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = start_ms
        self._monotonic_ms = start_ms

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ms * 1_000_000

    def elapsed_ms(self) -> int:
        return self._monotonic_ms

    def elapsed_ns(self) -> int:
        return self._monotonic_ms * 1_000_000

    def advance(self, milliseconds: int) -> None:
        """Move all readings forward."""
        assert milliseconds >= 0
        self._wall_ms += milliseconds
        self._monotonic_ms += milliseconds

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock alone, forward or back, as NTP or an operator does."""
        self._wall_ms += milliseconds
