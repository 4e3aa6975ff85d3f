"""Trust: how far an agent lets the messages of its neighbors move it. A neighbor whose interval overlaps may still send
false values.

From the perspective of agent a, whose own samples say that its mean is in X +- r, at all times with probability
1 - 2 gamma (1 - alpha where edges are cut by difference tests):

(1) its estimate y stays in its own interval:                 |y - X| <= r
(2) a neighbor pulls no harder than a's own samples can:      |y_j - y| <= 2 (1 - alpha) r, else y_j is clipped to it
(3) the flow from any neighbor is bounded:                    |F_aj| <= 0.7 r
(4) a record that no honest agent sends is refused:           |y_j - X_j| <= r_j and |F_ja| <= 0.7 r_j, by (1) and (3)
    for the sender, whose own X_j and r_j are in the same record
(5) restarts of the clock that others report are a tenth of its time apart: one that comes too early waits

(2) is what bounds a liar. Honest agents of one class differ by what their own means did lately, (1 - alpha) (X - y) per
tick, times the ticks it takes to mix. An agent that never moves would, without (2), slowly draw all others to the edge
of (1), because it pulls at every tick while the weight of the own mean decreases. With (2) it counts like a few agents.
Clipping moves a received value towards a known one: the new estimate remains an average of X, y and what was received,
and the two ends of an edge, which have about the same r and alpha, move by the same amount. (3) is more than honest
agents of one class on a random graph exchange, except in the first ticks; docs/developer/node.md has the numbers. (4)
costs honest agents nothing and mutes a sender of garbage; one that knows the rule stays within it, and is bounded by
(1) to (3) and judged by the guard (`node/guard`).
"""

from __future__ import annotations

import math
from typing import Any

from colme._core.jit import equation
from colme.confidence import MEAN, laplace_radius
from colme.consensus import START
from colme.methods.intervals import AgentIntervals, IntervalAgent

MAX_PULL = 2.0
"""Bound (2), in units of (1 - alpha) r. Half of all honest neighbors differ by a quarter of it, a few percent more."""
MAX_FLOW = 0.7
"""Bound (3), in units of r. Honest flows are smaller after the first ticks; with 20 % loss 2 % would be larger."""
SURPRISE = 4.0
"""Standard errors of its own mean by which a census can move an agent. One agent in 16000 is further from its truth."""
PAUSE = 1.1
"""A reported restart counts if the agent's time is at least so many times that of the last."""
MOST_GENERATIONS = 2**32 - 1
"""The largest generation that fits into a record."""
MOST_NEWS = 2**20
"""How far a reported generation can be ahead; honest ones are at most as many as there were cuts in the network."""


SLACK = 2.0
"""Bound (4) allows for so many times the radius, as agents may know different numbers of agents and edges, on which the
level of their intervals depends."""


def claimed_radius(agent: IntervalAgent, count: int, theirs: AgentIntervals) -> float:
    """The radius around its mean that a neighbor with these intervals keeps its estimate in; infinite if unknown."""
    statistics = agent.statistics or [MEAN]
    if count == 0 or MEAN not in statistics:
        return math.inf
    spread = theirs[statistics.index(MEAN)][1]
    if agent.bound.name != "difference":
        return spread
    return -spread * math.sqrt(count) * float(laplace_radius(count, 1.0, 0.5 * agent.bound.gamma))


def own_interval(agent: IntervalAgent) -> tuple[float, float]:
    """(X, r), also if the method does not compare intervals of means; r is infinite as long as nothing is known."""
    return agent.mean, agent.radius


@equation
def near(value: Any, center: Any, radius: Any) -> Any:
    """The value clipped to center +- radius; NaN stays NaN."""
    if not radius < math.inf or center != center or value != value:
        return value
    return min(max(value, center - radius), center + radius)


class HeardRestarts:
    """Which reported restarts of the clock an agent accepts; its own always count."""

    saved = ("generation", "last", "waiting")

    def __init__(self) -> None:
        self.generation = 0  # the newest one accepted, or begun
        self.last = START  # when the last one was accepted, in own steps
        self.waiting = False  # one came too early

    def told(self, generation: int, ago: int, t: int) -> tuple[int, int]:
        """(generation, step of the restart) of a report received at own step t; step 0: it does not count now."""
        generation = min(generation, self.generation + MOST_NEWS)
        if generation <= self.generation:
            return generation, 0
        if t < PAUSE * self.last:
            self.waiting = True
            return generation, 0
        return generation, t if self.waiting else max(START, t - ago)

    def after(self, told: list[tuple[int, int]], t: int, cut: bool) -> None:
        """Update after own step t with the reports of that step; `cut`: whether the step cut an edge."""
        believed = max((generation for generation, step in told if step), default=0)
        if believed > self.generation:
            self.generation, self.last, self.waiting = believed, t, False
        if cut:  # which all should accept, also those that heard of restarts that were not accepted here
            newest = max([self.generation, *(generation for generation, _ in told)])
            self.generation, self.waiting = min(newest + 1, MOST_GENERATIONS), False
