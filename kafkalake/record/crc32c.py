"""CRC32C (Castagnoli, RFC 3720 B.4) inside compiled code.

The `crc32c` package is as fast, but a call from Python per column costs more than the checksum of a small batch. So the
kernels use the processor's instruction if it has one (x86: SSE 4.2) and a table otherwise. `extend` works on a raw
register. Start with `START` and end with `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing import Context, Signature
from numba.extending import intrinsic

from kafkalake.record.arrays import Bytes
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import Intrinsic, load_i64

START = np.uint64(0xFFFFFFFF)

_HARDWARE = llvm.get_process_triple().startswith("x86_64") and bool(llvm.get_host_cpu_features().get("sse4.2"))


def _tables() -> npt.NDArray[np.uint64]:
    """Return slicing-by-8 tables, uint64[8, 256]. Row k advances a byte k bytes before the end."""
    table = np.zeros((8, 256), dtype=np.uint64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table[0, byte] = crc
    for k in range(1, 8):
        previous = table[k - 1]
        table[k] = (previous >> np.uint64(8)) ^ table[0][(previous & np.uint64(0xFF)).astype(np.intp)]
    return table


_TABLE = _tables()


@intrinsic  # type: ignore[untyped-decorator]
def _step8(typing: Context, crc: types.Type, word: types.Type) -> Intrinsic:
    """Advance the register by 8 bytes with the processor's CRC32C instruction."""

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        i64 = ir.IntType(64)
        step = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(i64, [i64, i64]), "llvm.x86.sse42.crc32.64.64"
        )
        return builder.call(step, args)

    return types.uint64(types.uint64, types.uint64), codegen


if _HARDWARE:

    @compiled()
    def extend(crc: np.uint64, data: Bytes, start: int, end: int) -> np.uint64:
        """Advance register `crc` over `data[start:end]` (uint8, C-contiguous). The caller must check the bounds."""
        position = start
        while position + 8 <= end:
            crc = _step8(crc, np.uint64(load_i64(data, position)))
            position += 8
        while position < end:
            crc = (crc >> np.uint64(8)) ^ _TABLE[0, (crc ^ np.uint64(data[position])) & np.uint64(0xFF)]
            position += 1
        return crc

else:

    @compiled()
    def extend(crc: np.uint64, data: Bytes, start: int, end: int) -> np.uint64:
        """Advance register `crc` over `data[start:end]` (uint8, C-contiguous). The caller must check the bounds."""
        position = start
        mask = np.uint64(0xFF)
        while position + 8 <= end:
            word = np.uint64(load_i64(data, position)) ^ crc
            crc = np.uint64(0)
            for k in range(8):
                crc ^= _TABLE[7 - k, (word >> np.uint64(8 * k)) & mask]
            position += 8
        while position < end:
            crc = (crc >> np.uint64(8)) ^ _TABLE[0, (crc ^ np.uint64(data[position])) & mask]
            position += 1
        return crc


@compiled()
def finish(crc: np.uint64) -> np.uint64:
    """Return the checksum (uint64 below 2**32) of register `crc`."""
    return (crc ^ np.uint64(0xFFFFFFFF)) & np.uint64(0xFFFFFFFF)


@compiled("uint64(view, int64, int64)")
def checksum(data: Bytes, start: int, end: int) -> np.uint64:
    """Return the CRC32C of `data[start:end]`, uint8. The caller must ensure 0 <= start <= end <= len(data)."""
    return finish(extend(START, data, start, end))
