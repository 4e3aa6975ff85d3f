"""How methods learn event by event: the parameters that the kernel needs, and the answers about agents.

A method names its rule (`Method.online_rule`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from colme.census.histogram import Bins, histogram_of
from colme.census.method import Census
from colme.census.modes import Components, groups_of, memberships
from colme.census.posterior import FittedMixtures, MixturePrior, Posteriors, posterior_interval, posteriors
from colme.confidence import BOUNDS, DifferenceTest
from colme.consensus import Clock, stable_step
from colme.dependence import DEVIATION, NUMBER, SUMS, learn
from colme.errors import MethodError
from colme.graphs import Graph
from colme.guard import blended
from colme.method import Method, named
from colme.methods.consensus import ConsensusMethod
from colme.methods.partition import FewPosteriors, Partition
from colme.noise import own_weight
from colme.online.agents import AgentTable
from colme.online.guard import OnlineGuard
from colme.online.kernel import (
    ARRIVED,
    ESTIMATE,
    EVENTS,
    FREEDOM,
    MEAN,
    MIN_FREEDOM,
    PRESENT,
    RADIUS,
    WEIGHT,
    WEIGHT_2,
    Parameters,
    count_samples,
    effective,
    fill_spreads,
    keep_estimates,
    sum_batches,
    test_of,
)
from colme.online.noise import OnlineNoise, fill_excess, fill_variances, keep_posteriors
from colme.support.arrays import Floats, Integers

GROWTH = 0.05
"""A vote is due when there are this many times more samples, and at least one per agent"""
DEPENDENCE_GROWTH, AHEAD = 1.2, 2.0
"""Samples that are more, by this factor, before their dependence is learned anew; and those that it is learned for."""
ARRIVALS = 1.2
"""or when there are this many times as many agents."""
JUDGES = 1 << 13
"""Agents whose samples judge: all, or from twice as many on a random half, quarter, .. of at least so many."""
_HASH = np.uint64(0x9E3779B97F4A7C15)
NEVER = np.iinfo(np.int64).max
_BOUND_FAILS = dict(zip(BOUNDS, (2.0, 1.29, 2.0), strict=True))
"""A bound at level gamma fails at any time with at most gamma times this factor as probability."""
Slots = Integers


class Rule:
    """Local: each agent on its own. The parent of the other rules."""

    saved: ClassVar[tuple[str, ...]] = ("stops", "one_in", "guard", "factors", "checked")
    max_neighbors: int | None = None
    """Neighbors that an agent has room for; None: it has none."""
    bound: str = "laplace"
    parameters = Parameters()
    clock = Clock()
    guard: OnlineGuard | None = None
    half_life: float = -1.0
    """Of a sample's weight; negative: nothing is forgotten."""
    root: float | None = None
    """Of the difference test, see `colme.confidence.DifferenceTest`; None: agents compare intervals."""

    def __init__(self, method: Method, sigma: float | None, degree: int, graph: Graph | None):
        if graph is not None and self.max_neighbors is None:
            raise MethodError(f"{type(method).__name__} with graph=: in one place it needs no edges. Leave graph out.")
        self.sigma = math.nan if sigma is None else float(sigma)
        self.table: AgentTable
        self.stops = np.full(2, NEVER)  # the next vote is at so many events, or agents
        self.one_in = np.ones(1, np.int64)  # of so many agents one judges, a power of two
        self.factors = np.ones((4, 2))  # of the variances of means (`colme.dependence.learn`)
        self.checked = np.array([0.0, math.nan])  # samples when these were learned, and their typical deviation

    def spreads(self, slots: Slots, level: float, root: float | None = None, least: float = 1.0) -> Floats:
        """Radii at this level; standard errors where there is the root of a difference test."""
        table, out = self.table, np.empty(len(slots))
        fill_spreads(
            table.agents, slots, self.sigma, table.pool, least, level, self.parameters.kurtosis, root, self.factors,
            table.batches is None, out,
        )  # fmt: skip
        return out

    def raw(self, slots: Slots) -> Floats:
        """Estimates without a guard."""
        return self.table.agents[slots, MEAN]

    def trust(self, slots: Slots) -> Floats:
        """The weight of these estimates that the guard allows."""
        return np.ones(len(slots)) if self.guard is None else self.guard.trust(self.table, slots)

    def estimate(self, slots: Slots) -> Floats:
        return blended(self.table.agents[slots, MEAN], self.raw(slots), self.trust(slots))

    @property
    def due(self) -> bool:
        """It is time for a vote."""
        counters, stops = self.table.counters, self.stops
        return bool(counters[EVENTS] >= stops[0] or counters[PRESENT] >= stops[1])

    @property
    def votes(self) -> bool:
        """There are votes at all."""
        return bool(self.stops[0] < NEVER)

    def vote(self) -> None:
        """Between events: let new samples judge the estimates of the last vote, and keep those of now for the next."""
        if self.votes:
            self.judge(*self.call())

    def call(self) -> tuple[float, float]:
        """A vote begins: decide when the next one is due. Returns the sums of `count_samples`."""
        table = self.table
        size, inverse = count_samples(table.agents, table.present)
        events, agents = table.counters[[EVENTS, PRESENT]].tolist()
        self.stops[:] = events + max(agents, math.ceil(GROWTH * size), 1), max(math.ceil(ARRIVALS * agents), agents + 1)
        return size, inverse

    def judge(self, size: float, inverse: float) -> None:
        """The rest of a vote. It changes the rule and the snapshots in its table, and nothing else."""
        table, judges = self.table, self._judges()
        self._learn_dependence(size)
        if self.guard is not None:
            self.guard.learn(table, judges, self.half_life, self.factors)
        self.learn(judges, size, inverse)
        one_in = 1 << max(len(table.present) // JUDGES, 1).bit_length() - 1
        if one_in != self.one_in[0]:
            self.one_in[0] = one_in
            judges = self._judges()
        self.keep(judges, size)

    def _learn_dependence(self, size: float) -> None:
        """How the samples of an agent depend on each other, if there are enough more of them than last time."""
        table, (before, typical) = self.table, self.checked
        if table.batches is None or size < DEPENDENCE_GROWTH * before:
            return
        sums = np.zeros(SUMS)
        sum_batches(table.agents, table.numbers, table.batches, table.present, typical, sums)
        self.checked = np.array([size, sums[DEVIATION] / sums[NUMBER] if sums[NUMBER] > 0.0 else math.nan])
        found = learn(sums, AHEAD * float(table.agents[table.present, WEIGHT].max(initial=1.0)))
        self.factors = np.ones((4, 2)) if found is None else found

    def with_table(self, table: AgentTable) -> Rule:
        """A copy that learns by itself, of the agents of another table."""
        other = copy.copy(self)
        vars(other).update(copy.deepcopy({name: each for name, each in vars(self).items() if name != "table"}))
        other.table = table
        return other

    def _judges(self) -> Slots:
        """The agents whose estimates are kept, and judged at the next vote: the same ones as long as `one_in` is."""
        slots, n = self.table.present, self.one_in[0]
        if n == 1:
            return slots
        blocks = (slots >> 6).view(np.uint64)  # of neighbors in memory, which are read faster
        return slots[(blocks * _HASH >> np.uint64(40)) & np.uint64(n - 1) == 0]

    def learn(self, judges: Slots, size: float, inverse: float) -> None:
        """Learn from all agents together, where a method does; `size` and `inverse` as in `count_samples`."""

    def keep(self, judges: Slots, size: float) -> None:
        """Keep the estimates of these agents until the next vote; all agents have so many samples."""
        if self.guard is not None:
            self.guard.begin(self.table, size)
        keep_estimates(self.table.agents, judges, self.table.snapshots)

    def interval(self, slots: Slots, level: float) -> tuple[Floats, Floats]:
        """An interval around the own mean; it holds at all times simultaneously with this probability."""
        radius = self.spreads(slots, (1.0 - level) / _BOUND_FAILS[self.bound])
        mean = self.table.agents[slots, MEAN]
        return mean - radius, mean + radius

    def group(self, slots: Slots) -> tuple[Integers, Floats]:
        """Groups, and the probability that an agent belongs to its group; NaN where the method has none."""
        return self.table.places[slots], np.full(len(slots), np.nan)

    @property
    def _level(self) -> float:
        """gamma for as many agents as have come."""
        shared = self.parameters.shared
        return self.parameters.gamma / (max(1, self.table.counters[ARRIVED]) if shared else 1.0)

    @property
    def test(self) -> DifferenceTest | None:
        """What compares two agents now; None: their intervals."""
        found: DifferenceTest | None = test_of(self.root, self._level)
        return found

    def update_radii(self) -> None:
        """Compute the radius that each agent tells its neighbors anew."""
        table = self.table
        table.agents[table.present, RADIUS] = self.spreads(table.present, self._level, self.root, MIN_FREEDOM)

    def renew(self) -> None:
        """Forget what was learned of all agents together: some were added other than by an event."""


class ConsensusRule(Rule):
    """CL-colME and C-colME: average with the neighbors whose intervals overlap."""

    def __init__(self, method: ConsensusMethod, sigma: float | None, degree: int, graph: Graph | None):
        known = method.sigma if method.sigma is not None else sigma
        if method.cut == "difference" and method.bound != "hoeffding" and known is None:
            raise MethodError(
                "cut='difference' without a scale: difference tests need one that is known, not estimated. "
                "Try sigma=..., or cut='intervals'."
            )
        if graph is None:
            # 4 r N directed edges, of as many agents as will have come: the kernel divides by them. Difference tests
            # count edges, so as many as there is room for.
            self.max_neighbors = degree + max(1, degree // 2)
            bound = method.bound_for(2, degree if method.cut == "intervals" else self.max_neighbors)
            shared = method.gamma is None and method.level != "agent"
            gamma, auto = bound.gamma * (2.0 if shared else 1.0), 1.0 / self.max_neighbors
        else:
            bound = method.bound_for(graph.n_agents, graph.n_edges, max_degree=graph.max_degree)
            self.max_neighbors = max(1, graph.max_degree)
            shared, gamma, auto = False, bound.gamma, stable_step(graph)
        scale = method.scale_for(sigma, None) if method.bound == "hoeffding" or known is not None else None
        super().__init__(method, scale, degree, graph)
        step = method.step_size(auto)
        if graph is not None:
            method.check(graph.n_agents, graph)
        elif not method.metropolis and step * self.max_neighbors >= 2.0:
            raise MethodError(
                f"step={step:g} is not stable: agents may have {self.max_neighbors} neighbors, so it must be below "
                f"{2.0 / self.max_neighbors:.4g}. Try step='auto', which is {auto:.4g}."
            )
        self.bound = method.bound
        test = method.test_for(bound, scale, None, "common")
        self.root = None if test is None else test.root
        self.parameters = Parameters(
            gamma=gamma, shared=shared, kurtosis=bound.kurtosis if method.bound == "fourth-moment" else -1.0,
            step=step, metropolis=method.metropolis, degree=0 if graph is not None else degree,
        )  # fmt: skip
        self.clock = method.clock_rule
        if method.guard:
            self.guard = OnlineGuard(method.trusting)
        if method.guard or self.root is not None:
            self.stops[:] = 1
        self._groups: tuple[tuple[object, int, int], Integers] | None = None  # what groups were found of, and those

    def raw(self, slots: Slots) -> Floats:
        return self.table.agents[slots, ESTIMATE]

    def group(self, slots: Slots) -> tuple[Integers, Floats]:
        """Connected agents form a group; groups are numbered in the order of the agents."""
        table = self.table
        known = table, int(table.counters[EVENTS]), len(table.present)  # edges are as they were while these are
        if self._groups is None or self._groups[0] != known:
            component = table.graph().components()
            found, first = np.unique(component[table.present], return_index=True)
            number = np.empty(len(component), np.int64)
            number[found[np.argsort(first)]] = np.arange(len(found))
            self._groups = known, number[component]
        return self._groups[1][slots], np.full(len(slots), np.nan)


class CensusRule(Rule):
    """The census in one process: the histogram of all means is fitted anew at a vote, if the last fit is old.

    Few agents sum over partitions instead (`colme.methods.partition`); groups are those of the census."""

    saved = (*Rule.saved, "origin", "counted", "noise", "mixture")

    def __init__(self, method: Census | Partition, sigma: float | None, degree: int, graph: Graph | None):
        if getattr(method, "restart", False):
            raise MethodError(
                "restart=True: there is no change detection event by event. Try half_life=..., which forgets."
            )
        for name in ("rounds", "fits"):
            if name in method.changed:
                raise MethodError(
                    f"{name}={getattr(method, name)!r}: all agents are in one process, so there is one exact census. "
                    f"Leave {name} out."
                )
        known = method.sigma if method.sigma is not None else sigma
        super().__init__(method, None if getattr(method, "estimate_sigma", False) else known, degree, graph)
        self.refresh, self.most = getattr(method, "refresh", 1.2), method.partitioned
        self.guard = OnlineGuard(method.trusting, method.patience) if method.guard else None
        self.stops[:] = 1
        self.noise = OnlineNoise()
        self._groups: tuple[FittedMixtures, Integers] | None = (
            None  # what groups were found of, and those of components
        )
        self.renew()

    def renew(self) -> None:
        self._found: tuple[int, FewPosteriors] | None = None  # at an event
        self.mixture = FittedMixtures.none(1)
        self.origin, self.counted = np.zeros(1), np.zeros(2, np.int64)  # events and agents of the last census

    @property
    def few(self) -> bool:
        """Whether agents sum over partitions."""
        return len(self.table.present) <= self.most

    def _partitions(self, slots: Slots) -> tuple[FewPosteriors, Integers]:
        """The posteriors of all agents, and the rows of these."""
        table, event = self.table, int(self.table.counters[EVENTS])
        if self._found is None or self._found[0] != event:
            noise = self._variances(table.present)
            if math.isnan(self.noise.model(table, self.sigma, self.factors).sigma):
                freedom = max(table.pool[FREEDOM], 3.0)
                noise *= freedom / (freedom - 2.0)
            self._found = event, FewPosteriors.of(table.agents[table.present, MEAN] - self.origin[0], noise)
        row = np.zeros(len(table.agents), np.int64)
        row[table.present] = np.arange(len(table.present))
        return self._found[1], row[slots]

    def _variances(self, slots: Slots) -> Floats:
        """The variances of own means; infinite where nothing is known."""
        table, out = self.table, np.empty(len(slots))
        fill_variances(
            table.agents, slots, self.noise.model(table, self.sigma, self.factors), self.mixture.prior,
            self.origin[0], out,
        )  # fmt: skip
        return out

    def learn(self, judges: Slots, size: float, inverse: float) -> None:
        """The noise, and equations (2) to (4) of `colme.census.method`, where one sum takes the place of the rounds."""
        table = self.table
        self.noise.learn(table, judges, self.half_life, size, inverse, self.factors)
        self._found = None  # the noise is another one
        if self.guard is not None:
            self.guard.be(Partition.patience if self.few else 1.0)
        now = table.counters[[EVENTS, PRESENT]]
        grown = now >= self.refresh * self.counted
        if not (grown.any() or now[1] * self.refresh <= self.counted[1]) or (now == self.counted).all():
            return
        slots = table.present
        mean, variance = table.agents[slots, MEAN], self._variances(slots)
        binned = (variance > 0.0) & (variance < np.inf)
        self.renew()
        self.counted[:] = now
        n = int(binned.sum())
        if n < 2:
            return  # fewer than two agents with a known noise
        self.origin[0] = mean[binned].mean()
        sigma, average, *_ = self.noise.model(table, self.sigma, self.factors)
        unit = math.sqrt(average) if math.isnan(sigma) else sigma
        codes, masses = histogram_of(mean[binned] - self.origin[0], variance[binned], unit)
        counted = max(2, round(n * self.noise.part))
        # rounded, as agents of a simulation hear them
        self.mixture = FittedMixtures.of_rows(
            masses[None].astype(np.float32), Bins.of(codes, unit), float(counted), counted
        )

    def keep(self, judges: Slots, size: float) -> None:
        table, moments = self.table, np.zeros((2, 5))
        trusts = (1.0, 1.0) if self.guard is None else self.guard.begin(table, size)
        known = np.empty((3, 0))
        if self.few:
            found, row = self._partitions(judges)
            known = np.stack([found.noise[row], found.estimate[row] + self.origin[0], found.variance[row]])
        keep_posteriors(
            table.agents, judges, self.noise.model(table, self.sigma, self.factors), self.mixture.prior, self.origin[0],
            known, 0.0 if self.guard is None else self.guard.few, np.array(trusts), table.snapshots, moments,
        )  # fmt: skip
        if self.guard is not None:
            self.guard.calibrate(trusts, moments)

    def _prior(self, variance: Floats) -> MixturePrior:
        """The prior of agents whose own means have these variances."""
        has_prior = (variance > 0.0) & (variance < np.inf) & (self.mixture.n_components[0] > 0)
        return self.mixture.prior._replace(row=np.where(has_prior, 0, -1))

    def raw(self, slots: Slots) -> Floats:
        """Equation (5), or that of `colme.methods.partition`."""
        if self.few:
            found, row = self._partitions(slots)
            return found.estimate[row] + self.origin[0]
        return self._posteriors(slots, self._variances(slots)).estimate + self.origin[0]

    def _posteriors(self, slots: Slots, variance: Floats) -> Posteriors:
        return posteriors(self.table.agents[slots, MEAN] - self.origin[0], variance, self._prior(variance))

    def group(self, slots: Slots) -> tuple[Integers, Floats]:
        """As in a table (`colme.census.modes`): without evidence of groups all agents are in one."""
        table, components = self.table, Components.of(self.mixture.prior)
        if self._groups is None or self._groups[0] is not self.mixture:
            of_component = np.zeros(max(len(components.share), 1), np.int64)
            if len(components.share) > 1:
                present = table.present
                noise = self._variances(present)
                known = (noise > 0.0) & (noise < np.inf)
                present, noise = present[known], noise[known]
                found = self._posteriors(present, noise).group.astype(np.int64)
                mean = table.agents[present, MEAN] - self.origin[0]
                of_component = groups_of(components, mean, noise, found, np.ones(len(mean), bool))
            self._groups = self.mixture, of_component
        of_component, variance = self._groups[1], self._variances(slots)
        posterior = self._posteriors(slots, variance)
        group = of_component[posterior.group]
        if not of_component.any():
            return group, np.where(posterior.probability > 0.0, 1.0, 0.0)
        mean, outliers = table.agents[slots, MEAN] - self.origin[0], float(self.mixture.outlier_density[0])
        return group, memberships(components, outliers, mean, variance, of_component, group)

    def interval(self, slots: Slots, level: float) -> tuple[Floats, Floats]:
        """Between the quantiles of the posterior, where an estimated variance counts as much as it is expected to be;
        with a guard blended with the interval of the own mean, as the estimate is, and calibrated
        (`colme.online.guard`)."""
        variance = self._variances(slots)
        own = variance * self._unsure(slots)
        mean = self.table.agents[slots, MEAN] - self.origin[0]
        if self.few:
            posterior, row = self._partitions(slots)
            ends: Sequence[Floats] = [end[row] for end in posterior.interval(level)]
            center, spread = posterior.estimate[row], posterior.variance[row]
        else:
            ends, found = posterior_interval(level, mean, own, self._prior(variance)), self._posteriors(slots, variance)
            center, spread = found.estimate, found.variance
        excess = np.empty(len(slots))
        fill_excess(self.table.agents, slots, self.noise.model(self.table, self.sigma, self.factors), excess)
        stretch = np.sqrt(1.0 + excess * own_weight(spread, variance))
        for end in ends:
            end[:] = np.where(stretch > 1.0, center + stretch * (end - center), end)
            end[own == 0.0] = mean[own == 0.0]
            end += self.origin[0]
        own *= 1.0 + excess
        if self.guard is not None:
            trust, excess = self.trust(slots), self.guard.excess(self.table, slots)
            here = np.flatnonzero(((trust < 1.0) | (excess > 0.0)) & (own < np.inf))  # else ends are infinite already
            raw, estimate = self.raw(slots[here]), self.estimate(slots[here])
            local = NormalDist().inv_cdf(0.5 + 0.5 * level) * np.sqrt(own[here])
            for end, sign in zip(ends, (-1.0, 1.0), strict=True):
                reach = blended(local, sign * (end[here] - raw), trust[here])  # below 0 if the mean lies outside
                square = reach * np.abs(reach) + excess[here] * local * local
                end[here] = estimate + np.copysign(np.sqrt(np.abs(square)), sign * square)
        return ends[0], ends[1]

    def _unsure(self, slots: Slots) -> Floats | float:
        """The expected variance of an own mean, given the estimated one: that of Student's distribution."""
        if not math.isnan(self.noise.model(self.table, self.sigma, self.factors).sigma):
            return 1.0
        rows = self.table.agents[slots]
        n = effective(rows[:, WEIGHT], rows[:, WEIGHT_2])
        freedom = np.maximum(self.noise.moderation + n - 1.0, 3.0)
        return np.asarray(freedom / (freedom - 2.0))


def rule_of(method: Method, sigma: float | None, degree: int, graph: Graph | None) -> Rule:
    """How the method learns event by event, or a refusal."""
    if method.online_rule is None:
        raise MethodError(
            f"{method!r} cannot learn event by event: it has no online_rule. "
            "Try Census(), CLColME(), CColME() or Local()."
        )
    rule: Rule = named(method.online_rule)(method, sigma, degree, graph)
    return rule


class BackgroundVote:
    """A vote of a rule as of now, in a thread of its own, while the model goes on learning: the same bits, some events
    later.

    A vote reads the agents as they are at its event and changes only what the rule has learned and the snapshots. So it
    can work on a copy of the agents while events change the agents themselves, and once its results are put in place,
    the model is the same as if learning had waited. When the next vote is due does not depend on its results."""

    def __init__(self, rule: Rule):
        sums = rule.call()
        self._rule = rule.with_table(rule.table.as_of_now())
        thread = ThreadPoolExecutor(1, "colme-vote")
        self._judged = thread.submit(self._judge, *sums)
        thread.shutdown(wait=False)

    def _judge(self, size: float, inverse: float) -> None:
        table = self._rule.table
        if table.snapshots is not None:
            table.snapshots = table.snapshots.copy()
        self._rule.judge(size, inverse)

    @property
    def done(self) -> bool:
        return self._judged.done()

    def rule_for(self, table: AgentTable) -> Rule:
        """The rule after the vote, of these agents, with snapshots in place. Waits until there is one, and raises what
        the vote raised."""
        self._judged.result()
        rule, kept = self._rule, self._rule.table.snapshots
        if kept is not None and table.snapshots is not None:
            if len(table.snapshots) == len(kept):
                table.snapshots = kept
            else:  # there are more agents
                table.snapshots[: len(kept)] = kept
        rule.table = table
        return rule
