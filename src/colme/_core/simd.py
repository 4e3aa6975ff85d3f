"""Explicit vectors, for the two loops that no compiler vectorises well.

`lean_on_rows` sums up, for each of eight runs, the differences to the neighbors that the run still keeps. The bits of a
byte say who keeps an edge; as a mask of the processor they cost nothing. The plain form is the same, to the bit: it is
what runs without such masks (AVX-512), without numba, or with COLME_SIMD=0.

`four`, `put_four` and `fill_four` are rows of four numbers, too short to be a loop (hops of B-colME). Every processor
has registers for them, or does them one by one; without numba they are NumPy's slices, the same bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from colme._core.jit import HAVE_NUMBA, USE_VECTORS, helper

f32, u32, u64 = np.float32, np.uint32, np.uint64

ABREAST = 8
"""Runs side by side: as many as a byte has bits."""


@helper
def lean_on_rows_plainly(heard, own, indices, masks, first, last, pull, place):
    """pull[place + k] = sum over the edges first..last-1 kept by run k of heard[neighbor, k] - heard[own, k]."""
    for k in range(u64(ABREAST)):
        pull[place + k] = f32(0)
    for e in range(first, last):
        row, mask = u64(indices[e]) * u64(ABREAST), u32(masks[e])
        for k in range(u64(ABREAST)):
            difference = heard[row + k] - heard[own + k]
            pull[place + k] += difference if (mask >> u32(k)) & u32(1) else f32(0)


def four(array: Any, i: Any) -> Any:
    """The numbers i .. i+3 of a flat float64 array, to be added, subtracted and multiplied as one."""
    return array[i : i + 4]


def put_four(array: Any, i: Any, value: Any) -> None:
    """Write the numbers i .. i+3 of a flat float64 array."""
    array[i : i + 4] = value


def fill_four(value: Any) -> Any:
    """One number four times."""
    return value


def _have_masks() -> bool:
    """Whether this processor has vector masks."""
    import llvmlite.binding

    if not USE_VECTORS:
        return False
    features: Any = llvmlite.binding.get_host_cpu_features()
    return bool(features.get("avx512vl") and features.get("avx512dq"))


if HAVE_NUMBA:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic, models, overload, register_model

    _ROW = ir.VectorType(ir.FloatType(), ABREAST)
    _MASK = ir.VectorType(ir.IntType(1), ABREAST)
    _INDEX = ir.IntType(64)

    @intrinsic
    def _lean_on_rows(typing_context, heard, own, indices, masks, first, last, pull, place):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            heard, indices, masks, pull = (
                context.make_array(kinds[i])(context, builder, args[i]).data for i in (0, 2, 3, 6)
            )

            def row_at(start: Any) -> Any:
                return builder.bitcast(builder.gep(heard, [start]), _ROW.as_pointer())

            mine, zero = builder.load(row_at(args[1]), align=4), ir.Constant(_ROW, [0.0] * ABREAST)
            total = cgutils.alloca_once_value(builder, zero)
            with cgutils.for_range_slice(builder, args[4], args[5], ir.Constant(_INDEX, 1)) as (edge, _):
                b = builder.zext(builder.load(builder.gep(indices, [edge])), _INDEX)
                its = builder.load(row_at(builder.mul(b, ir.Constant(_INDEX, ABREAST))), align=4)
                keeps = builder.bitcast(builder.load(builder.gep(masks, [edge])), _MASK)
                difference = builder.select(keeps, builder.fsub(its, mine), zero)
                builder.store(builder.fadd(builder.load(total), difference), total)
            out = builder.bitcast(builder.gep(pull, [args[7]]), _ROW.as_pointer())
            builder.store(builder.load(total), out, align=4)
            return context.get_dummy_value()

        return types.void(heard, own, indices, masks, first, last, pull, place), generate

    @helper
    def lean_on_rows_by_masks(heard, own, indices, masks, first, last, pull, place):
        """The same with vectors and masks."""
        _lean_on_rows(heard, own, indices, masks, first, last, pull, place)

    class _Four(types.Type):
        llvm = ir.VectorType(ir.DoubleType(), 4)

    _four_type = _Four("four numbers")

    @register_model(_Four)
    class _FourModel(models.PrimitiveModel):
        def __init__(self, manager: Any, type_: Any):
            super().__init__(manager, type_, _Four.llvm)

    def _address_of_four(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.bitcast(builder.gep(data, [args[1]]), _Four.llvm.as_pointer())

    @intrinsic
    def _load_four(typing_context, array, i):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(_address_of_four(context, builder, signature, args), align=8)

        return _four_type(array, i), generate

    @intrinsic
    def _store_four(typing_context, array, i, value):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[2], _address_of_four(context, builder, signature, args), align=8)
            return context.get_dummy_value()

        return types.void(array, i, value), generate

    @intrinsic
    def _fill(typing_context, value):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            result = ir.Constant(_Four.llvm, ir.Undefined)
            for lane in range(4):
                result = builder.insert_element(result, args[0], ir.IntType(32)(lane))
            return result

        return _four_type(types.float64), generate

    @overload(four, inline="always")
    def _four(array, i):
        return lambda array, i: _load_four(array, i)

    @overload(put_four, inline="always")
    def _put_four(array, i, value):
        return lambda array, i, value: _store_four(array, i, value)

    @overload(fill_four, inline="always")
    def _fill_four(value):
        return lambda value: _fill(value)

    def _by_lanes(operation: Callable[..., Any], instruction: str) -> None:
        @intrinsic
        def compute(typing_context, x, y):
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return getattr(builder, instruction)(*args)

            return _four_type(x, y), generate

        @overload(operation)
        def _operate(x, y):
            return (lambda x, y: compute(x, y)) if isinstance(x, _Four) and isinstance(y, _Four) else None

    for _operation, _instruction in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
        _by_lanes(_operation, _instruction)

    lean_on_rows = lean_on_rows_by_masks if _have_masks() else lean_on_rows_plainly
else:
    lean_on_rows = lean_on_rows_by_masks = lean_on_rows_plainly
