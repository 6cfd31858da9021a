"""An array of values that are made one at a time when it is read, such as the structs of a large response.

It takes no memory for all of them at once, and no time before the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import eq
from typing import Generic, TypeVar, overload

T = TypeVar("T")
E = TypeVar("E")


class MadeArray(Sequence[T], Generic[T]):
    """The values that `make` returns for the numbers of `indexes`. What it needs must not change before they are read."""

    __slots__ = ("_indexes", "_make")

    def __init__(self, make: Callable[[int], T], indexes: range) -> None:
        self._make = make
        self._indexes = indexes

    def __len__(self) -> int:
        return len(self._indexes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._indexes)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return MadeArray(self._make, self._indexes[index])
        return self._make(self._indexes[index])


def made_from(elements: Sequence[E], make: Callable[[E], T]) -> MadeArray[T]:
    """Return the values that `make` returns for `elements`."""
    return MadeArray(lambda index: make(elements[index]), range(len(elements)))
