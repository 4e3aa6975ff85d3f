"""Codes 0, 1, ... for whole numbers or texts in order of first appearance, by hashing (open addressing).

A dict would take a Python object for every label; these take the labels themselves. Missing labels have the code -1.

Many labels do not fit into the caches, and each one would wait for memory two or three times: for its slot, for the
place of the label found there, and for that label. The kernels ask for these some rows ahead (`prefetch`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import eight_bytes, helper, kernel, prefetch
from colme.support.arrays import Array, Integers, Mask

MOST = 2**31 - 1
"""Labels that have a code: 31 bits."""
_ROOM = 2
"""Slots of a hash table for each label."""
_AHEAD = 12
"""Rows by which memory is asked for before it is needed."""
_TOGETHER = 64
"""Texts that are hashed before they are looked up."""


class IntegerCodes:
    """Codes of whole numbers."""

    def __init__(self) -> None:
        self.n = 0
        self._slot, self._key = np.full(1024, -1, np.int32), np.zeros(0, np.int64)

    def codes(self, values: Integers, missing: Mask) -> Integers:
        """The codes of a batch. If there are more labels than `MOST`, `n` tells so."""
        self._key = _with_room(self._key, self.n + len(values))
        if _ROOM * (self.n + len(values)) > len(self._slot):
            self._slot = np.full(_size(_ROOM * (self.n + len(values))), -1, np.int32)
            _place_integers(self._key[: self.n], self._slot)
        out = np.empty(len(values), np.int64)
        self.n = _find_integers(values, missing, self._slot, self._key, self.n, MOST, out)
        return out

    def labels(self) -> Integers:
        """All labels, by code."""
        return self._key[: self.n]


class TextCodes:
    """Codes of texts, as the bytes of an Arrow array: text i is data[offset[i]:offset[i + 1]]."""

    def __init__(self) -> None:
        self.n = 0
        self._slot = np.full(1024, -1)
        self._hash, self._start = np.zeros(0, np.uint64), np.zeros(1, np.int64)
        self._text = np.zeros(0, np.uint8)

    def codes(self, offset: Array, data: NDArray[np.uint8], missing: Mask) -> Integers:
        """The codes of a batch; empty texts are missing. If there are more labels than `MOST`, `n` tells so."""
        n = self.n + len(missing)
        if not len(missing):
            return np.zeros(0, np.int64)
        self._hash, self._start = _with_room(self._hash, n), _with_room(self._start, n + 1)
        self._text = _with_room(self._text, int(self._start[self.n]) + int(offset[-1] - offset[0]))
        if _ROOM * n > len(self._slot):
            self._slot = np.full(_size(_ROOM * n), -1)
            _place_hashes(self._hash[: self.n], self._slot)
        out = np.full(len(missing), -1)
        self.n = _find_texts(
            offset, data, missing, self._slot, self._hash, self._start, self._text, self.n, MOST, out
        )  # fmt: skip
        return out

    def texts(self) -> tuple[Integers, NDArray[np.uint8]]:
        """All labels, by code, as (offsets, bytes)."""
        return self._start[: self.n + 1], self._text[: self._start[self.n]]


def _with_room(part: Array, n: int) -> Array:
    """The array, longer if it has not room for n; half as long again at least, so that growing stays cheap."""
    if n <= len(part):
        return part
    longer = np.zeros(max(n, len(part) + len(part) // 2), part.dtype)
    longer[: len(part)] = part
    return longer


def _size(n: int) -> int:
    return 1 << int(n - 1).bit_length()


@kernel
def _mixed(x):
    """A hash of 64 bits in which every bit depends on all (Stafford 2011)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def _place_integers(key, slot):
    mask = np.uint64(slot.size - 1)
    for c in range(key.size):
        h = _mixed(np.uint64(key[c])) & mask
        while slot[h] >= 0:
            h = (h + np.uint64(1)) & mask
        slot[h] = c


