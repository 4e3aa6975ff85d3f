"""The Bayes bound: the best possible estimate without knowing which agent belongs to which class.

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
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import at, kernel
from colme.errors import MethodError
from colme.graphs import Graph
from colme.method import Method, State, World
from colme.methods.oracle import class_means

MOST = 512


class Bayes(Method, frozen=True, kw_only=True, tag="bayes"):
    """y = the posterior mean given all classes, but not the agent's own.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(Bayes(), scenario, steps=200, seed=0)
    >>> f"{trace.mse[-1]:.1e} instead of {trace.local_mse[-1]:.1e}"
    '2.5e-05 instead of 1.3e-03'

    See also: Oracle, Local, Census
    """

    label: ClassVar[str] = "Bayes bound"
    color: ClassVar[str] = "#56B4E9"
    baseline: ClassVar[bool] = True
    irrevocable: ClassVar[bool] = False
    tolerates_loss: ClassVar[bool] = True

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

    saved: ClassVar[tuple[str, ...]] = ()
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
    def estimate(self) -> NDArray[np.float64]:  # type: ignore[override]
        world = self.world
        estimate = np.full(world.n_agents, np.nan)
        if world.t > 0:
            noise = np.square(world.sigma) / np.maximum(world.n_samples, 1)
            _posterior_means(world.mean, noise, *self._distribution(), estimate)
        return estimate

    def _distribution(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(means of the classes as far as the oracle knows them, their shares)."""
        world, n_classes = self.world, len(self._size)
        if n_classes > MOST and world.truth is not None:
            return _grouped(world.truth)
        place = class_means(world.mean, world.n_samples, world.class_, world.hood, n_classes)
        there = ~np.isnan(place)
        return place[there], self._size[there] / world.n_agents


def _grouped(truth: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(true means in at most 512 groups, their shares)."""
    low, high = truth.min(), truth.max()
    which = ((truth - low) * ((MOST - 1) / max(high - low, 1e-300))).astype(np.int64)
    count = np.bincount(which, minlength=MOST)
    total = np.bincount(which, truth, MOST)
    return total[count > 0] / count[count > 0], count[count > 0] / len(truth)
