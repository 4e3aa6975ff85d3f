"""Consensus: one step of averaging with the neighbors, and the clock that sets the weight of the past.

    y(t) = (1 - alpha) X(t) + alpha W y(t-1)

with W = I - bL (CL-colME) or Metropolis' matrix (C-colME). Estimates are kept in float64 and heard by the neighbors in
float32: differences of neighbors are exactly antisymmetric there, so what one end gains the other loses. An agent
without a sample has a NaN estimate, which its neighbors leave out.

    y(t) = X(t) + sum over the kept neighbors j of F_aj(t)

is the other form, flow updating: F_aj counts what j has lent to a so far, F_ja = -F_aj, and ends with the edge.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.edges import agent_at, block_of
from colme._core.jit import equation, kernel
from colme._core.team import Neighborhood
from colme.errors import MethodError, one_of
from colme.graphs import Graph, GraphTotals

u32, u64, f64 = np.uint32, np.uint64, np.float64

START = 2
"""Where every clock begins: alpha(1) = 0 and alpha(2) = 1/2, as after a restart at step 2."""


class Clock(NamedTuple):
    """What sets alpha: the same few numbers for the kernels of arrays and of events, and for single agents. By default,
    nothing ever restarts.

    A cut means that what was averaged before may hold a stranger's data."""

    own: bool = False
    """A cut restarts the two agents that it parts."""
    common: bool = False
    """A cut anywhere restarts all agents."""
    gossip: bool = False
    """Agents adopt the latest restart that they hear of."""
    fixed: float = -1.0
    """The constant alpha; negative: alpha follows from the last restart."""


CLOCKS = {
    "gossip": Clock(own=True, gossip=True), "global": Clock(own=True, common=True), "own": Clock(own=True),
    "harmonic": Clock(), "constant": Clock(),
}  # fmt: skip
"""Clocks by name.

gossip    an agent adopts the latest restart it hears of, one hop a step: one integer per message
global    restarts all agents when any agent cuts (needs global knowledge; what the papers' experiments use)
own       restarts an agent that cuts an edge
harmonic  never restarts: the bias from before the separation fades like t0/t
constant  alpha is fixed; with alpha = 1 consensus is pure gradient descent on y'Ly, without a pull to the own mean
"""


def clock_of(name: str, alpha: float | None = None) -> Clock:
    """The clock of this name; alpha for the constant one."""
    one_of(name, CLOCKS, "clock", MethodError)
    if (name == "constant") != (alpha is not None):
        raise MethodError(
            f"clock={name!r} with alpha={alpha}: a constant clock needs alpha and the others take none. "
            "Try clock='constant', alpha=0.9."
        )
    if alpha is None:
        return CLOCKS[name]
    if not 0 <= alpha <= 1:
        raise MethodError(f"alpha={alpha}: it must be between 0 and 1. Try alpha=0.9.")
    return CLOCKS[name]._replace(fixed=float(alpha))


@equation
def clock_rate(clock: Any, t: Any, restart: Any) -> Any:
    """alpha = k / (k+1), k = t - restart + 1: one half at the restart, then the weight of an average since."""
    k = t - restart + 1
    return clock.fixed if clock.fixed >= 0.0 else k / (k + 1.0)


@equation
def metropolis_weight(degree_a: Any, degree_b: Any) -> Any:
    """W_ab = 1 / (max(D_a, D_b) + 1)."""
    return 1.0 / (max(degree_a, degree_b) + 1.0)


@equation
def add_pull(pull: Any, own: Any, neighbor: Any, gaps: Any) -> Any:
    """pull + (y_j - y), or pull unchanged if neighbor j has no estimate yet.

    gaps is None where all agents have one: kernels then compile without the question, a third of their time."""
    difference = neighbor - own
    if gaps is None:
        return pull + difference
    return pull + difference if difference == difference else pull


@equation
def add_weighted_pull(pull: Any, own: Any, neighbor: Any, weight: Any, gaps: Any) -> Any:
    """pull + weight (y_j - y), or pull unchanged if neighbor j has no estimate yet."""
    difference = neighbor - own
    if gaps is None:
        return pull + weight * difference
    return pull + weight * difference if difference == difference else pull


@equation
def blend(mean: Any, estimate: Any, pull: Any, alpha: Any, step: Any) -> Any:
    """(1 - alpha) X + alpha (y + b pull), where pull = sum over the kept neighbors j of (y_j - y)."""
    return (1.0 - alpha) * mean + alpha * (estimate + step * pull)


