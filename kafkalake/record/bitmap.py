"""Arrow's validity bitmaps in kernels: bit i of a bitmap says whether value i is not null. As `memory`, without a bounds check."""

from __future__ import annotations

from kafkalake.record.arrays import Bytes
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_u8, store_u8


@compiled()
def bitmap_bytes(rows: int, nulls: int) -> int:
    """Return the bytes of a column's bitmap: none without nulls."""
    return (rows + 7) >> 3 if nulls else 0


@compiled()
def load_bit(data: Bytes, start: int, i: int) -> int:
    """Return bit `i` of the bitmap at `start`."""
    return (load_u8(data, start + (i >> 3)) >> (i & 7)) & 1


@compiled()
def set_bit(out: Bytes, start: int, i: int) -> None:
    """Set bit `i` of the bitmap at `start`."""
    position = start + (i >> 3)
    store_u8(out, position, load_u8(out, position) | (1 << (i & 7)))
