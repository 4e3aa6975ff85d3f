"""Rounds of gossip without a common tick: what the census, the guard and the dependence of a device have in common.

Averages over all agents have numbers, and so have their rounds. From the perspective of agent a, at its own tick t:

(1) when its step number has grown by a certain factor since the last average, it begins the next one: the next number,
    and its own values
(2) an agent that hears of a newer number joins with its own values, once it is done with the average before
(3) it goes on to round k + 1 when all neighbors that it hears have sent their values of round k, by the equation of
    `colme.gossip`, momentum included. So that no agent misses a round, all send the values of the last two: a neighbor
    that waits is at most one round behind. After some ticks it no longer waits, and a neighbor that it has not heard is
    replaced by the agent itself; one that is further ahead is heard as it is, in a plain average without momentum
(4) after the last round it uses the average, but goes on sending its values

Late, lost and repeated messages therefore cost time and change nothing else.

What is averaged may be a few sums (`SumsRounds`). How far a neighbor's sums can be from the own ones is then bounded:
by twice the median over all neighbors and the own size, for each sum and in every round. So a liar counts like an agent
or two, whatever it sends, and in later rounds, when honest agents agree, like less.
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from colme.consensus import metropolis_weight
from colme.gossip import Gossip
from colme.node.security.trust import PAUSE
from colme.support.arrays import Array, Floats

PATIENCE = 2
"""Ticks that a round waits for a neighbor, at least; later, as many as there are until the next average begins."""
JUMP = 2**40
"""The largest increase of the number that is accepted, so that 2^22 false messages in a row would be needed to exhaust
it; also the largest age of an average."""
TYPICAL = 2.0
"""Medians by which a neighbor's sums may differ from the own ones."""


class RoundHead(Protocol):
    """What a message says of the average that its values belong to: its number, the step at which it began (of the
    agent that began it) and the steps since; the round; the sender's own step."""

    @property
    def number(self) -> int: ...
    @property
    def began(self) -> int: ...
    @property
    def since(self) -> int: ...
    @property
    def round(self) -> int: ...
    @property
    def epoch(self) -> int: ...


class NumberedRounds(ABC):
    """The rounds of one agent. A restart loses the values, and the agent joins again."""

    saved: ClassVar[tuple[str, ...]] = ("number", "began", "start", "joined")

    t: int  # own step
    rounds: int  # done, of the average under way; -1: none is
    began: int  # the step at which the average began, of the agent that began it
    number = 0  # of the average
    start = 0  # when it began, in own ticks
    joined = 0  # when this agent joined
    round = 0  # of the values, also when the average is over
    waited = 0  # ticks, for the values of others in this round

    @property
    def goes_alone(self) -> bool:
        """Whether an average of the own values is worth having, if no neighbor is heard."""
        return False

    @abstractmethod
    def _starts(self, t: int) -> bool:
        """Whether the next average begins at step t of the agent that began the last one at step `began`."""

    @abstractmethod
    def _hand_in(self) -> None:
        """Begin with the own values: rounds = 0."""

    @property
    @abstractmethod
    def _n_rounds(self) -> int:
        """Rounds of the average under way."""

    @property
    @abstractmethod
    def _growth(self) -> float:
        """By how much of its time an agent is older at each average."""

    @abstractmethod
    def _next_round(self, same: Mapping[Hashable, Any], *, plain: bool) -> None:
        """Average with the values of these messages; `plain`: without momentum."""

    @abstractmethod
    def _complete(self) -> None:
        """Use the average after `rounds` rounds."""

    @property
    def since(self) -> int:
        """Own ticks since the average began."""
        return max(self.t - self.start, 0)

    def resume(self) -> None:
        """After a restart: the values are lost, so the last average is joined again if neighbors are still in it."""
        self.number, self.rounds = max(self.number - 1, 0), -1

    def advance(self, inbox: Mapping[Hashable, RoundHead]) -> None:
        """Make as many rounds as the newest messages of the neighbors allow."""
        credible = (message for message in inbox.values() if message.number <= self.number + JUMP)
        newest = max(credible, key=lambda message: message.number, default=None)
        newer = newest is not None and newest.number > self.number
        if self.rounds >= 0 and not self._same(inbox):
            self._lose_patience(newer)
        if self.rounds < 0 and self.t >= PAUSE * self.joined:
            if newest is not None and newer:
                began = statistics.median_low([self.t, *(message.epoch for message in inbox.values())])
                self._join(newest.number, min(newest.began, began), newest.since)  # (2)
            elif self._starts(self.t - self.start + self.began):
                self._join(self.number + 1, self.t, 0)  # (1)
        self.waited += 1
        while self.rounds >= 0 and self._ready(inbox):  # (3)
            same = self._same(inbox)
            self._next_round(same, plain=any(message.round > self.round + 1 for message in same.values()))
            self.round, self.rounds, self.waited = self.round + 1, self.rounds + 1, 0
            if self.rounds >= self._n_rounds:
                self._end(complete=True)  # (4)

    def _same(self, inbox: Mapping[Hashable, RoundHead]) -> dict[Hashable, RoundHead]:
        """The messages of neighbors that are in the same average and not behind."""
        return {
            b: message for b, message in inbox.items() if message.number == self.number and message.round >= self.round
        }

    def _ready(self, inbox: Mapping[Hashable, RoundHead]) -> bool:
        if not inbox:
            return self.goes_alone
        same = self._same(inbox)
        return len(same) == len(inbox) or (self.waited > self._patience and len(same) > 0)

    @property
    def _patience(self) -> float:
        return max(PATIENCE, self._growth * self.t / self._n_rounds)

    def _lose_patience(self, newer: bool) -> None:
        """No neighbor is as far in this average. If others are in the next, or if it takes too long, end this one; with
        half of its rounds it is worth using."""
        if newer or self.waited >= self._patience * self._n_rounds:
            self._end(complete=2 * self.rounds >= self._n_rounds)

    def _end(self, *, complete: bool) -> None:
        if complete:
            self._complete()
        self.rounds = -1

    def _join(self, number: int, began: int, since: int) -> None:
        self._hand_in()
        self.number, self.began = number, began
        self.start, self.joined = self.t - min(since, JUMP), self.t
        self.round = self.waited = 0


