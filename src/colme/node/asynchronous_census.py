"""The census without a common tick.

Censuses have numbers, and so have their rounds. From the perspective of agent a, at its own tick t:

(1) when its step number has grown by a fifth since the last census, it begins the next one: the next number, and its
    own binned mean as the histogram
(2) an agent that hears of a newer number joins with its own binned mean, once it is done with the one before
(3) it goes on to round k + 1 when all neighbors that it hears have sent their masses of round k, by the equation of
    `colme.census.method`, momentum included. So that no agent misses a round, all send the masses of the last two: a
    neighbor that waits is at most one round behind. After some ticks it no longer waits, and a neighbor that it has not
    heard is replaced by the agent itself; one that is further ahead is heard as it is, in a plain average without
    momentum
(4) after the last round it fits a mixture to its histogram, as ever, but goes on sending the masses

Late, lost and repeated messages therefore cost time and change nothing else. Where an agent no longer waited, or lies,
momentum could make masses grow or become negative: such masses are clipped at zero and scaled to a total of one.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple

from numpy.typing import NDArray

from colme.census.histogram import clip_masses
from colme.census.method import Census, CensusAgent, HistogramMessage
from colme.census.schedule import Schedule
from colme.method import Place, Round
from colme.node.security.trust import PAUSE

PATIENCE = 2
"""Ticks that a round waits for a neighbor, at least; later, as many as there are until the next census begins."""
JUMP = 2**40
"""The largest increase of the census number that is accepted, so that 2^22 false messages in a row would be needed to
exhaust it; also the largest age of a census."""


class RoundMessage(NamedTuple):
    """The message to a neighbor: a `HistogramMessage` and the masses of the round before; the number of the census, the
    step at which it began (of the agent that began it) and the steps since; the round; the sender's own step."""

    codes: NDArray[Any]
    values: NDArray[Any]
    before: NDArray[Any]
    degree: int
    census: int
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


class AsynchronousCensusAgent(CensusAgent):
    """Per-agent form, driven by the newest messages. A restart loses the masses, and the agent joins again."""

    saved: ClassVar[tuple[str, ...]] = (*CensusAgent.saved, "census", "start", "joined")

    def __init__(self, method: Census, place: Place):
        super().__init__(method, place)
        self.schedule = AsynchronousSchedule(*self.schedule)
        self.census = 0  # its number
        self.start = 0  # when it began, in my own ticks
        self.joined = 0  # when this agent joined
        self.round = 0  # of the masses, also when it is over
        self.waited = 0  # ticks, for the masses of others in this round

    @property
    def round_message(self) -> RoundMessage:
        occupied = (self.masses != 0) | (self.previous != 0)
        codes, masses, before = (each[occupied] for each in (self.codes, self.masses, self.previous))
        since = max(self.t - self.start, 0)
        return RoundMessage(
            codes, masses, before, len(self.neighbors), self.census, self.began, since, self.round, self.t
        )

    def resume(self) -> None:
        """After a restart: the masses are lost, so the last census is joined again if neighbors are still in it."""
        self.census = max(self.census - 1, 0)

    def step(self, sample: float) -> Round:
        self.observe(sample)
        inbox: dict[Hashable, RoundMessage] = yield dict.fromkeys(self.neighbors, self.round_message)
        inbox = {b: inbox[b] for b in self.neighbors if b in inbox}
        credible = (message for message in inbox.values() if message.census <= self.census + JUMP)
        newest = max(credible, key=lambda message: message.census, default=self.round_message)
        if self.rounds >= 0 and not self._same(inbox):
            self._lose_patience(newest)
        if self.rounds < 0 and self.t >= PAUSE * self.joined:
            if self.census < newest.census:
                began = statistics.median_low([self.t, *(message.epoch for message in inbox.values())])
                self._join(newest.census, min(newest.began, began), newest.since)  # (2)
            elif self.schedule.starts(self.t - self.start + self.began, self.began):
                self._join(self.census + 1, self.t, 0)  # (1)
        self.waited += 1
        while self.rounds >= 0 and self._ready(inbox):
            self._next_round(self._same(inbox))  # (3), (4)
        self.estimate = self._posterior_mean()

    def _same(self, inbox: dict[Hashable, RoundMessage]) -> dict[Hashable, RoundMessage]:
        """The messages of neighbors that are in the same census and not behind."""
        return {
            b: message for b, message in inbox.items() if message.census == self.census and message.round >= self.round
        }

    def _ready(self, inbox: dict[Hashable, RoundMessage]) -> bool:
        same = self._same(inbox)
        return len(same) == len(inbox) > 0 or (self.waited > self._patience and len(same) > 0)

    @property
    def _patience(self) -> float:
        return max(PATIENCE, (self.schedule.refresh - 1.0) * self.t / self.schedule.gossip.rounds)

    def _next_round(self, same: dict[Hashable, RoundMessage]) -> None:
        even = all(message.round <= self.round + 1 for message in same.values())
        self._average({b: message.of_round(self.round) for b, message in same.items()}, plain=not even)
        self.masses = clip_masses(self.codes, self.masses)
        self.round, self.waited = self.round + 1, 0
        self._end_round()

    def _lose_patience(self, newest: RoundMessage) -> None:
        """No neighbor is as far in this census. If others are in the next, or if it takes too long, end this one; with
        half of its rounds it is worth a fit."""
        rounds = self.schedule.rounds_at(self.began)
        if newest.census > self.census or self.waited >= self._patience * rounds:
            if 2 * self.rounds >= rounds:
                self._complete_census()
            self.rounds = -1

    def _join(self, census: int, began: int, since: int) -> None:
        self._start_census()
        self.census, self.began = census, began
        self.start, self.joined = self.t - min(since, JUMP), self.t
        self.round = self.waited = 0
