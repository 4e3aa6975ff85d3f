"""The guard without a common tick: `colme.guard`, with the rounds of `colme.node.rounds`.

All samples since the last tick judge the estimate of that tick, equation (1) of `colme.guard`. A vote begins when the
step number has grown by a tenth since the last one. Its values are the own sums, averaged over the neighbors of the
method and the agents of cut edges that are still heard (`Core.voters`); after the last round the filter learns from
them. Three things are added on devices:

(a) how far a neighbor's sums can be from the own ones is bounded: by twice the median over all neighbors and the own
    size, for each sum and in every round. So a liar counts like an agent or two, whatever it sends, and in later
    rounds, when honest agents agree, like less. Nothing less would do: sums have no bound of their own, since a large Q
    alone, which any noise could have, makes a large A possible
(b) whatever others send, lambda is at most what the agent's own samples allow, three standard errors above its own
    A / D. They see gross harm only, but need no neighbor
(c) votes take longer, so in the first steps a wary guard reduces every weight, also that of one, for the age of its
    evidence
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.consensus import metropolis_weight
from colme.gossip import Gossip
from colme.guard import EARLY, FORGET, INTERVAL_SUMS, SUMS, GuardedAgent, GuardedMethod, Judgment
from colme.method import Agent, Round
from colme.node.rounds import NumberedRounds
from colme.node.security.trust import PAUSE

TYPICAL = 2.0
"""Bound (a), in medians."""
GROWTH = 0.2
"""The part of its time that an agent spends in a vote, at most, before it no longer waits."""
SHARE = 0.75
"""Of the agents that as many messages would reach with a barrier, those that a vote reaches; roughly measured."""
LIMIT = 3.0
"""Bound (b), in standard errors."""


class SumsRound(NamedTuple):
    """The message to another voter: the sums after this round and after the one before, the number of agents that the
    sender votes with, and a `colme.node.rounds.RoundHead`."""

    values: NDArray[np.float64]
    before: NDArray[np.float64]
    degree: int
    number: int
    began: int
    since: int
    round: int
    epoch: int

    def of_round(self, number: int) -> NDArray[np.float64]:
        """The sums of this round, or of a later one."""
        return self.values if self.round == number else self.before


class AsynchronousJudgment(NumberedRounds, Judgment):
    """The judgment of one agent, which votes with the newest messages of its neighbors."""

    saved: ClassVar[tuple[str, ...]] = (*Judgment.saved, "number", "start", "joined", "handed_in")

    def __init__(self, method: GuardedMethod, gossip: Gossip):
        super().__init__(method, gossip, np.array([[SHARE * gossip.agents_reached(gossip.rounds)]]), 1)
        self.own, self.now, self.before = np.zeros((3, 1, INTERVAL_SUMS))  # all methods have intervals
        self.window, self.recent = np.zeros((2, 1, INTERVAL_SUMS))
        self.t = self.degree = 0
        self.listened = 0  # messages of all rounds of the vote
        self.handed_in = np.zeros(SUMS)  # own sums of the votes so far; half of them in the last half of the time

    @property
    def message(self) -> SumsRound:
        return SumsRound(
            self.now[0], self.before[0], self.degree, self.number, self.began, self.since, self.round, self.t
        )

    def _starts(self, t: int) -> bool:
        return self.own[0, 1] > 0.0 and t >= PAUSE * self.began

    @property
    def _n_rounds(self) -> int:
        return self.gossip.rounds

    @property
    def _growth(self) -> float:
        return GROWTH

    def _hand_in(self) -> None:
        self.handed_in = self.handed_in * (self.joined / self.t) + self.own[0, :SUMS]
        self.now[:], self.before[:], self.own[:] = self.own, 0.0, 0.0
        self.rounds = self.listened = 0

    def _next_round(self, same: Mapping[Hashable, SumsRound], *, plain: bool) -> None:
        own = self.now[0].copy()
        away = np.array([message.of_round(self.round) - own for message in same.values()])
        most = TYPICAL * _lower_median(np.abs([own, *away]))  # (a)
        value = own.copy()
        for message, difference in zip(same.values(), np.clip(away, -most, most), strict=True):
            value += metropolis_weight(self.degree, message.degree) * difference
        if self.rounds > 0 and not plain:
            value = self.gossip.momentum * (value - self.before[0]) + self.before[0]
        value[1:] = np.maximum(value[1:], 0.0)
        self.before[0], self.now[0] = own, value
        self.listened += len(same)

    def _complete(self) -> None:
        if self.now[0, 1] > 0.0:  # else there was nothing to judge yet
            self._learn(self.learned, keep=True)
            self.window = self.recent
        self.last = self.joined

    def _learn(self, trust: NDArray[np.float64], *, keep: bool) -> None:
        reached = SHARE * self.gossip._replace(degree=self.listened / self.rounds).agents_reached(self.rounds)
        sums = self.now * reached
        self.filter.learn(sums, math.log(self.joined / self.last), trust, keep=keep)
        self.recent = self.window * (self.last / self.joined) ** FORGET + sums

    def _read(self, weight: NDArray[np.float64], since: int, t: int) -> None:
        if t <= EARLY and self.rounds > 0 and self.now[0, 1] > 0.0:
            weight, since = np.empty(1), self.joined
            self._learn(weight, keep=False)
        super()._read(weight, since, t)
        if t <= EARLY and not self.filter.trusting:
            self.trust = np.minimum(self.trust, max(since - 1, 1) / t)  # (c)
        A, D, Q = self.handed_in + self.own[0, :SUMS]
        if D > 0.0:
            self.trust = np.minimum(self.trust, max(A + LIMIT * math.sqrt(Q), 0.0) / D)  # (b)


def _lower_median(values: NDArray[np.float64]) -> Any:
    """The median of each column; of two in the middle the smaller."""
    return np.sort(values, axis=0)[(len(values) - 1) // 2]


class AsynchronousGuardedAgent(GuardedAgent):
    """Per-agent form: a step judges and lets the method make its own, and `vote` ends the tick."""

    judgment: AsynchronousJudgment

    def __init__(self, method: GuardedMethod, inner: Agent):
        super().__init__(method, inner)
        self.judgment = AsynchronousJudgment(method, self.judgment.gossip)

    @property
    def trust(self) -> float:
        """lambda."""
        return self.judgment.trust.item()

    def observe(self, sample: float) -> None:
        self.judgment.observe(np.array([sample]))
        self.inner.observe(sample)
        self._copy()

    def step(self, sample: float) -> Round:
        self.judgment.observe(np.array([sample]))
        yield from self.inner.step(sample)
        self._copy()

    def vote(self, heard: Mapping[Hashable, SumsRound], degree: int) -> None:
        """Advance the vote with the newest messages of the neighbors, of which there are `degree`."""
        judgment = self.judgment
        judgment.t, judgment.degree = self.t, degree
        judgment.advance(heard)
        self._end_step()

    def resume(self) -> None:
        """After a restart: join the vote again. A state from before there were guards has none to restore."""
        self._copy()
        self.judgment.resume()
        if math.isnan(self.estimate):
            self.judgment.last = max(self.t, 1)
            self._end_step()

    def _end_step(self) -> None:
        self.judgment.end_step(self.inner, max(self.t, 1), gossiped=False)
        self.estimate = self.judgment.guarded.item()

    def _copy(self) -> None:
        self.t, self.count, self.mean = self.inner.t, self.inner.count, self.inner.mean