class SumsRound(NamedTuple):
    """The message to another agent: the sums after this round and after the one before, the number of agents that the
    sender averages with, and a `RoundHead`."""

    values: Array
    before: Array
    degree: int
    number: int
    began: int
    since: int
    round: int
    epoch: int

    def of_round(self, number: int) -> Array:
        """The sums of this round, or of a later one."""
        return self.values if self.round == number else self.before


class SumsRounds(NumberedRounds):
    """Rounds on sums: those of one agent, or of all local agents of a gateway together."""

    signed: ClassVar[int] = 0
    """The first so many sums may be negative."""

    now: Array  # (1, sums): z(k)
    before: Array  # z(k - 1)
    gossip: Gossip
    degree = 0  # agents that it averages with
    listened = 0  # messages of all rounds of the average

    @property
    def message(self) -> SumsRound:
        return SumsRound(
            self.now[0], self.before[0], self.degree, self.number, self.began, self.since, self.round, self.t
        )

    @property
    def _n_rounds(self) -> int:
        return self.gossip.rounds

    def _begin(self, sums: Array) -> None:
        """With these sums of its own."""
        self.now[:], self.before[:] = sums, 0.0
        self.rounds = self.listened = 0

    def _next_round(self, same: Mapping[Hashable, SumsRound], *, plain: bool) -> None:
        own = self.now[0].copy()
        away = np.array([message.of_round(self.round) - own for message in same.values()]).reshape(-1, len(own))
        sizes = np.abs([own, *away])
        if not own.any() and sizes.any():  # no sums here: only those who have some can say what is typical
            sizes = sizes[sizes.any(axis=1)]
        most = TYPICAL * _lower_median(sizes)
        value = own.copy()
        for message, difference in zip(same.values(), np.clip(away, -most, most), strict=True):
            value += metropolis_weight(self.degree, message.degree) * difference
        if self.rounds > 0 and not plain:
            value = self.gossip.momentum * (value - self.before[0]) + self.before[0]
        value[self.signed :] = np.maximum(value[self.signed :], 0.0)
        self.before[0], self.now[0] = own, value
        self.listened += len(same)


def _lower_median(values: Floats) -> Any:
    """The median of each column; of two in the middle the smaller."""
    return np.sort(values, axis=0)[(len(values) - 1) // 2]