@kernel
def _find_integers(values, missing, slot, key, n, most, out):
    mask = np.uint64(slot.size - 1)
    for i in range(values.size):
        if i + 2 * _AHEAD < values.size:
            prefetch(slot, (np.int64(_mixed(np.uint64(values[i + 2 * _AHEAD])) & mask),))
        if i + _AHEAD < values.size:
            prefetch(key, (max(np.int64(slot[_mixed(np.uint64(values[i + _AHEAD])) & mask]), 0),))
        if missing[i]:
            out[i] = -1
            continue
        v = values[i]
        h = _mixed(np.uint64(v)) & mask
        while slot[h] >= 0 and key[slot[h]] != v:
            h = (h + np.uint64(1)) & mask
        if slot[h] < 0:
            if n == most:
                return n + 1
            slot[h] = n
            key[n] = v
            n += 1
        out[i] = slot[h]
    return n


@kernel
def _tagged(whole, c):
    """A code below 2^31 with upper bits of the hash, which rule out most other texts without looking at them."""
    return np.int64(whole >> np.uint64(33)) << 32 | c


@kernel
def _place_hashes(hashes, slot):
    mask = np.uint64(slot.size - 1)
    for c in range(hashes.size):
        h = hashes[c] & mask
        while slot[h] >= 0:
            h = (h + np.uint64(1)) & mask
        slot[h] = _tagged(hashes[c], c)


@helper
def _hashed(data, first, size):
    """A hash of a text: eight bytes at a time, of which the last ones may overlap those before."""
    whole = np.uint64(size) * np.uint64(0x9E3779B97F4A7C15)
    if size < 8:
        for j in range(first, first + size):
            whole = whole << np.uint64(8) ^ np.uint64(data[j]) ^ whole >> np.uint64(56)
        return _mixed(whole)
    for j in range(first, first + size - 8, 8):
        whole = _mixed(whole ^ eight_bytes(data, j))
    return _mixed(whole ^ eight_bytes(data, first + size - 8))


@helper
def _same(one, a, other, b, size):
    """Whether two texts of this size are equal."""
    if size < 8:
        j = 0
        while j < size and one[a + j] == other[b + j]:
            j += 1
        return j == size
    j = 0
    while j < size - 8 and eight_bytes(one, a + j) == eight_bytes(other, b + j):
        j += 8
    return j >= size - 8 and eight_bytes(one, a + size - 8) == eight_bytes(other, b + size - 8)


@kernel
def _find_texts(offset, data, missing, slot, hashes, start, text, n, most, out):
    """Texts are looked up in groups: hash all of them and ask for their slots; then for the texts found there."""
    mask = np.uint64(slot.size - 1)
    group = np.empty(_TOGETHER, np.uint64)
    likely = np.empty(_TOGETHER, np.int64)
    for first_row in range(0, missing.size, _TOGETHER):
        n_rows = min(missing.size - first_row, _TOGETHER)
        for k in range(n_rows):
            i = first_row + k
            group[k] = _hashed(data, np.int64(offset[i]), np.int64(offset[i + 1] - offset[i]))
            prefetch(slot, (np.int64(group[k] & mask),))
        for k in range(n_rows):
            likely[k] = max(slot[group[k] & mask], 0) & 0x7FFFFFFF
            prefetch(start, (likely[k],))
        for k in range(n_rows):
            prefetch(text, (start[likely[k]],))
        for k in range(n_rows):
            i = first_row + k
            first, size = np.int64(offset[i]), np.int64(offset[i + 1] - offset[i])
            if missing[i] or size == 0:
                continue
            h, found = group[k] & mask, False
            tag, c = _tagged(group[k], 0), 0
            while slot[h] >= 0:
                c = slot[h] & 0x7FFFFFFF
                if slot[h] - c == tag:
                    found = start[c + 1] - start[c] == size and _same(text, start[c], data, first, size)
                    if found:
                        break
                h = (h + np.uint64(1)) & mask
            if not found:
                if n == most:
                    return n + 1
                c = n
                slot[h] = tag + c
                hashes[n] = group[k]
                for j in range(size):
                    text[start[n] + j] = data[first + j]
                start[n + 1] = start[n] + size
                n += 1
            out[i] = c
    return n
