"""The records of targets that take none now, without their bytes: they are read again when their target has taken a batch.

So a topic without replicas in sync, for however long, keeps neither memory nor the records of other topics back.
"""

from __future__ import annotations

import numpy as np

from kafkalake.broker.delayed.due_runs import NO_ENTRIES, Entries
from kafkalake.broker.delayed.hand_overs import Target
from kafkalake.broker.delayed.rows import WaitingRows


class Parked:
    """The entries of records that were due, by target."""

    def __init__(self) -> None:
        self._entries: dict[Target, list[Entries]] = {}
        self._unblocked: set[Target] = set()

    def __contains__(self, target: Target) -> bool:
        return target in self._entries

    @property
    def has_unblocked(self) -> bool:
        """Return whether `take` has something to return."""
        return bool(self._unblocked)

    def park(self, target: Target, parts: list[WaitingRows]) -> None:
        """Keep the records of a target that takes none now, and those that follow, until it is unblocked and they are taken."""
        self._entries.setdefault(target, []).extend(each.entries for each in parts)

    def unblock(self, target: Target) -> None:
        """Let the records of a target be taken."""
        if target in self._entries:
            self._unblocked.add(target)

    def take(self) -> Entries:
        """Remove and return the entries of the targets that are not blocked any more, in any order."""
        found = [entries for target in self._unblocked for entries in self._entries.pop(target)]
        self._unblocked.clear()
        return np.concatenate([NO_ENTRIES, *found])
