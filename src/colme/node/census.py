"""The census without a common tick: its rounds are those of `colme.node.rounds`.

A census begins when the step number has grown by a fifth since the last one. The values are the masses of the bins,
and after the last round the agent fits a mixture to its histogram, as ever.

While the first census is under way, agents use what they have of it, from the third round on. The sigma that they were
told is then checked in every round, not only at the end: until the end of a first census with a sigma told double,
estimates would be worse than local means.

Where an agent no longer waited, or lies, momentum could make masses grow or become negative: such masses are clipped
at zero and scaled to a total of one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from colme.census.histogram import ballots_in, clip_masses
from colme.census.method import Census, CensusAgent, HistogramMessage, Schedule
from colme.census.posterior import FittedMixtures, posterior_interval
from colme.method import Place, Round
from colme.node.messages.wire import LARGEST
from colme.node.rounds import NumberedRounds
from colme.noise import INDEPENDENT
from colme.support.arrays import Array

EARLIEST = 3
"""Rounds after which a first census is used before it ends; after two, 16 agents with four samples each would not show
that sigma was told double."""

MOST_MASS = LARGEST / 10
"""The largest sum of variances that is handed in: neighbors refuse numbers beyond `LARGEST`, and momentum may make it
some times larger. Otherwise one local agent with readings of 1e16 would silence its gateway."""


class RoundMessage(NamedTuple):
    """The message to a neighbor: a `HistogramMessage`, the masses of the round before, and a
    `colme.node.rounds.RoundHead`."""

    codes: Array
    values: Array
    before: Array
    degree: int
    number: int
    began: int
    since: int
    round: int
    epoch: int

    def of_round(self, number: int) -> HistogramMessage:
        """The masses of this round, or of a later one."""
        return HistogramMessage(self.codes, self.values if self.round == number else self.before, self.degree)


class AsynchronousSchedule(Schedule):
    """As `Schedule`, but the first census begins later and is not shorter: rounds take longer, so a census of one
    sample each would delay the next one."""

    def starts(self, t: int, last: int) -> bool:
        return t >= self.gossip.rounds and super().starts(t, last)

    def rounds_at(self, t: int) -> int:
        return self.gossip.rounds if self.bins_means(t) else 1


class AsynchronousCensusAgent(NumberedRounds, CensusAgent):
    """Per-agent form, driven by the newest messages."""

    saved = (*CensusAgent.saved, "number", "start", "joined", "own_weight")

    def __init__(self, method: Census, place: Place):
        super().__init__(method, place)
        self.schedule = AsynchronousSchedule(*self.schedule)
        self.used = self.fitted  # behind the estimate: of the last census, or of the first as far as it is
        self.ballots = 1.0  # cast by a node, on average: more than one where there are gateways
        self.listened = 0  # messages of all rounds of the census

    @property
    def round_message(self) -> RoundMessage:
        occupied = (self.masses != 0) | (self.previous != 0)
        codes, masses, before = (each[occupied] for each in (self.codes, self.masses, self.previous))
        return RoundMessage(
            codes, masses, before, len(self.neighbors), self.number, self.began, self.since, self.round, self.t
        )

    def step(self, sample: float) -> Round:
        self.observe(sample)
        inbox: dict[Hashable, RoundMessage] = yield dict.fromkeys(self.neighbors, self.round_message)
        self.advance({b: inbox[b] for b in self.neighbors if b in inbox})
        self.estimate = self._posterior_mean()

    @property
    def has_posterior(self) -> bool:
        """Whether the estimate is that of a census, not just the own mean."""
        return bool(self.neighbors) and self.used.n_components[self.used.row].item() > 0 <= self.used.row.item()

    def interval(self, level: float) -> tuple[float, float]:
        """Between the quantiles of the posterior of the true mean, of this probability in all."""
        own = np.array([self.own_mean]), np.array([self.noise])
        lower, upper = (self._stretched(end) for end in posterior_interval(level, *own, self.used.prior))
        return lower.item(), upper.item()

    def _stretched(self, end: Any) -> Any:
        """The end of an interval, for dependence between samples."""
        if self.factors is INDEPENDENT:
            return end
        return self.estimate + self.sampling.stretch(self.own_weight) * (end - self.estimate)

    def resume(self) -> None:
        super().resume()
        self.used, self.sampling.factors = self.fitted, self.factors

    def _starts(self, t: int) -> bool:
        return self.schedule.starts(t, self.began)

    def _hand_in(self) -> None:
        self.listened = 0
        with np.errstate(over="ignore"):  # variances in single precision
            self._start_census()
        self.masses = np.clip(self.masses, -MOST_MASS, MOST_MASS)

    @property
    def _n_rounds(self) -> int:
        return self.schedule.rounds_at(self.began)

    @property
    def _growth(self) -> float:
        return self.schedule.refresh - 1.0

    def _next_round(self, same: Mapping[Hashable, RoundMessage], *, plain: bool) -> None:
        self.listened += len(same)
        self._average({b: message.of_round(self.round) for b, message in same.items()}, plain=plain)
        self.masses = clip_masses(self.codes, self.masses, self.place.max_ballots)
        if not self.completed and self.schedule.sigma is not None:
            self._learn_noise(self.rounds + 1, self.sampling.learn)

    def _fit(self) -> FittedMixtures:
        if not self.completed and self.rounds < min(EARLIEST, self._n_rounds):
            return self.fitted  # too few agents were heard to check sigma
        self.ballots = ballots_in(self.codes, self.masses)
        self.used = super()._fit()
        return self.used

    @property
    def _agents_reached(self) -> float:
        return self.ballots * (super()._agents_reached if self.listened else 1.0)

    def _complete(self) -> None:
        self._complete_census()

    def _complete_census(self) -> None:
        self._learn_noise(self.rounds, self.sampling.learn)
        self.fitted = self._fit()
        self.completed, self.rounds = self.schedule.bins_means(self.began), -1