@equation
def next_estimate(mean: Any, estimate: Any, pull: Any, alpha: Any, step: Any, degree: Any) -> Any:
    """`blend`, but an agent without edges, or with its very first sample (NaN so far), reports its own mean."""
    if degree == 0 or estimate != estimate:
        return mean
    return blend(mean, estimate, pull, alpha, step)


@equation
def next_flow(flow: Any, own: Any, neighbor: Any, step: Any, gaps: Any) -> Any:
    """F_aj + b (y_j - y_a), or F_aj unchanged if one of the two has no estimate yet.

    A float64 whatever the neighbors hear: the other end works out the same number with the other sign, to the bit."""
    difference = f64(neighbor - own)
    if gaps is None:
        return flow + step * difference
    return flow + step * difference if difference == difference else flow


@equation
def agreed_flow(mine: Any, theirs: Any) -> Any:
    """F_aj from what the two ends of an edge hold: itself, exactly, where F_ja = -F_aj, and where a lost message left
    them apart the middle, which is the same for both."""
    return 0.5 * (mine - theirs)


@equation
def with_flows(mean: Any, flows: Any) -> Any:
    """X + sum of F: the own mean where there is no edge, at the first sample, and NaN before it."""
    return mean + flows


def stable_step(graph: Graph | GraphTotals) -> float:
    """1 / max degree: stable, an average of neighbors, and the fastest step on a random regular graph.

    On a regular bipartite graph that is the edge of stability (the two sides would change places for ever); there it is
    1 / (max degree + 1).

    graph  a `Graph`

    >>> from colme.graphs import random_regular_graph
    >>> graph = random_regular_graph(100, 10, rng=0)
    >>> stable_step(graph)
    0.1

    See also: spectrum, CLColME
    """
    return 1.0 / max(1, graph.max_degree + graph.bipartite)


@kernel
def build_weights(table, weights):
    """Metropolis' weight on every slot; that of a cut or empty one multiplies a difference of zero."""
    slots, offsets, order, degree = table.slots, table.offsets, table.order, table.degree
    own_start, n = u64(table.own_start), u64(table.cut_now.size)
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            for lane in range(size):
                k = first + (u64(j) << u64(6)) + u64(lane)
                weights[k] = metropolis_weight(degree[own_start + agent_at(order, start + u64(lane))], degree[slots[k]])


@kernel
def mend_weights(table, weights):
    """Metropolis' weight on the edges of agents whose degree changed at this step, at both ends, in a plain run."""
    slots, offsets, row_of, degree = table.slots, table.offsets, table.row_of, table.degree
    n = u64(table.cut_now.size)
    for a in range(n):
        if not table.cut_now[a]:
            continue
        row = agent_at(row_of, u64(a))
        _, _, first, width = block_of(offsets, row >> u64(6), n)
        for j in range(width):
            k = first + (u64(j) << u64(6)) + (row & u64(63))
            b = u64(slots[k])
            if b == a:
                continue
            weight = metropolis_weight(degree[a], degree[b])
            weights[k] = weight
            row_b = agent_at(row_of, b)
            _, _, first_b, width_b = block_of(offsets, row_b >> u64(6), n)
            for i in range(width_b):
                back = first_b + (u64(i) << u64(6)) + (row_b & u64(63))
                if slots[back] == u32(a):
                    weights[back] = weight
                    break


@kernel
def return_flows(table, flows):
    """Zero flow on the edges that were cut at this step, at both ends: what crossed an edge comes back with its cut."""
    slots, n = table.slots, u64(table.cut_now.size)
    for a in range(n):
        if not table.cut_now[a]:
            continue
        row = agent_at(table.row_of, u64(a))
        _, _, first, width = block_of(table.offsets, row >> u64(6), n)
        for j in range(width):
            k = first + (u64(j) << u64(6)) + (row & u64(63))
            if slots[k] == u32(u64(table.own_start) + u64(a)):
                flows[k] = 0.0


class Restarts:
    """When the averaging of each agent of an array last restarted."""

    saved = ("common", "own_known", "turn", "settled")

    def __init__(self, clock: Clock, hood: Neighborhood):
        self.clock, self._hood = clock, hood
        self.common = START  # of all agents, where it is the same
        self.turn = 0  # the row of `known` that holds what agents know now; with gossip, the other is what they told
        self.settled = True  # gossip changed no agent's restart at the last step
        rows = 2 if clock.gossip else int(clock.own and not clock.common)
        self.known = hood.array(np.int32, START, (rows,)) if rows else None
        """Rows of last restarts, agent by agent; None where all have the same."""

    @property
    def own_known(self) -> NDArray[np.int32] | None:
        """Those of the own agents, a row each."""
        return None if self.known is None else self._hood.mine(self.known).T
