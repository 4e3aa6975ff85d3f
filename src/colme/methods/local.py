"""Local: every agent for itself.

From the perspective of agent a: it observes x_a(t), X_a <- X_a + (x_a - X_a) / n_a, and reports y_a = X_a. The floor
that every collaborative method must beat; MSE sigma^2 / t.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from colme.graphs import Graph
from colme.method import Agent, Method, Place, Round, World


class Local(Method, frozen=True, kw_only=True, tag="local"):
    """y = X."""

    label: ClassVar[str] = "local"
    bears_loss: ClassVar[bool] = True

    def start(self, world: World, graph: Graph) -> LocalState:
        return LocalState(world)

    def agent(self, place: Place) -> Agent:
        return LocalAgent(place)


class LocalState:
    saved: ClassVar[tuple[str, ...]] = ("estimate",)
    wrong_share = 0.0
    lost_share = 1.0
    numbers = 0.0

    def __init__(self, world: World):
        self.estimate: NDArray[np.float64] = world.mean.copy()
        self.isolated = world.n_agents

    def step(self, world: World) -> None:
        self.estimate[:] = world.mean

    def graph(self) -> Graph:
        return Graph(np.zeros(len(self.estimate) + 1, np.int64), np.empty(0, np.uint32), check=False)

    def groups(self, graph: Graph) -> NDArray[np.int64]:
        return np.arange(len(self.estimate))


class LocalAgent(Agent):
    def step(self, sample: float) -> Round:
        self.observe(sample)
        self.estimate = self.mean
        yield from ()  # nothing to say to anybody
