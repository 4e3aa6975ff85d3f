"""What an agent believes of what it is told, for a neighbor that tells an interval which touches mine may still lie.

From the perspective of agent a, whose own samples say that its mean is in X +- r, at all times with probability
1 - 2 gamma:

(1) its estimate y stays there, whatever it hears:            |y - X| <= r
(2) a neighbor pulls it no harder than its own samples can:   |y_j - y| <= 2 (1 - alpha) r, else y_j is moved there
(3) nobody lends it more than                                 |F_aj| <= 0.7 r
(4) restarts of clocks that it hears of are a tenth of its time apart: one that comes too early waits

(2) is what keeps a liar in its place. Twins differ by what their own means did to them lately, (1 - alpha) (X - y) per
tick, and by as many ticks as it takes to mix; somebody who never moves would, without (2), slowly draw everybody to the
edge of (1), for it pulls at every tick and the own mean ever less. With (2) it counts for a few agents. All of
this moves what was heard towards what is known: the new estimate remains an average of X, y and what was heard, and the
two ends of an edge, who have about the same r and alpha, move by the same amount. (3) is more than twins on a random
graph lend each other, but for the first ticks; docs/developer/node.md has the figures.

A host of many agents doubts the agents of other hosts in the same way (`_host_kernels`), and not its own.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from colme._core.jit import equation
from colme.confidence import MEAN, interval_of
from colme.consensus import START
from colme.methods.intervals import IntervalAgent

PULL = 2.0
"""In (1 - alpha) r. Half of all honest neighbors differ by a quarter of it, and a few in a hundred by more."""
LENT = 0.7
"""In r. Honest neighbors lend less after the first ticks; with 20 % loss two in a hundred would lend more."""
SURPRISE = 4.0
"""Standard deviations of its own mean that a census can move an agent. One agent in 16000 is further off its truth."""
PAUSE = 1.1
"""A restart that is heard of counts when my time is so many times that of the last."""
MOST_GENERATIONS = 2**32 - 1
"""That a record can hold."""
MOST_NEWS = 2**20
"""Generations that restarts can be ahead; honest ones are at most as many as there were cuts in the whole network."""


def own_interval(agent: IntervalAgent) -> tuple[float, float]:
    """(X, r), also where means are not what is compared; r is infinite as long as nothing is known."""
    if not agent.statistics:
        return agent.intervals[0]
    second, _, fourth = agent.moments
    return interval_of(MEAN, agent.count, agent.mean, second, fourth, agent.bound.radius(agent.count))


@equation
def near(value: Any, center: Any, radius: Any) -> Any:
    """The value nearest to this one that is within center +- radius; NaN, of which there are no doubts, as it is."""
    if not radius < math.inf or center != center or value != value:
        return value
    return min(max(value, center - radius), center + radius)


class Restarts:
    """Which restarts of clocks an agent believes, of those that it hears of; its own always count."""

    saved: ClassVar[tuple[str, ...]] = ("generation", "last", "waiting")

    def __init__(self) -> None:
        self.generation = 0  # the newest that I believed, or began
        self.last = START  # when I last believed one, in my own steps
        self.waiting = False  # one came too early

    def told(self, generation: int, ago: int, t: int) -> tuple[int, int]:
        """(generation, step of the restart) of what I am told at my step t; step 0: nothing that counts now."""
        generation = min(generation, self.generation + MOST_NEWS)
        if generation <= self.generation:
            return generation, 0
        if t < PAUSE * self.last:
            self.waiting = True
            return generation, 0
        return generation, t if self.waiting else max(START, t - ago)

    def after(self, told: list[tuple[int, int]], t: int, cut: bool) -> None:
        """My step t is over, in which all this was told, and in which I cut an edge or did not."""
        believed = max((generation for generation, step in told if step), default=0)
        if believed > self.generation:
            self.generation, self.last, self.waiting = believed, t, False
        if cut:  # which everybody should hear of, also those who heard of what I did not believe
            newest = max([self.generation, *(generation for generation, _ in told)])
            self.generation, self.waiting = min(newest + 1, MOST_GENERATIONS), False
