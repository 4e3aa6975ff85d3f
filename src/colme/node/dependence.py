"""Dependence between samples without a common tick: `colme.dependence`, with the rounds of `colme.node.rounds`.

An average begins when the step number has grown by two fifths since the last one. Its rounds are plain ones, without
momentum: A_b and B_b are averaged with the same weights, so for their ratio it does not matter much which these are.
Sums are in a record as long as the average is under way, and a while longer if a neighbor has not ended it; then there
are none until the next. Three things are added on devices:

(a) how far a neighbor's sums can be from the own ones is bounded, as `SumsRounds` does
(b) after every round sums are made what those of agents can be, whose S_b is at most 2 (n - 1) s^2 (batches of one mean
    no more than all samples do):  A_b <= (6 b - 4) B_b,  B_b <= B_1 / b,  B_1 <= 2^40 (sum of w),
    sum of w <= 4 agents,  (sum of w)^2 / agents <= sum of w^2 <= 4 (sum of w)
(c) an agent that forgets its first samples (`colme.node.cuts`) begins new batches

A gateway hands in the sums of all its local agents together, and they share what it learns.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from colme.dependence import (
    CLIP,
    FIRST,
    GROWTH,
    NUMBER,
    SIZES,
    SUMS,
    WEIGHT,
    WEIGHT_2,
    A,
    B,
    Dependence,
    look_up,
    observe,
    pool,
)
from colme.gossip import Gossip
from colme.method import Place
from colme.node.messages.wire import LARGEST, Record, SumsBody
from colme.node.rounds import SumsRound, SumsRounds
from colme.noise import INDEPENDENT, Factors
from colme.support.arrays import Array, Integers

PATIENT = 0.2
"""The part of its time that an agent spends in an average, at most, before it no longer waits."""
SPREAD = 0.28
"""Agents heard after k plain rounds with d neighbors, where there are many: so many times d^k. Roughly measured."""
LARGEST_HONEST = 6.0 * SIZES - 4.0
"""The largest A_b / B_b."""
MOST_SAMPLES, MOST_AGENTS = 2.0**40, 2.0**30
"""Samples of an agent, and agents behind a node: beyond, equation (5) would be ill-conditioned."""
MOST = LARGEST / 10
"""The largest sum that is sent: neighbors refuse records with numbers beyond `LARGEST`."""
_NOTHING = np.zeros(SUMS, np.float32)
_TINY = 1e-30


class AsynchronousDependence(SumsRounds, Dependence):
    """What a device knows of the dependence between the samples of its agent, or of all local agents of a gateway."""

    saved = (*Dependence.saved, *(name for name in SumsRounds.saved if name not in Dependence.saved))
    of_each = ("batches", "mean", "count", "square")
    """What there is one row of per local agent."""

    def __init__(self, place: Place):
        gossip = Gossip.of(place.n_agents, place.n_edges, place.auto_step)
        super().__init__(1, gossip, np.empty(0))
        self.t = 0
        self._ended: set[Hashable] = set()  # neighbors that have ended the average
        self._speaks = False

    @property
    def goes_alone(self) -> bool:
        return True

    @property
    def body(self) -> SumsBody | None:
        """What a record says."""
        if not self._speaks:
            return None
        each = self.message
        return SumsBody(each.number, each.began, each.since, each.round, each.degree, each.values)

    def observe(self, sample: Any, count: Any) -> None:
        """One sample of each local agent (NaN: none), who had so many samples before it."""
        anew = np.atleast_1d(count) < self.count  # (c)
        if anew.any():
            for name in self.of_each:
                getattr(self, name)[anew] = 0
        x = np.atleast_1d(sample)
        new = ~np.isnan(x)
        if not new.any():
            return
        batches, mean, seen, square = (getattr(self, name)[new] for name in self.of_each)
        after = mean + (x[new] - mean) / (seen + 1)
        observe(after[None], seen + 1, mean, seen, square, batches)
        self.batches[new], self.mean[new], self.count[new], self.square[new] = batches, mean, seen, square

    def step(self, t: int, sample: Any, count: Any, records: Mapping[Hashable, Record], degree: int) -> None:
        """Step t: observe, and advance the average with the newest records of the neighbors, of which there are
        `degree`."""
        self.t, self.degree = t, degree
        self.observe(sample, count)
        heard = {b: _round_of(record) for b, record in records.items()}
        self.advance(heard)
        self._ended |= {
            b for b, each in heard.items()
            if each.number > self.number or (each.number == self.number and each.round >= self._n_rounds)
        }  # fmt: skip
        late = self.number > 0 and t - self.joined <= self._patience * self._n_rounds
        self._speaks = self.rounds >= 0 or (late and not self._ended.issuperset(heard))

    def factors(self, count: Any) -> Factors:
        if not len(self.table):
            return INDEPENDENT
        each, place = np.unique(count, return_inverse=True)
        out = np.empty((6, len(each)))
        look_up(self.table, np.zeros(len(each), np.int64), each, out)
        return Factors(*(out[:, place] if np.ndim(count) else out[:, 0].tolist()))

    def rearrange(self, rows: Integers) -> None:
        """Keep these rows, in this order; a row without samples where a local agent is new."""
        for name in self.of_each:
            setattr(self, name, getattr(self, name)[rows])

    def _starts(self, t: int) -> bool:
        return t >= max(FIRST, GROWTH * self.began) and bool((self.count > 2).any())

    @property
    def _growth(self) -> float:
        return PATIENT

    def _hand_in(self) -> None:
        own = np.empty((len(self.count), SUMS), np.float32)
        pool(self.batches, self.count, self.square, np.full(len(own), self.typical[0]), own)
        self._begin(plausible(own.sum(axis=0)))
        self._ended = set()

    def _next_round(self, same: Mapping[Hashable, SumsRound], *, plain: bool) -> None:
        super()._next_round(same, plain=True)
        self.now[0] = plausible(self.now[0])

    def _complete(self) -> None:
        if self.now[0, NUMBER] <= 0.0:
            return
        around = 1.0 + SPREAD * (self.listened / max(self.rounds, 1)) ** self.rounds
        heard = 1.0 / (1.0 / self.gossip.n_agents + 1.0 / around)
        self._use(np.array([heard]), 2.0 * max(self.began, int(self.count.max())))


def plausible(sums: Array) -> Array:
    """Bound (b)."""
    out = np.minimum(sums.astype(np.float64), MOST)
    out[NUMBER] = min(out[NUMBER], MOST_AGENTS)
    weight = out[WEIGHT] = min(out[WEIGHT], CLIP * out[NUMBER])
    out[B] = np.minimum(out[B], min(out[B][0], MOST_SAMPLES * weight) / SIZES)
    out[A] = np.minimum(out[A], LARGEST_HONEST * out[B])
    out[WEIGHT_2] = min(max(out[WEIGHT_2], weight * weight / max(out[NUMBER], _TINY)), CLIP * weight)
    return out


def _round_of(record: Record) -> SumsRound:
    """What a record says; without sums its sender is in no average."""
    body = record.sums
    if body is None:
        return SumsRound(_NOTHING, _NOTHING, 0, 0, 0, 0, 0, record.epoch)
    return SumsRound(
        body.values, body.values, body.degree, body.average, body.began, body.since, body.round, record.epoch
    )
