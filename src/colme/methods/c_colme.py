"""C-colME: collaborative mean estimation by consensus with Metropolis weights.

From the perspective of agent a, at step t:

(1) it observes x_a(t) and updates its local mean:           X_a <- X_a + (x_a - X_a) / n_a
(2) it drops the neighbors whose interval parts from its own: |X_a - X_b| > R(n_a) + R(n_b)
(3) its clock gives                                          alpha = k / (k + 1), k steps since the last restart
(4) it asks the kept neighbors for their degrees:            W_aj = 1 / (max(D_a, D_j) + 1)
(5) it averages with them:                                   z = y_a + sum over kept j of W_aj (y_j - y_a)
(6) and with its own mean:                                   y_a <- (1 - alpha) X_a + alpha z

For all agents at once: y(t) = (1 - alpha) X(t) + alpha W(t) y(t-1), W doubly stochastic. W changes only around agents
who lost an edge, so the array form keeps it and mends it there, or computes all of it at every step (`rebuild`) for
timings of the formula as it reads: the same bits.

Differences from the paper
    The recursion has the index of CL-colME (the two papers shift it by one), y(1) = x(1), and an agent without edges
    reports X_a. The authors' code restarts alpha everywhere at every cut: clock="global" here.

Reference: F. Galante, G. Neglia, E. Leonardi, "Scalable decentralized algorithms for online personalized mean
estimation", AAAI 2025, arXiv:2402.12812, section 4.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._jit import at, kernel, lanes_like
from colme._slots import block_of
from colme.consensus import add_weighted_pull, clock_rate, metropolis_weight, next_estimate
from colme.graphs import Graph
from colme.methods._base import Agent, Inbox, Place, World
from colme.methods._consensus import ConsensusAgent, ConsensusMethod, ConsensusState

u32, u64, f64 = np.uint32, np.uint64, np.float64


class CColME(ConsensusMethod, frozen=True, kw_only=True, tag="c-colme"):
    """Metropolis consensus among the neighbors whose intervals touch.

    rebuild   compute all weights anew at every step, as the paper's formula reads, instead of mending them where edges
              were cut: the same bits, more time; for timings
    """

    label: ClassVar[str] = "C-colME"

    rebuild: bool = False

    def start(self, world: World, graph: Graph) -> CState:
        return CState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return CAgent(self, place)


@kernel
def build_weights(slots, offsets, degree, weights):
    """Equation (4) on every slot; that of a cut or empty one multiplies a difference of zero."""
    n = u64(degree.size)
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            for lane in range(size):
                k = first + (u64(j) << u64(6)) + u64(lane)
                weights[k] = metropolis_weight(degree[start + u64(lane)], degree[slots[k]])  # (4)


@kernel
def mend_weights(slots, offsets, degree, changed, weights):
    """Equation (4) on the edges of agents whose degree changed, at both ends."""
    n = u64(degree.size)
    for a in range(n):
        if not changed[a]:
            continue
        _, _, first, width = block_of(offsets, a >> u64(6), n)
        lane = a & u64(63)
        for j in range(width):
            k = first + (u64(j) << u64(6)) + lane
            b = u64(slots[k])
            if b == a:
                continue
            weight = metropolis_weight(degree[a], degree[b])  # (4)
            weights[k] = weight
            _, _, first_b, width_b = block_of(offsets, b >> u64(6), n)
            for i in range(width_b):
                back = first_b + (u64(i) << u64(6)) + (b & u64(63))
                if slots[back] == u32(a):
                    weights[back] = weight
                    break


@kernel
def metropolis_consensus(slots, offsets, degree, weights, heard, spare, mean, estimate, t, restart, fixed, gaps):
    """Equations (3), (5) and (6) for every agent, in place."""
    n = u64(mean.size)
    pull = lanes_like(heard)
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for lane in range(size):
            own = heard[start + u64(lane)]
            pull[lane] = 0
            total = pull[lane]
            for j in range(width):
                k = first + (u64(j) << u64(6)) + u64(lane)
                total = add_weighted_pull(total, own, heard[slots[k]], weights[k], gaps)  # (5)
            pull[lane] = total
        for lane in range(size):
            a = start + u64(lane)
            alpha = fixed if fixed >= 0.0 else clock_rate(t, at(restart, a))  # (3)
            y = next_estimate(mean[a], estimate[a], f64(pull[lane]), alpha, 1.0, degree[a])  # (6)
            estimate[a] = y
            spare[a] = y


class CState(ConsensusState):
    saved: ClassVar[tuple[str, ...]] = (*ConsensusState.saved, "weights")

    def __init__(self, method: CColME, world: World, graph: Graph):
        super().__init__(method, world, graph)
        self.weights: NDArray[Any] = np.zeros(len(self.edges.slots), world.exchange)
        self.rebuild = method.rebuild
        self._build()

    def _build(self) -> None:
        build_weights(self.edges.slots, self.edges.offsets, self.edges.degree, self.weights)

    def average(self, world: World) -> None:
        edges = self.edges
        if self.rebuild:
            self._build()
        elif edges.any_cut:
            mend_weights(edges.slots, edges.offsets, edges.degree, edges.cut_now, self.weights)
        metropolis_consensus(
            edges.slots, edges.offsets, edges.degree, self.weights, self.heard, self.spare,
            world.mean, self.estimate, world.t, self.clock.restart, self.clock.fixed, world.gaps,
        )  # fmt: skip


class CAgent(ConsensusAgent):
    needs_degrees: ClassVar[bool] = True

    def average(self, heard: dict[Hashable, Any], degrees: Inbox, own: Any, alpha: float) -> None:
        exchange, degree = self.place.exchange, len(self.neighbors)
        pull = exchange(0)
        for b, y in heard.items():
            if b in degrees:
                weight = exchange(metropolis_weight(degree, degrees[b]))  # (4)
                pull = add_weighted_pull(pull, own, y, weight, True)  # (5)
        self.estimate = next_estimate(self.mean, self.estimate, float(pull), alpha, 1.0, degree)  # (6)
