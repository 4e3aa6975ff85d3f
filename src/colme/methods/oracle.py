"""Oracle: the best possible estimate if the classes were known.

From the perspective of agent a: it is told which agents share its mean, and reports the mean of all their samples so
far, y_a = sum of n_l X_l / sum of n_l over its class. MSE sigma^2 / (t |class|). No device can run it; it
is what methods that find the classes are compared with.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import at, kernel
from colme.errors import MethodError
from colme.graphs import Graph, from_edges
from colme.method import EVERYONE, Agent, Method, Place, Round, State, World


class Oracle(Method, frozen=True, kw_only=True, tag="oracle"):
    """y = the mean of the class."""

    label: ClassVar[str] = "oracle"
    color: ClassVar[str] = "#009E73"
    baseline: ClassVar[bool] = True
    tolerates_loss: ClassVar[bool] = True

    def start(self, world: World, graph: Graph) -> OracleState:
        return OracleState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return OracleAgent(place)


@kernel
def class_means(mean, count, class_, total, weight):
    """total[c] = mean of all samples of class c, NaN if there are none; `count` per agent, or one for all."""
    total[:] = 0.0
    weight[:] = 0.0
    for a in range(mean.size):
        n = float(at(count, a))
        if n > 0.0:
            total[class_[a]] += n * mean[a]
            weight[class_[a]] += n
    for c in range(total.size):
        total[c] = total[c] / weight[c] if weight[c] > 0.0 else np.nan


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
        n_classes = int(world.class_.max()) + 1
        self._total, self._weight = np.empty(n_classes), np.empty(n_classes)

    def step(self, world: World) -> None:
        count = world.n_samples
        class_means(world.mean, count, self.class_, self._total, self._weight)
        np.take(self._total, self.class_, out=self.estimate)
        if world.count is not None:
            self.estimate[world.count == 0] = np.nan

    def graph(self) -> Graph:
        """The given graph without its edges between classes."""
        edges = self._given.edges()
        return from_edges(edges[self.class_[edges[:, 0]] == self.class_[edges[:, 1]]], self._given.n_agents)

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
