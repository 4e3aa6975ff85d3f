"""The only file that imports numba: it compiles kernels, caches them on disk, and replaces numba where it is missing.

Five decorators cover the package:

``equation``  a tiny scalar function, written once. Python callers (a device's agent) run it as plain Python; kernels
              inline it. Both give the same bits because compiled code neither contracts nor reorders arithmetic.
``kernel``    a loop over arrays and scalars, compiled on first use, without the GIL, cached on disk.
``slp_kernel``  a kernel for which LLVM also turns straight-line code on neighboring numbers into vector instructions
              (superword-level parallelism, which numba leaves off). Worth it where a loop handles four columns at once.
``helper``    a function that only kernels call; it becomes part of them.
``inlined``   a long helper that is called at one place, compiled as if it were written there, not on its own first. It
              must compile whichever of its arguments are None.

The disk cache is numba's own, in a folder named after a hash of all files of ours that have kernels or equations:
editing an equation in one file can never leave a kernel of another file computing the old formula. Such an edit, or
another place or time of the files, compiles all kernels again; `colme doctor --compile` compiles common ones ahead.
Kernels in other people's files are not cached. The cache lives in the user's cache folder (``COLME_CACHE_DIR``
overrides it); kernels stay in memory where nothing is writable or the disk is almost full. Numba writes a file under
another name before it puts it in its place; one that was torn all the same, by the disk itself, stops a run with
numba's message until the folder is deleted.
``COLME_NUMBA=0`` switches numba off; the same code then runs, slowly.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).resolve().parents[1]
_ROOM = 2**26
"""Bytes that must be free for the cache: some times what all kernels take."""

LANES = 64
"""Agents per block. Kernels walk blocks of this many agents so that the compiler can use vector registers."""
CHUNK = 1024
"""Agents per chunk, 16 blocks: what a kernel works out before it writes it down, while the fastest cache holds it."""
LINE = 64
"""Bytes of a line of the cache."""
LOW, HIGH = (0, 32) if sys.byteorder == "little" else (32, 0)
"""Where the first and the second half of eight bytes in memory are in the number that they are."""

HAVE_NUMBA, BROKEN = False, None
"""Whether kernels are compiled; and if numba should have compiled them but could not be imported, what it said."""
if os.environ.get("COLME_NUMBA", "1") != "0":
    try:
        import numba
        from llvmlite import ir
        from numba import types
        from numba.core import cgutils, event
        from numba.extending import lower_builtin, overload, register_jitable, type_callable

        HAVE_NUMBA = True
    except Exception as error:  # a numba that does not fit NumPy or Python fails in many ways
        BROKEN = f"{type(error).__name__}: {error}"


@functools.cache
def warn_if_broken() -> None:
    """Say once why kernels are not compiled, unless they are, or were switched off."""
    if BROKEN is not None:
        warnings.warn(
            f"numba cannot be imported ({BROKEN}): runs take a thousand times longer. "
            "Try: pip install --upgrade numba, or COLME_NUMBA=0 if this is meant.",
            stacklevel=3,
        )


def cache_folder() -> Path | None:
    """Where compiled kernels are kept, or None when that folder is not writable or its disk is full."""
    override = os.environ.get("COLME_CACHE_DIR")
    if override:
        cache = Path(override)
    elif sys.platform == "darwin":
        cache = Path("~/Library/Caches/colme")
    elif os.name == "nt":
        cache = Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")) / "colme" / "cache"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "colme"
    try:
        folder = cache.expanduser() / "kernels"
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return folder if shutil.disk_usage(folder).free >= _ROOM else None
    except (OSError, RuntimeError):
        return None


def n_compiled() -> int:
    """How many kernels this process has compiled so far, each counted once per combination of types. Those that came
    from the cache are not among them."""
    return sum(sum(each.stats.cache_misses.values()) for each in _kernels)


_kernels: list[Any] = []


def source_hash() -> str:
    """A hash of all source files of ours that have kernels, equations or helpers."""
    import hashlib  # here, for it brings OpenSSL: an agent on a device, without numba, does without

    digest = hashlib.sha256()
    for path in sorted(_ROOT.rglob("*.py")):
        text = path.read_bytes()
        if b"colme._core.jit import" in text or path == Path(__file__).resolve():
            digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + text)
    return digest.hexdigest()[:16]


def lanes_like(array: Any) -> Any:
    """LANES uninitialised numbers of the array's type on the stack of the calling kernel.

    Storage that the compiler knows to be aliased by no other pointer: it refuses to vectorise a loop that stores to an
    ordinary array (arrays are never `noalias` in numba).
    """
    return np.empty(LANES, array.dtype)


def chunk_like(array: Any) -> Any:
    """CHUNK uninitialised numbers of the array's type on the stack of the calling kernel."""
    return np.empty(CHUNK, array.dtype)


