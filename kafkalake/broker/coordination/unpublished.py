"""What Delta lacks of a coordinator's journal, also once the coordinator has stopped."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

C = TypeVar("C")


class ChangingTable(Protocol[C]):
    """Remembers what has changed since it was taken."""

    def take_changes(self) -> C: ...

    def put_back(self, changes: C) -> None: ...


class Unpublished(Generic[C]):
    """The changes of a table. After `stop` the last of them stay to be taken, once, though the table forgets everything."""

    def __init__(self, table: ChangingTable[C], nothing: C) -> None:
        self._table = table
        self._nothing = nothing
        self._final: C | None = None

    @property
    def is_stopped(self) -> bool:
        return self._final is not None

    def stop(self) -> None:
        """The table changes no more."""
        self._final = self._table.take_changes()

    def take(self) -> C:
        """What Delta lacks."""
        if self._final is None:
            return self._table.take_changes()
        final, self._final = self._final, self._nothing
        return final

    def put_back(self, changes: C) -> None:
        """`changes` were not published."""
        if self._final is None:
            self._table.put_back(changes)
        else:
            self._final = self._nothing  # its positions would pass what is lacking: the next start finds all of it
