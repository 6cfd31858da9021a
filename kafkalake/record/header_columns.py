"""Changes the headers of many records at once: a column of headers in, another out, no Python object for a header.

headers of the records      drop the header `a`, put `x` before and `y` after [(a, 1), (b, 2)]            [(x, .), (b, 2), (y, .)]
[]                          [(x, .), (y, .)] [(c, 3), (a, 4)]            [(x, .), (c, 3), (y, .)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.record.arrays import Int64s
from kafkalake.record.schema import HEADERS_TYPE

Mask = npt.NDArray[np.bool_]


class NewHeader(NamedTuple):
    """A header for every record: one key, and a binary array with a value for each."""

    key: str
    values: pa.Array


def starts_of(headers: pa.ListArray) -> Int64s:
    """Return int64[rows + 1]: the position of each record's first header in `headers.values`, and the end of the last."""
    starts: Int64s = headers.offsets.to_numpy().astype(np.int64)
    return starts


def find_keys(headers: pa.ListArray, keys: Sequence[str]) -> Mask:
    """Return bool[headers of all records]: whether a header of `headers.values` has one of these keys."""
    found = pc.is_in(headers.values.field("key"), value_set=pa.array(keys, pa.utf8()))
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


def change_headers(
    headers: pa.ListArray,
    before: Sequence[NewHeader] = (),
    after: Sequence[NewHeader] = (),
    dropped: Mask | None = None,
) -> pa.ListArray:
    """Return the records' headers with `before` in front and `after` behind, without those of the mask `dropped`.

    `dropped` is over `headers.values`, as from `find_keys`.
    """
    rows, starts = len(headers), starts_of(headers)
    kept = (
        np.arange(starts[0], starts[-1])
        if dropped is None
        else starts[0] + np.flatnonzero(~dropped[starts[0] : starts[-1]])
    )
    row_of_kept = np.searchsorted(starts, kept, side="right") - 1
    counts = np.bincount(row_of_kept, minlength=rows) if len(kept) else np.zeros(rows, dtype=np.int64)
    ends = np.cumsum(counts + (len(before) + len(after)))
    begins = ends - (counts + (len(before) + len(after)))
    source = np.empty(int(ends[-1]) if rows else 0, dtype=np.int64)
    number = np.arange(rows)
    for place in range(len(before)):
        source[begins + place] = place * rows + number
    rank = np.arange(len(kept)) - (np.cumsum(counts) - counts)[row_of_kept]
    source[begins[row_of_kept] + len(before) + rank] = len(before) * rows + np.arange(len(kept))
    for place in range(len(after)):
        source[ends - len(after) + place] = len(before) * rows + len(kept) + place * rows + number
    return _taken(headers, kept, before, after, source, np.concatenate(([0], ends)))


def _taken(
    headers: pa.ListArray,
    kept: Int64s,
    before: Sequence[NewHeader],
    after: Sequence[NewHeader],
    source: Int64s,
    offsets: Int64s,
) -> pa.ListArray:
    """Return the headers in the order of `source`: positions in `before`, those kept, and `after`, one behind the other."""
    rows, pairs, chosen = len(headers), headers.values, pa.array(kept)

    def repeated(key: str) -> pa.Array:
        return pa.repeat(pa.scalar(key, pa.utf8()), rows)

    keys = [*(repeated(each.key) for each in before), pairs.field("key").take(chosen)]
    keys += [repeated(each.key) for each in after]
    values = [*(each.values for each in before), pairs.field("value").take(chosen), *(each.values for each in after)]
    order = pa.array(source)
    fields = [HEADERS_TYPE.value_type.field(0), HEADERS_TYPE.value_type.field(1)]
    columns = [pa.concat_arrays(keys).take(order), pa.concat_arrays(values).take(order)]
    inner = pa.StructArray.from_arrays(columns, fields=fields)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), inner, type=HEADERS_TYPE)