def per_line(array: Any) -> Any:
    """How many numbers of the array's type a line of the cache holds: in a kernel a constant, by which loops of that
    length are unrolled."""
    return LINE // array.dtype.itemsize


def wide_vectors() -> None:
    """In a kernel: use vector registers of 512 bits where the processor has them; compilers hesitate to.

    Worth it where arithmetic on neighboring numbers is all there is: samples cost 1.2 ns instead of 2.0."""


def bits_to_float(bits: Any) -> Any:
    """The float32 with the bits of an int32, the float64 with those of an int64 (or an array of them)."""
    return bits.view(np.float32 if bits.dtype.itemsize == 4 else np.float64)


def float_to_bits(value: Any) -> Any:
    """The int32 with the bits of a float32, the int64 with those of a float64 (or an array of them)."""
    return value.view(np.int32 if value.dtype.itemsize == 4 else np.int64)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """`yes if condition else no`, for scalars in kernels and for whole arrays in NumPy."""
    return np.where(condition, yes, no)


def prefetch(array: Any, place: Any) -> None:
    """In a kernel: start to load the cache line of `array[place]` (place: a tuple), which will be needed soon.

    Random places of an array that exceeds the caches cost about 100 ns each one after the other, 10 ns if a dozen of
    them are under way at a time."""


def eight_bytes(data: Any, i: Any) -> Any:
    """The bytes `data[i : i + 8]` as one number, in the order of this machine."""
    return data[i : i + 8].view(np.uint64)[0]


def two_halves(word: Any) -> Any:
    """The two 32-bit numbers that stand side by side in memory where a 64-bit number was loaded: loads are what a walk
    over neighbors waits for."""
    low = np.uint64(0xFFFFFFFF)
    return (word >> np.uint64(LOW)) & low, (word >> np.uint64(HIGH)) & low


def read_eight(out: Any, i: Any, values: Any, base: Any, places: Any, k: Any) -> None:
    """out[i : i + 8] = the values at base + places[k : k + 8]. As fast as `add_eight`, and for the same reasons."""
    for lane in range(8):
        out[i + lane] = values[base + int(places[k + lane])]


def add_eight(sums: Any, own: Any, i: Any, values: Any, pairs: Any, k: Any) -> None:
    """sums[i : i + 8] += values - own[i : i + 8], for the values at the eight slots of pairs[k : k + 4].

    Compiled, the eight are loaded one by one and put together in a vector register: half the instructions of arithmetic
    on one value at a time, and faster than the vector gathers that compilers make of a loop, which are slow on many
    processors. The bits are the same."""
    for word in range(4):
        for half, b in enumerate(two_halves(pairs[k + word])):
            lane = i + 2 * word + half
            sums[lane] += values[b] - own[lane]


def at(value: Any, i: Any) -> Any:
    """`value[i]` for an array, `value` for a number that all agents share; kernels decide while compiling."""
    return value[i] if isinstance(value, np.ndarray) else value


