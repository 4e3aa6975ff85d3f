"""Counter-based random numbers: word(seed, stream, agent, t), the same bits on any number of threads, blocks or shards.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a counter into four words
of 32 bits; Box and Muller turn two words into two normals with polynomials made of +, -, *, / and sqrt only, so every
IEEE machine gives the same bits. The functions below are written once and run twice: compiled over scalars in kernels,
and over whole arrays in NumPy (where numba is missing, and in the tests that compare the two).

Counter of agent a = 64 B + 16 k + l at step t in a stream: (16 B + l, t, stream, 0); it owns word k. The key is the
seed. So a draw depends on nothing but (seed, stream, agent, t). Normals carry 31 bits of radius: |z| <= 6.66.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import HAVE_NUMBA, bits_to_float, equation, float_to_bits, kernel, select
from colme.support.arrays import Integers

u32, u64, i32, f32, f64 = np.uint32, np.uint64, np.int32, np.float32, np.float64

VALUE, VALUE_2, SKIP, ASSIGN, JOIN, GRAPH, LOSS, SPREAD, LINK, PROBE = range(10)
"""Streams: what a draw is for. Two purposes never share a counter."""

_LOW = 0xFFFFFFFF
FEW = 2**14
"""Words that NumPy makes in less time than it takes to load a compiled kernel."""
_AT_ONCE, _HIGH_BITS = 2**17, 16
"""Words that are made at a time, and bits by which keys are told apart before they are sorted."""


@equation
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Four random words from a 128-bit counter and a 64-bit key; ten rounds."""
    x0, x1, x2, x3 = u64(c0), u64(c1), u64(c2), u64(c3)
    low, shift = u64(0xFFFFFFFF), u64(32)
    key0, key1 = u64(k0), u64(k1)
    for _ in range(10):
        p0 = (x0 & low) * u64(0xD2511F53)
        p1 = (x2 & low) * u64(0xCD9E8D57)
        x0 = (p1 >> shift) ^ (x1 & low) ^ key0
        x2 = (p0 >> shift) ^ (x3 & low) ^ key1
        x1 = p1
        x3 = p0
        key0 = (key0 + u64(0x9E3779B9)) & low
        key1 = (key1 + u64(0xBB67AE85)) & low
    return u32(x0 & low), u32(x1 & low), u32(x2 & low), u32(x3 & low)


@equation
def minus_two_log(word: Any) -> Any:
    """-2 ln(u) for u = (w/2 + 1/2) / 2^31 in (0, 1), as float32: split off the exponent, polynomial for the rest."""
    u = f32(i32(word >> u32(1))) + f32(0.5)
    bits = float_to_bits(f32(u))
    exponent = i32(i32(bits - i32(0x3F3504F3)) >> i32(23))
    m = f32(bits_to_float(i32(bits - i32(exponent << i32(23)))) - f32(1.0))
    p = f32(0.08722243458032608)
    p = p * m + f32(-0.14366787672042847)
    p = p * m + f32(0.1495228260755539)
    p = p * m + f32(-0.16562402248382568)
    p = p * m + f32(0.19956833124160767)
    p = p * m + f32(-0.25002074241638184)
    p = p * m + f32(0.3333418667316437)
    p = p * m + f32(-0.49999988079071045)
    p = p * m + f32(1.0)
    value = f32(i32(i32(31) - exponent)) * f32(1.3862943611198906) + f32(-2.0) * (p * m)
    return select(value > f32(0.0), value, f32(0.0))


@equation
def circle_point(word: Any) -> Any:
    """A point (cos, sin) of the unit circle, as float32: 29 bits of angle within a quarter, 3 bits choose which."""
    v = f32(i32(word & u32(0x1FFFFFFF))) * f32(2.0**-28) + f32(2.0**-29 - 1.0)
    z = v * v
    s = f32(-3.5950452188328095e-05)
    s = s * z + f32(0.0024900010239293766)
    s = s * z + f32(-0.08074543252911529)
    s = s * z + f32(0.7853981608541682)
    s = s * v
    c = f32(-0.00031872783944307114)
    c = c * z + f32(0.015849684166929414)
    c = c * z + f32(-0.30842416558855157)
    c = c * z + f32(0.9999999673862562)
    swap = (word & u32(0x20000000)) != u32(0)
    a = select(swap, s, c)
    b = select(swap, c, s)
    a = select((word & u32(0x80000000)) != u32(0), -a, a)
    b = select((word & u32(0x40000000)) != u32(0), -b, b)
    return a, b


@equation
def box_muller(word0: Any, word1: Any) -> Any:
    """Two independent standard normals from two words."""
    r = np.sqrt(minus_two_log(word0))
    c, s = circle_point(word1)
    return r * c, r * s


@equation
def uniform(word: Any) -> Any:
    """A number in (0, 1), never 0 or 1: (w + 1/2) / 2^32, exact in float64."""
    return (f64(word) + 0.5) * 2.0**-32


