"""The baselines: what an agent gets alone, and the two bounds that no method beats.

Local: each agent on its own.

From the perspective of agent a: it observes x_a(t), X_a <- X_a + (x_a - X_a) / n_a, and reports y_a = X_a. Every
collaborative method must beat it; MSE sigma^2 / t.

Oracle: the best possible estimate if the classes were known.

From the perspective of agent a: it is told which agents share its mean, and reports the mean of all their samples so
far, y_a = sum of n_l X_l / sum of n_l over its class. MSE sigma^2 / (t |class|). No device can run it; it
is what methods that find the classes are compared with.

The Bayes bound: the best possible estimate without knowing which agent belongs to which class.

From the perspective of agent a: it is told which classes there are, how many agents each has and the mean of all their
samples so far, but not which class is its own. It reports its posterior mean given X_a ~ N(m, sigma_a^2 / n_a):

    y_a = sum of m_c p_ac over the classes c,   p_ac in proportion to |c| exp(-(X_a - m_c)^2 n_a / (2 sigma_a^2)).

This is centralised empirical Bayes with a perfect prior. Late it equals the oracle, and no method that does not know
the classes does better on average. No device can run it; it is the limit of the census, as the oracle is the limit of
the methods that prune.
Where there are more than 512 classes, a continuum, it is told the true means instead, in 512 groups.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from colme._core.edges import Edges
from colme._core.jit import at, kernel
from colme._core.team import Neighborhood
from colme.errors import MethodError
from colme.graphs import Graph
from colme.method import EVERYONE, Agent, Method, Place, Round, State, World
from colme.support.arrays import Array, Floats, Integers

MOST = 512
"""Groups that a continuum of means is told to the Bayes bound in."""


class Local(Method, frozen=True, kw_only=True, tag="local"):
    """y = X.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(Local(), scenario, steps=200, seed=0)
    >>> trace.mse.tolist() == trace.local_mse.tolist()
    True

    See also: Oracle, Bayes, simulate
    """

    label = "local"
    color = "#777777"
    baseline = True
    shared = True
    tolerates_loss = True

    @property
    def online_rule(self) -> str:
        return "colme.online.rules:Rule"

    @property
    def message_adapter(self) -> str:
        return "colme.node.messages.adapters:Adapter"

    def start(self, world: World, graph: Graph) -> State:
        return LocalState(self, world)

    def agent(self, place: Place) -> Agent:
        return LocalAgent(place)


class LocalState(State):
    numbers = 0.0

    def __init__(self, method: Local, world: World):
        super().__init__(method, world)
        self.estimate = world.mean.copy()

    def step(self, world: World) -> None:
        self.estimate[:] = world.mean


class LocalAgent(Agent):
    def step(self, sample: float) -> Round:
        self.observe(sample)
        self.estimate = self.mean
        yield from ()  # it sends nothing


class Oracle(Method, frozen=True, kw_only=True, tag="oracle"):
    """y = the mean of the class.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(Oracle(), scenario, steps=200, seed=0)
    >>> f"{trace.mse[-1]:.1e} instead of {trace.local_mse[-1]:.1e}"
    '2.5e-05 instead of 1.3e-03'

    See also: Local, Bayes, oracle_variance
    """

    label = "oracle"
    color = "#009E73"
    baseline = True
    shared = True
    tolerates_loss = True

    def start(self, world: World, graph: Graph) -> OracleState:
        return OracleState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return OracleAgent(place)


@kernel
def _sum_by_class(mean, count, class_, page, sums):
    """sums[k, :, c] = sum and number of the samples of class c in page k; `count` per agent, or one for all."""
    sums[:] = 0.0
    for a in range(mean.size):
        n = float(at(count, a))
        if n > 0.0:
            sums[a // page, 0, class_[a]] += n * mean[a]
            sums[a // page, 1, class_[a]] += n


def class_means(mean: Floats, count: Any, class_: Array, hood: Neighborhood,
                n_classes: int) -> Floats:  # fmt: skip
    """The mean of all samples of each class, NaN if there are none; `count` per agent, or one for all."""
    sums = np.empty((hood.n_pages, 2, n_classes))
    _sum_by_class(mean, count, class_, hood.page, sums)
    total, weight = hood.team.gather(sums).sum(axis=0)
    return np.where(weight > 0.0, total / np.maximum(weight, 1.0), np.nan)


class ClassEdges(Edges):
    """The edges within the classes, which the oracle is told: it misjudges none and needs no neighbor."""

    lost_share, isolated = 0.0, 0

    def __init__(self, graph: Graph, class_: Array, hood: Neighborhood):
        super().__init__(hood)
        self._given, self._class = graph, class_

    def graph(self) -> Graph:
        """The given graph without its edges between classes."""
        given, seen = self._given, self.hood.seen("class", self._class)
        return given.kept(np.repeat(self._class, given.degrees) == seen[given.indices])

    def groups(self, graph: Graph) -> Integers:
        return self._class.astype(np.int64)


class OracleState(State):
    def __init__(self, method: Oracle, world: World, graph: Graph):
        super().__init__(method, world)
        self.estimate = np.full(world.n_agents, np.nan)
        if not world.classes_known:
            raise MethodError(
                "the oracle must be told the classes, and they are not known here. "
                "Try colme.Recording(samples, classes=...) or means=..."
            )
        self.class_, self.edges = world.class_, ClassEdges(graph, world.class_, world.hood)
        self._n_classes = int(world.team.greatest(world.class_.max(initial=0))) + 1

    def step(self, world: World) -> None:
        count = world.n_samples
        means = class_means(world.mean, count, self.class_, world.hood, self._n_classes)
        np.take(means, self.class_, out=self.estimate)
        if world.count is not None:
            self.estimate[world.count == 0] = np.nan


class OracleAgent(Agent):
    """Needs every agent's class, count and mean: only a simulation can provide them."""

    def step(self, sample: float) -> Round:
        self.observe(sample)
        mine = self.place.class_
        inbox = yield {EVERYONE: (mine, self.count, self.mean)}
        total = weight = 0.0
        for class_, count, mean in inbox.values():
            if class_ == mine and count > 0:
                total += count * mean
                weight += count
        if self.count > 0:
            self.estimate = total / weight


