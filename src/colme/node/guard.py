"""The guard without a common tick: `colme.guard`, with the rounds of `colme.node.rounds`.

All samples since the last tick judge the estimate of that tick, equation (1) of `colme.guard`. A vote begins when the
step number has grown by a tenth since the last one. Its values are the own sums, averaged over the neighbors of the
method and the agents of cut edges that are still heard (`Core.voters`); after the last round the filter learns from
them. Four things are added on devices:

(a) how far a neighbor's sums can be from the own ones is bounded, as `SumsRounds` does. Nothing less would do: sums
    have no bound of their own, since a large Q alone, which any noise could have, makes a large A possible
(b) whatever others send, lambda is at most what the agent's own samples allow, three standard errors above its own
    A / D; and no more than A / D itself where that is 3.5 standard errors below one. They see gross harm only, but need
    no neighbor
(c) nor is it larger than the median of what the agent and its voters see, each from its own samples of about the last
    two e-folds of the time, if that median contradicts lambda = 1. Sums that are averaged in rounds can be forged by a
    share of one vote each time, and always in one direction; here a liar is one voice, whatever it sends, as long as
    fewer than half of the voters lie
(d) votes take longer, so in the first steps a wary guard reduces every weight, also that of one, for the age of its
    evidence

A gateway (`colme.node.gateway`) hands in the sums of all its local agents together, and lambda is theirs together. But
one of them whose samples are noisier than all others decides these sums, so (b) also holds for each local agent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from colme.gossip import Gossip
from colme.guard import EARLY, FORGET, INTERVAL_SUMS, SUMS, GuardedAgent, GuardedMethod, Judgment
from colme.method import Agent, Round
from colme.node.rounds import SumsRound, SumsRounds
from colme.node.security.trust import PAUSE
from colme.support.arrays import Floats, Mask

GROWTH = 0.2
"""The part of its time that an agent spends in a vote, at most, before it no longer waits."""
SHARE = 0.75
"""Of the agents that as many messages would reach with a barrier, those that a vote reaches; roughly measured."""
LIMIT = 3.0
"""Bound (b), in standard errors."""
CONVINCED = 2.5
"""Bound (c): standard errors of the median below one at which it counts."""
OWN_CONVINCED = 3.5
"""Bound (b): standard errors below one at which what the agent sees itself counts as it is. One look of an agent that
is well served in 4000 is that far off."""
FEWEST_VOICES = 3
"""Bound (c): voices, the own one among them, below which there is no median that one liar could not set."""
_MEDIAN_ERROR = math.sqrt(0.5 * math.pi)  # of a median of normal numbers, relative to that of their mean


class AsynchronousJudgment(SumsRounds, Judgment):
    """The judgment of one agent, which votes with the newest messages of its neighbors."""

    saved = (*Judgment.saved, *SumsRounds.saved, "handed_in", "voices")
    signed = 1

    def __init__(self, method: GuardedMethod, gossip: Gossip, inner: Agent):
        super().__init__(method, gossip, np.array([[SHARE * gossip.agents_reached(gossip.rounds)]]), 1)
        self.inner = inner  # the agent of the method
        self.own, self.now, self.before = np.zeros((3, 1, INTERVAL_SUMS))  # all methods have intervals
        self.window, self.recent = np.zeros((2, 1, INTERVAL_SUMS))
        self.t = 0
        self.handed_in = np.zeros(SUMS)  # own sums of the votes so far; half of them in the last half of the time
        self.voices: dict[str, Floats] = {}  # what each voter handed in, half-forgotten; "": the agent
        self.each = np.zeros((1, SUMS))  # as `handed_in` and `own`, of each local agent of a gateway
        self._counted: set[Hashable] = set()  # voters whose sums of this vote are in `voices`

    @property
    def goes_alone(self) -> bool:
        return bool(getattr(self.inner, "goes_alone", False))

    @property
    def _n_heard(self) -> Floats:
        return self.heard[-1] * getattr(self.inner, "ballots", 1.0)

    def _add(self, judged: Mask, sums: Floats) -> None:
        self.own[0] += sums[judged].sum(axis=0)
        known = ~np.isnan(sums[:, 0])
        self.each[known] += sums[known, :SUMS]

    def _starts(self, t: int) -> bool:
        return self.own[0, 1] > 0.0 and t >= PAUSE * self.began

    @property
    def _growth(self) -> float:
        return GROWTH

    def _hand_in(self) -> None:
        self.handed_in = self.handed_in * (self.joined / self.t) + self.own[0, :SUMS]
        self.each *= self.joined / self.t
        kept = math.sqrt(self.joined / self.t)
        self.voices = {b: kept * sums for b, sums in self.voices.items()}
        self.voices[""] = self.voices.get("", np.zeros(SUMS)) + self.own[0, :SUMS]
        self._counted = set()
        self._begin(self.own)
        self.own[:] = 0.0

    def hear_voices(self, heard: Mapping[Hashable, SumsRound]) -> None:
        """Add what voters have handed in to the vote that this agent is in, once each; forget those that no longer
        vote."""
        self.voices = {b: sums for b, sums in self.voices.items() if b == "" or b in heard}
        for b, message in heard.items():
            if message.number == self.number > 0 and message.round <= 1 and b not in self._counted:
                self._counted.add(b)
                sums = message.of_round(0)[:SUMS]
                self.voices[str(b)] = self.voices.get(str(b), np.zeros(SUMS)) + sums

    @property
    def own_limit(self) -> float:
        """Bound (b), for an agent most of whose voters lie: lambda as it sees it itself, if that contradicts one more
        clearly than chance does; else infinity."""
        A, D, Q = self.voices.get("", np.zeros(SUMS))
        certain = self.t > EARLY and D > 0.0 and A + OWN_CONVINCED * math.sqrt(Q) < D
        return max(A / D, 0.0) if certain else math.inf

    @property
    def weights(self) -> Floats:
        """Bound (b) for each local agent, where there are two or more. Not while its samples are all the same: no event
        yet, among others that have seen some, says little."""
        if len(self.each) < 3:
            return self.trust
        A, D, Q = self.each.T
        certain = (self.t > EARLY) & (A + OWN_CONVINCED * np.sqrt(Q) < D)
        most = np.maximum(A + np.where(certain, 0.0, LIMIT) * np.sqrt(Q), 0.0)
        with np.errstate(over="ignore"):
            return np.minimum(self.trust, np.divide(most, D, out=np.full(len(D), np.inf), where=(D > 0.0) & (Q > 0.0)))

    @property
    def common_limit(self) -> float:
        """Bound (c): the median of lambda as each voter sees it, if it contradicts one; else infinity."""
        voices = [sums.tolist() for sums in self.voices.values() if sums[1] > 0.0]  # few: NumPy would be slower
        if len(voices) < FEWEST_VOICES:
            return math.inf
        middle = statistics.median(A / D for A, D, _ in voices)
        error = statistics.median(math.sqrt(Q) / D for _, D, Q in voices) * _MEDIAN_ERROR / math.sqrt(len(voices))
        return max(middle, 0.0) if middle + CONVINCED * error < 1.0 else math.inf

    def _complete(self) -> None:
        if self.now[0, 1] > 0.0:  # else there was nothing to judge yet
            self._learn(self.learned, keep=True)
            self.window = self.recent
        self.last = self.joined

    def _learn(self, trust: Floats, *, keep: bool) -> None:
        reached = SHARE * self.gossip._replace(degree=self.listened / self.rounds).agents_reached(self.rounds)
        sums = self.now * reached
        self.filter.learn(sums, math.log(self.joined / self.last), trust, keep=keep)
        self.recent = self.window * (self.last / self.joined) ** FORGET + sums

    def _read(self, weight: Floats, since: int, t: int) -> None:
        if t <= EARLY and self.rounds > 0 and self.now[0, 1] > 0.0:
            weight, since = np.empty(1), self.joined
            self._learn(weight, keep=False)
        super()._read(weight, since, t)
        if t <= EARLY and not self.filter.trusting:
            self.trust = np.minimum(self.trust, max(since - 1, 1) / t)  # (d)
        A, D, Q = self.handed_in + self.own[0, :SUMS]
        if D > 0.0:
            self.trust = np.minimum(self.trust, max(A + LIMIT * math.sqrt(Q), 0.0) / D)  # (b)
        self.trust = np.minimum(self.trust, min(self.own_limit, self.common_limit))  # (b), (c)


def like(own: Any, values: Floats) -> Any:
    """These values as a number, if the own value of an agent is one; those of the local agents of a gateway as they
    are."""
    return values if np.ndim(own) else values.item()


class AsynchronousGuardedAgent(GuardedAgent):
    """Per-agent form: a step judges and lets the method make its own, and `vote` ends the tick."""

    judgment: AsynchronousJudgment

    def __init__(self, method: GuardedMethod, inner: Agent):
        super().__init__(method, inner)
        self.judgment = AsynchronousJudgment(method, self.judgment.gossip, inner)
        self._copy()

    @property
    def trust(self) -> float:
        """lambda."""
        return self.judgment.trust.item()

    def observe(self, sample: float) -> None:
        self._judge(sample)
        self.inner.observe(sample)
        self._copy()

    def _judge(self, sample: Any) -> None:
        self.judgment.observe(np.atleast_1d(sample))
        self.judgment.factors = self.factors

    def step(self, sample: float) -> Round:
        self._judge(sample)
        yield from self.inner.step(sample)
        self._copy()

    def vote(self, heard: Mapping[Hashable, SumsRound], degree: int) -> None:
        """Advance the vote with the newest messages of the neighbors, of which there are `degree`."""
        judgment = self.judgment
        judgment.t, judgment.degree = self.t, degree
        judgment.advance(heard)
        judgment.hear_voices(heard)
        self._end_step()

    def resume(self) -> None:
        """After a restart: join the vote again. A state from before there were guards has none to restore."""
        self._copy()
        self.judgment.factors = self.factors
        self.judgment.resume()
        self.judgment.each = np.zeros((len(self.judgment.mean), SUMS))
        if np.isnan(self.estimate).all():
            self.judgment.last = max(self.t, 1)
            self._end_step()

    def _end_step(self) -> None:
        self.judgment.end_step(self.inner, max(self.t, 1), gossiped=False)
        self.estimate = like(self.inner.own_mean, self.judgment.guarded)

    def _copy(self) -> None:
        self.t, self.count, self.mean = self.inner.t, self.inner.count, self.inner.mean
