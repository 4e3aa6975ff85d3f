"""The census without a common tick.

Censuses have numbers. From the perspective of agent a, at its own tick t:

(1) when its last census is a fifth old it begins the next: the next number, and its own ballot as votes
(2) who hears of a newer number joins with its own ballot, once it is done with the one before
(3) it averages with the neighbors that it hears to be in the same census:  z_a <- z_a + sum of W_aj (z_j - z_a),
    W_aj = 1 / (max(D_a, D_j) + 1) by the degrees that they tell
(4) after enough ticks it explains z by tribes, as ever, but goes on telling z: who joins late hears a census

(3) is an average with weights that are not negative, so no delay, loss or repetition can make votes grow: what is heard
late is heard late. That is why there is no momentum, which needs both ends to be in the same round. Nor does (3)
conserve the sum of all votes when only one end of an edge hears the other: the census is a weighted one, with weights
that scatter around one; see docs/census.md for what that costs.

How long: on random r-regular graphs a round of (3) shrinks disagreement by x = (1 + 2 sqrt(r - 1)) / (r + 1). After k
rounds a census stands for x^(-2k) agents, so ln(10 N) / (-2 ln x) rounds leave a disagreement of a tenth of the
sampling variance; and it takes ln N / ln(r - 1) ticks until all have joined. Ticks are rounds where what is heard is at
most a tick old. On a slower network fewer agents are heard of than x^(-2k) says: longer `rounds` make up for it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple

from numpy.typing import NDArray

from colme.methods._base import Place, Round
from colme.methods._census import Plan
from colme.methods.census import Census, CensusAgent, Votes

PATIENCE = 4
"""A census is given up after so many times its ticks, if nobody else is in it."""
JUMP = 2**40
"""Numbers do not rise faster: 2^22 lies in a row would be needed to use them up."""


class Poll(NamedTuple):
    """What a neighbor needs to hear: `Votes`, in which census, begun at which tick of whom, and how long ago."""

    codes: NDArray[Any]
    values: NDArray[Any]
    degree: int
    census: int
    began: int
    since: int


class RollingPlan(Plan):
    """As `Plan`, with plain averages: rounds are ticks, and there are more of them."""

    @classmethod
    def of(cls, method: Census, n_agents: int, n_edges: int, auto_step: float, sigma: Any) -> RollingPlan:
        plan = cls(*super().of(method, n_agents, n_edges, auto_step, sigma))
        rounds = plan.rounds
        if isinstance(method.rounds, str):
            spread = math.log(10.0 * max(n_agents, 2)) / (-2.0 * math.log(plan.rate))
            joining = math.log(max(n_agents, 2)) / math.log(max(plan.degree - 1.0, 1.5))
            rounds = math.ceil(spread) + math.ceil(joining)
        return plan._replace(regular=False, rounds=rounds)

    @property
    def rate(self) -> float:
        """How much of a disagreement is left after a round; few neighbors are slower than random ones."""
        r = max(self.degree, 2.5)
        return (1.0 + 2.0 * math.sqrt(r - 1.0)) / (r + 1.0)

    @property
    def momentum(self) -> float:
        return 1.0

    def rounds_at(self, t: int) -> int:
        return min(self.rounds, 2 + t)

    def counted(self, rounds: int) -> float:
        return min(float(self.n_agents), self.rate ** (-2.0 * rounds))


class RollingCensus(CensusAgent):
    """Per-agent form, driven by whatever was heard last. A restart forgets the votes, and joins again."""

    saved: ClassVar[tuple[str, ...]] = (*CensusAgent.saved, "census", "start")

    def __init__(self, method: Census, place: Place):
        super().__init__(method, place)
        self.plan = RollingPlan.of(method, place.n_agents, place.n_edges, place.auto_step, place.sigma)
        self.census = 0  # its number
        self.start = 0  # when it began, in my own ticks
        self.joined = 0  # when I did

    @property
    def poll(self) -> Poll:
        return Poll(*self.told, self.census, self.began, max(self.t - self.start, 0))

    def resume(self) -> None:
        """After a restart: the votes are gone, so the last census is joined anew if others still tell of it."""
        self.census = max(self.census - 1, 0)

    def step(self, sample: float) -> Round:
        self.observe(sample)
        inbox: dict[Hashable, Poll] = yield dict.fromkeys(self.neighbors, self.poll)
        newest = max(inbox.values(), key=lambda poll: poll.census, default=self.poll)
        if self.rounds >= 0 and not self._same(inbox):
            self._lose_patience(newest)
        if self.rounds < 0:
            if self.census < newest.census <= self.census + JUMP:
                self._join(newest.census, newest.began, newest.since)  # (2)
            elif self.plan.begins(self.t - self.start + self.began, self.began):
                self._join(self.census + 1, self.t, 0)  # (1)
        if self.rounds >= 0 and (heard := self._same(inbox)):
            self._average(heard)  # (3)
            self._count_round()  # (4)
        self.estimate = self._estimate()

    def _same(self, inbox: dict[Hashable, Poll]) -> dict[Hashable, Votes]:
        """Who is in the same census."""
        return {b: Votes(*inbox[b][:3]) for b in self.neighbors if b in inbox and inbox[b].census == self.census}

    def _lose_patience(self, newest: Poll) -> None:
        """Everybody else is in another census. If that is the next, or if it takes too long, end this one: half of its
        rounds are worth a fit."""
        rounds = self.plan.rounds_at(self.began)
        if newest.census > self.census or self.t - self.joined >= PATIENCE * rounds:
            if 2 * self.rounds >= rounds:
                self._finish()
            self.rounds = -1

    def _join(self, census: int, began: int, since: int) -> None:
        self._vote()
        self.census, self.began = census, began
        self.start, self.joined = self.t - since, self.t
