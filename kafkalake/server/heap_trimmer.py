"""Returns free heap to the system after large requests, whose fields take many times their size."""

from __future__ import annotations

from collections.abc import Callable

TRIM_AFTER_S = 2.0


class HeapTrimmer:
    """Trims the heap once a large request is over, whatever else is in progress then."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object], trim: Callable[[], object]) -> None:
        self._call_later = call_later
        self._trim = trim
        self._waiting: list[Callable[[], bool]] = []

    def trim_after(self, is_over: Callable[[], bool]) -> None:
        """Trim within `TRIM_AFTER_S` after the request for which `is_over` returns whether it is answered or abandoned."""
        if not self._waiting:
            self._call_later(TRIM_AFTER_S, self._check)
        self._waiting.append(is_over)

    def _check(self) -> None:
        waiting = [is_over for is_over in self._waiting if not is_over()]
        if len(waiting) < len(self._waiting):
            self._trim()
        self._waiting = waiting
        if waiting:
            self._call_later(TRIM_AFTER_S, self._check)
