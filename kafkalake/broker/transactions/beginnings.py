"""The open transactions of this broker's coordinator, and the beginnings that wait for a moment in which none is open.

Transactions of several producers that overlap in a partition, each with the next, have no offset at which all are whole. A publish
that has shown nothing new for a while makes one: no transaction begins until those that are open have ended. So each is delayed by
the duration of another one, rarely. It is not tried again while one is open that has lasted longer.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.journal import Timers

QUIET_MS = 500
"""Longest wait for the open transactions."""
PUBLISH_MS = 500
"""Longest time for which none begins after that, while the positions are taken."""


class Beginnings:
    """The beginnings of one broker. Used by the event loop's thread only."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._open: set[tuple[int, str]] = set()
        """(partition of the journal, transactional id)."""
        self._lasting: set[tuple[int, str]] = set()
        """Those that were open already when `hold` was tried last, in vain."""
        self._waiting: list[Callable[[], None]] | None = None
        self._quiet: Callable[[bool], None] | None = None
        self._alarm: object = None

    # What the journal says

    def began(self, partition: int, transactional_id: str) -> None:
        self._open.add((partition, transactional_id))

    def ended(self, partition: int, transactional_id: str) -> None:
        self._open.discard((partition, transactional_id))
        self._lasting.discard((partition, transactional_id))
        self._look()

    def forget(self, partition: int) -> None:
        """Forget the transactions of a partition of the journal that another broker leads now."""
        self._open = {each for each in self._open if each[0] != partition}
        self._look()

    # The hold

    def has_to_wait(self, begin: Callable[[], None]) -> bool:
        """Return whether a transaction may not begin now. `begin` is called when it may."""
        if self._waiting is None:
            return False
        self._waiting.append(begin)
        return True

    def hold(self, quiet: Callable[[bool], None]) -> None:
        """Let none begin until `release`, and call `quiet` once: True when none is open, False after `QUIET_MS`.

        It is called with False at once, and nothing is held, if one is open that a hold has waited for before.
        """
        self.release()
        self._lasting &= self._open
        if self._lasting:
            quiet(False)
            return
        self._waiting, self._quiet = [], quiet
        self._alarm = self._timers.schedule(QUIET_MS, self._give_up)
        self._look()

    def _look(self) -> None:
        if self._quiet is not None and not self._open:
            self._answer(True)
            self._alarm = self._timers.schedule(PUBLISH_MS, self.release)

    def _give_up(self) -> None:
        self._lasting = set(self._open)
        self.release()

    def _answer(self, is_quiet: bool) -> None:
        if self._alarm is not None:
            self._timers.cancel(self._alarm)
            self._alarm = None
        quiet, self._quiet = self._quiet, None
        if quiet is not None:
            call_isolated(CallbackLoop.COORDINATED, quiet, is_quiet)

    def release(self) -> None:
        """Let transactions begin again."""
        self._answer(False)
        waiting, self._waiting = self._waiting, None
        for begin in waiting or ():
            call_isolated(CallbackLoop.NEXT_STEP, begin)
