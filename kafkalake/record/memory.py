"""Raw loads, stores and copies on uint8 arrays for the kernels: little-endian, any alignment, **no bounds check**.

numpy views inside numba cost an array header each, and slice assignment checks for overlap. These are one instruction. Callers
must check the bounds, so every kernel validates its input lengths before it touches memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import SupportsInt

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing import Context, Signature
from numba.extending import intrinsic

from kafkalake.record.arrays import Bytes

Codegen = Callable[[BaseContext, ir.IRBuilder, Signature, Sequence[ir.Value]], ir.Value]
Intrinsic = tuple[Signature, Codegen]


def _pointer(
    context: BaseContext, builder: ir.IRBuilder, array_type: types.Type, array: ir.Value, position: ir.Value
) -> ir.Value:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [position])


def _load(bits: int, *, signed: bool) -> Callable[[Bytes, int], int]:
    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing: Context, data: types.Type, position: types.Type) -> Intrinsic:
        def codegen(
            context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
        ) -> ir.Value:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            value = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
            value.align = 1
            if bits == 64:
                return value
            return builder.sext(value, ir.IntType(64)) if signed else builder.zext(value, ir.IntType(64))

        return types.int64(data, types.int64), codegen

    return load  # type: ignore[no-any-return]


def _store(bits: int) -> Callable[[Bytes, int, SupportsInt], None]:
    @intrinsic  # type: ignore[untyped-decorator]
    def store(typing: Context, data: types.Type, position: types.Type, value: types.Type) -> Intrinsic:
        def codegen(
            context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
        ) -> ir.Value:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            word = args[2] if bits == 64 else builder.trunc(args[2], ir.IntType(bits))
            stored = builder.store(word, builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(data, types.int64, types.int64), codegen

    return store  # type: ignore[no-any-return]


load_u8 = _load(8, signed=False)
load_i16 = _load(16, signed=True)
load_i32 = _load(32, signed=True)
load_u32 = _load(32, signed=False)
load_i64 = _load(64, signed=True)
store_u8 = _store(8)
store_i16 = _store(16)
store_i32 = _store(32)
store_i64 = _store(64)


@intrinsic  # type: ignore[untyped-decorator]
def copy(
    typing: Context,
    target: types.Type,
    target_position: types.Type,
    source: types.Type,
    source_position: types.Type,
    length: types.Type,
) -> Intrinsic:
    """Copy `length` bytes between uint8 arrays that do not overlap (memcpy)."""

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        destination = _pointer(context, builder, signature.args[0], args[0], args[1])
        origin = _pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, destination, origin, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), codegen
