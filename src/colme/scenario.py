"""Scenarios: classes of agents, their means and noise, late starts, skipped samples, and shifts of the means.

A `Scenario` is a recipe; a seed turns it into a `Population`: the class of each agent, and the step at which it joins.
Their samples are drawn in `samples`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from colme._core import random
from colme.errors import RunError, ScenarioError, one_of, positive, shorten, whole
from colme.support.arrays import Array, Floats, Integers
from colme.support.structs import Configuration

DISTRIBUTIONS = ("gaussian", "uniform", "laplace", "student", "bernoulli", "exponential")
ASSIGNMENTS = ("equal", "random", "blocks")
SHAPES = ("gaussian", "uniform")
SMALLEST, LARGEST = 1e-30, 1e30
"""Sizes of numbers that float32 can tell apart, with room for sums."""
_AT_ONCE = 2**17
"""Agents that are looked up at a time."""


def class_dtype(n_classes: int) -> type[np.unsignedinteger[Any]]:
    """The type of the agents' classes, where there are so many."""
    return np.uint16 if n_classes <= 0xFFFF else np.uint32


class Scenario(Configuration, frozen=True, kw_only=True):
    """A population of agents that see noisy numbers around the mean of their class.

    case          a name for tables and figures, where an experiment has several scenarios
    n_agents      how many agents
    means         the mean of each class. Entries with the same mean are one class, unless their sigmas differ
    sigma         standard deviation of a sample: one number, one per class, or one per agent (default 1; where both
                  fit, per class). It is also the scale that the agents know, unless `told_sigma` is another one.
                  Bernoulli samples have none; their known scale is 1/2 (Hoeffding). Laplace, Student and exponential
                  samples are not sub-Gaussian: intervals that keep their promise there need bound="fourth-moment" in
                  the method.
    told_sigma    the scale that the agents are told, where it is a wrong one
    sizes         agents per class (default: as equal as possible)
    assignment    "equal": classes of the given sizes, placed at random; "random": every agent draws its class, with
                  probabilities in proportion to `sizes`; "blocks": in order, the first class first
    distribution  "gaussian", "uniform", "laplace", "student", "bernoulli" or "exponential" (skewed to the right)
    df            degrees of freedom of Student samples
    skip_rate     probability that an agent sees no sample at a step: one number, or one per agent
    late_share    share of agents, chosen at random, that see nothing before step `late_step`
    late_step     the step at which they come
    shift_step    from this step on the means are `shift_means`
    shift_means   the new mean of each class (classes remain those of the first means)
    spread        standard deviation of the agents' own means around that of their class; if positive, every agent is a
                  class of its own
    spread_shape  "gaussian" or "uniform"
    loss          probability that a message between neighbors gets lost (for methods that bear it)

    >>> scenario = Scenario(n_agents=6, means=(1.2, 2.0), sigma=2.0, assignment="blocks")
    >>> scenario
    Scenario(n_agents=6, means=(1.2, 2.0), sigma=2.0, assignment='blocks')
    >>> scenario.populate(seed=0).class_.tolist()
    [0, 0, 0, 1, 1, 1]

    See also: simulate, Recording, draw
    """

    refusal = ScenarioError

    case: str = ""
    n_agents: int
    means: tuple[float, ...]
    sigma: float | tuple[float, ...] | None = None
    sizes: tuple[int, ...] | None = None
    assignment: str = "equal"
    distribution: str = "gaussian"
    df: float = 5.0
    skip_rate: float | tuple[float, ...] = 0.0
    late_share: float = 0.0
    late_step: int = 1
    shift_step: int | None = None
    shift_means: tuple[float, ...] | None = None
    spread: float = 0.0
    spread_shape: str = "gaussian"
    loss: float = 0.0
    independent: ClassVar[bool] = True
    """The samples of an agent are."""
    told_sigma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_classes()
        self._check_noise()
        self._check_time()

    def _check_classes(self) -> None:
        whole(self.n_agents, "n_agents", "n_agents=5000", ScenarioError, high=2**32 - 1)
        if not self.means or not all(map(math.isfinite, self.means)):
            raise ScenarioError(f"means={shorten(self.means)}: every class needs a finite mean. Try means=(1.2, 2.0).")
        one_of(self.assignment, ASSIGNMENTS, "assignment", ScenarioError)
        one_of(self.spread_shape, SHAPES, "spread_shape", ScenarioError)
        if not 0 <= self.spread < LARGEST or (self.spread > 0 and self.distribution == "bernoulli"):
            raise ScenarioError(
                f"spread={self.spread:g} with distribution={self.distribution!r}: it must be at least 0 and finite, "
                "and 0 for 0/1 samples. Try spread=0.4."
            )
        if self.sizes is None:
            if self.assignment != "random" and len(self.means) > self.n_agents:
                raise ScenarioError(
                    f"n_agents={self.n_agents} with {len(self.means)} means: every class needs an agent. "
                    "Try fewer means or assignment='random'."
                )
            return
        if len(self.sizes) != len(self.means) or min(self.sizes) < 0:
            raise ScenarioError(
                f"sizes={shorten(self.sizes)}: there must be one size >= 0 for each of the {len(self.means)} means. "
                "Leave sizes out for equal classes."
            )
        total = sum(self.sizes)
        if self.assignment == "random" and total <= 0:
            raise ScenarioError(f"sizes={shorten(self.sizes)}: some class must have a positive size. Try sizes=(1, 1).")
        if self.assignment != "random" and total != self.n_agents:
            raise ScenarioError(
                f"sizes={shorten(self.sizes)} add up to {total}: they must add up to n_agents={self.n_agents}. "
                "Try assignment='random' to use them as proportions."
            )

    def _check_noise(self) -> None:
        one_of(self.distribution, DISTRIBUTIONS, "distribution", ScenarioError)
        if self.distribution == "bernoulli":
            if self.sigma is not None:
                raise ScenarioError(f"sigma={shorten(self.sigma)}: a 0/1 sample has no free scale. Leave sigma out.")
            if not all(0 <= mean <= 1 for mean in self.all_means):
                raise ScenarioError(
                    f"means={shorten(self.all_means)}: the mean of a 0/1 sample is between 0 and 1. "
                    "Try means=(0.2, 0.6)."
                )
        if self.distribution == "student" and not 2 < self.df <= 1e6:
            raise ScenarioError(
                f"df={self.df}: Student samples need df > 2 to have a deviation, and beyond 10^6 they are Gaussian. "
                "Try df=5."
            )
        values = self._values("sigma", len(self.means))
        if self.told_sigma is not None:
            positive(self.told_sigma, "told_sigma", "told_sigma=4.0", ScenarioError)
        if not all(0 < value < math.inf for value in values):
            raise ScenarioError(f"sigma={shorten(self.sigma)}: it must be positive and finite. Try sigma=2.0.")
        low, high = min(self.all_means), max(self.all_means)
        if high - low + max(values, default=1.0) > LARGEST or min(values, default=1.0) < SMALLEST:
            raise ScenarioError(
                f"means={shorten(self.means)}, sigma={shorten(self.sigma)}: sizes must be between {SMALLEST:g} and "
                f"{LARGEST:g}, for neighbors hear float32. Try another unit."
            )

    def _check_time(self) -> None:
        if not 0 <= self.loss < 1:
            raise ScenarioError(f"loss={self.loss:g}: it must be at least 0 and below 1. Try loss=0.2.")
        if not all(0 <= rate < 1 for rate in self._values("skip_rate")):
            raise ScenarioError(
                f"skip_rate={shorten(self.skip_rate)}: it must be at least 0 and below 1. Try skip_rate=0.2."
            )
        if not 0 <= self.late_share <= 1 or self.late_step < 1:
            raise ScenarioError(
                f"late_share={self.late_share}, late_step={self.late_step}: the share must be between 0 and 1 and "
                "the step at least 1. Try late_share=0.1, late_step=500."
            )
        if self.shift_step is None and self.shift_means is None:
            return
        if self.shift_step is None or self.shift_means is None:
            raise ScenarioError(
                f"shift_step={self.shift_step} with shift_means={shorten(self.shift_means)}: they go together. "
                "Give both or neither."
            )
        if len(self.shift_means) != len(self.means) or not all(map(math.isfinite, self.shift_means)):
            raise ScenarioError(
                f"shift_means={shorten(self.shift_means)}: there must be a finite new mean for each of the "
                f"{len(self.means)} classes. Repeat the old mean of a class that does not move."
            )
        if self.shift_step < 2:
            raise ScenarioError(f"shift_step={self.shift_step}: means shift from step 2 on. Try shift_step=500.")

    def _values(self, name: str, per_class: int | None = None) -> tuple[float, ...]:
        """The numbers in a field that has one for all, one per agent or one per class."""
        values = getattr(self, name)
        if not isinstance(values, tuple):
            return () if values is None else (values,)
        if len(values) not in (self.n_agents, per_class):
            rule = f"one per agent ({self.n_agents})" + (f" or one per class ({per_class})" if per_class else "")
            raise ScenarioError(f"{name} has {len(values)} values: it must be one number, or {rule}. Try one number.")
        return values

    @property
    def all_means(self) -> tuple[float, ...]:
        """Those of the classes at any time."""
        return self.means + (self.shift_means or ())

    @property
    def known_scale(self) -> float | tuple[float, ...]:
        """The sub-Gaussian scale that the agents may use."""
        if self.distribution == "bernoulli":
            return 0.5
        return 1.0 if self.sigma is None else self.sigma

    @property
    def width(self) -> float | None:
        """Length of the interval that holds every sample of an agent, where there is one (for Hoeffding's bound)."""
        if self.distribution == "bernoulli":
            return 1.0
        if self.distribution == "uniform":
            return 2.0 * math.sqrt(3.0) * float(np.max(self.known_scale))
        return None

    @property
    def kurtosis(self) -> float:
        """The largest E (x - mean)^4 / known scale^4 of an agent (for the fourth-moment bound)."""
        if self.distribution == "bernoulli":  # p q (p^3 + q^3) <= 1/12 and the scale is 1/2
            return 4.0 / 3.0
        if self.distribution == "student":
            return 3.0 + 6.0 / (self.df - 4.0) if self.df > 4 else math.inf
        return {"gaussian": 3.0, "uniform": 1.8, "laplace": 6.0, "exponential": 9.0}[self.distribution]

    def means_at(self, t: int) -> tuple[float, ...]:
        """The mean of each class at step t."""
        if self.shift_step is not None and self.shift_means is not None and t >= self.shift_step:
            return self.shift_means
        return self.means

    def populate(self, seed: int, *, first: int = 0, n: int | None = None) -> Population:
        """The class of each agent under this seed, and the step at which it joins: of all agents, or of a shard
        first..first+n-1 of them (first a multiple of 64)."""
        seed = check_seed(seed)
        end = self.n_agents if n is None else max(first, min(first + n, self.n_agents))
        entry = self._entries(seed, first, end)
        joins = None
        if self.late_share > 0 and self.late_step > 1:
            rank = random.ranks(seed, random.JOIN, self.n_agents, first=first, end=end)
            joins = np.where(rank < round(self.late_share * self.n_agents), self.late_step, 1)
        scale = np.asarray(self.known_scale, float)
        per_class = scale.shape == (len(self.means),)
        sigma: float | Floats = scale[first:end] if scale.ndim else float(scale)
        if per_class:
            sigma = scale[entry]
        if self.spread > 0:
            own = np.arange(first, end, dtype=class_dtype(self.n_agents))
            return Population(own, sigma, joins, entry, self.spread * self._offsets(seed, first, end))
        # entries with the same mean and, where it is given per class, the same sigma are one class
        kinds = list(zip(self.means, scale if per_class else np.zeros(len(self.means)), strict=True))
        class_ = entry
        if len(set(kinds)) < len(kinds):
            class_ = np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1).astype(entry.dtype)[entry]
        return Population(class_, sigma, joins, entry)

    def _entries(self, seed: int, first: int, end: int) -> Array:
        """Which entry of `means` is that of each of the agents first..end-1."""
        n, n_classes = self.n_agents, len(self.means)
        dtype = class_dtype(n_classes)
        if self.assignment == "random":
            weights = np.asarray(self.sizes or (1,) * n_classes, float)
            edges = np.cumsum(weights)[:-1] / weights.sum()
            draw = random.uniform(random.words(seed, random.ASSIGN, 0, first=first, n=end - first))
            return np.searchsorted(edges, draw, side="right").astype(dtype)
        sizes = self.sizes or [n * (k + 1) // n_classes - n * k // n_classes for k in range(n_classes)]
        ends = np.cumsum(sizes)
        if self.assignment == "blocks":
            return np.repeat(np.arange(n_classes, dtype=dtype), np.diff(np.clip(ends, first, end), prepend=first))
        rank = random.ranks(seed, random.ASSIGN, n, first=first, end=end)
        entry = np.empty(end - first, dtype)
        for low in range(0, len(rank), _AT_ONCE):
            some = slice(low, low + _AT_ONCE)
            entry[some] = np.searchsorted(ends, rank[some], side="right")
        return entry

    def _offsets(self, seed: int, first: int, end: int) -> Floats:
        """Of every agent from the mean of its class, in standard deviations."""
        word, second = (random.words(seed, random.SPREAD, t, first=first, n=end - first) for t in range(2))
        if self.spread_shape == "uniform":
            return np.asarray(math.sqrt(12.0) * (random.uniform(word) - 0.5), np.float64)
        return np.asarray(random.box_muller(word, second)[0], np.float64)


@dataclass(frozen=True)
class Population:
    """A scenario under a seed: each agent's class (agents of equal means and sigmas), its known scale, the step at
    which it joins (None: all at 1), which entry of `means` is its own, and how far from there its own mean is."""

    class_: Array
    sigma: float | Floats
    joins: Integers | None
    entry: Array
    offset: Floats | None = None


def check_seed(seed: object) -> int:
    """A seed is a whole number of 64 bits."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**64:
        raise RunError(f"seed={seed!r}: a seed is a whole number from 0 to 2^64 - 1. Try seed=0.")
    return int(seed)
