"""The guard of `colme.guard` where all agents are in one process: exact sums, and samples that judge in batches.

At a vote the model keeps of each agent its mean X0, its estimate y0 as the method gives it, and the weight W0 of its
samples. At the next vote the samples since then, k = W - W0 of them with the mean x = X0 + W (X - X0) / k, judge these:

(1) d = y0 - X0,  g = (x - X0) d;    A = c sum of g,  D = c sum of d^2,  Q = c^2 sum of g^2,    over agents with k > 0

c = sum of d^2 / sum of d^2 / k counts in samples, so that Q / D is the variance of one. Each agent counts once, however
many samples it has, for what is promised concerns the average over agents. (2) is not needed, and (3) and (4) are those
of `colme.guard`. The clock of (3) and (4), there ln t, advances by ln(1 + new samples / samples at hand) from vote to
vote, so that with forgetting it keeps its pace.

Agents with less than a quarter of the mean number of samples, such as newcomers, are judged apart and have a weight of
their own: what old agents gain says little about them. Until some of them were judged, they have the smaller one of the
weight at the start and that of the others.

Intervals lie between that of the method and the own one, and are wider where the judges contradict them: the mean
squared error of the estimates is R = V - 2 lambda A + lambda^2 D per agent, V the variance of own means. As far as it
exceeds the mean variance C that intervals claim, and this is no chance, the excess is added to that of every interval,
in proportion to the variance of the own mean. What is narrow by mistake then becomes wide, and what is wide remains as
it is. The same is done with V in the place of A: A = V - Cov(X, y) cannot be more if y does not fall as X rises, and V
is known well.
"""

from __future__ import annotations

import math

import numpy as np

from colme._core.jit import helper, kernel
from colme.dependence import factor_at
from colme.guard import SUMS, TrustFilter
from colme.online.agents import AgentTable
from colme.online.kernel import (
    EVENTS,
    LOW,
    MEAN,
    THEN_ESTIMATE,
    THEN_MEAN,
    THEN_OWN,
    THEN_WEIGHT,
    WEIGHT,
    freedom_of,
    kept_part,
)
from colme.support.arrays import Floats, Integers

NEWCOMER = 0.25
"""Agents with less than this part of the mean number of samples are judged apart."""
MEMORY = 0.5
"""Intervals remember judged sums for this time, on the clock."""


@helper
def common(row, n, k, factors):
    """The covariance of the mean of n samples with that of the next k, as far as it is certain."""
    if factors.shape[1] == 2:
        return 0.0
    (freedom, square), low = freedom_of(row), factors[LOW]
    more = (n + k) * factor_at(low, n + k) - n * factor_at(low, n) - k * factor_at(low, k)
    return 0.5 * more / (n * k) * square / freedom if freedom > 0.0 else 0.0


@kernel
def judge(agents, judges, snapshots, half_life, few, factors, sums, inverse):
    """Equation (1): sums[s] = A, D, Q without c, inverse[s] = sum of d^2 / k; s = 0: agents with less than `few`
    samples, 1: others."""
    for i in range(judges.size):
        row, then = agents[judges[i]], snapshots[judges[i]]
        mean, weight = then[THEN_MEAN], then[THEN_WEIGHT]
        d = then[THEN_ESTIMATE] - mean
        k = row[WEIGHT] - kept_part(row, then, half_life) * weight
        if d == d and k > 0.0:
            g = row[WEIGHT] / k * (row[MEAN] - mean) * d + (1.0 - then[THEN_OWN]) * common(row, weight, k, factors)
            s = 0 if weight < few else 1
            sums[s, 0] += g
            sums[s, 1] += d * d
            sums[s, 2] += g * g
            inverse[s] += d * d / k


