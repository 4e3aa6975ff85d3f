"""The census for all agents at once: one row of bin masses per agent, one column per bin that any agent uses.

The equations are numbered as in `colme.census.method`. `ChangeDetector` is for Census(restart=True).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._core.edges import Edges
from colme._core.jit import at, helper, kernel
from colme.census.histogram import NEGLIGIBLE, Bins, bin_means, channel, disagreement, in_channels
from colme.census.posterior import (
    FittedMixtures,
    MixturePrior,
    Posteriors,
    find_posteriors,
    posterior_cdf,
    posterior_interval,
)
from colme.consensus import stable_step
from colme.gossip import agents_heard, consensus_round, line_room, line_width, mean_over_agents, sum_over_agents
from colme.graphs import Graph
from colme.method import Intervals, Posterior, State, World
from colme.metrics import NOT_KNOWN
from colme.noise import CONSTANT, INDEPENDENT, PRODUCT, RATIO, SamplingNoise, is_constant, own_weight
from colme.samples import running_mean
from colme.support.arrays import Array, Floats, Integers, Mask
from colme.support.saved import COMMON

if TYPE_CHECKING:
    from colme.census.method import Census, CensusAgent

u64 = np.uint64

SLACK = 0.15
LARGEST = 4.0
"""A sample counts as at most so many deviations: under heavy tails no single one raises an alarm."""
ALARM = 28.0
SUSPICION = 12.0
"""A change is suspected beyond this sum."""
MIN_REFERENCE = 30
"""Samples before a mean is good enough to compare with."""
AGREEMENT = 0.05
"""Agents share the fit of the average histogram if their own differs from it by less than this part of the sampling
variance. The fits of other agents start from it."""


class ChangeDetector:
    """The CUSUMs of all agents, and their means and numbers of samples since their last alarm: a two-sided sum of an
    agent's samples against its own mean, and a fresh start on an alarm.

    With z = (x - X') / sigma, at most 4, where X' is the mean of the n' samples before the sum began to rise, the sums
    S <- max(0, S + z - d) and S <- max(0, S - z - d) rise when samples leave the mean by more than d deviations. A sum
    beyond h = 28 is an alarm. The slack d = 0.15 + 2 / sqrt(n') allows for the error of X' itself. A change by g
    deviations is found after about h / (g - d) samples. While a change is suspected (a sum beyond 12) an agent
    contributes no mean to a census, because its mean may be a mixture of an old and a new one.
    """

    saved = ("mean", "count", "_all_mean", "_all_count", "_up", "_down")

    def __init__(self, n_agents: int):
        self.mean, self.count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)
        self._all_mean, self._all_count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)
        self._up, self._down = np.zeros((n_agents, 3)), np.zeros((n_agents, 3))

    def observe(self, mean: Floats, count: Array, sigma: Any) -> None:
        """The means and numbers of all samples after one more step."""
        _observe(mean, count, sigma, self._all_mean, self._all_count, self.mean, self.count, self._up, self._down)

    @property
    def suspected(self) -> Mask:
        """Which agents may have changed."""
        return np.maximum(self._up[:, 0], self._down[:, 0]) > SUSPICION


@kernel
def _observe(new_mean, new_count, sigma, all_mean, all_count, mean, count, up, down):
    """Update mean and count, those since the last alarm. The means and numbers of all samples are `new_mean` and
    `new_count` now, `all_mean` and `all_count` a step before; the new sample follows from the two."""
    for a in range(new_mean.size):
        if new_count[a] <= all_count[a]:
            continue
        x = new_mean[a] if new_count[a] == 1 else all_mean[a] + (new_mean[a] - all_mean[a]) * new_count[a]
        all_mean[a], all_count[a] = new_mean[a], new_count[a]
        risen = _cusum(x, 1.0, at(sigma, a), mean[a], count[a], up, a)
        fallen = _cusum(x, -1.0, at(sigma, a), mean[a], count[a], down, a)
        if risen or fallen:
            for i in range(3):
                up[a, i] = down[a, i] = 0.0
            count[a] = 0
        count[a] += 1
        mean[a] = x if count[a] == 1 else running_mean(mean[a], x, count[a])


@helper
def _cusum(x, sign, sigma, mean, count, side, a):
    """Update one side of the CUSUM of agent a; side[a] = the sum, the number of samples since it was zero, and their
    total. Returns whether it is an alarm."""
    before = count - side[a, 1]
    if before < MIN_REFERENCE:
        return False
    reference = (mean * count - side[a, 2]) / before
    total = side[a, 0] + min(sign * (x - reference) / sigma, LARGEST) - (SLACK + 2.0 / np.sqrt(before))
    if total > 0.0:
        side[a, 0] = total
        side[a, 1] += 1.0
        side[a, 2] += x
    else:
        side[a, 0] = side[a, 1] = side[a, 2] = 0.0
    return total > ALARM


def contributions(form: CensusState | CensusAgent, t: int) -> list[tuple[Integers, Any, Any]]:
    """Equation (2): what agents contribute to a census that starts at step t, the agents, codes and masses of each
    part. The first part is the bins of means, and the noise channel."""
    mean, noise = np.atleast_1d(form.own_mean), form.sampling.of_means()
    binned = ~np.isnan(mean) & (noise > 0.0) & (noise < np.inf)
    agents = np.flatnonzero(binned if form.detector is None else binned & ~form.detector.suspected)
    parts = [(agents, *bin_means(mean[agents], noise[agents], form.unit))]
    if form.early:  # the check of step 2 goes on
        parts.append((np.arange(len(mean)), *early_check(form)))
        return parts
    return parts + of_variances(form, check=form.schedule.checks_variances(t, form.began))


def of_variances(form: CensusState | CensusAgent, *, check: bool) -> list[tuple[Integers, Any, Any]]:
    """What agents contribute to averages of sample variances."""
    found = form.sampling.contributions(form.fitted.frame if check else None)
    return [(agents, *in_channels(first, numbers)) for agents, first, numbers in found]


def early_check(form: CensusState | CensusAgent) -> tuple[Any, Any]:
    """The codes, and masses of all agents, of the check of a known sigma at step 2: it is handed in to the census of
    step 1, whose means it does not delay, and goes on in the next one."""
    masses = np.stack([channel(form.codes, np.atleast_2d(form.masses), k) for k in range(RATIO, PRODUCT)], axis=-1)
    return in_channels(RATIO, masses)


class CensusState(State):
    """Array form: the histograms, fitted mixtures and posteriors of all agents."""

    saved = (
        "began", "rounds", "early", "codes", "masses", "previous", "grid", "completed", "fitted", "sampling",
        "binned", "detector", "sent",
    )  # fmt: skip
    split: ClassVar[dict[str, str]] = {"codes": COMMON}

    def __init__(self, method: Census, world: World, graph: Graph):
        super().__init__(method, world)
        n, hood, whole = world.n_agents, world.hood, graph.whole
        self.given, self._hood, self._fit_all = graph, hood, method.fits == "own"
        self.schedule = method.schedule(whole.n_agents, whole.n_edges, stable_step(whole), world.sigma)
        self.unit = world.unit if self.schedule.sigma is not None else 1.0
        self.weights = self.schedule.gossip.weights(graph, hood, world.exchange)
        self.heard = agents_heard(graph, self.schedule.gossip, hood)
        self.began = 0  # the step at which the last census started
        self.rounds = -1  # rounds done of the census under way; -1: none is
        self.completed = False  # whether a census of means has completed
        self.early = False  # the check of step 2 is under way
        self.codes = np.empty(0, np.int64)  # the bin or channel of each column
        self.masses: Array = np.empty((n, 0), world.exchange)  # z(k), after the last round
        self.previous = self.masses  # z(k - 1), after the round before
        self._rooms: list[Floats] = []
        self._seen = self._seen_before = self.masses  # z(k) and z(k - 1) of all visible agents
        self.grid = np.full(n, -1)  # the grid on which each agent's mean was binned; -1: none
        self.fitted = FittedMixtures.none(n)
        self.sent = 0  # numbers, by all agents to all their neighbors
        self.sampling = SamplingNoise(n, self.schedule.sigma)
        self.binned = self.sampling.factor.copy()  # of sigma^2 when means were binned
        self.detector = ChangeDetector(n) if method.restart else None
        self._n_slots = max(2 * whole.n_edges, 1)
        self._alone = graph.degrees == 0
        self.n_alone = int(hood.team.total(np.count_nonzero(self._alone)))
        self._posteriors, self._posterior_at = Posteriors.room(n), -1
        self.below, self.below_of = np.empty(n), NOT_KNOWN  # the posterior probability of means below these
        self.posterior = MixturePosterior(self)
        self._prior = self.fitted.prior
        self.edges = GroupEdges(self)

    def step(self, world: World) -> None:
        self._posterior_at = -1
        self.sampling.factors = world.factors
        if self.detector is not None:
            self.detector.observe(world.mean, world.counts, self.schedule.sigma * np.sqrt(self.sampling.factor))
        self.sampling.observe_all(self.own_mean, self.own_count)
        if self.rounds < 0 and self.schedule.starts(world.t, self.began):
            self._start_census(world)
        if self.schedule.checks_early(world.t, self.rounds):
            self._hand_in(of_variances(self, check=True))
            self.early = True
        if self.rounds >= 0:
            self._average(world)
            heard = self.schedule.agents_heard(self.rounds + (self.early and self.began > 1), self.heard)
            if self.rounds >= self.schedule.rounds_at(self.began):
                if not (self.early and self.began == 1):
                    self.sampling.learn(self._channel, heard)
                self._complete_census()
            else:
                smaller = self.sampling.notice(self._channel, heard)
                if world.team.any(bool(smaller.any())):
                    self.fitted = self.fitted.replaced(smaller, self._fit(), world.team)

    def _start_census(self, world: World) -> None:
        """Equation (2): every agent with a sample bins its mean."""
        parts = contributions(self, world.t)
        used = np.concatenate([in_channels(RATIO, np.empty(PRODUCT - RATIO))[0], *(each[1].ravel() for each in parts)])
        self.codes = np.unique(used if world.team.size == 1 else world.team.gather(np.unique(used)))
        self._make_room()
        self._hood.my_lines(self._seen)[:] = 0.0
        self._hand_in(parts)
        self.grid = np.full(world.n_agents, -1)
        agents, codes, _ = parts[0]
        self.grid[agents] = Bins.of(self.codes, self.unit).grid[np.searchsorted(self.codes, codes[:, 0])]
        self.began, self.rounds, self.binned = world.t, 0, self.sampling.factor.copy()

    def _hand_in(self, parts: list[tuple[Integers, Any, Any]]) -> None:
        for agents, codes, masses in parts:
            self.masses[agents[:, None], np.searchsorted(self.codes, codes)] = masses
        self._hood.refresh(self._seen.reshape(-1))

    def _make_room(self) -> None:
        """Arrays for a census, in the room of the last one if it is large enough."""
        hood, exchange, n_columns = self._hood, self.world.exchange, len(self.codes)
        width = line_width(n_columns, exchange)
        size = hood.n_visible * width
        if not self._rooms or size > self._rooms[0].size:
            self._rooms = []
            self.masses = self.previous = self._seen = self._seen_before = np.empty((0, 0), exchange)
            self._rooms = [line_room(hood, width, exchange).reshape(-1) for _ in range(2)]
        self._seen, self._seen_before = (room[:size].reshape(hood.n_visible, width) for room in self._rooms)
        own = slice(hood.own_start, hood.own_start + self.world.n_agents), slice(n_columns)
        self.masses, self.previous = self._seen[own], self._seen_before[own]

    def restored(self) -> None:
        masses, previous = self.masses, self.previous
        self._posterior_at = -1
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
        graph, hood = self.given, self._hood
        sent = consensus_round(
            graph.indptr, graph.indices, self.weights, hood.own_start, self._seen, self._seen_before,
            world.exchange(self.schedule.gossip.momentum), self.rounds == 0, world.arrived(len(graph.indices)),
            NEGLIGIBLE,
        )  # fmt: skip
        self.masses, self.previous = self.previous, self.masses
        self._seen, self._seen_before = self._seen_before, self._seen
        hood.refresh(self._seen.reshape(-1))
        self.sent += int(hood.team.total(sent))
        self.rounds += 1

    def _channel(self, k: int) -> Floats:
        return channel(self.codes, self.masses, k)

    def _complete_census(self) -> None:
        self.fitted = FittedMixtures.none(self.world.n_agents)  # makes room for the next
        self._prior = self.fitted.prior
        self.fitted = self._fit()
        self.completed, self.early = self.schedule.bins_means(self.began), self.early and self.began == 1
        self.rounds = -1

    def _fit(self) -> FittedMixtures:
        """Equation (4), of the census under way."""
        hood, masses = self._hood, self.masses
        reached, n, n_all = self.schedule.gossip.agents_reached(self.rounds), len(masses), hood.n_agents
        bins, part = Bins.of(self.codes, self.unit), self.schedule.part_heard(self.rounds, self.heard)
        function, factor, worth = self.sampling.function, self.sampling.factor / self.binned, self.sampling.worth
        if self._fit_all:
            return FittedMixtures.of_agents(
                np.ascontiguousarray(masses), bins, reached, n_all, np.arange(n), self.grid, heard=part, factor=factor,
                function=function, worth=worth,
            )  # fmt: skip
        average, difference = mean_over_agents(masses, hood), np.empty(n)
        disagreement(masses, average, bins.center, reached, difference)
        differ = np.flatnonzero(difference > AGREEMENT)
        rows = np.concatenate([average[None].astype(masses.dtype), masses[differ]])
        row = np.zeros(n, np.int64)
        row[differ] = np.arange(1, len(rows))
        # the average histogram is that of all agents, and so are histograms like it
        part = np.append(1.0, np.broadcast_to(part, n)[differ])
        factor, worth = (np.append(mean_over_agents(each, hood), each[differ]) for each in (factor, worth))
        constant = is_constant(function)
        n_constant, shared = int(hood.team.total(np.count_nonzero(constant))), CONSTANT
        if n_constant <= 0.5 * n_all:
            shared = sum_over_agents(np.where(constant[:, None], 0.0, function), hood) / (n_all - n_constant)
        return FittedMixtures.of_agents(
            rows, bins, reached, n_all, row, self.grid, heard=part, factor=factor,
            function=np.concatenate([shared[None], function[differ]]), worth=worth, warm_start=True, team=hood.team,
        )  # fmt: skip

    def summary(self) -> tuple[MixturePrior, Posteriors]:
        """Equation (5), as of the current step: the priors, and the posterior of every agent."""
        if self._posterior_at != self.world.t:
            fitted = self.fitted
            if self.rounds > 0 and not self.completed:  # the first census is still under way: use what there is
                fitted = self._fit()
            self._prior = fitted.prior
            if self.n_alone:  # agents without neighbors have no prior
                self._prior = self._prior._replace(row=np.where(self._alone, -1, fitted.row))
            truth = self.world.truth if self.world.recorded and not self.stretches else None
            truth = NOT_KNOWN if truth is None else truth
            find_posteriors(self.own_mean, self.noise, self._prior, truth, self._posteriors, self.below)
            self.below_of = truth
            self._posterior_at = self.world.t
        return self._prior, self._posteriors

    @property
    def own_mean(self) -> Floats:
        """Local means; if agents watch for changes, since their last change."""
        return self.world.mean if self.detector is None else self.detector.mean

    @property
    def own_count(self) -> Any:
        """Samples behind `own_mean`."""
        return self.world.n_samples if self.detector is None else self.detector.count

    @property
    def stretches(self) -> bool:
        """Whether intervals are wider than those of the posterior, for dependence between samples."""
        return self.sampling.factors is not INDEPENDENT

    @property
    def stretch(self) -> Any:
        """The factor by which they are."""
        return self.sampling.stretch(self.own_weight) if self.stretches else 1.0

    @property
    def own_weight(self) -> Floats:
        return own_weight(self.summary()[1].variance, self.noise)

    @property
    def variance(self) -> Floats:
        """The posterior variance of every true mean."""
        found = self.summary()[1].variance
        return found * np.square(self.stretch) if self.stretches else found

    @property
    def noise(self) -> Floats:
        """The sampling variance of every local mean; infinite where it is not known."""
        return self.sampling.of_means()

    @property
    def estimate(self) -> Floats:  # type: ignore[override]
        return self.summary()[1].estimate

    @property
    def numbers(self) -> float:  # type: ignore[override]
        """Numbers sent to each neighbor per step so far."""
        return self.sent / self._n_slots / max(self.world.t, 1)

    @property
    def group(self) -> NDArray[np.int32]:
        """The most probable component of every agent."""
        return self.summary()[1].group


class MixturePosterior(Posterior):
    """The posteriors of a census: equation (5)."""

    def __init__(self, state: CensusState):
        self._state = state

    def intervals(self, level: float) -> Intervals:
        state, (prior, found) = self._state, self._state.summary()
        lower, upper = posterior_interval(level, state.own_mean, state.noise, prior)
        if state.stretches:
            lower, upper = (found.estimate + state.stretch * (end - found.estimate) for end in (lower, upper))
        return Intervals(found.probability, lower, upper)

    def cdf(self, value: Floats) -> Floats:
        state, (prior, found) = self._state, self._state.summary()
        if state.stretches:
            value = found.estimate + (value - found.estimate) / state.stretch
        return state.below if value is state.below_of else posterior_cdf(value, state.own_mean, state.noise, prior)


class GroupEdges(Edges):
    """The edges between neighbors of the same group, as the posteriors of a census see it now."""

    def __init__(self, state: CensusState):
        super().__init__(state.world.hood)
        self._state = state
        self._class = self.hood.seen("class", state.world.class_)
        self._shares, self._shares_at = (math.nan, math.nan), -1  # of misjudged edges, at a step

    @property
    def wrong_share(self) -> float:
        """Of the edges between classes, the share whose ends are in one group."""
        return self._misjudged()[0]

    @property
    def lost_share(self) -> float:
        """Of the edges within classes, the share whose ends are in two groups."""
        return self._misjudged()[1]

    def _misjudged(self) -> tuple[float, float]:
        state, graph, team = self._state, self._state.given, self.hood.team
        if self._shares_at != state.world.t:
            group = self.hood.seen("group", state.group)
            counts = count_edges(graph.indptr, graph.indices, self.hood.own_start, group, self._class)
            wrong, between, lost, within = team.total(counts).tolist()
            self._shares, self._shares_at = (wrong / max(between, 1), lost / max(within, 1)), state.world.t
        return self._shares

    @property
    def isolated(self) -> int:
        return self._state.n_alone

    @property
    def n_groups(self) -> float:
        """Components of an agent's mixture, on average over agents."""
        prior, _ = self._state.summary()
        total = self.hood.team.total(prior.n_components[np.maximum(prior.row, 0)].sum())
        return int(total) / self.hood.n_agents

    def graph(self) -> Graph:
        graph, group = self._state.given, self._state.group
        return graph.kept(np.repeat(group, graph.degrees) == self.hood.seen("group", group)[graph.indices])

    def groups(self, graph: Graph) -> Integers:
        return self._state.group.astype(np.int64)


@kernel
def count_edges(indptr, indices, own_start, group, class_):
    """The edges between classes whose ends are in one group, and all between classes; those within classes whose ends
    are in two, and all within classes: of own agents, in both directions.

    `own_start` is the index of the first own agent; groups and classes are those of all visible ones."""
    wrong = between = lost = within = 0
    for a in range(u64(indptr.size - 1)):
        own = u64(own_start) + u64(a)
        for j in range(u64(indptr[a]), u64(indptr[u64(a) + u64(1)])):
            b = u64(indices[j])
            together = group[own] == group[b]
            if class_[own] != class_[b]:
                wrong += int(together)
                between += 1
            else:
                lost += int(not together)
                within += 1
    return wrong, between, lost, within
