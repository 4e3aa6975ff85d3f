"""The Bayes bound: what could be known at best by somebody who is not told who is who.

From the perspective of agent a: somebody tells it the distribution of everybody's true means, but not which one is its
own. It reports the posterior mean of its own given X_a ~ N(m, sigma_a^2 / n_a):

    y_a = sum of m_b p_ab over all agents b,   p_ab in proportion to exp(-(X_a - m_b)^2 n_a / (2 sigma_a^2)).

No method that uses X_a and the distribution of means does better on average. Nobody can run it; it is the limit of the
census, as the oracle, who knows the classes, is the limit of those who prune. (True means are grouped into at most 512
different ones.)
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._jit import at, kernel
from colme.errors import MethodError
from colme.graphs import Graph
from colme.methods._base import Method, World

MOST = 512


class Bayes(Method, frozen=True, kw_only=True, tag="bayes"):
    """y = the posterior mean under the true distribution of means."""

    label: ClassVar[str] = "Bayes bound"
    irrevocable: ClassVar[bool] = False
    bears_loss: ClassVar[bool] = True

    def start(self, world: World, graph: Graph) -> BayesState:
        return BayesState(world)


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


class BayesState:
    saved: ClassVar[tuple[str, ...]] = ()
    wrong_share = 0.0
    lost_share = 1.0
    numbers = 0.0

    def __init__(self, world: World):
        if world.sigma is None:
            raise MethodError("the Bayes bound needs sigma: it is not known here. Try sigma=... in the recording.")
        self._world, self.isolated = world, world.n_agents

    def step(self, world: World) -> None:
        if world.truth is None:
            raise MethodError("the Bayes bound must be told the true means: they are not known here. Leave it out.")

    @property
    def estimate(self) -> NDArray[np.float64]:
        world = self._world
        estimate = np.full(world.n_agents, np.nan)
        if world.truth is not None:
            count: Any = world.t if world.count is None else np.maximum(world.count, 1)
            noise = np.square(world.sigma) / count
            _posterior_means(world.mean, noise, *_distribution(world.truth), estimate)
        return estimate

    def graph(self) -> Graph:
        return Graph(np.zeros(self._world.n_agents + 1, np.int64), np.empty(0, np.uint32), check=False)

    def groups(self, graph: Graph) -> NDArray[np.int64]:
        return np.arange(self._world.n_agents)


def _distribution(truth: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(different true means, their shares)."""
    place, count = np.unique(truth, return_counts=True)
    if len(place) > MOST:
        which = ((place - place[0]) * ((MOST - 1) / (place[-1] - place[0]))).astype(np.int64)
        total = np.bincount(which, count, MOST)
        place = np.bincount(which, count * place, MOST)[total > 0] / total[total > 0]
        count = total[total > 0]
    return place, count / len(truth)
