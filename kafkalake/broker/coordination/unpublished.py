"""The changes of a coordinator's journal that Delta lacks, also after the coordinator has stopped."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

C = TypeVar("C")


class ChangingTable(Protocol[C]):
    """A table that collects the changes since they were last taken."""

    def take_changes(self) -> C: ...

    def put_back(self, changes: C) -> None: ...


class Unpublished(Generic[C]):
    """The changes of a table. After `stop` the last of them can be taken once, although the table is emptied."""

    def __init__(self, table: ChangingTable[C], nothing: C) -> None:
        self._table = table
        self._nothing = nothing
        self._final: C | None = None

    @property
    def is_stopped(self) -> bool:
        return self._final is not None

    def stop(self) -> None:
        """Take the last changes from the table."""
        self._final = self._table.take_changes()

    def take(self) -> C:
        """Return the changes that Delta lacks."""
        if self._final is None:
            return self._table.take_changes()
        final, self._final = self._final, self._nothing
        return final

    def put_back(self, changes: C) -> None:
        """Restore `changes` after a failed publish."""
        if self._final is None:
            self._table.put_back(changes)
        else:
            self._final = self._nothing  # its positions would skip unpublished rows: the next start reads them again
