"""Copy this file: a whole method, short and working. It pools the samples of the neighbors it keeps, one hop away.

From the perspective of agent a, at step t:

(1) it observes x_a(t) and updates its local mean:                  X_a <- X_a + (x_a - X_a) / n_a
(2) it drops the neighbors whose interval does not overlap its own: |X_a - X_b| > R(n_a) + R(n_b)
(3) it pools with the neighbors it kept:                            y_a = (n_a X_a + sum n_b X_b) / (n_a + sum n_b)

Differences from the paper
    Say here what you settled that the paper left open.

Reference: the paper, with section numbers.

How to make your own
    1. Copy this file to anywhere (it imports only public names) and rename the classes; give it a `tag` and a `label`.
    2. Write the per-agent form. It is enough: without an array form, simulations run one object per agent.
    3. Write the array form, for larger simulations. If NumPy is too slow, write a kernel (docs/write_a_method.md).
    4. `colme.testing.check_method(MyMethod())` until it is silent; add a dense reference to tests/reference if you can.
"""

from __future__ import annotations

from colme.methods import (
    Agent,
    Graph,
    IntervalAgent,
    IntervalMethod,
    IntervalState,
    Place,
    Round,
    World,
    parted,
)  # fmt: skip


class OneHop(IntervalMethod, frozen=True, kw_only=True, tag="one-hop"):
    """The configuration: frozen, every field checked, the repr is what you would type."""

    label = "one hop"

    def agent(self, place: Place) -> Agent:
        return OneHopAgent(self, place)

    def start(self, world: World, graph: Graph) -> OneHopState:
        return OneHopState(self, world, graph)


class OneHopAgent(IntervalAgent):
    """The per-agent form: what a device runs. Every `yield` sends an outbox and returns the inbox."""

    saved = (*IntervalAgent.saved, "neighbors")

    def __init__(self, method: OneHop, place: Place):
        super().__init__(method, place)
        self.neighbors = list(place.neighbors)

    def step(self, sample: float) -> Round:
        self.observe(sample)  # (1)
        mine = self.intervals
        inbox = yield dict.fromkeys(self.neighbors, (self.mean, self.count, mine))
        total, weight = self.count * self.mean, float(self.count)
        for b in list(self.neighbors):
            if b not in inbox:  # a message can be lost
                continue
            mean, count, theirs = inbox[b]
            if parted(mine, theirs, self.test):
                self.neighbors.remove(b)  # (2)
            elif count > 0:
                total, weight = total + count * mean, weight + count
        if self.count > 0:
            self.estimate = total / weight  # (3)


class OneHopState(IntervalState):
    """The array form: all agents at once. Sums add neighbors in the order in which the agent does: the same bits."""

    def step(self, world: World) -> None:
        self.prune(world)  # (2)
        n = world.counts
        total = n * world.mean  # NaN, which adds nothing, where an agent has no sample
        self.estimate = self.neighbors.sum(total, start=total) / self.neighbors.sum(n, start=n)  # (3)
