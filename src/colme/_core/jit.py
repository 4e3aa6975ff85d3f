"""The only file that imports numba: it compiles kernels, caches them on disk, and replaces numba where it is missing.

Four decorators cover the package:

``equation``  a tiny scalar function, written once. Python callers (a device's agent) run it as plain Python; kernels
              inline it. Both give the same bits because compiled code neither contracts nor reorders arithmetic.
``kernel``    a loop over arrays and scalars, compiled on first use, without the GIL, cached on disk.
``slp_kernel``  a kernel for which LLVM also turns straight-line code on neighboring numbers into vector instructions
              (superword-level parallelism, which numba leaves off). Worth it where a loop handles four columns at once.
``helper``    a function that only kernels call; it becomes part of them.

What a kernel calls (equations, helpers, other kernels, numba's own functions) is compiled once as far as LLVM's
instructions, and becomes machine code in the kernel only. `colme doctor --compile` compiles common kernels ahead.

The disk cache is keyed by a hash of the kernel's own file and of every file of ours that it imports, directly or not:
editing an equation in one file can never leave a kernel of another file computing the old formula, and editing a file
that no kernel can reach compiles nothing again. If several processes need a kernel at once, one compiles it. Kernels in
other people's files are not cached. The cache lives in the user's cache folder (``COLME_CACHE_DIR`` overrides it) and
is kept in memory only when nothing is writable.
``COLME_NUMBA=0`` switches numba off; the same code then runs, slowly.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).resolve().parents[1]
_IMPORT = re.compile(r"^[ \t]*(?:from (colme[\w.]*) import (\([^)]*\)|.*)|import (colme[\w.]*))", re.M)

LANES = 64
"""Agents per block. Kernels walk blocks of this many agents so that the compiler can use vector registers."""
CHUNK = 1024
"""Agents per chunk, 16 blocks: what a kernel works out before it writes it down, while the fastest cache holds it."""
LINE = 64
"""Bytes of a line of the cache."""
LOW, HIGH = (0, 32) if sys.byteorder == "little" else (32, 0)
"""Where the first and the second half of eight bytes in memory are in the number that they are."""

try:
    if os.environ.get("COLME_NUMBA", "1") == "0":
        raise ImportError
    import hashlib  # here, for it brings OpenSSL: an agent on a device, without numba, does without

    try:
        import fcntl
    except ImportError:  # Windows
        fcntl = None  # type: ignore[assignment]

    import numba
    from llvmlite import ir
    from numba import _dynfunc, carray, types
    from numba.core import caching, cgutils, codegen, compiler, event, targetconfig
    from numba.extending import intrinsic, overload, register_jitable

    HAVE_NUMBA = True
except ImportError:
    HAVE_NUMBA = False


def cache_folder() -> Path | None:
    """Where compiled kernels are kept, or None when no folder is writable."""
    override = os.environ.get("COLME_CACHE_DIR")
    if override:
        candidates = [Path(override)]
    elif sys.platform == "darwin":
        candidates = [Path("~/Library/Caches/colme")]
    elif os.name == "nt":
        candidates = [Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")) / "colme" / "cache"]
    else:
        candidates = [Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "colme"]
    for candidate in candidates:
        try:
            folder = candidate.expanduser() / "kernels"
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except (OSError, RuntimeError):
            continue
        return folder
    return None


def n_compiled() -> int:
    """How many kernels this process has compiled so far, each counted once per combination of types. Those that came
    from the cache are not among them."""
    return _while_compiling.kernels if HAVE_NUMBA else 0


@functools.cache
def source_hash(path: Path) -> str:
    """A hash of a source file of ours and of every one that it imports, directly or not: the stamp of its kernels."""
    import hashlib  # as above

    reachable, new = {path}, [path]
    while new:
        found = _imports(new.pop()) - reachable
        reachable |= found
        new.extend(found)
    digest = hashlib.sha256()
    for each in sorted(reachable):
        digest.update(each.relative_to(_ROOT).as_posix().encode())
        digest.update(each.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _imports(path: Path) -> frozenset[Path]:
    """The source files of ours that this one imports. A name imported from a package may be a module of it."""
    modules = set[str]()
    for package, names, module in _IMPORT.findall(path.read_text(encoding="utf-8")):
        modules |= {module, package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))}
    bases = (_ROOT.joinpath(*each.split(".")[1:]) for each in modules if each)
    places = {place for base in bases for place in (base.with_suffix(".py"), base / "__init__.py")}
    return frozenset(place for place in places if place != _ROOT.with_suffix(".py") and place.is_file())


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
    # One look at the disk per process: asking again for each kernel would slow the import.
    _folder = functools.cache(cache_folder)

    class _SourceHashLocator(caching._CacheLocator):
        def __init__(self, py_func: Callable[..., Any], py_file: str):
            self._py_file, path = py_file, Path(py_file).resolve()
            self._stamp = source_hash(path)
            # Kernels of one name in two files must not share an index; line numbers alone could collide.
            place = f"{path.relative_to(_ROOT)}:{py_func.__qualname__}"
            self._tag = hashlib.sha256(place.encode()).hexdigest()[:12]

        def get_cache_path(self) -> str:
            return str(Path(_folder() or "") / self._stamp)

        def get_source_stamp(self) -> str:
            return self._stamp

        def get_disambiguator(self) -> str:
            return self._tag

        @classmethod
        def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _SourceHashLocator:
            return cls(py_func, py_file)

    class _SourceHashImpl(caching.CompileResultCacheImpl):
        _locator_classes = (_SourceHashLocator,)

    class _SourceHashCache(caching.FunctionCache):
        _impl_class = _SourceHashImpl

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            found = self._load(sig, target_context)
            if found is None and _turns.wait(self._turn(sig)):
                found = self._load(sig, target_context)
                if found is not None:
                    _turns.end(self._turn(sig))
            return found

        def _load(self, sig: Any, target_context: Any) -> Any:
            try:
                return super().load_overload(sig, target_context)
            except Exception:  # a torn or foreign cache file only costs a compilation
                return None

        def _turn(self, sig: Any) -> int:
            place = self._impl.locator
            return zlib.crc32(f"{place.get_disambiguator()} {place.get_source_stamp()} {sig}".encode())

        def save_overload(self, sig: Any, data: Any) -> None:
            self._save(sig, data)
            _turns.end(self._turn(sig))

        def _save(self, sig: Any, data: Any) -> None:
            try:
                try:
                    super().save_overload(sig, data)
                except OSError:
                    raise
                except Exception:  # the index is torn: start it anew
                    self._cache_file.flush()
                    super().save_overload(sig, data)
            except OSError as error:  # a full disk must not stop a run
                warnings.warn(f"compiled kernel was not cached: {error}", RuntimeWarning, stacklevel=2)

    class _Turns:
        """Who compiles a kernel, of the processes that share the cache: byte `turn` of a file is locked by the one that
        does. A process that ends, or fails, ends its turns; those that wait for too long compile on their own."""

        PATIENCE, PAUSE = 60.0, 0.02  # seconds

        def __init__(self) -> None:
            self._file = -1  # never closed: closing it anywhere in the process would end all turns

        def wait(self, turn: int) -> bool:
            """Wait for others to compile this kernel; whether it has taken the turn, now or after them."""
            if fcntl is None:
                return False
            try:
                if self._file < 0:
                    self._file = os.open(Path(_folder() or "") / "turns", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            except OSError:
                return False
            until = time.monotonic() + self.PATIENCE
            while time.monotonic() < until:
                try:
                    fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, turn)
                    return True
                except BlockingIOError:
                    time.sleep(self.PAUSE)
                except OSError:  # a file system without locks
                    return False
            return False

        def end(self, turn: int) -> None:
            """End the turn, if it was taken."""
            if self._file >= 0:
                with contextlib.suppress(OSError):
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, turn)

    _turns = _Turns()
    _PARTS = (0, 63) <= numba.version_info.short <= (0, 68)
    """Whether what kernels call is compiled as parts of them: that needs inner workings of numba, in versions that were
    tried. Others compile as numba does by itself, which takes longer."""
    _OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    _slp_kernels: list[Any] = []

    class _Code(codegen.JITCodeLibrary):
        """The code of a kernel, with what numba calls the function passes, once for each function that it defines."""

        def _optimize_functions(self, module: Any) -> None:
            module.data_layout = self._codegen._data_layout
            passes, options = self._codegen._function_pass_manager()
            for function in module.functions:
                if not function.is_declaration:
                    passes.run(function, options)

    class _Part(_Code):
        """The code of what only kernels call. It is fully optimized, and becomes machine code, as part of a kernel."""

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

    class _Shared(compiler.Flags):
        """The options that all parts of a kernel see. (To hash and compare numba's own takes 5 % of all time.)"""

        def __init__(self, flags: Any) -> None:
            super().__init__(flags)
            self.forceinline = self.no_compile = False
            self.release_gil = self.no_cpython_wrapper = self.no_cfunc_wrapper = True
            self._all = self.values()

        def __hash__(self) -> int:
            return 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, _Shared) and self._all == other._all

        def copy(self) -> Any:
            return compiler.Flags(self)

    class _Compiler(compiler.Compiler):
        """Compiles kernels.

        All parts of a kernel see the same options. Numba compiles a part anew for callers that were compiled with other
        options, be it only whether Python can call them."""

        library = _Code

        def compile_extra(self, function: Callable[..., Any]) -> Any:
            if _PARTS:
                self.state.library = self.library(self.state.targetctx.codegen(), function.__qualname__)
                self.state.library.enable_object_caching()
            return super().compile_extra(function)

        def _compile_core(self) -> Any:
            if not _PARTS:
                return super()._compile_core()
            with targetconfig.ConfigStack().enter(_Shared(self.state.flags)):
                (passes,) = self.define_pipelines()
                passes.run(self.state)
            self.state.pipeline = None
            return self.state.cr

    class _PartCompiler(_Compiler):
        """Compiles what only kernels call."""

        library = _Part

        def compile_extra(self, function: Callable[..., Any]) -> Any:
            if not _PARTS:
                return super().compile_extra(function)
            self.state.flags.no_compile = True
            made = super().compile_extra(function)
            # Numba finds the code by this key. Nothing calls it.
            key = _dynfunc.make_function(
                made.fndesc.lookup_module(), function.__name__, "", 0, made.environment, (made.library,)
            )
            self.state.targetctx.insert_user_function(key, made.fndesc, [made.library])
            return made._replace(entry_point=key)

    class _WhileCompiling(event.Listener):
        """Settings that hold while numba compiles, which it does under a global lock.

        No garbage collection: it would search millions of living objects, a tenth of the time. SLP vectorization for
        the kernels that ask for it. What a kernel calls is compiled as a part of it, numba's own functions included."""

        def __init__(self) -> None:
            self._depth, self._collects, self._slp, self._ours = 0, False, 0, False
            self.kernels = 0

        def on_start(self, event: Any) -> None:
            dispatcher = event.data["dispatcher"]
            if self._depth == 0:
                self._collects, self._slp = gc.isenabled(), numba.config.SLP_VECTORIZE
                self._ours = dispatcher._compiler.pipeline_class is _Compiler
                gc.disable()
                if any(dispatcher is each for each in _slp_kernels):
                    numba.config.SLP_VECTORIZE = 1
            elif self._ours and dispatcher.targetoptions.get("no_cpython_wrapper"):
                dispatcher._compiler.pipeline_class = _PartCompiler
                dispatcher.targetoptions["no_cfunc_wrapper"] = True
            self._depth += 1

        def on_end(self, event: Any) -> None:
            self._depth -= 1
            if self._depth == 0:
                self.kernels += self._ours
                numba.config.SLP_VECTORIZE = self._slp
                if self._collects:
                    gc.enable()

    _while_compiling = _WhileCompiling()
    event.register("numba:compile", _while_compiling)

    def kernel(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**_OPTIONS, pipeline_class=_Compiler)(function)
        # A kernel in a user's own file may use equations from anywhere: no stamp would tell when they change.
        if Path(function.__code__.co_filename).resolve().is_relative_to(_ROOT) and _folder() is not None:
            dispatcher._cache = _SourceHashCache(function)
        # In another kernel it is a part like any other. Few are: the part is made when it is needed, not at import.
        part = functools.cache(lambda: _part(function))
        dispatcher.get_call_template = lambda args, kws: part().get_call_template(args, kws)
        dispatcher.get_overload = lambda signature: part().get_overload(signature)
        return dispatcher

    def slp_kernel(function: Callable[..., Any]) -> Any:
        dispatcher = kernel(function)
        _slp_kernels.append(dispatcher)
        return dispatcher

    _part = numba.njit(**_OPTIONS, no_cpython_wrapper=True, pipeline_class=_PartCompiler)
    helper = numba.njit(**_OPTIONS, forceinline=True, no_cpython_wrapper=True, pipeline_class=_PartCompiler)
    equation = register_jitable(forceinline=True)

    def _reservation(size: int) -> Any:
        @intrinsic
        def stack_like(typing_context, array):
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                place = cgutils.alloca_once(builder, context.get_value_type(array.dtype), size=size)
                place.align = 64  # a line of the cache: no vector lies across two
                return place

            return types.CPointer(array.dtype)(array), generate

        return stack_like

    _lanes_on_stack, _chunk_on_stack = _reservation(LANES), _reservation(CHUNK)

    @intrinsic
    def _prefer_512_bits(typing_context):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.function.attributes.add("noinline")  # or the caller's width would be taken
            set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # llvmlite knows no such attribute
            return context.get_dummy_value()

        return types.void(), generate

    @intrinsic
    def _float_of(typing_context, bits):
        found, kind = (types.float32, ir.FloatType()) if bits.bitwidth == 32 else (types.float64, ir.DoubleType())
        return found(bits), lambda context, builder, signature, args: builder.bitcast(args[0], kind)

    @intrinsic
    def _int_of(typing_context, value):
        found = types.int32 if value.bitwidth == 32 else types.int64
        return found(value), lambda context, builder, signature, args: builder.bitcast(
            args[0], ir.IntType(found.bitwidth)
        )

    @intrinsic
    def _prefetch(typing_context, array, place):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = context.make_array(array)(context, builder, args[0])
            indices = cgutils.unpack_tuple(builder, args[1])
            item = cgutils.get_item_pointer(context, builder, array, made, indices)
            address, flag = builder.bitcast(item, ir.PointerType(ir.IntType(8))), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [address.type, flag, flag, flag])
            load = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
            builder.call(load, [address, flag(0), flag(3), flag(1)])  # to read, to keep, data
            return context.get_dummy_value()

        return types.void(array, place), generate

    @intrinsic
    def _eight_bytes(typing_context, data, i):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            first = builder.gep(context.make_array(data)(context, builder, args[0]).data, [args[1]])
            number = builder.load(builder.bitcast(first, ir.PointerType(ir.IntType(64))))
            number.align = 1
            return number

        return types.uint64(data, types.int64), generate

    _number = ir.IntType(64)

    def _first(context: Any, builder: Any, signature: Any, args: Any, place: int) -> Any:
        """The address of the first item of the array that is argument number `place`."""
        return context.make_array(signature.args[place])(context, builder, args[place]).data

    def _item(builder: Any, first: Any, i: Any, more: int) -> Any:
        """The item i + more of an array."""
        return builder.load(builder.gep(first, [builder.add(i, _number(more))]))

    def _vector(builder: Any, first: Any, places: list[Any]) -> Any:
        """The items at eight places of an array."""
        vector = ir.Constant(ir.VectorType(first.type.pointee, 8), ir.Undefined)
        for lane, place in enumerate(places):
            item = builder.load(builder.gep(first, [place]))
            vector = builder.insert_element(vector, item, ir.IntType(32)(lane))
        return vector

    def _eight_from(builder: Any, first: Any, i: Any) -> Any:
        """The address of the eight items from i on."""
        item = builder.gep(first, [i])
        return builder.bitcast(item, ir.PointerType(ir.VectorType(first.type.pointee, 8)))

    @intrinsic
    def _read_eight(typing_context, out, i, values, base, places, k):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, source, index = (_first(context, builder, signature, args, place) for place in (0, 2, 4))
            chosen = [builder.zext(_item(builder, index, args[5], lane), _number) for lane in range(8)]
            values = _vector(builder, builder.gep(source, [args[3]]), chosen)
            builder.store(values, _eight_from(builder, to, args[1])).align = 4
            return context.get_dummy_value()

        return types.void(out, i, values, base, places, k), generate

    @intrinsic
    def _add_eight(typing_context, sums, own, i, values, pairs, k):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, mine, source, words = (_first(context, builder, signature, args, place) for place in (0, 1, 3, 4))
            slots = []
            for each in range(4):
                word = _item(builder, words, args[5], each)
                slots += [builder.and_(builder.lshr(word, _number(by)), _number(0xFFFFFFFF)) for by in (LOW, HIGH)]
            told, place = _vector(builder, source, slots), _eight_from(builder, to, args[2])
            before, less = builder.load(place), builder.load(_eight_from(builder, mine, args[2]))
            difference = builder.fsub(told, less)
            if sums.dtype != values.dtype:
                difference = builder.fpext(difference, before.type)
            after = builder.store(builder.fadd(before, difference), place)
            before.align = less.align = after.align = 4
            return context.get_dummy_value()

        return types.void(sums, own, i, values, pairs, k), generate

    # inline="always": the reservation must sit in the kernel itself, not in a callee whose stack is gone on return.
    @overload(lanes_like, inline="always")
    def _lanes_like(array):
        return lambda array: carray(_lanes_on_stack(array), LANES)

    @overload(chunk_like, inline="always")
    def _chunk_like(array):
        return lambda array: carray(_chunk_on_stack(array), CHUNK)

    @overload(per_line, inline="always")
    def _per_line(array):
        constant = LINE * 8 // array.dtype.bitwidth
        return lambda array: constant

    @overload(wide_vectors, inline="always")
    def _wide_vectors():
        return lambda: _prefer_512_bits()

    @overload(prefetch, inline="always")
    def _prefetch_of(array, place):
        return lambda array, place: _prefetch(array, place)

    @overload(eight_bytes, inline="always")
    def _eight_bytes_of(data, i):
        return lambda data, i: _eight_bytes(data, i)

    @overload(read_eight, inline="always")
    def _read_eight_of(out, i, values, base, places, k):
        return lambda out, i, values, base, places, k: _read_eight(out, i, values, base, places, k)

    @overload(add_eight, inline="always")
    def _add_eight_of(sums, own, i, values, pairs, k):
        return lambda sums, own, i, values, pairs, k: _add_eight(sums, own, i, values, pairs, k)

    @overload(two_halves, inline="always")
    def _two_halves(word):
        low, high, mask = np.uint64(LOW), np.uint64(HIGH), np.uint64(0xFFFFFFFF)
        return lambda word: ((word >> low) & mask, (word >> high) & mask)

    @overload(at)
    def _at(value, i):
        if isinstance(value, types.Array):
            return lambda value, i: value[i]
        return lambda value, i: value

    @overload(bits_to_float)
    def _bits_to_float(bits):
        return lambda bits: _float_of(bits)

    @overload(float_to_bits)
    def _float_to_bits(value):
        return lambda value: _int_of(value)

    @overload(select)
    def _select(condition, yes, no):
        return lambda condition, yes, no: yes if condition else no

else:

    def _plain(function: Callable[..., Any]) -> Any:
        return function

    kernel = slp_kernel = helper = equation = _plain
