"""Local: each agent on its own.

From the perspective of agent a: it observes x_a(t), X_a <- X_a + (x_a - X_a) / n_a, and reports y_a = X_a. Every
collaborative method must beat it; MSE sigma^2 / t.
"""

from __future__ import annotations

from typing import ClassVar

from colme.graphs import Graph
from colme.method import Agent, Method, Place, Round, State, World


class Local(Method, frozen=True, kw_only=True, tag="local"):
    """y = X.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(Local(), scenario, steps=200, seed=0)
    >>> trace.mse.tolist() == trace.local_mse.tolist()
    True

    See also: Oracle, Bayes, simulate
    """

    label: ClassVar[str] = "local"
    color: ClassVar[str] = "#777777"
    baseline: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    tolerates_loss: ClassVar[bool] = True

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
