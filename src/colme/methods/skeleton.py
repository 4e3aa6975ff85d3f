"""Copy me: a whole method in one short file. (This one works: it pools the kept neighbors' samples, one hop away.)

From the perspective of agent a, at step t:

(1) it observes x_a(t) and updates its local mean:           X_a <- X_a + (x_a - X_a) / n_a
(2) it drops the neighbors whose interval parts from its own: |X_a - X_b| > R(n_a) + R(n_b)
(3) it pools with those it kept:                             y_a = (n_a X_a + sum n_b X_b) / (n_a + sum n_b)

Differences from the paper
    Say here what you settled that the paper left open.

Reference: the paper, with section numbers.

How to make your own
    1. Copy this file to anywhere (it imports only public names) and rename the classes; give it a `tag` and a `label`.
    2. Write the equations above, one small `@equation` each; they serve both forms below.
    3. Fill in the kernel (arrays and numbers only), the state, and the agent.
    4. `colme.testing.check_method(MyMethod())` until it is silent; add a dense reference to tests/reference if you can.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from colme.methods.toolkit import (
    Agent,
    Graph,
    IntervalAgent,
    IntervalMethod,
    Place,
    PruningState,
    Round,
    World,
    at,
    block_of,
    equation,
    kernel,
    parted,
)  # fmt: skip

u64 = np.uint64


class OneHop(IntervalMethod, frozen=True, kw_only=True, tag="one-hop"):
    """The configuration: frozen, every field checked, the repr is what you would type."""

    label: ClassVar[str] = "one hop"

    def start(self, world: World, graph: Graph) -> OneHopState:
        return OneHopState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return OneHopAgent(self, place)


@equation
def add_samples(total: Any, weight: Any, mean: Any, n: Any) -> Any:
    """One agent more in the pool; an agent without samples (n = 0) adds nothing."""
    return (total + n * mean, weight + n) if n > 0 else (total, weight)


@kernel
def pool_neighbors(slots, offsets, mean, count, estimate):
    """Equation (3) for every agent."""
    n = u64(mean.size)
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for lane in range(size):
            a = start + u64(lane)
            total, weight = add_samples(0.0, 0.0, mean[a], float(at(count, a)))
            for j in range(width):
                b = slots[first + (u64(j) << u64(6)) + u64(lane)]
                if b != a:  # a cut edge points to its own agent
                    total, weight = add_samples(total, weight, mean[b], float(at(count, b)))
            estimate[a] = total / weight if at(count, a) > 0 else np.nan  # (3)


class OneHopState(PruningState):
    """The array form."""

    saved: ClassVar[tuple[str, ...]] = ("edges", "estimate")

    def step(self, world: World) -> None:
        self.prune(world)  # (2)
        count = world.samples
        pool_neighbors(self.edges.slots, self.edges.offsets, world.mean, count, self.estimate)


class OneHopAgent(IntervalAgent):
    """The per-agent form: what a device runs. Every `yield` sends an outbox and returns the inbox."""

    def __init__(self, method: OneHop, place: Place):
        super().__init__(method, place)
        self.neighbors = list(place.neighbors)

    def step(self, sample: float) -> Round:
        self.observe(sample)  # (1)
        mine = self.intervals
        inbox = yield dict.fromkeys(self.neighbors, (self.mean, self.count, mine))
        total, weight = add_samples(0.0, 0.0, self.mean, float(self.count))
        for b in list(self.neighbors):
            if b not in inbox:  # a message can be lost
                continue
            mean, count, theirs = inbox[b]
            if parted(mine, theirs):
                self.neighbors.remove(b)  # (2)
            else:
                total, weight = add_samples(total, weight, mean, float(count))
        if self.count > 0:
            self.estimate = total / weight  # (3)
