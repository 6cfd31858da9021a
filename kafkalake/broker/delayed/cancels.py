"""The cancels of one journal partition that have not been carried out, by source partition and delay id.

A cancel costs memory, a waiting record with an id none: the record is dropped when it comes due, or before, when all cancels are
carried out in one pass over the journal's headers. After a pass the cancels below its beginning are forgotten.

Cancels and records are looked at by lists, without an object for each: a batch may have 200,000 of them, and a round 5,000 records,
on the event loop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalake.delayed_journal import Fields, Kind, delay_ids
from kafkalake.record.arrays import Int64s

Mask = npt.NDArray[np.bool_]
_SOURCE = np.dtype([("source_id", "V16"), ("source_partition", "<i4")])


class SomeCancels(NamedTuple):
    """Cancels of the journal: the names of what they cancel (source partition and delay id), their orders and offsets there."""

    names: list[bytes]
    orders: list[int]
    offsets: list[int]


def find_cancels(headers: pa.ListArray, fields: Fields, offsets: Int64s, among: Mask | None = None) -> SomeCancels:
    """Return the cancels of the journal's rows, of those for which the mask is set if there is one."""
    is_cancel = fields["kind"] == Kind.CANCEL
    rows = np.flatnonzero(is_cancel if among is None else is_cancel & among)
    if not len(rows):
        return SomeCancels([], [], [])
    found = fields[rows]
    names = _names(headers.take(pa.array(rows)), found)
    return SomeCancels([each or b"" for each in names], found["order"].tolist(), offsets[rows].tolist())


def _names(headers: pa.ListArray, fields: Fields) -> list[bytes | None]:
    """Return what waiting records and cancels are found by: the bytes of the source and the id, None without an id."""
    ids: list[bytes | None] = delay_ids(headers, fields).to_pylist()
    sources = np.zeros(len(fields), dtype=_SOURCE)
    for name in _SOURCE.names or ():
        sources[name] = fields[name]
    data, size = sources.tobytes(), _SOURCE.itemsize
    return [
        None if delay_id is None else data[begin : begin + size] + delay_id
        for begin, delay_id in zip(range(0, len(data), size), ids, strict=True)
    ]


class Cancels:
    """The newest cancel of each name: its order, and its offset in the journal."""

    def __init__(self) -> None:
        self._newest: dict[bytes, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, some: SomeCancels) -> None:
        """Note cancels, in the journal's order."""
        newest = self._newest
        for name, order, offset in zip(*some, strict=True):
            known = newest.get(name)
            newest[name] = order if known is None or known[0] < order else known[0], offset

    def settle(self, offset: int) -> None:
        """Forget the cancels below an offset of the journal: they have been carried out."""
        self._newest = {name: noted for name, noted in self._newest.items() if noted[1] >= offset}

    def copy(self) -> Cancels:
        """Return a copy, for another thread."""
        copied = Cancels()
        copied._newest = dict(self._newest)
        return copied

    @property
    def newest_offset(self) -> int:
        """The offset of the last cancel, -1 without one."""
        return max((offset for _, offset in self._newest.values()), default=-1)

    def lowest_offset(self, end: int) -> int:
        """Return the offset of the first cancel, `end` without one."""
        return min((offset for _, offset in self._newest.values()), default=end)

    def are_cancelled(self, headers: pa.ListArray, fields: Fields) -> Mask:
        """Return bool[rows]: the waiting records that are cancelled."""
        cancelled = np.zeros(len(fields), dtype=np.bool_)
        if self._newest and len(fields):
            orders: list[int] = fields["order"].tolist()
            for row, name in enumerate(_names(headers, fields)):
                noted = None if name is None else self._newest.get(name)
                cancelled[row] = noted is not None and orders[row] < noted[0]
        return cancelled
