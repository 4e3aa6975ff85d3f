"""B-colME: collaborative mean estimation by messages over d hops (belief propagation).

From the perspective of agent a, at step t:

(1) it observes x_a(t) and updates its local mean:           X_a <- X_a + (x_a - X_a) / n_a
(2) it drops the neighbors whose interval parts from its own: |X_a - X_b| > R(n_a) + R(n_b), and forgets what they told
(3) each kept neighbor b sends, from its state of step t-1, for every hop h = 1..d the sum S_bh of samples and their
    number K_bh that lie h hops away through b:
        h = 1:   S_b1 = n_b X_b,  K_b1 = n_b
        h > 1:   S_bh = sum of S_c,h-1 and K_bh = sum of K_c,h-1 over b's kept neighbors c other than a
(4) it pools:                                                y_a = (n_a X_a + sum S_bh) / (n_a + sum K_bh)

O(r d) numbers per agent and step. On a graph without short cycles nobody is counted twice.

Differences from the paper
    It sends sums of means and numbers of agents, and weights hop h by t - h, the age of its data. Sending sums of
    samples and their number is the same when all agents have t samples, and stays right when counts differ.
    The sum over c other than a is taken as the sum over all c minus what a itself sent: O(r) instead of O(r^2).
    An agent without a sample sends nothing.

Reference: F. Galante, G. Neglia, E. Leonardi, "Scalable decentralized algorithms for online personalized mean
estimation", AAAI 2025, arXiv:2402.12812, section 3.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np

from colme._jit import at, equation, kernel
from colme._slots import block_of
from colme.confidence import too_far
from colme.errors import MethodError
from colme.graphs import Graph
from colme.methods._base import Agent, Place, Round, World
from colme.methods._intervals import IntervalAgent, IntervalMethod, PruningState

u32, u64 = np.uint32, np.uint64


class BColME(IntervalMethod, frozen=True, kw_only=True, tag="b-colme"):
    """Pool the samples of all agents within a few hops over kept edges.

    depth     hops that messages travel; log(N) / (2 log(r-1)) are enough
    """

    label: ClassVar[str] = "B-colME"

    depth: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.depth <= 64:
            raise MethodError(f"depth={self.depth}: messages travel between 1 and 64 hops. Try depth=4.")

    def start(self, world: World, graph: Graph) -> BState:
        return BState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return BAgent(self, place)


@equation
def pooled(mean: Any, n: Any, total: Any, weight: Any, degree: Any) -> Any:
    """(n X + S) / (n + K); an agent without edges reports X itself, without rounding."""
    return mean if degree == 0 else (n * mean + total) / (n + weight)


@kernel
def reverse_slots(slots, offsets, n):
    """Where the other end keeps the same edge: slots[reverse[k]] is the agent that owns slot k."""
    reverse = np.zeros(slots.size, np.uint32)
    for a in range(u64(n)):
        _, _, first, width = block_of(offsets, a >> u64(6), u64(n))
        for j in range(width):
            k = first + (u64(j) << u64(6)) + (a & u64(63))
            b = u64(slots[k])
            _, _, first_b, width_b = block_of(offsets, b >> u64(6), u64(n))
            for i in range(width_b):
                back = first_b + (u64(i) << u64(6)) + (b & u64(63))
                if slots[back] == u32(a):
                    reverse[k] = u32(back)
    return reverse


@kernel
def exchange_and_pool(slots, offsets, degree, reverse, own, sums, held, new_sums, new_held, mean, count, estimate):
    """Equations (3) and (4) for every agent. held[k, h] = (S, K) of slot k at hop h+1; sums: over an agent's slots."""
    n, depth = u64(mean.size), u64(held.shape[1])
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for lane in range(size):
            a = start + u64(lane)
            for h in range(depth):
                new_sums[a, h, 0] = new_sums[a, h, 1] = 0.0
            for j in range(width):
                k = first + (u64(j) << u64(6)) + u64(lane)
                b = u64(slots[k])
                if b == a or own[b, 1] == 0.0:  # cut, or silent
                    for h in range(depth):
                        new_held[k, h, 0] = new_held[k, h, 1] = 0.0
                    continue
                back = u64(reverse[k])
                new_held[k, u64(0), 0], new_held[k, u64(0), 1] = own[b, 0], own[b, 1]  # (3), h = 1
                for h in range(u64(1), depth):
                    for i in range(2):
                        new_held[k, h, i] = sums[b, h - u64(1), i] - held[back, h - u64(1), i]  # (3), h > 1
                for h in range(depth):
                    for i in range(2):
                        new_sums[a, h, i] += new_held[k, h, i]
            total = weight = 0.0
            for h in range(depth):
                total += new_sums[a, h, 0]
                weight += new_sums[a, h, 1]
            estimate[a] = pooled(mean[a], float(at(count, a)), total, weight, degree[a])  # (4)


