"""Until when this process knows that it owns its logs: the one place that answers, everything that writes or answers asks it.

A broker owns its logs while its lease stands. Others may take it over once the lease has run out, so the broker stops before:
at the **start** of its last renewal that succeeded, plus the lease, less a margin for clocks that do not run at the same speed
and for a file system that shows a write late. Times are of `Clock.elapsed_ms`, which no operator and no NTP moves and which
goes on while the machine is suspended. A process that was paused (SIGSTOP, a laptop that slept, a hanging disk) therefore knows
of itself that it may not be the owner any more, before it has heard of another.

While that is not certain nothing is written, published or answered; a renewal that succeeds makes it certain again, because
the row that it replaces still named this lease, so nobody was the owner in between.
"""

from __future__ import annotations

from kafkalake.clock import Clock

MARGIN_DIVISOR = 6


class Ownership:
    """The deadline. One thread moves it, any thread asks."""

    __slots__ = ("_elapsed_ns", "_until_ns")

    def __init__(self, clock: Clock) -> None:
        self._elapsed_ns = clock.elapsed_ns
        self._until_ns = -1

    @property
    def until_ms(self) -> int:
        """`Clock.elapsed_ms` up to which ownership is certain."""
        return self._until_ns // 1_000_000

    def is_certain(self) -> bool:
        """Whether this process still owns its logs. Called for each write and each answer."""
        return self._elapsed_ns() < self._until_ns

    def renewed(self, began_ms: int, lease_ms: int) -> None:
        """A lease of `lease_ms` was acquired or renewed by what began at `began_ms`."""
        self._until_ns = max(self._until_ns, (began_ms + lease_ms - lease_ms // MARGIN_DIVISOR) * 1_000_000)

    def end(self) -> None:
        """The lease is another's: nothing makes this process the owner again."""
        self._until_ns = -1