@kernel
def _fill_words(out, first, t, stream, k0, k1):
    n = u64(out.size)
    for block in range((n + u64(63)) >> u64(6)):
        start = u64(block) << u64(6)
        counter = (u64(first) >> u64(2)) + (u64(block) << u64(4))
        for lane in range(u64(16)):
            w0, w1, w2, w3 = philox(counter + u64(lane), t, stream, 0, k0, k1)
            i = start + u64(lane)
            if i + u64(48) < n:
                out[i], out[i + u64(16)], out[i + u64(32)], out[i + u64(48)] = w0, w1, w2, w3
            else:
                if i < n:
                    out[i] = w0
                if i + u64(16) < n:
                    out[i + u64(16)] = w1
                if i + u64(32) < n:
                    out[i + u64(32)] = w2


def key_of(seed: int) -> tuple[int, int]:
    """The Philox key of a seed."""
    return seed & _LOW, (seed >> 32) & _LOW


def words_numpy(seed: int, stream: int, t: int, *, first: int, n: int) -> NDArray[np.uint32]:
    """The NumPy form of `words`: the same bits, some ten times slower."""
    counter = np.arange(first // 4, first // 4 + 16 * -(-n // 64), dtype=u64)  # 16 per block of 64 agents
    zero = np.zeros_like(counter)
    words = philox(counter, zero + u64(t), zero + u64(stream), zero, *key_of(seed))
    return np.stack([word.reshape(-1, 16) for word in words], axis=1).reshape(-1)[:n]


def words(seed: int, stream: int, t: int, *, first: int = 0, n: int) -> NDArray[np.uint32]:
    """One random 32-bit word for each of the agents first..first+n-1 (first a multiple of 64)."""
    if not HAVE_NUMBA or n <= FEW:
        return words_numpy(seed, stream, t, first=first, n=n)
    out = np.empty(n, u32)
    _fill_words(out, first, t, stream, *key_of(seed))
    return out


def ranks(seed: int, stream: int, n: int, *, first: int = 0, end: int | None = None) -> NDArray[np.uint32]:
    """A uniform random permutation of 0..n-1 that depends on (seed, stream, n) only; n < 2^32. Or a part of it, its
    places first..end-1.

    Place k holds the agent with the k-th smallest key, two random words; agents with equal keys are in order. What is
    sorted is the first word with the agent in the low bits, 8 bytes, of those that may come to these places."""
    end = n if end is None else end
    if first >= end:
        return np.empty(0, u32)
    if (first, end) == (0, n):
        return _agents_by_key(seed, stream, n, 0, 2**_HIGH_BITS, n)
    begins = _first_places(seed, stream, n)
    low, high = int(np.searchsorted(begins, first, "right")) - 1, int(np.searchsorted(begins, end, "left"))
    begin, stop = int(begins[low]), int(begins[high])
    return _agents_by_key(seed, stream, n, low, high, stop - begin)[first - begin : end - begin]


def _first_places(seed: int, stream: int, n: int) -> Integers:
    """The place of the first key with each value of its high bits."""
    counts = np.zeros(2**_HIGH_BITS, np.int64)
    for start in range(0, n, _AT_ONCE):
        word = words(seed, stream, 0, first=start, n=min(_AT_ONCE, n - start))
        counts += np.bincount(word >> u32(32 - _HIGH_BITS), minlength=len(counts))
    return np.concatenate([[0], np.cumsum(counts)])


def _agents_by_key(seed: int, stream: int, n: int, low: int, high: int, size: int) -> NDArray[np.uint32]:
    """Those of the agents 0..n-1 whose keys have high bits low..high-1, so many, in the order of their keys."""
    packed, done = np.empty(size, u64), 0
    for start in range(0, n, _AT_ONCE):
        word = words(seed, stream, 0, first=start, n=min(_AT_ONCE, n - start))
        chosen = np.flatnonzero((word >> u32(32 - _HIGH_BITS)) - u32(low) < high - low)
        packed[done : done + len(chosen)] = word[chosen].astype(u64) << u64(32) | (chosen + start).astype(u64)
        done += len(chosen)
    packed.sort()
    same = [np.empty(0, np.int64)]
    for start in range(0, size, _AT_ONCE):
        word_0 = packed[start : start + _AT_ONCE + 1] >> u64(32)
        same.append(start + np.flatnonzero(word_0[1:] == word_0[:-1]))
    tied = np.union1d(np.concatenate(same), np.concatenate(same) + 1)
    agents = packed.astype(u32)
    if len(tied):
        second = _words_of(agents[tied], seed, stream, 1)
        agents[tied] = agents[tied][np.lexsort((agents[tied], second, packed[tied] >> u64(32)))]
    return agents


def _words_of(agents: NDArray[np.uint32], seed: int, stream: int, t: int) -> NDArray[np.uint32]:
    """One word for each of these agents, of whom there is at least one."""
    out, order = np.empty(len(agents), u32), np.argsort(agents)
    for block in np.array_split(order, max(1, len(order) // 2**16)):
        first = int(agents[block[0]]) // 64 * 64
        some = words(seed, stream, t, first=first, n=int(agents[block[-1]]) + 1 - first)
        out[block] = some[agents[block] - u32(first)]
    return out
