"""Oracle: the best possible estimate if the classes were known.

From the perspective of agent a: it is told which agents share its mean, and reports the mean of all their samples so
far, y_a = sum of n_l X_l / sum of n_l over its class. MSE sigma^2 / (t |class|). No device can run it; it
is what methods that find the classes are compared with.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import at, kernel
from colme._core.team import Neighborhood
from colme.errors import MethodError
from colme.graphs import Graph
from colme.method import EVERYONE, Agent, Method, Place, Round, State, World


class Oracle(Method, frozen=True, kw_only=True, tag="oracle"):
    """y = the mean of the class.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(Oracle(), scenario, steps=200, seed=0)
    >>> f"{trace.mse[-1]:.1e} instead of {trace.local_mse[-1]:.1e}"
    '2.5e-05 instead of 1.3e-03'

    See also: Local, Bayes, oracle_variance
    """

    label: ClassVar[str] = "oracle"
    color: ClassVar[str] = "#009E73"
    baseline: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    tolerates_loss: ClassVar[bool] = True

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


def class_means(mean: NDArray[np.float64], count: Any, class_: NDArray[Any], hood: Neighborhood,
                n_classes: int) -> NDArray[np.float64]:  # fmt: skip
    """The mean of all samples of each class, NaN if there are none; `count` per agent, or one for all."""
    sums = np.empty((hood.n_pages, 2, n_classes))
    _sum_by_class(mean, count, class_, hood.page, sums)
    total, weight = hood.team.gather(sums).sum(axis=0)
    return np.where(weight > 0.0, total / np.maximum(weight, 1.0), np.nan)


class OracleState(State):
    lost_share = 0.0
    isolated = 0

    def __init__(self, method: Oracle, world: World, graph: Graph):
        super().__init__(method, world)
        self.estimate = np.full(world.n_agents, np.nan)
        if not world.classes_known:
            raise MethodError(
                "the oracle must be told the classes, and they are not known here. "
                "Try colme.Recording(samples, classes=...) or means=..."
            )
        self.class_, self._given = world.class_, graph
        self._n_classes = int(world.team.greatest(world.class_.max(initial=0))) + 1

    def step(self, world: World) -> None:
        count = world.n_samples
        means = class_means(world.mean, count, self.class_, world.hood, self._n_classes)
        np.take(means, self.class_, out=self.estimate)
        if world.count is not None:
            self.estimate[world.count == 0] = np.nan

    def graph(self) -> Graph:
        """The given graph without its edges between classes."""
        given, seen = self._given, self.world.hood.seen("class", self.class_)
        return given.kept(np.repeat(self.class_, given.degrees) == seen[given.indices])

    def groups(self, graph: Graph) -> NDArray[np.int64]:
        return self.class_.astype(np.int64)


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
