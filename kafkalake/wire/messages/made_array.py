"""An array of structs that are made one at a time when it is written, so that a large response takes no memory for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class MadeArray(Sequence[T], Generic[T]):
    """The structs that `make` returns for the numbers of `indexes`. What it needs must not change before they are written."""

    __slots__ = ("_indexes", "_make")

    def __init__(self, make: Callable[[int], T], indexes: range) -> None:
        self._make = make
        self._indexes = indexes

    def __len__(self) -> int:
        return len(self._indexes)

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