class Stratum:
    """Agents that have a weight in common."""

    saved = ("filter", "recent", "learned", "last", "judged", "excess")

    def __init__(self, trusting: bool, patience: float):
        self.filter = TrustFilter(1, trusting=trusting, patience=patience)
        self.recent = np.zeros(SUMS)  # sums of late, for intervals
        self.learned = 1.0 if trusting else 0.0  # lambda after the last vote
        self.last = 0.0  # the clock at that vote
        self.judged = 0.0  # the clock when what it judged was estimated
        self.excess = 0.0  # what is added to the variance of intervals, in variances of the own mean

    def learn(self, sums: Floats, inverse: float, clock: float, judged: float) -> None:
        """Equations (3) and (4), if there is anything to learn from."""
        c = sums[1] / inverse if inverse > 0.0 else 0.0
        if c > 0.0 and sums[2] > 0.0:
            sums, trust = sums * (c, c, c * c), np.empty(1)
            passed = clock - (self.last if self.filter.votes else judged)
            most = sums[1] + math.sqrt(sums[2])  # more is no surprise that would put later judges in doubt
            self.filter.learn(np.array([[min(sums[0], most), *sums[1:]]]), passed, trust, keep=True)
            self.recent = math.exp((self.last - clock) / MEMORY) * self.recent + sums
            self.learned, self.last, self.judged = trust.item(), clock, judged

    def trust(self, clock: float) -> float:
        """lambda; below one it may be falling as the number of samples grows."""
        return self.learned if self.learned == 1.0 else self.learned * math.exp(self.judged - clock)

    def calibrate(self, trust: float, moments: Floats) -> None:
        """Find by how much claimed variances are too small; `moments` as in `colme.online.noise.keep_posteriors`."""
        A, D, Q = self.recent
        self.excess = 0.0
        if moments[0] == 0.0 or moments[1] == 0.0 or D <= 0.0:
            return
        n, (V, square, fourth, C) = moments[0], moments[1:] / moments[0]
        scatter = math.sqrt(2.0 / n) * V
        judged = square * A / D, 2.0 * trust * square * math.sqrt(Q) / D
        at_most = V, trust * trust * math.sqrt(max(fourth - square * square, 0.0) / n)
        for gain, error in (judged, at_most):
            excess, chance = V + trust * (trust * square - 2.0 * gain) - C, math.hypot(scatter, error)
            if excess > 0.0:
                self.excess = max(self.excess, excess / (1.0 + (chance / excess) ** 2) / V)


class OnlineGuard:
    """The weights of all agents."""

    saved = ("newcomers", "others", "clock", "size", "voted", "few")

    def __init__(self, trusting: bool, patience: float = 1.0):
        self.newcomers, self.others = Stratum(trusting, patience), Stratum(trusting, patience)
        self.clock = 0.0  # at the last vote
        self.size, self.voted = 1.0, 1  # samples at hand and events at the last vote
        self.few = 0.0  # agents with less samples are newcomers

    def be(self, patience: float) -> None:
        """Doubt this slowly from now on (`colme.guard.GuardedMethod.patience`)."""
        self.newcomers.filter.patience = self.others.filter.patience = patience

    def now(self, table: AgentTable) -> float:
        """The clock."""
        return self.clock + math.log1p(max(int(table.counters[EVENTS]) - self.voted, 0) / self.size)

    def learn(self, table: AgentTable, judges: Integers, half_life: float, factors: Floats) -> None:
        """The samples of these agents since the last vote judge what was kept at it."""
        sums, inverse = np.zeros((2, SUMS)), np.zeros(2)
        judge(table.agents, judges, table.snapshots, half_life, self.few, factors, sums, inverse)
        before, self.clock = self.clock, self.now(table)
        for stratum, own, part in zip((self.newcomers, self.others), sums, inverse.tolist(), strict=True):
            stratum.learn(own, part, self.clock, before)

    def begin(self, table: AgentTable, size: float) -> tuple[float, float]:
        """A new vote, of so many samples. Returns lambda of newcomers and of others."""
        self.size, self.voted = max(size, 1.0), int(table.counters[EVENTS])
        self.few = NEWCOMER * size / max(len(table.present), 1)
        return self._trusts(table)

    def calibrate(self, trusts: tuple[float, float], moments: Floats) -> None:
        """Calibrate the intervals; `moments` as in `colme.online.noise.keep_posteriors`."""
        for stratum, trust, own in zip((self.newcomers, self.others), trusts, moments, strict=True):
            stratum.calibrate(trust, own)

    def _trusts(self, table: AgentTable) -> tuple[float, float]:
        """lambda of newcomers and of others."""
        clock = self.now(table)
        new, others = self.newcomers.trust(clock), self.others.trust(clock)
        return (new if self.newcomers.filter.votes else min(new, others)), others

    def trust(self, table: AgentTable, slots: Integers) -> Floats:
        """lambda of each agent."""
        return np.where(table.agents[slots, WEIGHT] < self.few, *self._trusts(table))

    def excess(self, table: AgentTable, slots: Integers) -> Floats:
        """What is added to the variance of each agent's interval, in variances of its own mean."""
        return np.where(table.agents[slots, WEIGHT] < self.few, self.newcomers.excess, self.others.excess)
