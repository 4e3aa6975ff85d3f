"""Time taken fairly: everybody in turn, so that noise hits all alike, and told as ratios.

On a shared machine the same work takes half as long again from one minute to the next. So works are timed in rounds,
each once per round; a ratio is that of the best rounds, and the quartiles of the ratios within single rounds say how
sure it is. CPU time is that of all threads of this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Clock = Callable[[], float]
Timed = Callable[[], float]
"""Does some work and returns the seconds it took."""


@dataclass(frozen=True)
class Measured:
    """A number, and the range in which half of the rounds lie."""

    value: float
    low: float
    high: float

    @classmethod
    def once(cls, value: float) -> Measured:
        """What was counted or measured only once."""
        return cls(value, value, value)

    def scaled(self, factor: float) -> Measured:
        return Measured(factor * self.value, factor * self.low, factor * self.high)


@dataclass(frozen=True)
class Times:
    """Seconds, one number for each round."""

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.rounds)

    def measured(self, factor: float = 1.0) -> Measured:
        """The best round, and the quartiles."""
        low, high = np.quantile(self.rounds, (0.25, 0.75)).tolist()
        return Measured(self.best, low, high).scaled(factor)


def timed(work: Callable[[], object], *, clock: Clock = time.process_time, lasting: float = 0.0) -> Timed:
    """Seconds per call of the work, which is repeated until it has lasted so long: short works shall not profit from
    lucky moments more than long ones."""

    def run() -> float:
        started, calls = clock(), 0
        while True:
            work()
            calls += 1
            took = clock() - started
            if took >= lasting:
                return took / calls

    return run


def order(labels: list[str], number: int) -> list[str]:
    """The order of the works in this round. It rotates, so that none always profits from a warm cache or a fast phase
    of the machine, and is reversed in every other cycle, so that none always has the same predecessor."""
    cycle, shift = divmod(number - 1, len(labels))
    turned = labels[shift:] + labels[:shift]
    return turned if cycle % 2 == 0 else turned[::-1]


def in_turns(works: Mapping[str, Timed], rounds: int, *, warm: bool = True) -> dict[str, Times]:
    """The times of all works, measured in rounds; `warm` does each once before, to compile and to fill the caches."""
    if warm:
        for work in works.values():
            work()
    seen: dict[str, list[float]] = {name: [] for name in works}
    for number in range(1, rounds + 1):
        for name in order(list(works), number):
            seen[name].append(works[name]())
    return {name: Times(tuple(seconds)) for name, seconds in seen.items()}


def ratio(slow: Times, fast: Times) -> Measured:
    """How many times as long `slow` takes."""
    each = [a / b for a, b in zip(slow.rounds, fast.rounds, strict=True)]
    low, high = np.quantile(each, (0.25, 0.75)).tolist()
    return Measured(slow.best / fast.best, low, high)
