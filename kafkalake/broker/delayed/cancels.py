"""The cancels of one journal partition that have not been carried out, by source partition and delay id.

A cancel costs memory, a waiting record with an id none: the record is dropped when it comes due, or before, when all cancels are
carried out in one pass over the journal's headers. After a pass the cancels below its beginning are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalake.delayed_journal import Cancel, Fields, delay_ids, source_of
from kafkalake.topic_partition import PartitionId

Mask = npt.NDArray[np.bool_]


class _Id(NamedTuple):
    source: PartitionId[UUID]
    delay_id: bytes


class _Noted(NamedTuple):
    order: int
    offset: int


class Cancels:
    """The newest cancel of each id, with its offset in the journal."""

    def __init__(self) -> None:
        self._newest: dict[_Id, _Noted] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, cancel: Cancel, offset: int) -> None:
        """Note a cancel at an offset of the journal."""
        key = _Id(cancel.source, cancel.delay_id)
        known = self._newest.get(key)
        order = cancel.order if known is None else max(known.order, cancel.order)
        self._newest[key] = _Noted(order, offset)

    def settle(self, offset: int) -> None:
        """Forget the cancels below an offset of the journal: they have been carried out."""
        self._newest = {key: noted for key, noted in self._newest.items() if noted.offset >= offset}

    def copy(self) -> Cancels:
        """Return a copy, for another thread."""
        copied = Cancels()
        copied._newest = dict(self._newest)
        return copied

    @property
    def newest_offset(self) -> int:
        """The offset of the last cancel, -1 without one."""
        return max((noted.offset for noted in self._newest.values()), default=-1)

    def lowest_offset(self, end: int) -> int:
        """Return the offset of the first cancel, `end` without one."""
        return min((noted.offset for noted in self._newest.values()), default=end)

    def are_cancelled(self, headers: pa.ListArray, fields: Fields) -> Mask:
        """Return bool[rows]: the waiting records that are cancelled."""
        cancelled = np.zeros(len(fields), dtype=np.bool_)
        if self._newest and len(fields):
            ids: Sequence[bytes | None] = delay_ids(headers, fields).to_pylist()
            for row, delay_id in enumerate(ids):
                if delay_id is not None:
                    noted = self._newest.get(_Id(source_of(fields[row]), delay_id))
                    cancelled[row] = noted is not None and int(fields[row]["order"]) < noted.order
        return cancelled
