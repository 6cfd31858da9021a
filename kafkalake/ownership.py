"""The time until which this process certainly owns its logs. Checked before every write and every response.

A broker owns its logs while its lease is valid. Others may take it over once the lease has expired, so the broker stops before:
at the **start** of its last successful renewal, plus the lease, less a margin for clocks that do not run at the same speed
and for a file system that shows a write late. Times are of `Clock.elapsed_ms`, which no operator and no NTP moves and which
advances while the machine is suspended. A process that was paused (SIGSTOP, a suspended laptop, a hanging disk) therefore
finds its ownership uncertain even before it sees another owner.

While ownership is uncertain nothing is written, published or answered. A successful renewal makes it certain again, because
the row that it replaces still named this lease, so there was no other owner in between.
"""

from __future__ import annotations

import threading

from kafkalake.clock import Clock

MARGIN_DIVISOR = 6


class Ownership:
    """The deadline. Any thread reads it. Once ended, no renewal extends it, even one that is under way in another thread."""

    __slots__ = ("_elapsed_ns", "_has_ended", "_lock", "_until_ns")

    def __init__(self, clock: Clock) -> None:
        self._elapsed_ns = clock.elapsed_ns
        self._lock = threading.Lock()
        self._has_ended = False
        self._until_ns = -1

    @property
    def until_ms(self) -> int:
        """The `Clock.elapsed_ms` until which ownership is certain."""
        return self._until_ns // 1_000_000

    def is_certain(self) -> bool:
        """Return whether this process still owns its logs. Called for each write and each response."""
        return self._elapsed_ns() < self._until_ns

    def renewed(self, began_ms: int, lease_ms: int) -> None:
        """Extend ownership by a lease of `lease_ms` whose acquisition or renewal began at `began_ms`, unless it has ended."""
        with self._lock:
            if not self._has_ended:
                until_ns = (began_ms + lease_ms - lease_ms // MARGIN_DIVISOR) * 1_000_000
                self._until_ns = max(self._until_ns, until_ns)

    def end(self) -> None:
        """End ownership for good: the lease was lost or released."""
        with self._lock:
            self._has_ended = True
            self._until_ns = -1
