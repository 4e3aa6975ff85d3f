"""What the interval methods share: the parameters of the confidence intervals, and radii for arrays and for agents."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.confidence import BOUNDS, Bound, check_probability, level_gamma, radius_table, scale_radii
from colme.errors import MethodError, one_of, positive
from colme.graphs import Graph
from colme.methods._base import Agent, Method, Place, World
from colme.pruning import KeptEdges


class IntervalMethod(Method, frozen=True, kw_only=True):
    """A method that compares confidence intervals.

    delta     failure probability, turned into gamma by `level`
    level     "agent", "edge" or "population" (see `colme.confidence.level_gamma`)
    gamma     the level itself; overrides delta and level
    sigma     the scale the agents know; default: that of the scenario or recording
    bound     "laplace" (sub-Gaussian samples), "fourth-moment" (heavy tails) or "hoeffding" (bounded samples)
    kurtosis  E (x - mean)^4 <= kurtosis sigma^4, for the fourth-moment bound; default: that of the scenario, else 3
    width     length of an interval that holds every sample of an agent, for Hoeffding's bound
    """

    delta: float = 0.1
    level: str = "edge"
    gamma: float | None = None
    sigma: float | None = None
    bound: str = "laplace"
    kurtosis: float | None = None
    width: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability("delta", self.delta)
        if self.gamma is not None:
            check_probability("gamma", self.gamma)
        level_gamma(self.level, self.delta, n_agents=1, n_edges=1)
        one_of(self.bound, BOUNDS, "bound", MethodError)
        for name in ("sigma", "width"):
            if getattr(self, name) is not None:
                positive(getattr(self, name), name, f"{name}=2.0", MethodError)
        if self.kurtosis is not None and not 1 <= self.kurtosis < math.inf:
            raise MethodError(f"kurtosis={self.kurtosis}: it must be at least 1. Try kurtosis=3.0 (Gaussian).")

    def bound_for(self, n_agents: int, n_edges: int, kurtosis: float = 3.0) -> Bound:
        """The radius function at the level that this population asks for."""
        gamma = self.gamma
        if gamma is None:
            gamma = level_gamma(self.level, self.delta, n_agents=n_agents, n_edges=n_edges)
            if gamma < 1e-300:
                raise MethodError(f"delta={self.delta}: it is too small for a computer's numbers. Try delta=0.001.")
        bound = Bound(gamma=gamma, name=self.bound, kurtosis=kurtosis if self.kurtosis is None else self.kurtosis)
        if not bound.radius(1) < math.inf:
            raise MethodError(
                f"the radius is infinite (bound={self.bound!r}, gamma={gamma:.3g}, kurtosis={bound.kurtosis}): nothing "
                "could ever be told apart. Try a larger delta, or samples with a finite fourth moment."
            )
        return bound

    def scale_for(self, sigma: Any, width: float | None) -> Any:
        """The scale that multiplies the radius, from what the method says or else the samples' source knows."""
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

    def radii(self, world: World, graph: Graph) -> Radii:
        bound = self.bound_for(world.n_agents, graph.n_edges, world.kurtosis)
        return Radii(bound, self.scale_for(world.sigma, world.width))


class Radii:
    """The radius of every agent now: one number while all have equal counts and scales, else an array."""

    def __init__(self, bound: Bound, sigma: Any):
        self.table, self.sigma = radius_table(bound), sigma

    def now(self, world: World, ahead: int = 0) -> float | NDArray[np.float64]:
        """At step t, or `ahead` of it."""
        t = world.t + ahead
        unit = self.table.up_to(t)
        if world.count is not None:
            out = np.empty(world.n_agents)
            scale_radii(out, world.count, unit, self.sigma)
            return out
        return self.sigma * unit.item(t)

    def over(self, world: World, n_steps: int) -> NDArray[np.float64] | None:
        """Everybody's at steps t, t + 1, ..; None where they differ between agents."""
        if world.count is not None or isinstance(self.sigma, np.ndarray):
            return None
        last = world.t + n_steps
        return self.sigma * self.table.up_to(last)[world.t : last]


class PruningState:
    """Array form of a method that irrevocably cuts edges whose intervals part."""

    def __init__(self, method: IntervalMethod, world: World, graph: Graph):
        self.edges = KeptEdges(graph, world.class_)
        self.radii = method.radii(world, graph)
        self.estimate = np.full(world.n_agents, np.nan)

    def prune(self, world: World) -> None:
        self.edges.prune(world.mean, self.radii.now(world), world.milestone, world.t)

    @property
    def wrong_share(self) -> float:
        return self.edges.wrong_share

    @property
    def lost_share(self) -> float:
        return self.edges.lost_share

    @property
    def isolated(self) -> int:
        return self.edges.isolated

    def graph(self) -> Graph:
        return self.edges.graph()

    def groups(self, graph: Graph) -> NDArray[np.int64]:
        return graph.components()


class IntervalAgent(Agent):
    """Per-agent form of a method that compares intervals."""

    def __init__(self, method: IntervalMethod, place: Place):
        super().__init__(place)
        self.bound = method.bound_for(place.n_agents, place.n_edges, place.kurtosis)
        self.scale = method.scale_for(place.sigma, place.width)

    @property
    def radius(self) -> float:
        """Half-width of my interval now; infinite before the first sample."""
        return float(self.scale * self.bound.radius(self.count))
