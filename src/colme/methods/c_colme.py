"""C-colME: collaborative mean estimation by consensus with Metropolis weights.

From the perspective of agent a, at step t:

(1) it observes x_a(t) and updates its local mean:           X_a <- X_a + (x_a - X_a) / n_a
(2) it drops the neighbors whose interval does not overlap its own: |X_a - X_b| > R(n_a) + R(n_b)
(3) its clock gives                                          alpha = k / (k + 1), k steps since the last restart
(4) it asks the kept neighbors for their degrees:            W_aj = 1 / (max(D_a, D_j) + 1)
(5) it averages with them:                                   z = y_a + sum over kept j of W_aj (y_j - y_a)
(6) and with its own mean:                                   y_a <- (1 - alpha) X_a + alpha z

For all agents at once: y(t) = (1 - alpha) X(t) + alpha W(t) y(t-1), W doubly stochastic. W changes only around agents
that lost an edge, so the array form updates it there.

Differences from the paper
    The recursion has the index of CL-colME (the two papers shift it by one), y(1) = x(1), and an agent without edges
    reports X_a. The authors' code restarts alpha everywhere at every cut: clock="global" here.

Reference: F. Galante, G. Neglia, E. Leonardi, "Scalable decentralized algorithms for online personalized mean
estimation", AAAI 2025, arXiv:2402.12812, section 4.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from colme.consensus import add_weighted_pull, build_weights, metropolis_weight, next_estimate
from colme.graphs import Graph
from colme.method import Agent, Inbox, Place, State, World
from colme.methods.consensus import ConsensusAgent, ConsensusMethod, ConsensusState
from colme.support.arrays import Array

GALANTE = """@inproceedings{galante2025scalable,
  title     = {Scalable decentralized algorithms for online personalized mean estimation},
  author    = {Galante, F. and Neglia, G. and Leonardi, E.},
  booktitle = {AAAI Conference on Artificial Intelligence},
  note      = {arXiv:2402.12812},
  year      = {2025},
}"""


class CColME(ConsensusMethod, frozen=True, kw_only=True, tag="c-colme"):
    """Metropolis consensus among the neighbors whose intervals overlap.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(CColME(level="agent"), scenario, steps=200, seed=0)
    >>> f"{trace.mse[-1]:.1e} instead of {trace.local_mse[-1]:.1e}"
    '3.7e-05 instead of 1.3e-03'

    See also: CLColME, BColME, metropolis_matrix
    """

    label = "C-colME"
    color = "#0072B2"
    paper = GALANTE
    metropolis = True

    def start(self, world: World, graph: Graph) -> State:
        return CState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return CAgent(self, place)


class CState(ConsensusState):
    """Specific to C-colME: Metropolis' weights, updated where edges are cut."""

    def __init__(self, method: CColME, world: World, graph: Graph):
        super().__init__(method, world, graph)
        self.weights: Array = np.zeros(len(self.edges.slots), world.exchange)
        self.rows_moved()

    def rows_moved(self) -> None:
        build_weights(self.edges.table, self.weights)


class CAgent(ConsensusAgent):
    needs_degrees = True

    def average(self, heard: dict[Hashable, Any], degrees: Inbox, own: Any, alpha: float) -> None:
        exchange, degree = self.place.exchange, len(self.neighbors)
        pull = exchange(0)
        for b, y in heard.items():
            if b in degrees:
                weight = exchange(metropolis_weight(degree, degrees[b]))  # (4)
                pull = add_weighted_pull(pull, own, y, weight, True)  # (5)
        self.estimate = next_estimate(self.mean, self.estimate, float(pull), alpha, 1.0, degree)  # (6)
