"""The census: agents average the histogram of their means instead of the means, and take their posterior means.

From the perspective of agent a, at step t:

(1) it observes x_a(t) and updates its mean:       X_a <- X_a + (x_a - X_a) / n_a, with variance s^2 = sigma_a^2 / n_a
(2) if t is 1.2 times the start of its last census, it starts a new one and bins its mean:
                                                   z_a(0) = unit mass, split between the two bins around X_a
(3) in each round it averages with its neighbors:  z(1) = W z(0),  z(k+1) = c (W z(k) - z(k-1)) + z(k-1)
(4) after some rounds z is the histogram of all local means, and it fits a mixture of a few components (w, m, tau^2):
                                                   z ~ sum over k of w_k N(m_k, tau_k^2 + s^2)
(5) its estimate is its posterior mean, with the mixture as the prior of its true mean:
                                                   y_a = sum of p_k (m_k + tau_k^2 / (tau_k^2 + s^2) (X_a - m_k))

Early, when components cannot be told apart, (5) is the best shrinkage; late, one p_k is 1 and y_a is the estimate of an
oracle that knows the classes; in between it is the best compromise. No edge is ever cut and no decision is final.

W and c are those of `colme.gossip`. An agent without a sample contributes no mean, but passes on those of others. If
sigma is not known, agents also average their sample variances (in the first census nothing else), and each moderates
its own by the average one. If it is known, they check it: they average s^2 / sigma^2, and where that is clearly not 1,
they multiply sigma^2 by it. Where sample variances depend on the mean, so does s^2 in (4) and (5).

`Schedule` has the timing of (2) and (3), `histogram` (2), `mixture` (4), `posterior` (5), `colme.noise` s^2;
docs/census.md has the derivation and the limits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from colme.census.array import CensusState, ChangeDetector, contributions, of_variances
from colme.census.histogram import NEGLIGIBLE, NO_CODE, Bins, channel, sum_by_code
from colme.census.posterior import FittedMixtures, posteriors
from colme.errors import MethodError, one_of, positive
from colme.gossip import Gossip
from colme.graphs import Graph
from colme.guard import GuardedMethod
from colme.method import Agent, Place, Round, State, World
from colme.noise import SamplingNoise, own_weight
from colme.support.arrays import Array, Floats, Integers


class Schedule(NamedTuple):
    """When a census starts, and how many rounds of gossip it takes. All of it follows from the number of agents, the
    graph and the step, so agents need not agree on it by messages."""

    gossip: Gossip
    refresh: float
    sigma: Any
    """The standard deviation of samples, one number or one per agent. None: not known."""

    def agents_heard(self, rounds: int, heard: Any) -> Any:
        """Agents heard after so many rounds, at most those reached; `heard` after 1, 2, .. rounds
        (`colme.gossip.agents_heard`), None: all that are reached."""
        reached = self.gossip.agents_reached(rounds)
        return reached if heard is None else np.minimum(reached, heard[min(rounds, len(heard)) - 1])

    def part_heard(self, rounds: int, heard: Any) -> Any:
        """Agents heard, as a part of those reached."""
        return self.agents_heard(rounds, heard) / self.gossip.agents_reached(rounds)

    def starts(self, t: int, last: int) -> bool:
        """Whether a new census starts at step t, if the last one started at step `last` (0: there was none)."""
        return t >= self.refresh * last and (t > 1 or self.sigma is not None)

    def checks_variances(self, t: int, last: int) -> bool:
        """Whether agents check their variances in a census that starts at step t: when t has passed a power of two, and
        in the first census of means."""
        return t.bit_length() > last.bit_length() or not self.bins_means(last)

    def checks_early(self, t: int, rounds: int) -> bool:
        """Whether agents begin to check a known sigma at step t, beside the census of step 1 that is under way."""
        return t == 2 and rounds == 1 and self.sigma is not None

    def rounds_at(self, t: int) -> int:
        """Rounds of a census that starts at step t."""
        return self.gossip.rounds_from(t) if self.bins_means(t) else 1

    def bins_means(self, t: int) -> bool:
        """Whether a census that starts at step t bins means. If sigma is not known, the first averages variances."""
        return t > 2 or self.sigma is not None


class Census(GuardedMethod, frozen=True, kw_only=True, tag="census"):
    """Every agent learns the distribution of all local means by consensus and takes its own posterior mean.

    guard           report X + lambda (y - X), with a weight lambda that the agents learn from their next samples
                    (`colme.guard`)
    sigma           the standard deviation of the samples, as the agents know it; default: that of the scenario or
                    recording
    estimate_sigma  the agents do not know sigma: each estimates its own, moderated by the average over all agents
                    (always so where neither scenario nor recording has one)
    refresh         a new census starts when t is this many times the start of the last
    restart         agents watch for changes of their own mean and start afresh when they detect one (needs a known
                    sigma)
    rounds          rounds of consensus per census, or "auto": as many as it takes to reach all agents
    fits            "shared": a simulation fits the average histogram once for all agents whose own is close to it;
                    "own": every agent fits its own, as a device does (slow)

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(Census(), scenario, steps=200, seed=0)
    >>> f"{trace.mse[-1]:.1e} instead of {trace.local_mse[-1]:.1e}"
    '3.0e-05 instead of 1.3e-03'

    See also: CLColME, Bayes, CollaborativeMean
    """

    label = "census"
    color = "#000000"
    irrevocable = False
    cuts_edges = False
    tolerates_loss = True
    shared = True
    trusting = True
    has_intervals = True
    guard_refresh = 1.02
    partitioned = 12

    guard: bool = True
    sigma: float | None = None
    estimate_sigma: bool = False
    restart: bool = False
    refresh: float = 1.2
    rounds: int | str = "auto"
    fits: str = "shared"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma is not None:
            positive(self.sigma, "sigma", "sigma=2.0", MethodError)
            if self.estimate_sigma:
                raise MethodError(
                    f"sigma={self.sigma:g} with estimate_sigma=True: agents either know sigma or estimate it. "
                    "Leave one of them out."
                )
        if self.restart and self.estimate_sigma:
            raise MethodError(
                "restart=True with estimate_sigma=True: detecting a change requires a known sigma. "
                "Leave one of them out."
            )
        if not 1.0 <= self.refresh < math.inf:
            raise MethodError(f"refresh={self.refresh}: it must be at least 1 and finite. Try refresh=1.2.")
        if isinstance(self.rounds, str):
            one_of(self.rounds, ("auto",), "rounds", MethodError)
        elif self.rounds < 1:
            raise MethodError(f"rounds={self.rounds}: a census takes at least one round. Try rounds='auto'.")
        one_of(self.fits, ("shared", "own"), "fits", MethodError)

    @property
    def online_rule(self) -> str:
        return "colme.online.rules:CensusRule"

    @property
    def message_adapter(self) -> str:
        return "colme.node.messages.adapters:CensusAdapter"

    @property
    def gossip_rounds(self) -> int | str:
        return self.rounds

    @property
    def learns_dependence(self) -> bool:
        return not self.restart  # a change of the mean would look like dependence

    @property
    def unit_matters(self) -> bool:
        return self.estimate_sigma  # then the agents have no common scale

    def schedule(self, n_agents: int, n_edges: int, auto_step: float, sigma: Any) -> Schedule:
        """The schedule on a graph; `auto_step`: the largest stable step of consensus, 1 / r if regular."""
        sigma = self.sigma if self.sigma is not None else sigma
        if self.restart and sigma is None:
            raise MethodError(
                "restart=True where sigma is not known: detecting a change requires a known sigma. "
                "Try sigma=... in the method or recording."
            )
        gossip = Gossip.of(n_agents, n_edges, auto_step, self.rounds)
        return Schedule(gossip, self.refresh, None if self.estimate_sigma else sigma)

    def start(self, world: World, graph: Graph) -> State:
        return CensusState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return CensusAgent(self, place)


class HistogramMessage(NamedTuple):
    """What an agent sends to its neighbors: its occupied bins, and its degree (for Metropolis weights)."""

    codes: Integers
    masses: Array
    degree: int


class CensusAgent(Agent):
    """Per-agent form: its own histogram, fitted mixture and posterior mean."""

    saved = (
        *Agent.saved, "began", "early", "completed", "fitted", "sampling", "binned", "detector",
    )  # fmt: skip

    def __init__(self, method: Census, place: Place):
        super().__init__(place)
        self.neighbors = list(place.neighbors)
        self.schedule = method.schedule(place.n_agents, place.n_edges, place.auto_step, place.sigma)
        self.unit = place.unit if self.schedule.sigma is not None else 1.0
        self.began = 0  # the step at which the last census started
        self.rounds = -1  # rounds done of the census under way; -1: none is
        self.completed = False  # whether a census of means has completed
        self.early = False  # the check of step 2 is under way
        self.codes = np.empty(0, np.int64)  # the bins and channels of its histogram
        self.masses: Array = np.empty(0, place.exchange)  # z(k), after the last round
        self.previous = self.masses  # z(k - 1), after the round before
        self.channels = np.full(1, NO_CODE)  # of the noise of this agent's grid, if its mean was binned
        self.fitted = FittedMixtures.none(1)
        self.sampling = SamplingNoise(1, self.schedule.sigma)
        self.binned = self.sampling.factor.copy()  # of sigma^2 when the mean was binned
        self.detector = ChangeDetector(1) if method.restart else None

    @property
    def noise(self) -> float:
        """The sampling variance of this agent's mean."""
        return self.sampling.of_means().item()

    @property
    def own_mean(self) -> float:
        """The mean of the samples since the last change."""
        return self.mean if self.detector is None else self.detector.mean.item()

    @property
    def own_count(self) -> int:
        """The number of samples since the last change."""
        return self.count if self.detector is None else int(self.detector.count.item())

    def observe(self, sample: float) -> None:
        """Equation (1)."""
        super().observe(sample)
        self._note_means()

    def _note_means(self) -> None:
        if self.detector is not None:
            sigma = self.schedule.sigma * np.sqrt(self.sampling.factor)
            self.detector.observe(np.atleast_1d(self.mean), np.atleast_1d(self.count), sigma)
        self.sampling.factors = self.factors
        self.sampling.observe(np.atleast_1d(self.own_mean), np.atleast_1d(self.own_count))

    def step(self, sample: float) -> Round:
        self.observe(sample)
        if self.rounds < 0 and self.schedule.starts(self.t, self.began):
            self._start_census()
        if self.schedule.checks_early(self.t, self.rounds):
            codes, masses = _summed(of_variances(self, check=True))
            both = np.union1d(self.codes, codes)
            self.masses = _at_codes(both, self.codes, self.masses) + _at_codes(both, codes, masses).astype(
                self.place.exchange
            )
            self.codes, self.previous, self.early = both, _at_codes(both, self.codes, self.previous), True
        if self.rounds >= 0:
            inbox = yield dict.fromkeys(self.neighbors, self.message)
            self._average({b: inbox[b] for b in self.neighbors if b in inbox})
            self._end_round()
        self.estimate = self._posterior_mean()

    @property
    def message(self) -> HistogramMessage:
        """What the neighbors hear in this round."""
        occupied = self.masses != 0
        return HistogramMessage(self.codes[occupied], self.masses[occupied], len(self.neighbors))

    def _start_census(self) -> None:
        """Equation (2)."""
        parts = contributions(self, self.t)
        agents, codes, _ = parts[0]
        self.channels = np.full(len(self.sampling.count), NO_CODE)
        self.channels[agents] = codes[:, 0]
        self.codes, masses = _summed(parts)
        self.masses = masses.astype(self.place.exchange)
        self.previous, self.binned = np.zeros_like(self.masses), self.sampling.factor.copy()
        self.began, self.rounds = self.t, 0

    def _average(self, heard: dict[Hashable, HistogramMessage], *, plain: bool = False) -> None:
        """Equation (3), `colme.gossip.consensus_round` for one agent; `plain`: without momentum."""
        codes = np.unique(np.concatenate([self.codes, *(message.codes for message in heard.values())]))
        now, before = (_at_codes(codes, self.codes, masses) for masses in (self.masses, self.previous))
        value = self.schedule.gossip.round_of_one(
            now, before, ((each.degree, _at_codes(codes, each.codes, each.masses)) for each in heard.values()),
            len(self.neighbors), first=plain or self.rounds == 0,
        )  # fmt: skip
        self.codes, self.previous = codes, now
        self.masses = np.where(np.abs(value) > NEGLIGIBLE, value, np.zeros_like(value))

    def _end_round(self) -> None:
        self.rounds += 1
        rounds = self.rounds + (self.early and self.began > 1)
        if self.rounds >= self.schedule.rounds_at(self.began):
            if not (self.early and self.began == 1):
                self._learn_noise(rounds, self.sampling.learn)
            self._complete_census()
        elif self._learn_noise(rounds, self.sampling.notice).any():
            self.fitted = self._fit()

    def _complete_census(self) -> None:
        self.fitted = self._fit()
        self.completed, self.early = self.schedule.bins_means(self.began), self.early and self.began == 1
        self.rounds = -1

    def _learn_noise(self, rounds: int, learn: Callable[..., Any]) -> Any:
        """Learn about the noise from what was heard in so many rounds."""
        agents = self.schedule.agents_heard(rounds, self.place.heard)
        masses = np.broadcast_to(self.masses, (len(self.channels), len(self.masses)))
        return learn(functools.partial(channel, self.codes, masses), agents)

    def _fit(self) -> FittedMixtures:
        """Equation (4)."""
        bins, n = Bins.of(self.codes, self.unit), len(self.channels)
        grid, binned = np.full(n, -1), self.channels != NO_CODE
        grid[binned] = bins.grid[np.searchsorted(self.codes, self.channels[binned])]
        return FittedMixtures.of_agents(
            self.masses[None], bins, self._agents_reached, self.place.n_agents, np.zeros(n, np.int64), grid,
            heard=self.schedule.part_heard(self.rounds, self.place.heard), function=self.sampling.function[:1],
            factor=self.sampling.factor[:1] / self.binned[:1], worth=self.sampling.worth.max(keepdims=True),
        )  # fmt: skip

    @property
    def _agents_reached(self) -> float:
        """Agents whose means are in the histogram."""
        return self.schedule.gossip.agents_reached(self.rounds)

    def _posterior_mean(self) -> Any:
        """Equation (5)."""
        fitted = self.fitted
        if self.rounds > 0 and not self.completed:  # the first census is still under way: use what there is
            fitted = self._fit()
        self.variance, self.own_weight = self.noise, 1.0
        if not self.neighbors:
            return self.own_mean
        found = posteriors(np.array([self.own_mean]), np.array([self.noise]), fitted.prior)
        self.own_weight = own_weight(found.variance, self.sampling.of_means())
        self.variance = (found.variance * self.sampling.stretch(self.own_weight) ** 2).item()
        return found.estimate.item()


def _summed(parts: list[tuple[Integers, Any, Any]]) -> tuple[Integers, Floats]:
    """Contributions added up."""
    return sum_by_code(*(np.concatenate([each[i].ravel() for each in parts]) for i in (1, 2)))


def _at_codes(codes: Integers, mine: Integers, masses: Array) -> Array:
    """The masses of my codes, at their positions among all codes; zero elsewhere."""
    out = np.zeros(len(codes), masses.dtype)
    out[np.searchsorted(codes, mine)] = masses
    return out