if HAVE_NUMBA:
    _config: Any = numba.config
    _OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    _IN_KERNELS: Any = _OPTIONS | {"forceinline": True, "no_cpython_wrapper": True}
    _slp: set[Any] = set()

    @functools.cache
    def _folder_of_kernels() -> Path | None:
        folder = cache_folder()
        return folder and folder / source_hash()

    def kernel(function: Callable[..., Any]) -> Any:
        # A kernel in a user's own file may use equations from anywhere: no hash would tell when they change.
        ours = Path(function.__code__.co_filename).resolve().is_relative_to(_ROOT)
        folder, before = _folder_of_kernels() if ours else None, _config.CACHE_DIR
        try:
            _config.CACHE_DIR = str(folder or before)
            made = numba.njit(cache=folder is not None, **_OPTIONS)(function)
        finally:
            _config.CACHE_DIR = before
        _kernels.append(made)
        return made

    def slp_kernel(function: Callable[..., Any]) -> Any:
        _slp.add(function)
        return kernel(function)

    class _WhileCompiling(event.Listener):
        """Settings that hold while numba compiles, which it does under a global lock: SLP vectorization for the kernels
        that ask for it, and no search for garbage among the million objects of a compiler, a tenth of the time."""

        def __init__(self) -> None:
            self._before: list[tuple[bool, Any]] = []

        def on_start(self, event: Any) -> None:
            self._before.append((gc.isenabled(), _config.SLP_VECTORIZE))
            gc.disable()
            if event.data["dispatcher"].py_func in _slp:
                _config.SLP_VECTORIZE = 1

        def on_end(self, event: Any) -> None:
            collects, _config.SLP_VECTORIZE = self._before.pop()
            if collects:
                gc.enable()

    event.register("numba:compile", _WhileCompiling())

    helper = numba.njit(**_IN_KERNELS)
    inlined = numba.njit(inline="always", **_IN_KERNELS)
    equation: Any = register_jitable(**_IN_KERNELS)

    def _instruction(function: Callable[..., Any], typed: Callable[..., Any]) -> Any:
        """Decorates what writes the code of `function` into the kernel that calls it; `typed` gives the type of its
        result, or also those that its arguments are cast to."""
        type_callable(function)(lambda context: typed)
        return lower_builtin(function, types.VarArg(types.Any))

    _byte, _flag, _number = ir.IntType(8), ir.IntType(32), ir.IntType(64)

    def _array(context: Any, builder: Any, signature: Any, args: Any, place: int) -> Any:
        """The array that is argument number `place`."""
        return context.make_array(signature.args[place])(context, builder, args[place])

    def _on_stack(function: Callable[..., Any], size: int) -> None:
        @_instruction(function, lambda array: types.Array(array.dtype, 1, "C"))
        def reserve(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = signature.return_type
            item = context.get_data_type(kind.dtype)
            place = cgutils.alloca_once(builder, item, size=size)
            place.align = LINE  # no vector lies across two lines of the cache
            array, width = context.make_array(kind)(context, builder), context.get_abi_sizeof(item)
            array.data, array.nitems, array.itemsize = place, _number(size), _number(width)
            array.shape = cgutils.pack_array(builder, [_number(size)])
            array.strides = cgutils.pack_array(builder, [_number(width)])
            array.meminfo, array.parent = array.meminfo.type(None), array.parent.type(None)
            return array._getvalue()

    _on_stack(lanes_like, LANES)
    _on_stack(chunk_like, CHUNK)

    @_instruction(per_line, lambda array: types.intp)
    def _per_line(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.intp, LINE * 8 // signature.args[0].dtype.bitwidth)

    @_instruction(wide_vectors, lambda: types.void)
    def _wide_vectors(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")  # or the caller's width would be taken
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # llvmlite knows no such attribute
        return context.get_dummy_value()

    @_instruction(bits_to_float, lambda bits: types.float32 if bits.bitwidth == 32 else types.float64)
    @_instruction(float_to_bits, lambda value: types.int32 if value.bitwidth == 32 else types.int64)
    def _same_bits(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(signature.return_type))

    def _selected(context: Any) -> Any:
        def typed(condition: Any, yes: Any, no: Any) -> Any:
            kind = context.unify_types(yes, no)
            return kind(types.boolean, kind, kind)

        return typed

    type_callable(select)(_selected)

    @lower_builtin(select, types.VarArg(types.Any))
    def _select(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(*args)

    @_instruction(prefetch, lambda array, place: types.void)
    def _prefetch(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = _array(context, builder, signature, args, 0)
        indices = cgutils.unpack_tuple(builder, args[1])
        item = cgutils.get_item_pointer(context, builder, signature.args[0], made, indices)
        address = builder.bitcast(item, ir.PointerType(_byte))
        kind = ir.FunctionType(ir.VoidType(), [address.type, _flag, _flag, _flag])
        load = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(load, [address, _flag(0), _flag(3), _flag(1)])  # to read, to keep, data
        return context.get_dummy_value()

    @_instruction(eight_bytes, lambda data, i: types.uint64(data, types.int64))
    def _eight_bytes(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = builder.gep(_array(context, builder, signature, args, 0).data, [args[1]])
        number = builder.load(builder.bitcast(first, ir.PointerType(_number)))
        number.align = 1
        return number

    def _halves(builder: Any, word: Any) -> list[Any]:
        return [builder.and_(builder.lshr(word, _number(by)), _number(0xFFFFFFFF)) for by in (LOW, HIGH)]

    @_instruction(two_halves, lambda word: types.UniTuple(types.uint64, 2)(types.uint64))
    def _two_halves(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_tuple(builder, signature.return_type, _halves(builder, args[0]))

    def _item(builder: Any, first: Any, i: Any, more: int) -> Any:
        """The item i + more of an array."""
        return builder.load(builder.gep(first, [builder.add(i, _number(more))]))

    def _vector(builder: Any, first: Any, places: list[Any]) -> Any:
        """The items at eight places of an array."""
        vector = ir.Constant(ir.VectorType(first.type.pointee, 8), ir.Undefined)
        for lane, place in enumerate(places):
            item = builder.load(builder.gep(first, [place]))
            vector = builder.insert_element(vector, item, _flag(lane))
        return vector

    def _eight_from(builder: Any, first: Any, i: Any) -> Any:
        """The address of the eight items from i on."""
        item = builder.gep(first, [i])
        return builder.bitcast(item, ir.PointerType(ir.VectorType(first.type.pointee, 8)))

    @_instruction(read_eight, lambda out, i, values, base, places, k: types.void)
    def _read_eight(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, source, index = (_array(context, builder, signature, args, place).data for place in (0, 2, 4))
        chosen = [builder.zext(_item(builder, index, args[5], lane), _number) for lane in range(8)]
        values = _vector(builder, builder.gep(source, [args[3]]), chosen)
        builder.store(values, _eight_from(builder, to, args[1])).align = 4
        return context.get_dummy_value()

    @_instruction(add_eight, lambda sums, own, i, values, pairs, k: types.void)
    def _add_eight(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, mine, source, words = (_array(context, builder, signature, args, place).data for place in (0, 1, 3, 4))
        slots = [half for each in range(4) for half in _halves(builder, _item(builder, words, args[5], each))]
        told, place = _vector(builder, source, slots), _eight_from(builder, to, args[2])
        before, less = builder.load(place), builder.load(_eight_from(builder, mine, args[2]))
        difference = builder.fsub(told, less)
        if difference.type != before.type:
            difference = builder.fpext(difference, before.type)
        after = builder.store(builder.fadd(before, difference), place)
        before.align = less.align = after.align = 4
        return context.get_dummy_value()

    @overload(at)
    def _at(value, i):
        if isinstance(value, types.Array):
            return lambda value, i: value[i]
        return lambda value, i: value

else:

    def _plain(function: Callable[..., Any]) -> Any:
        return function

    kernel = slp_kernel = helper = inlined = equation = _plain