class Bayes(Method, frozen=True, kw_only=True, tag="bayes"):
    """y = the posterior mean given all classes, but not the agent's own.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(Bayes(), scenario, steps=200, seed=0)
    >>> f"{trace.mse[-1]:.1e} instead of {trace.local_mse[-1]:.1e}"
    '2.5e-05 instead of 1.3e-03'

    See also: Oracle, Local, Census
    """

    label = "Bayes bound"
    color = "#56B4E9"
    baseline = True
    irrevocable = False
    tolerates_loss = True

    def start(self, world: World, graph: Graph) -> BayesState:
        return BayesState(self, world)


@kernel
def _posterior_means(mean, noise, place, share, estimate):
    for a in range(mean.size):
        total = moment = 0.0
        nearest = np.inf
        for k in range(place.size):
            nearest = min(nearest, (mean[a] - place[k]) ** 2)
        for k in range(place.size):
            e = ((mean[a] - place[k]) ** 2 - nearest) / at(noise, a)
            if e < 80.0:
                p = share[k] * math.exp(-0.5 * e)
                total += p
                moment += p * place[k]
        estimate[a] = moment / total if mean[a] == mean[a] else np.nan


class BayesState(State):
    """Estimates are computed when they are asked for: they depend on nothing but the world."""

    saved = ()
    numbers = 0.0

    def __init__(self, method: Bayes, world: World):
        super().__init__(method, world)
        if world.sigma is None:
            raise MethodError("the Bayes bound needs sigma: it is not known here. Try sigma=... in the recording.")
        if not world.classes_known:
            raise MethodError("the Bayes bound must be told the classes: they are not known here. Leave it out.")
        self._size = np.bincount(world.class_)

    def step(self, world: World) -> None:
        """Nothing to do: it has no state."""

    @property
    def estimate(self) -> Floats:  # type: ignore[override]
        world = self.world
        estimate = np.full(world.n_agents, np.nan)
        if world.t > 0:
            noise = np.square(world.sigma) / np.maximum(world.n_samples, 1)
            _posterior_means(world.mean, noise, *self._distribution(), estimate)
        return estimate

    def _distribution(self) -> tuple[Floats, Floats]:
        """(means of the classes as far as the oracle knows them, their shares)."""
        world, n_classes = self.world, len(self._size)
        if n_classes > MOST and world.truth is not None:
            return _grouped(world.truth)
        place = class_means(world.mean, world.n_samples, world.class_, world.hood, n_classes)
        there = ~np.isnan(place)
        return place[there], self._size[there] / world.n_agents


def _grouped(truth: Floats) -> tuple[Floats, Floats]:
    """(true means in at most 512 groups, their shares)."""
    low, high = truth.min(), truth.max()
    which = ((truth - low) * ((MOST - 1) / max(high - low, 1e-300))).astype(np.int64)
    count = np.bincount(which, minlength=MOST)
    total = np.bincount(which, truth, MOST)
    return total[count > 0] / count[count > 0], count[count > 0] / len(truth)
