"""The census for all agents at once: one row of bin masses per agent, one column per bin that any agent uses.

The equations are numbered as in `colme.census.method`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import kernel
from colme._core.saved_state import COMMON
from colme.census.change_detection import ChangeDetector
from colme.census.histogram import NEGLIGIBLE, Bins, bin_means, disagreement
from colme.census.posterior import (
    FittedMixtures,
    MixturePrior,
    borrowing,
    posterior_cdf,
    posterior_interval,
    posterior_mean,
)
from colme.census.sample_variance import SamplingNoise
from colme.census.schedule import Schedule
from colme.census.variance_function import CONSTANT, is_constant
from colme.gossip import agents_heard, consensus_round, mean_over_agents, sum_over_agents
from colme.graphs import Graph
from colme.method import Posterior, State, World
from colme.spectrum import stable_step

if TYPE_CHECKING:
    from colme.census.method import Census

AGREEMENT = 0.05
"""Agents share the fit of the average histogram if their own differs from it by less than this part of the sampling
variance. The fits of other agents start from it."""


@kernel
def misjudged_edges(indptr, indices, at, group, class_):
    """The number of edges between classes, of those whose ends are in one group, of edges within classes, and of those
    whose ends are in two groups: at own agents, whose first one has the place `at`, in both directions."""
    between = wrong = within = lost = 0
    for a in range(indptr.size - 1):
        place = at + a
        for j in range(indptr[a], indptr[a + 1]):
            b = indices[j]
            if class_[place] != class_[b]:
                between += 1
                wrong += 1 if group[place] == group[b] else 0
            else:
                within += 1
                lost += 1 if group[place] != group[b] else 0
    return between, wrong, within, lost


class PosteriorSummary(NamedTuple):
    """The posterior of every agent: the priors, posterior means, most probable groups and their probabilities."""

    prior: MixturePrior
    estimate: NDArray[np.float64]
    group: NDArray[np.int64]
    probability: NDArray[np.float64]


class CensusState(State):
    """Array form: the histograms, fitted mixtures and posteriors of all agents."""

    saved: ClassVar[tuple[str, ...]] = (
        "began", "rounds", "codes", "masses", "previous", "grid", "completed", "fitted", "sampling", "detector", "sent",
    )  # fmt: skip
    split: ClassVar[dict[str, str]] = {"codes": COMMON}

    def __init__(self, method: Census, world: World, graph: Graph):
        super().__init__(method, world)
        n, hood, whole = world.n_agents, world.hood, graph.whole
        self._graph, self._world, self._hood, self._fit_all = graph, world, hood, method.fits == "own"
        self.schedule = Schedule.of(method, whole.n_agents, whole.n_edges, stable_step(whole), world.sigma)
        self.unit = world.unit if self.schedule.sigma is not None else 1.0
        self.weights: NDArray[Any] = self.schedule.gossip.weights(graph, hood).astype(world.exchange)
        self.heard = agents_heard(graph, self.schedule.gossip, hood)
        self._class = hood.seen("class", world.class_)
        self.began = 0  # the step at which the last census started
        self.rounds = -1  # rounds done of the census under way; -1: none is
        self.completed = False  # whether a census of means has completed
        self.codes = np.empty(0, np.int64)  # the bin or channel of each column
        self.masses: NDArray[Any] = np.empty((n, 0), world.exchange)  # z(k), after the last round
        self.previous = self.masses  # z(k - 1), after the round before
        self._rooms: list[NDArray[np.float64]] = []
        self._seen = self._seen_before = self.masses  # z(k) and z(k - 1) of all visible agents
        self.grid = np.full(n, -1)  # the grid on which each agent's mean was binned; -1: none
        self.fitted = FittedMixtures.none(n)
        self.sent = 0  # numbers, by all agents to all their neighbors
        self.sampling = SamplingNoise(n, self.schedule.sigma)
        self.detector = ChangeDetector(n) if method.restart else None
        self._summary: tuple[int, PosteriorSummary] | None = None  # at which step
        self._shares: tuple[PosteriorSummary, tuple[float, float]] | None = None  # of which posterior

    def step(self, world: World) -> None:
        self._summary = None
        if self.detector is not None:
            self.detector.observe(world.mean, world.counts, self.schedule.sigma * np.sqrt(self.sampling.factor))
        self.sampling.observe(self.own_mean, world.counts if self.detector is None else self.detector.count)
        if self.rounds < 0 and self.schedule.starts(world.t, self.began):
            self._start_census(world)
        if self.rounds >= 0:
            self._average(world)
            if self.rounds >= self.schedule.rounds_at(self.began):
                self._complete_census()

    def _start_census(self, world: World) -> None:
        """Equation (2): every agent with a sample bins its mean."""
        n, mean, noise = world.n_agents, self.own_mean, self.noise
        binned = ~np.isnan(mean) & (noise > 0.0) & (noise < np.inf)
        agents = np.flatnonzero(binned if self.detector is None else binned & ~self.detector.suspected)
        parts = [(agents, *bin_means(mean[agents], noise[agents], self.unit))]
        check = self.schedule.checks_variances(world.t, self.began)
        parts += self.sampling.contributions(self.fitted.frame if check else None)
        used = np.unique(np.concatenate([codes.ravel() for _, codes, _ in parts]))
        self.codes = used if world.team.size == 1 else np.unique(world.team.gather(used))
        self._make_room()
        self.masses[:] = 0.0
        for agents, codes, masses in parts:
            self.masses[agents[:, None], np.searchsorted(self.codes, codes)] = masses
        self._hood.refresh(self._seen.reshape(-1))
        self.grid = np.full(n, -1)
        agents, codes, _ = parts[0]
        self.grid[agents] = Bins.of(self.codes, self.unit).grid[np.searchsorted(self.codes, codes[:, 0])]
        self.began, self.rounds = world.t, 0

    def _make_room(self) -> None:
        """Arrays for a census, in the room of the last one if it is large enough."""
        hood, exchange, n_columns = self._hood, self._world.exchange, len(self.codes)
        size = hood.n_visible * n_columns
        if not self._rooms or size > self._rooms[0].view(exchange).size:
            self._rooms = []
            self.masses = self.previous = self._seen = self._seen_before = np.empty((0, 0), exchange)
            width = -(-n_columns * np.dtype(exchange).itemsize // 8)
            self._rooms = [hood.lines(width + width // 4) for _ in range(2)]
        self._seen, self._seen_before = (
            room.view(exchange)[:size].reshape(hood.n_visible, n_columns) for room in self._rooms
        )
        own = slice(hood.at, hood.at + self._world.n_agents)
        self.masses, self.previous = self._seen[own], self._seen_before[own]

    def restored(self) -> None:
        masses, previous = self.masses, self.previous
        self._make_room()
        if len(self.codes):
            self.masses[:], self.previous[:] = masses, previous
        self._hood.refresh(self._seen.reshape(-1))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy: its masses are no longer views of its room."""
        vars(self).update(state)
        self.restored()

    def _average(self, world: World) -> None:
        """Equation (3)."""
        graph, hood = self._graph, self._hood
        sent = consensus_round(
            graph.indptr, graph.indices, self.weights, hood.at, self._seen, self._seen_before,
            world.exchange(self.schedule.gossip.momentum), self.rounds == 0, world.arrived(len(graph.indices)),
            NEGLIGIBLE,
        )  # fmt: skip
        self.masses, self.previous = self.previous, self.masses
        self._seen, self._seen_before = self._seen_before, self._seen
        hood.refresh(self._seen.reshape(-1))
        self.sent += int(hood.team.total(sent))
        self.rounds += 1

    def _complete_census(self) -> None:
        before = self.sampling.factor
        self.sampling.learn(self.codes, self.masses, self.schedule.agents_heard(self.rounds, self.heard))
        self.fitted = self._fit(self.sampling.factor / before)
        self.completed = self.schedule.bins_means(self.began)
        self.rounds = -1

    def _fit(self, factor: Any = 1.0) -> FittedMixtures:
        """Equation (4), of the census under way; `factor` of the noise that was binned."""
        hood, masses = self._hood, self.masses
        reached, n, n_all = self.schedule.gossip.agents_reached(self.rounds), len(masses), hood.n_agents
        bins, part = Bins.of(self.codes, self.unit), self.schedule.part_heard(self.rounds, self.heard)
        function = self.sampling.function
        if self._fit_all:
            return FittedMixtures.of_agents(
                masses, bins, reached, n_all, np.arange(n), self.grid, heard=part, factor=factor, function=function
            )
        average, difference = mean_over_agents(masses, hood), np.empty(n)
        disagreement(masses, average, bins.center, reached, difference)
        differ = np.flatnonzero(difference > AGREEMENT)
        rows = np.concatenate([average[None].astype(masses.dtype), masses[differ]])
        row = np.zeros(n, np.int64)
        row[differ] = np.arange(1, len(rows))
        # the average histogram is that of all agents, and so are histograms like it
        part = np.append(1.0, np.broadcast_to(part, n)[differ])
        shared_factor = mean_over_agents(factor, hood) if np.ndim(factor) else factor
        factor = np.append(shared_factor, np.broadcast_to(factor, n)[differ])
        constant = is_constant(function)
        n_constant, shared = int(hood.team.total(np.count_nonzero(constant))), CONSTANT
        if n_constant <= 0.5 * n_all:
            shared = sum_over_agents(np.where(constant[:, None], 0.0, function), hood) / (n_all - n_constant)
        return FittedMixtures.of_agents(
            rows, bins, reached, n_all, row, self.grid, heard=part, factor=factor,
            function=np.concatenate([shared[None], function[differ]]), warm_start=True, team=hood.team,
        )  # fmt: skip

    def summary(self) -> PosteriorSummary:
        """Equation (5), as of the current step."""
        t, n = self._world.t, self._world.n_agents
        if self._summary is None or self._summary[0] != t:
            fitted = self.fitted
            if self.rounds > 0 and not self.completed:  # the first census is still under way: use what there is
                fitted = self._fit()
            prior = fitted.prior._replace(row=np.where(self._graph.degrees == 0, -1, fitted.row))
            found = PosteriorSummary(prior, np.empty(n), np.zeros(n, np.int64), np.empty(n))
            posterior_mean(self.own_mean, self.noise, *found)
            self._summary = t, found
        return self._summary[1]

    @property
    def own_mean(self) -> NDArray[np.float64]:
        """Local means; if agents watch for changes, since their last change."""
        return self._world.mean if self.detector is None else self.detector.mean

    @property
    def own_count(self) -> Any:
        """Samples behind `own_mean`."""
        return self._world.n_samples if self.detector is None else self.detector.count

    @property
    def variance(self) -> NDArray[np.float64]:
        """The posterior variance of every true mean."""
        kept, variance = np.empty((2, self._world.n_agents))
        borrowing(self.own_mean, self.noise, self.summary().prior, self.summary().estimate, kept, variance)
        return variance

    @property
    def noise(self) -> NDArray[np.float64]:
        """The sampling variance of every local mean; infinite where it is not known."""
        return self.sampling.of_means()

    @property
    def estimate(self) -> NDArray[np.float64]:  # type: ignore[override]
        return self.summary().estimate

    @property
    def numbers(self) -> float:  # type: ignore[override]
        """Numbers sent to each neighbor per step so far."""
        return self.sent / max(2 * self._graph.whole.n_edges, 1) / max(self._world.t, 1)

    @property
    def n_groups(self) -> float:  # type: ignore[override]
        """Components of an agent's mixture, on average over agents."""
        prior = self.summary().prior
        total = self._hood.team.total(prior.n_components[np.maximum(prior.row, 0)].sum())
        return int(total) / self._hood.n_agents

    def posterior(self, level: float) -> Posterior:
        ends = posterior_interval(level, self.own_mean, self.noise, self.summary().prior)
        return Posterior(self.summary().probability, *ends)

    def coverage(self, truth: NDArray[np.float64], level: float) -> float:
        out = np.empty(len(truth))
        posterior_cdf(truth, self.own_mean, self.noise, self.summary().prior, out)
        out = out[~np.isnan(out)]
        within = np.count_nonzero(np.abs(out - 0.5) <= 0.5 * level)
        n_within, n_known = self._hood.team.total([within, len(out)]).tolist()
        return n_within / n_known if n_known else math.nan

    def groups(self, graph: Graph) -> NDArray[np.int64]:
        return self.summary().group

    def graph(self) -> Graph:
        """The edges between neighbors of the same group."""
        graph, group = self._graph, self.summary().group
        return graph.kept(np.repeat(group, graph.degrees) == self._hood.seen("group", group)[graph.indices])

    @property
    def wrong_share(self) -> float:  # type: ignore[override]
        """Of the edges between classes, the share whose ends are in one group."""
        return self._misjudged()[0]

    @property
    def lost_share(self) -> float:  # type: ignore[override]
        """Of the edges within classes, the share whose ends are in two groups."""
        return self._misjudged()[1]

    def _misjudged(self) -> tuple[float, float]:
        summary = self.summary()
        if self._shares is None or self._shares[0] is not summary:
            graph, hood = self._graph, self._hood
            group = hood.seen("group", summary.group)
            counts = misjudged_edges(graph.indptr, graph.indices, hood.at, group, self._class)
            between, wrong, within, lost = hood.team.total(counts).tolist()
            self._shares = summary, (wrong / max(between, 1), lost / max(within, 1))
        return self._shares[1]

    @property
    def isolated(self) -> int:
        return int(self._hood.team.total(np.count_nonzero(self._graph.degrees == 0)))
