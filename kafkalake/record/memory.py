"""Raw loads, stores and copies on uint8 arrays for the kernels: little-endian, any alignment, **no bounds check**.

numpy views inside numba cost an array header each, and slice assignment checks for overlap. These are one instruction. Callers
must check the bounds, so every kernel validates its input lengths before it touches memory.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [position])


def _load(bits: int, numba_type: Any, signed: bool) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def load(typingctx: Any, data: Any, position: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            value = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
            value.align = 1
            if bits == 64:
                return value
            return builder.sext(value, ir.IntType(64)) if signed else builder.zext(value, ir.IntType(64))

        return numba_type(data, types.int64), codegen

    return load


def _store(bits: int) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def store(typingctx: Any, data: Any, position: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            word = args[2] if bits == 64 else builder.trunc(args[2], ir.IntType(bits))
            stored = builder.store(word, builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(data, types.int64, types.int64), codegen

    return store


load_u8 = _load(8, types.int64, signed=False)
load_i16 = _load(16, types.int64, signed=True)
load_i32 = _load(32, types.int64, signed=True)
load_u32 = _load(32, types.int64, signed=False)
load_i64 = _load(64, types.int64, signed=True)
store_u8 = _store(8)
store_i16 = _store(16)
store_i32 = _store(32)
store_i64 = _store(64)


@intrinsic  # type: ignore[untyped-decorator]
def copy(typingctx: Any, target: Any, target_position: Any, source: Any, source_position: Any, length: Any) -> Any:
    """Copy `length` bytes between uint8 arrays that do not overlap (memcpy)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        destination = _pointer(context, builder, signature.args[0], args[0], args[1])
        origin = _pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, destination, origin, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), codegen
