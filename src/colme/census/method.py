"""The census: do not average the means, average the census of means. Our own method.

From the perspective of agent a, at step t:

(1) it observes x_a(t) and updates its local mean:    X_a <- X_a + (x_a - X_a) / n_a, of variance s^2 = sigma_a^2 / n_a
(2) when the last census is a fifth old, it votes:    z_a(0) = one vote on the two bins around X_a
(3) in every round it averages with its neighbors:    z(1) = W z(0),  z(k+1) = c (W z(k) - z(k-1)) + z(k-1)
(4) after some rounds z is everybody's histogram of means, and a few tribes (w, m, tau^2) explain it:
                                                      z ~ sum over k of w_k N(m_k, tau_k^2 + s^2)
(5) its estimate is its own posterior mean:           y_a = sum of p_k (m_k + tau_k^2 / (tau_k^2 + s^2) (X_a - m_k))

Early, when nothing can be told apart, (5) is the best shrinkage; late, one p_k is 1 and y_a is what an oracle who knew
the classes would say; in between it is the best compromise. No edge is ever cut and nothing is irrevocable.

W = A / r on a regular graph (r > 2, not bipartite), with momentum c = 1 + 1 / (r - 1), the best one on random regular
graphs; on other graphs W is Metropolis' matrix, with the momentum of a slower consensus. A neighbor that is not heard
is replaced by oneself. Agents without a sample have no vote, but they carry those of others. If sigma is not known,
agents also average their sample variances (in the first census nothing else), and each moderates its own by the common
one.

`histogram` has (2) and (3), `posterior` (4) and (5); docs/census.md the derivation and the limits.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.census.array import CensusState, Plan, add_square, variance_of_mean
from colme.census.change_detection import Followed
from colme.census.histogram import NOTHING, Bins, cast, cast_variance, common_variance
from colme.census.posterior import Tribes, posterior
from colme.consensus import metropolis_weight
from colme.errors import MethodError, one_of, positive
from colme.graphs import Graph
from colme.method import Agent, Method, Place, Round, World


class Census(Method, frozen=True, kw_only=True, tag="census"):
    """Everybody learns the distribution of everybody's means, and takes its own posterior mean.

    sigma           the scale of the samples that the agents know; default: that of the scenario or recording
    estimate_sigma  the agents do not know sigma: each estimates its own, moderated by that of all (always so where
                    neither scenario nor recording knows it)
    refresh         a new census begins when t is this many times the beginning of the last
    restart         agents watch for changes of their own mean and begin anew when they find one (needs a known sigma)
    rounds          of consensus per census, or "auto": as many as it takes to hear of everybody
    fits            "shared": a simulation fits the average census once for all agents who agree with it; "own": every
                    agent fits its own, as a device does (slow)
    """

    label: ClassVar[str] = "census"
    color: ClassVar[str] = "#000000"
    irrevocable: ClassVar[bool] = False
    tolerates_loss: ClassVar[bool] = True

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
                "restart=True with estimate_sigma=True: a change is told from noise by a known sigma. "
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
    def unit_matters(self) -> bool:
        return self.estimate_sigma  # then no scale is known to everybody

    def start(self, world: World, graph: Graph) -> CensusState:
        return CensusState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return CensusAgent(self, place)


class Votes(NamedTuple):
    """What a neighbor needs to hear: my occupied bins, and my degree (for Metropolis' weights)."""

    codes: NDArray[np.int64]
    values: NDArray[Any]
    degree: int


class CensusAgent(Agent):
    """Per-agent form."""

    saved: ClassVar[tuple[str, ...]] = (*Agent.saved, "began", "done", "tribes", "square", "common", "followed")

    def __init__(self, method: Census, place: Place):
        super().__init__(place)
        self.neighbors = list(place.neighbors)
        self.plan = Plan.of(method, place.n_agents, place.n_edges, place.auto_step, place.sigma)
        self.unit = place.unit if self.plan.sigma is not None else 1.0
        self.began, self.rounds = 0, -1  # -1 rounds: no census is under way
        self.done = False  # whether any census of means is
        self.codes = np.empty(0, np.int64)
        self.votes: NDArray[Any] = np.empty(0, place.exchange)
        self.before = self.votes
        self.channel: int | None = None  # of the noise of my grid, if I voted
        self.tribes: Tribes | None = None
        self.square, self.common = 0.0, math.nan  # sum of squared deviations; variance of everybody's samples
        self.followed = Followed(1) if method.restart else None

    @property
    def noise(self) -> float:
        """Variance of my mean."""
        if self.plan.sigma is not None:
            count = self.count if self.followed is None else self.followed.count.item()
            return float(np.square(self.plan.sigma)) / count if count else math.inf
        if not self.count or math.isnan(self.common):
            return math.inf
        return float(variance_of_mean(self.square, self.count, self.common))

    @property
    def latest(self) -> float:
        """My mean since my last change."""
        return self.mean if self.followed is None else self.followed.mean.item()

    def observe(self, sample: float) -> None:
        before = self.mean
        super().observe(sample)
        if self.count > 1 and sample == sample:
            self.square = add_square(self.square, self.mean, before, self.count)
        if self.followed is not None:
            self.followed.observe(np.array([self.mean]), np.array([self.count]), self.plan.sigma)

    def step(self, sample: float) -> Round:
        self.observe(sample)  # (1)
        if self.rounds < 0 and self.plan.begins(self.t, self.began):
            self._vote()
        if self.rounds >= 0:
            inbox = yield dict.fromkeys(self.neighbors, self.told)
            self._average({b: inbox[b] for b in self.neighbors if b in inbox})
            self._count_round()
        self.estimate = self._estimate()

    @property
    def told(self) -> Votes:
        """What the neighbors hear."""
        occupied = self.votes != 0
        return Votes(self.codes[occupied], self.votes[occupied], len(self.neighbors))

    def _count_round(self) -> None:
        """One more is done, perhaps the last."""
        self.rounds += 1
        if self.rounds >= self.plan.rounds_at(self.began):
            self._finish()

    def _finish(self) -> None:
        self.tribes = self._fit()
        self.common = common_variance(self.codes, self.votes[None], self.common).item()
        self.done = self.plan.has_ballots(self.began)
        self.rounds = -1

    def _vote(self) -> None:
        """Equation (2)."""
        ballots, self.channel = [], None
        in_doubt = self.followed is not None and self.followed.in_doubt.item()
        if self.count and 0.0 < self.noise < math.inf and not in_doubt:
            ballots.append(cast(self.latest, self.noise, self.unit))
            self.channel = int(ballots[0][0][0])
        if self.plan.sigma is None and self.count > 1:
            ballots.append(cast_variance(np.float64(self.square), np.float64(self.count)))
        self.codes = np.concatenate([np.empty(0, np.int64), *(codes for codes, _ in ballots)])
        self.votes = np.concatenate([np.empty(0), *(values for _, values in ballots)]).astype(self.place.exchange)
        self.before = np.zeros_like(self.votes)
        self.began, self.rounds = self.t, 0

    def _average(self, heard: dict[Hashable, Votes], *, plain: bool = False) -> None:
        """Equation (3), `colme.census.histogram.share_votes` for one agent; `plain`: without momentum."""
        codes = np.unique(np.concatenate([self.codes, *(votes.codes for votes in heard.values())]))
        now, before = (_among(codes, self.codes, values) for values in (self.votes, self.before))
        number = self.place.exchange
        own, total = number(1.0), np.zeros_like(now)
        for votes in heard.values():
            weight = number(self._weight(votes.degree))
            own -= weight
            total += weight * _among(codes, votes.codes, votes.values)
        value = total + own * now
        if self.rounds > 0 and not plain:
            value = number(self.plan.momentum) * (value - before) + before
        self.codes, self.votes, self.before = codes, np.where(np.abs(value) > NOTHING, value, number(0.0)), now

    def _weight(self, degree: int) -> float:
        if self.plan.regular:
            return 1.0 / self.plan.degree
        return float(metropolis_weight(len(self.neighbors), degree))

    def _fit(self) -> Tribes:
        """Equation (4)."""
        bins = Bins.of(self.codes, self.unit)
        grid = -1 if self.channel is None else bins.width[np.searchsorted(self.codes, self.channel)]
        return Tribes.of_voters(
            self.votes[None], bins, self.plan.counted(self.rounds), self.place.n_agents, np.zeros(1, np.int64),
            np.array([grid]),
        )  # fmt: skip

    def _estimate(self) -> float:
        """Equation (5)."""
        tribes = self.tribes
        if self.rounds > 0 and not self.done:  # better than nothing
            tribes = self._fit()
        if tribes is None or not self.neighbors:
            return self.latest
        out = np.empty(1), np.zeros(1, np.int64), np.empty(1)
        posterior(np.array([self.latest]), np.array([self.noise]), *tribes, *out)
        return out[0].item()


def _among(codes: NDArray[np.int64], mine: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """The values of my codes among all codes."""
    out = np.zeros(len(codes), values.dtype)
    out[np.searchsorted(codes, mine)] = values
    return out
