"""Which readings of a sensor count as samples: a range that the user knows, and a rule for single wild readings.

A mean forgets nothing, so one reading of -999 among a thousand near 20 moves it by a unit, and neighbors cut an agent
whose mean is so far off. From the perspective of an agent that gets reading x:

(1) outside of [least, most] it is not a sample
(2) it is wild if it is further from the median of the last 64 samples than 50 times the furthest of these, and if 16 or
    more of them are different numbers
(3) a wild reading is held back. If one of the next 64 readings is wild, too, and on the same side of the median, both
    count; else it is an outlier, and does not

(2) compares a reading with the extremes that the agent has seen, not with a scale, and so adapts to the tails of the
noise. Of samples with tails like |x|^-a, one in 65 is beyond the 64 before it, and one in 50^a of these 50 times as
far: the share that is dropped is 50^-a / 65 or less, 4 10^-6 for a = 2.1, where a variance barely exists, and less for
every lighter tail. Samples of few different numbers (0 and 1, small counts, coarse readings) are never wild, because a
rare value is all there is to their mean. (3) admits a jump of the mean at its second reading. What is lost are honest
readings that are 50 times as far as anything seen, and rarer than one in 64: no rule can tell these from a fault, and
``wild = "keep"`` counts them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from colme.errors import shorten
from colme.support.arrays import Floats, Integers
from colme.support.saved import from_bytes, from_plain, to_bytes, to_plain

WINDOW = 64
"""Samples that a reading is compared with, and readings for which a wild one is held back."""
FURTHER = 50.0
"""How many times further than the furthest sample a wild reading is."""
DIFFERENT = 16
"""Different numbers among the samples, below which none is wild."""
WILD = ("drop", "keep")


class ReadingFilter:
    """The filter of one agent.

    least, most  readings outside are not samples
    wild         "drop": single wild readings are not, either; "keep": they are
    say          is told of the first reading that does not count, and the 2nd, 4th, 8th, ...
    """

    saved = ("outside", "outliers", "last", "held")

    def __init__(
        self, *, least: float = -math.inf, most: float = math.inf, wild: str = "drop",
        say: Callable[[str], None] = lambda _: None,
    ):  # fmt: skip
        self.least, self.most, self.wild, self.say = least, most, wild, say
        self.outside = 0  # readings that were outside of the range
        self.outliers = 0  # wild ones that stayed alone
        self.last: list[float] = []  # the last samples, oldest first
        self.held: list[list[Any]] = []  # [reading, its side, how many more readings it waits for another]
        self._sorted: list[float] = []

    def admit(self, readings: list[float]) -> list[float]:
        """The samples that these readings bring; a reading that was held back comes before the one that confirms it."""
        return [x for reading in readings for x in self._admit(float(reading))]

    def _admit(self, x: float) -> list[float]:
        if not self.least <= x <= self.most:
            if not math.isnan(x):
                self.outside += 1
                self._report(self.outside, x, f"is outside of {self.least:g} to {self.most:g}")
            return []
        side, admitted = self._side(x) if self.wild == "drop" else 0, []
        waiting = []
        for reading, its_side, left in self.held:
            if side == its_side:
                admitted.append(reading)
            elif left > 1:
                waiting.append([reading, its_side, left - 1])
            else:
                self.outliers += 1
                self._report(self.outliers, reading, f"is {FURTHER:g} times further off than any of {WINDOW} before it")
        self.held = waiting
        if side and not admitted:
            self.held.append([x, side, WINDOW])
            return []
        admitted.append(x)
        for each in admitted:
            self._remember(each)
        return admitted

    def _side(self, x: float) -> int:
        """Equation (2): 1 or -1 for a reading that is wild above or below, else 0."""
        n = len(self._sorted)
        if n < DIFFERENT:
            return 0
        middle = self._sorted[n // 2]
        furthest = max(middle - self._sorted[0], self._sorted[-1] - middle)
        if not abs(x - middle) > FURTHER * furthest or len(set(self._sorted)) < DIFFERENT:
            return 0
        return 1 if x > middle else -1

    def _remember(self, x: float) -> None:
        if len(self.last) == WINDOW:
            del self._sorted[bisect_left(self._sorted, self.last.pop(0))]
        self.last.append(x)
        insort(self._sorted, x)

    def _report(self, count: int, x: float, why: str) -> None:
        if count & (count - 1) == 0:
            so_far = "" if count == 1 else f" ({count} so far)"
            self.say(f"a reading of {x:g} {why}: it does not count as a sample{so_far}. See [samples] in node.toml.")

    # Saved state

    def state(self) -> bytes:
        return to_bytes(to_plain(self, self.saved))

    def restore(self, raw: bytes) -> None:
        from_plain(self, self.saved, from_bytes(raw))
        self._sorted = sorted(self.last)


class LocalReadings:
    """The filters of the local agents of a gateway, in arrays with one row each (`colme.node.gateway`). Only readings
    that may be wild, or come while one is held back, are looked at one by one, by a `ReadingFilter`. What is remembered
    is not saved: it would be most of a save, and after a restart the first 16 samples are never wild.

    Arguments are those of `ReadingFilter`."""

    def __init__(
        self, *, least: float = -math.inf, most: float = math.inf, wild: str = "drop",
        say: Callable[[str], None] = lambda _: None,
    ):  # fmt: skip
        self.outside = self.outliers = 0
        self.least, self.most, self.wild, self._say = least, most, wild, say
        self._window, self._count = np.full((1, WINDOW), np.nan), np.zeros(1, np.int64)  # last samples, and all
        self._held: dict[int, list[list[Any]]] = {}
        self._told = 0

    def rearrange(self, rows: Integers) -> None:
        """Keep these rows, in this order; row 0 where an agent is new."""
        self._window, self._count = self._window[rows], self._count[rows]
        places = {row: place for place, row in enumerate(rows.tolist()) if row}
        self._held = {places[row]: held for row, held in self._held.items() if row in places}

    def admit(self, readings: Floats, names: Sequence[str] = ()) -> list[Floats]:
        """The samples that the readings of all rows bring (NaN: none), in one array or, if a reading that was held back
        now counts, in several. names: of the rows from 1 on."""
        with np.errstate(invalid="ignore"):
            wrong = (readings < self.least) | (readings > self.most)
        samples, more = np.where(wrong, np.nan, readings), list[Floats]()
        if wrong.any():
            self._lose(names, int(wrong.argmax()), outside=int(wrong.sum()))
        if self.wild == "drop":
            for row in self._suspects(samples):
                one = self._filter_of(row)
                *late, samples[row] = one.admit([samples[row]]) or [math.nan]
                self._lose(names, row, outliers=one.outliers)
                self._window[row], self._held[row] = np.nan, one.held
                self._window[row, : len(one.last)], self._count[row] = one.last, len(one.last)
                for k, x in enumerate(late):
                    if k == len(more):
                        more.append(np.full(len(samples), np.nan))
                    more[k][row] = x
                if not one.held:
                    del self._held[row]
                readings[row] = math.nan  # it is remembered already
            new = np.flatnonzero(~np.isnan(np.where(np.isnan(readings), np.nan, samples)))
            self._window[new, self._count[new] % WINDOW] = samples[new]
            self._count[new] += 1
        return [*more, samples]

    def _suspects(self, samples: Floats) -> list[int]:
        """Rows of readings that may be wild: if |x - m| > 50 f, with m within the window and f at least half of its
        width, then x is more than 24 widths outside. And of those that come while one is held back."""
        low, high = np.fmin.reduce(self._window, axis=1), np.fmax.reduce(self._window, axis=1)
        with np.errstate(over="ignore", invalid="ignore"):  # readings may be any numbers
            room = 0.48 * FURTHER * (high - low)
            far = (self._count >= DIFFERENT) & ((samples < low - room) | (samples > high + room))
        held = [row for row in self._held if not math.isnan(samples[row])]
        return sorted({*np.flatnonzero(far).tolist(), *held})

    def _filter_of(self, row: int) -> ReadingFilter:
        one, n = ReadingFilter(wild=self.wild), self._count[row]
        ordered = np.roll(self._window[row], -(n % WINDOW)) if n > WINDOW else self._window[row, :n]
        one.last, one.held = ordered.tolist(), self._held.get(row, [])
        one._sorted = sorted(one.last)
        return one

    def _lose(self, names: Sequence[str], row: int, *, outside: int = 0, outliers: int = 0) -> None:
        before = self.outside + self.outliers
        self.outside, self.outliers = self.outside + outside, self.outliers + outliers
        lost = self.outside + self.outliers
        if lost.bit_length() > before.bit_length():  # the 1st, 2nd, 4th, ...
            one = "1 reading of local agents does not count as a sample"
            many = one if lost == 1 else f"{lost} readings of local agents do not count as samples"
            whose = f", now of {shorten(names[row - 1])}" if 0 < row <= len(names) else ""
            self._say(f"{many}{whose}: {self.outside} outside of the range, {self.outliers} wild. See [samples] in "
                      "node.toml.")  # fmt: skip
