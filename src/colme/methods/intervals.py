"""What the interval methods share: the parameters of the confidence intervals, and radii for arrays and for agents.

With cut="difference" an edge is cut when the means of its agents differ, not when their intervals part. Where all have
equal counts (`LOOKS` in `colme.method`), half the distance at which they differ takes the place of the radius and all
else is as before. Elsewhere agents tell their standard errors in place of radii, and a test compares each pair.

Reference for the variance-aware intervals (`statistics`): N. Stankovic, "Variance-Aware ColME" (thesis), 2025;
arXiv:2603.01216, 2026.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
import numpy as np

from colme._core.edges import Intervals, KeptEdges, ReferenceMeans
from colme._core.jit import kernel
from colme.confidence import (
    BOUNDS,
    CUTS,
    KAPPA,
    MEAN,
    STATISTICS,
    Bound,
    DifferenceTest,
    apart,
    check_probability,
    effective_number,
    fill_intervals,
    interval_of,
    laplace_radius,
    level_alpha,
    level_gamma,
    scale_errors,
    scale_radii,
    standard_error,
)  # fmt: skip
from colme.errors import MethodError, one_of, positive
from colme.graphs import Graph
from colme.guard import GuardedMethod
from colme.method import Agent, NeighborState, Place, State, World
from colme.moments import add_sample
from colme.support.arrays import Floats, Integers

VARIANCE_AWARE = """@mastersthesis{stankovic2025variance,
  title  = {Variance-Aware {ColME}},
  author = {Stankovic, Nikola},
  year   = {2025},
}"""


class IntervalMethod(GuardedMethod, frozen=True, kw_only=True):
    """A method that compares confidence intervals.

    cut         "intervals" (the papers'): an edge is cut when two intervals part; or "difference": when the two means
                differ significantly, in less than half the time. It needs independent noise of a known scale
    delta       failure probability, turned into gamma by `level`
    level       "edge", "agent", "network" or "population" (see `colme.confidence.level_gamma`); for difference tests
                "edge" or "agent" (`level_alpha`)
    gamma       the level itself, overrides delta and level: an interval fails with probability at most 2 gamma, a
                difference test cuts an edge of one class with probability at most gamma
    sigma       the scale the agents know; default: that of the scenario or recording
    bound       "laplace" (sub-Gaussian samples), "fourth-moment" (heavy tails) or "hoeffding" (bounded samples)
    kurtosis    E (x - mean)^4 <= kurtosis sigma^4, for the fourth-moment bound; default: that of the scenario, else 3
    width       length of an interval that holds every sample of an agent, for Hoeffding's bound
    statistics  what is compared: "mean" (default), "deviation", "kurtosis". With other than the mean alone, agents need
                no sigma: intervals are those of `colme.confidence` for the samples' own deviation and kurtosis, at
                gamma over the number of statistics, and an edge is cut when any of them differs

    >>> from colme.methods.skeleton import OneHop
    >>> OneHop(delta=0.01, level="agent"), issubclass(OneHop, IntervalMethod)
    (OneHop(delta=0.01, level='agent'), True)

    See also: Method, IntervalAgent, IntervalState, level_gamma
    """

    cut: str = "intervals"
    delta: float = 0.1
    level: str = "edge"
    gamma: float | None = None
    sigma: float | None = None
    bound: str = "laplace"
    kurtosis: float | None = None
    width: float | None = None
    statistics: tuple[str, ...] = ("mean",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_statistics()
        check_probability("delta", self.delta)
        if self.gamma is not None:
            check_probability("gamma", self.gamma)
        one_of(self.cut, CUTS, "cut", MethodError)
        one_of(self.bound, BOUNDS, "bound", MethodError)
        if self.cut == "difference":
            self._check_difference()
        else:
            level_gamma(self.level, self.delta, n_agents=1, n_edges=1)
        for name in ("sigma", "width"):
            if getattr(self, name) is not None:
                positive(getattr(self, name), name, f"{name}=2.0", MethodError)
        if self.kurtosis is not None and not 1 <= self.kurtosis < math.inf:
            raise MethodError(f"kurtosis={self.kurtosis}: it must be at least 1. Try kurtosis=3.0 (Gaussian).")

    def _check_difference(self) -> None:
        if self.bound == "fourth-moment":
            raise MethodError(
                "bound='fourth-moment' with cut='difference': difference tests need a sub-Gaussian scale. "
                "Try cut='intervals', or bound='laplace' with sigma=..."
            )
        if self.needs_moments:
            raise MethodError(
                f"statistics={self.statistics} with cut='difference': difference tests compare means whose scale is "
                "known. Try cut='intervals', or statistics=('mean',) with sigma=..."
            )
        level_alpha(self.level, self.delta, n_edges=1, max_degree=1)

    def _check_statistics(self) -> None:
        for name in self.statistics:
            one_of(name, STATISTICS, "statistic", MethodError)
        if not self.statistics or len(set(self.statistics)) < len(self.statistics):
            raise MethodError(
                f"statistics={self.statistics}: there must be at least one, each once. "
                "Try statistics=('mean', 'deviation')."
            )
        in_order = tuple(name for name in STATISTICS if name in self.statistics)
        msgspec.structs.force_setattr(self, "statistics", in_order)
        if self.needs_moments and (self.bound != "laplace" or self.sigma is not None):
            given = f"bound={self.bound!r}" if self.bound != "laplace" else f"sigma={self.sigma:g}"
            raise MethodError(
                f"{given} with statistics={self.statistics}: these intervals take their scale from the samples. "
                f"Leave {given.partition('=')[0]} out, or try statistics=('mean',)."
            )

    @property
    def citations(self) -> tuple[str, ...]:
        return (*super().citations, VARIANCE_AWARE) if self.needs_moments else super().citations

    @property
    def learns_dependence(self) -> bool:
        return self.guard or self.cut == "difference"

    @property
    def needs_moments(self) -> bool:
        """Intervals are computed from the samples' own deviation and kurtosis, not from a known scale."""
        return self.statistics != ("mean",)

    def bound_for(
        self, n_agents: int, n_edges: int, kurtosis: float = 3.0, *, max_degree: int = 0, looks: str = "common"
    ) -> Bound:  # fmt: skip
        """The radius function at the level that this population asks for; `looks` as in `colme.method.LOOKS`."""
        gamma, difference = self.gamma, self.cut == "difference"
        if gamma is None:
            if difference:
                degree = max_degree or -(-2 * n_edges // n_agents)
                paths = 2 if looks == "separate" else 1
                gamma = level_alpha(self.level, self.delta, n_edges=n_edges, max_degree=degree, paths=paths)
            else:
                gamma = level_gamma(self.level, self.delta, n_agents=n_agents, n_edges=n_edges)
            if gamma < 1e-300:
                raise MethodError(f"delta={self.delta}: it underflows to zero. Try delta=0.001.")
        gamma /= len(self.statistics)
        name = "difference" if difference else self.bound
        bound = Bound(gamma=gamma, name=name, kurtosis=kurtosis if self.kurtosis is None else self.kurtosis)
        if not bound.radius(1) < math.inf:
            raise MethodError(
                f"the radius is infinite (bound={self.bound!r}, gamma={gamma:.3g}, kurtosis={bound.kurtosis}): no "
                "two means could ever be told apart. Try a larger delta, or samples with a finite fourth moment."
            )
        return bound

    def scale_for(self, sigma: Any, width: float | None) -> Any:
        """The scale that multiplies the radius: the method's own, else that of the source of the samples."""
        if self.needs_moments:
            return 1.0
        if self.bound == "hoeffding":
            known = self.width if self.width is not None else width
            if known is None:
                raise MethodError(
                    "Hoeffding's bound needs the width of the interval that holds the samples. "
                    "Try width=..., or bound='laplace' with sigma=..."
                )
            return 0.5 * known
        scale = self.sigma if self.sigma is not None else sigma
        if scale is None:
            raise MethodError(
                "the scale of the samples is not known: intervals need it. Try sigma=... in the method or recording."
            )
        return scale

    def test_for(self, bound: Bound, unit: float | None, width: float | None, looks: str) -> DifferenceTest | None:
        """The test of every pair, from a scale that all agents know; None where agents compare radii."""
        if self.cut == "intervals" or looks == "equal":
            return None
        return DifferenceTest(1.0 / (KAPPA * float(self.scale_for(unit, width))), -2.0 * math.log(bound.gamma))

    def radii(self, world: World, graph: Graph) -> Radii:
        looks, whole = world.looks, graph.whole
        bound = self.bound_for(whole.n_agents, whole.n_edges, world.kurtosis, max_degree=whole.max_degree, looks=looks)
        if self.needs_moments:
            return MomentRadii(bound, self.statistics)
        scale = self.scale_for(world.sigma, world.width)
        test = self.test_for(bound, world.unit, world.width, looks)
        return Radii(bound, scale) if test is None else StandardErrors(bound, scale, test)


LARGEST = 1e300
"""A radius that is infinite, for arithmetic."""


class Radii:
    """The radius of every agent now: one number while all have equal counts and scales, else an array."""

    numbers = 1.0
    """Numbers that describe an interval in a message: the mean, for its radius follows from the step."""
    test: DifferenceTest | None = None
    """What compares the agents' intervals; None: they are apart where they do not touch."""

    def __init__(self, bound: Bound, sigma: Any):
        self.bound, self.sigma = bound, sigma

    def now(self, world: World, ahead: int = 0) -> float | Floats:
        """At step t, or `ahead` of it."""
        t = world.t + ahead
        if self.bound.name == "difference" and not world.independent:
            one = [self._dependent_radius(t, each) for each in np.atleast_1d(world.factors.high)]
            return self.sigma * (one[0] if len(one) == 1 else np.array(one))
        unit = self.bound.table(t)
        if world.count is not None:
            out = np.empty(world.n_agents)
            scale_radii(out, world.count, unit, self.sigma)
            return out
        return self.sigma * unit.item(t)

    def _dependent_radius(self, n: int, factor: float) -> float:
        return min(self.bound.radius(effective_number(n, factor, False)), LARGEST)

    def over(self, world: World, n_steps: int) -> Floats | None:
        """The radius of all agents at steps t, t + 1, ..; None where agents have different ones."""
        high = world.factors.high
        if world.count is not None or isinstance(self.sigma, np.ndarray) or isinstance(high, np.ndarray):
            return None
        if self.bound.name == "difference" and not world.independent:
            return self.sigma * np.array([self._dependent_radius(world.t + k, high) for k in range(n_steps)])
        last = world.t + n_steps
        return self.sigma * self.bound.table(last)[world.t : last]

    def intervals(self, world: World, mean: Floats, ahead: int = 0) -> list[Intervals]:
        """Intervals of all agents at step t or `ahead` of it, around the means of that step."""
        return [(mean, self.now(world, ahead))]

    def around_means(self, world: World) -> Any:
        """Half the width of an interval around each own mean that holds at all times (`IntervalAgent.radius`)."""
        if self.bound.name == "difference":
            return Radii(Bound(0.5 * self.bound.gamma), self.sigma).now(world) * np.sqrt(world.factors.high)
        return self.now(world)


class StandardErrors(Radii):
    """Standard errors in place of radii, for difference tests between agents of any counts and sigmas."""

    def __init__(self, bound: Bound, sigma: Any, test: DifferenceTest):
        super().__init__(bound, sigma)
        self.test = test

    def now(self, world: World, ahead: int = 0) -> Floats:
        out = np.empty(world.n_agents)
        count = world.t + ahead if world.count is None else world.count
        scale_errors(out, count, self.sigma, world.factors.high, world.independent)
        return out

    def over(self, world: World, n_steps: int) -> None:
        """Agents have different ones."""
        return None


class MomentRadii(Radii):
    """Intervals from the samples' own moments: those of each statistic that is compared."""

    def __init__(self, bound: Bound, statistics: tuple[str, ...]):
        super().__init__(bound, 1.0)
        self.numbers = 2.0 * len(statistics)  # radii depend on the samples: they are sent too
        self._statistics = np.array([STATISTICS.index(name) for name in statistics])

    def over(self, world: World, n_steps: int) -> None:
        """Each agent has its own radii."""
        return None

    def table_of(self, world: World, statistics: Integers | None = None) -> Floats:
        """Centers and radii at step t, (statistics, 2, agents); of other statistics than those that are compared."""
        moments, chosen = world.moments, self._statistics if statistics is None else statistics
        assert moments is not None
        out = np.empty((len(chosen), 2, world.n_agents))
        unit = self.bound.table(world.t)
        fill_intervals(out, chosen, world.mean, moments.second, moments.fourth, world.n_samples, unit)
        return out

    def intervals(self, world: World, mean: Floats, ahead: int = 0) -> list[Intervals]:
        """Intervals of all agents at step t: runs that keep moments take one step at a time."""
        return [(center, radius) for center, radius in self.table_of(world)]

    def around_means(self, world: World) -> Any:
        return self.table_of(world, np.array([MEAN]))[0, 1]


class IntervalState(NeighborState):
    """Array form, in NumPy, of a method that irrevocably cuts edges whose intervals do not overlap.

    >>> import colme
    >>> from colme.methods.skeleton import OneHop, OneHopState
    >>> issubclass(OneHopState, IntervalState)
    True
    >>> trace = colme.simulate(OneHop(), colme.Scenario(n_agents=100, means=(0.0, 5.0)), steps=50)
    >>> float(trace.wrong_edges[0]), float(trace.wrong_edges[-1])
    (1.0, 0.0)

    See also: NeighborState, IntervalMethod, World
    """

    def __init__(self, method: IntervalMethod, world: World, graph: Graph):
        super().__init__(method, world, graph)
        self.radii = method.radii(world, graph)

    @property
    def radius(self) -> Any:
        return self.radii.around_means(self.world)

    def prune(self, world: World) -> None:
        """Cut the edges whose intervals do not overlap at step t."""
        for center, radius in self.radii.intervals(world, world.mean):
            (own, other), (own_radius, other_radius) = self.neighbors.ends(center), self.neighbors.ends(radius)
            self.neighbors.cut(_all_apart(own, other, own_radius, other_radius, self.radii.test))


class PruningState(State):
    """Array form, on compiled edges, of a method that irrevocably cuts edges whose intervals do not overlap."""

    def __init__(self, method: IntervalMethod, world: World, graph: Graph):
        super().__init__(method, world)
        self.edges: KeptEdges = KeptEdges(graph, world.class_, world.hood)
        self.radii = method.radii(world, graph)
        self.estimate = np.full(world.n_agents, np.nan)

    @property
    def radius(self) -> Any:
        return self.radii.around_means(self.world)

    def prune(self, world: World) -> None:
        self.prune_by(world, world.mean, 0, world.reference)

    def prune_by(self, world: World, mean: Floats, ahead: int, reference: ReferenceMeans | None = None) -> None:
        """Cut the edges that these means of the own agents part, those of step t or `ahead` of it."""
        seen = [
            (world.seen_mean if center is world.mean else world.hood.seen(f"center{k}", center),
             radius if isinstance(radius, float) else world.hood.seen(f"radius{k}", radius))
            for k, (center, radius) in enumerate(self.radii.intervals(world, mean, ahead))
        ]  # fmt: skip
        self.edges.prune_by(seen, reference, world.t, self.radii.test)


class IntervalAgent(Agent):
    """Per-agent form of a method that compares intervals.

    >>> from colme.methods.skeleton import OneHop
    >>> from colme.methods import Place
    >>> place = Place(agent=0, neighbors=(1,), n_agents=2, n_edges=1, auto_step=1.0, sigma=2.0)
    >>> agent = OneHop(level="agent").agent(place)
    >>> agent.observe(3.0)
    >>> agent.mean, round(agent.radius, 1)
    (3.0, 7.3)

    See also: Agent, IntervalMethod, parted, laplace_radius
    """

    saved = (*Agent.saved, "moments")

    def __init__(self, method: IntervalMethod, place: Place):
        super().__init__(place)
        self.bound = method.bound_for(
            place.n_agents, place.n_edges, place.kurtosis, max_degree=place.max_degree, looks=place.looks
        )
        self.scale = method.scale_for(place.sigma, place.width)
        self.test = method.test_for(self.bound, place.unit, place.width, place.looks)
        self.statistics = [STATISTICS.index(name) for name in method.statistics] if method.needs_moments else []
        self.moments = (0.0, 0.0, 0.0)

    def observe(self, sample: float) -> None:
        if self.statistics and sample == sample:
            self.moments = add_sample(*self.moments, self.mean, sample, self.count + 1)
        super().observe(sample)

    @property
    def intervals(self) -> AgentIntervals:
        """The agent's intervals now, one per statistic; the radius is infinite before the first sample."""
        if self.test is not None:
            return ((self.mean, -float(standard_error(self.effective_count, self.scale))),)
        unit = self.bound.radius(self.effective_count if self.bound.name == "difference" else self.count)
        if not self.statistics:
            return ((self.mean, float(self.scale * unit)),)
        second, _, fourth = self.moments
        return tuple(interval_of(each, self.count, self.mean, second, fourth, unit) for each in self.statistics)

    @property
    def effective_count(self) -> float:
        """Independent samples that say as much as the own ones."""
        return float(effective_number(self.count, self.factors.high, self.place.independent))

    @property
    def radius(self) -> float:
        """Half the width of an interval around the own mean that holds at all times, with probability 1 - alpha for
        difference tests."""
        if self.bound.name == "difference":
            radius = self.scale * laplace_radius(self.count, 1.0, 0.5 * self.bound.gamma)
            return float(radius * math.sqrt(self.factors.high))
        if not self.statistics:
            return float(self.scale * self.bound.radius(self.count))
        second, _, fourth = self.moments
        return float(interval_of(MEAN, self.count, self.mean, second, fourth, self.bound.radius(self.count))[1])

    def understands(self, theirs: AgentIntervals) -> bool:
        """The intervals of another agent are of the same statistics, and both are radii or both standard errors."""
        return len(theirs) == max(1, len(self.statistics)) and all(
            (spread < 0.0) == (self.test is not None) for _, spread in theirs
        )


PARTED: Final = None
"""The message to a neighbor that may not know yet that the edge is cut."""
AgentIntervals = tuple[tuple[float, float], ...]
"""(center, radius) of each statistic that an agent compares: what it sends to others. For difference tests (mean, minus
its standard error): the sign is what tells it from a radius, so that no agent takes the one for the other."""


def parted(mine: AgentIntervals, theirs: AgentIntervals, test: DifferenceTest | None = None) -> bool:
    """Some pair of closed intervals does not overlap; with a test, the means differ. False for what an agent with
    another rule tells.

    mine    the intervals of one agent, one for each statistic
    theirs  those of the other
    test    the difference test, if the method has one

    >>> from colme.methods.skeleton import OneHop
    >>> from colme.methods import Place
    >>> place = Place(agent=0, neighbors=(1,), n_agents=2, n_edges=1, auto_step=1.0, sigma=0.1)
    >>> agents = [OneHop().agent(place) for _ in range(2)]
    >>> for agent, sample in zip(agents, (0.0, 9.0), strict=True):
    ...     agent.observe(sample)
    >>> parted(agents[0].intervals, agents[1].intervals)
    True

    See also: too_far, IntervalAgent
    """
    if test is None and any(spread < 0.0 for _, spread in mine):
        raise MethodError(
            "standard errors are compared as if they were radii: cut='difference' has a test of its own. "
            "Pass the agent's test: parted(mine, theirs, self.test)."
        )
    pairs = zip(mine, theirs, strict=True)
    return any((q < 0.0) == (test is not None) and apart(x, y, r, q, test) for (x, r), (y, q) in pairs)


@kernel
def _all_apart(own, other, own_spread, other_spread, test):
    """`apart` for many pairs."""
    out = np.empty(own.size, np.bool_)
    for i in range(out.size):
        out[i] = apart(own[i], other[i], own_spread[i], other_spread[i], test)
    return out
