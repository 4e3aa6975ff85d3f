"""Codes 0, 1, ... for whole numbers or texts in order of first appearance, by hashing (open addressing).

A dict would take a Python object for every label; these take the labels themselves. Missing labels have the code -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import kernel

_ROOM = 2
"""Slots of a hash table for each label."""


class IntegerCodes:
    """Codes of whole numbers."""

    def __init__(self) -> None:
        self.n = 0
        self._slot, self._key = np.full(1024, -1), np.zeros(0, np.int64)

    def codes(self, values: NDArray[np.int64], missing: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The codes of a batch."""
        self._key = _with_room(self._key, self.n + len(values))
        if _ROOM * (self.n + len(values)) > len(self._slot):
            self._slot = np.full(_size(_ROOM * (self.n + len(values))), -1)
            _place_integers(self._key[: self.n], self._slot)
        out = np.empty(len(values), np.int64)
        self.n = _find_integers(values, missing, self._slot, self._key, self.n, out)
        return out

    def labels(self) -> list[int]:
        """All labels, by code."""
        return self._key[: self.n].tolist()


class TextCodes:
    """Codes of texts, as the bytes of an Arrow array: text i is data[offset[i]:offset[i + 1]]."""

    def __init__(self) -> None:
        self.n = 0
        self._slot = np.full(1024, -1)
        self._hash, self._end = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._text = np.zeros(0, np.uint8)

    def codes(self, offset: NDArray[Any], data: NDArray[np.uint8], missing: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The codes of a batch; empty texts are missing."""
        n = self.n + len(missing)
        if not len(missing):
            return np.zeros(0, np.int64)
        used = int(self._end[self.n - 1]) if self.n else 0
        self._hash, self._end = _with_room(self._hash, n), _with_room(self._end, n)
        self._text = _with_room(self._text, used + int(offset[-1] - offset[0]))
        if _ROOM * n > len(self._slot):
            self._slot = np.full(_size(_ROOM * n), -1)
            _place_hashes(self._hash[: self.n], self._slot)
        out = np.full(len(missing), -1)
        self.n = _find_texts(offset, data, missing, self._slot, self._hash, self._end, self._text, self.n, out)
        return out

    def labels(self) -> list[str]:
        """All labels, by code."""
        whole, end = self._text.tobytes(), self._end[: self.n].tolist()
        return [whole[a:b].decode() for a, b in zip([0, *end], end, strict=False)]


def _with_room(part: NDArray[Any], n: int) -> NDArray[Any]:
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
def _find_integers(values, missing, slot, key, n, out):
    mask = np.uint64(slot.size - 1)
    for i in range(values.size):
        if missing[i]:
            out[i] = -1
            continue
        v = values[i]
        h = _mixed(np.uint64(v)) & mask
        while slot[h] >= 0 and key[slot[h]] != v:
            h = (h + np.uint64(1)) & mask
        if slot[h] < 0:
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


@kernel
def _same(one, a, other, b, size):
    j = 0
    while j < size and one[a + j] == other[b + j]:
        j += 1
    return j == size


@kernel
def _find_texts(offset, data, missing, slot, hashes, end, text, n, out):
    mask = np.uint64(slot.size - 1)
    for i in range(missing.size):
        first, size = np.int64(offset[i]), np.int64(offset[i + 1] - offset[i])
        if missing[i] or size == 0:
            continue
        whole = np.uint64(14695981039346656037)
        for j in range(first, first + size):  # FNV-1a
            whole = (whole ^ np.uint64(data[j])) * np.uint64(1099511628211)
        whole = _mixed(whole)
        h, found = whole & mask, False
        tag, c = _tagged(whole, 0), 0
        while slot[h] >= 0:
            c = slot[h] & 0x7FFFFFFF
            start = end[c - 1] if c > 0 else 0
            if slot[h] - c == tag and end[c] - start == size and _same(text, start, data, first, size):
                found = True
                break
            h = (h + np.uint64(1)) & mask
        if not found:
            c = n
            slot[h] = tag + c
            hashes[n] = whole
            start = end[n - 1] if n > 0 else 0
            for j in range(size):
                text[start + j] = data[first + j]
            end[n] = start + size
            n += 1
        out[i] = c
    return n