class BState(PruningState):
    saved: ClassVar[tuple[str, ...]] = ("edges", "estimate", "own", "sums", "held")

    def __init__(self, method: BColME, world: World, graph: Graph):
        super().__init__(method, world, graph)
        n_slots, n, depth = len(self.edges.slots), world.n_agents, method.depth
        self.reverse = reverse_slots(self.edges.slots, self.edges.offsets, n)
        self.own = np.zeros((n, 2))  # (n X, n) of the step before
        self.sums, self._new_sums = np.zeros((n, depth, 2)), np.zeros((n, depth, 2))
        self.held, self._new_held = np.zeros((n_slots, depth, 2)), np.zeros((n_slots, depth, 2))

    def step(self, world: World) -> None:
        self.prune(world)
        count = world.t if world.count is None else world.count
        exchange_and_pool(
            self.edges.slots, self.edges.offsets, self.edges.degree, self.reverse, self.own, self.sums, self.held,
            self._new_sums, self._new_held, world.mean, count, self.estimate,
        )  # fmt: skip
        self.sums, self._new_sums = self._new_sums, self.sums
        self.held, self._new_held = self._new_held, self.held
        self.own[:, 1] = count
        np.multiply(self.own[:, 1], world.mean, out=self.own[:, 0], where=self.own[:, 1] > 0)


class BAgent(IntervalAgent):
    def __init__(self, method: BColME, place: Place):
        super().__init__(method, place)
        self.depth = method.depth
        nothing = [(0.0, 0.0)] * self.depth
        self.held: dict[Hashable, list[tuple[float, float]]] = dict.fromkeys(place.neighbors, nothing)
        self.own = (0.0, 0.0)

    def _sums(self) -> list[tuple[float, float]]:
        sums = [(0.0, 0.0)] * self.depth
        for row in self.held.values():  # one by one: sum() rounds differently in newer Pythons
            sums = [(s + more, k + samples) for (s, k), (more, samples) in zip(sums, row, strict=True)]
        return sums

    def _message(self, b: Hashable, sums: list[tuple[float, float]]) -> list[tuple[float, float]]:
        """(3), from my state of the step before."""
        if self.own[1] == 0:
            return [(0.0, 0.0)] * self.depth
        passed_on = [(s - mine, k - its) for (s, k), (mine, its) in zip(sums, self.held[b], strict=True)]
        return [self.own, *passed_on[:-1]]

    def step(self, sample: float) -> Round:
        sums = self._sums()
        outbox = {b: self._message(b, sums) for b in self.held}
        self.observe(sample)
        radius = self.radius
        inbox = yield {b: (self.mean, radius, message) for b, message in outbox.items()}
        for b in list(self.held):
            if b not in inbox:
                continue
            mean, radius_b, message = inbox[b]
            if too_far(self.mean, mean, radius, radius_b):  # (2)
                del self.held[b]
            else:
                self.held[b] = message
        total = weight = 0.0
        for s, k in self._sums():
            total += s
            weight += k
        if self.count > 0:
            self.estimate = pooled(self.mean, float(self.count), total, weight, len(self.held))  # (4)
        self.own = (self.count * self.mean, float(self.count)) if self.count else (0.0, 0.0)
