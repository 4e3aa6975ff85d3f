"""What a method does with events: the numbers that the kernel needs of it, and its answers about agents.

`rule_of` is the list of methods that can learn event by event.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme.census.histogram import Bins, histogram_of
from colme.census.posterior import FittedMixtures, MixturePrior, posterior_mean, posterior_quantiles
from colme.confidence import BOUNDS
from colme.consensus import CLOCKS
from colme.errors import MethodError
from colme.graphs import Graph
from colme.methods import CColME, Census, CLColME, Local, Method
from colme.online.agents import Crowd
from colme.online.kernel import (
    ARRIVED,
    BURN_IN,
    ESTIMATE,
    EVENTS,
    FREEDOM,
    MEAN,
    PRESENT,
    RADIUS,
    SQUARES,
    fill_noise,
    fill_radii,
)
from colme.spectrum import stable_step

_BOUND_FAILS = dict(zip(BOUNDS, (2.0, 1.29, 2.0), strict=True))
"""A bound at level gamma fails at any time with at most so many times this probability."""
Slots = NDArray[np.int64]
Floats = NDArray[np.float64]


class Rule:
    """Local: every agent for itself."""

    has_edges: ClassVar[bool] = False
    bound: str = "laplace"
    kurtosis = -1.0
    law: tuple[Any, ...] = (1.0, False, -1.0, 0, -1.0, 0.0, False, 0)
    """gamma, shared, kurtosis, clock, fixed, step, metropolis and degree, as `learn_events` has them."""

    def __init__(self, sigma: float | None):
        self.sigma = math.nan if sigma is None else float(sigma)
        self.crowd: Crowd

    def radii(self, slots: Slots, gamma: float, least: float = 1.0) -> Floats:
        crowd, out = self.crowd, np.empty(len(slots))
        fill_radii(crowd.agents, slots, self.sigma, crowd.pool, least, gamma, self.kurtosis, out)
        return out

    def estimate(self, slots: Slots) -> Floats:
        return self.crowd.agents[slots, MEAN]

    def interval(self, slots: Slots, level: float) -> tuple[Floats, Floats]:
        """Around the own mean; it holds at all times together with this probability."""
        radius = self.radii(slots, (1.0 - level) / _BOUND_FAILS[self.bound])
        mean = self.crowd.agents[slots, MEAN]
        return mean - radius, mean + radius

    def group(self, slots: Slots) -> tuple[NDArray[np.int64], Floats]:
        """Groups, and the probability of each as far as the method knows one."""
        return self.crowd.places[slots], np.full(len(slots), np.nan)

    def renew(self) -> None:
        """Agents came or left in another way than by an event."""

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """What a file must hold beside the crowd."""
        return {}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """What `snapshot` gave."""


class ConsensusRule(Rule):
    """CL-colME and C-colME: average with the neighbors whose intervals touch."""

    has_edges: ClassVar[bool] = True

    def __init__(self, method: CLColME | CColME, sigma: float | None, degree: int, graph: Graph | None):
        known = method.sigma if method.sigma is not None else sigma
        super().__init__(method.scale_for(sigma, None) if method.bound == "hoeffding" or known is not None else None)
        if graph is None:
            # 4 r N directed edges, of as many agents as will have come: the kernel divides by them
            bound, self.width = method.bound_for(2, degree), degree + max(1, degree // 2)
            shared = method.gamma is None and method.level != "agent"
            gamma, auto = bound.gamma * (2.0 if shared else 1.0), 1.0 / self.width
        else:
            bound, self.width = method.bound_for(graph.n_agents, graph.n_edges), max(1, graph.max_degree)
            shared, gamma, auto = False, bound.gamma, stable_step(graph)
        step, metropolis = 1.0, isinstance(method, CColME)
        if isinstance(method, CLColME):
            if method.consensus != "laplacian":
                raise MethodError(
                    f"consensus={method.consensus!r}: event by event only 'laplacian' is there. Leave consensus out."
                )
            step = auto if isinstance(method.step, str) else float(method.step)
            if graph is not None:
                method.check(graph.n_agents, graph)
            elif step * self.width >= 2.0:
                raise MethodError(
                    f"step={step:g} is not stable: agents may have {self.width} neighbors, so it must be below "
                    f"{2.0 / self.width:.4g}. Try step='auto', which is {auto:.4g}."
                )
        self.bound = method.bound
        self.kurtosis = bound.kurtosis if method.bound == "fourth-moment" else -1.0
        fixed = method.alpha if method.alpha is not None else -1.0
        self.law = (
            gamma, shared, self.kurtosis, CLOCKS.index(method.clock), fixed, step, metropolis,
            0 if graph is not None else degree,
        )  # fmt: skip
        self._found: tuple[int, NDArray[np.int64]] | None = None

    def estimate(self, slots: Slots) -> Floats:
        return self.crowd.agents[slots, ESTIMATE]

    def group(self, slots: Slots) -> tuple[NDArray[np.int64], Floats]:
        """Connected agents are of one group, numbered in the order of the agents."""
        crowd = self.crowd
        if self._found is None or self._found[0] != crowd.book[EVENTS]:
            component = crowd.graph().components()
            found, first = np.unique(component[crowd.present], return_index=True)
            number = np.empty(len(component), np.int64)
            number[found[np.argsort(first)]] = np.arange(len(found))
            self._found = int(crowd.book[EVENTS]), number[component]
        return self._found[1][slots], np.full(len(slots), np.nan)

    def renew(self) -> None:
        self._found = None

    def tell_radii(self) -> None:
        """Everybody tells its radius anew."""
        crowd, (gamma, shared) = self.crowd, self.law[:2]
        level = gamma / max(1, crowd.book[ARRIVED]) if shared else gamma  # nobody may have come
        crowd.agents[crowd.present, RADIUS] = self.radii(crowd.present, level, BURN_IN)


_IN_FILE = {
    "weight": "share", "location": "place", "variance": "width", "n_components": "n_tribes",
    "outlier_density": "stranger", "first_group": "first_group",
}  # fmt: skip
"""The arrays of the fitted mixture under their names in a file, which are those of version 0.5."""


class CensusRule(Rule):
    """The census, taken in one place: all means are binned when an estimate is asked for and the last fit is old."""

    saved: ClassVar[tuple[str, ...]] = ("origin", "counted")

    def __init__(self, method: Census, sigma: float | None):
        if method.restart:
            raise MethodError(
                "restart=True: event by event no agent watches for changes. Try half_life=..., which forgets."
            )
        known = method.sigma if method.sigma is not None else sigma
        super().__init__(None if method.estimate_sigma else known)
        self.refresh = method.refresh
        self.renew()

    def renew(self) -> None:
        self.fitted = FittedMixtures.none(1)
        self.origin, self.counted = np.zeros(1), np.zeros(2, np.int64)  # events and agents of the last census

    def _noise(self, slots: Slots) -> Floats:
        out = np.empty(len(slots))
        fill_noise(self.crowd.agents, slots, self.sigma, self.crowd.pool, out)
        return out

    def _census(self) -> None:
        """Equations (2) to (4) of `colme.census.method`, where one sum takes the place of the rounds."""
        crowd = self.crowd
        now = crowd.book[[EVENTS, PRESENT]]
        grown = now >= self.refresh * self.counted
        if not (grown.any() or now[1] * self.refresh <= self.counted[1]) or (now == self.counted).all():
            return
        slots = crowd.present
        mean, noise = crowd.agents[slots, MEAN], self._noise(slots)
        binned = (noise > 0.0) & (noise < np.inf)
        self.renew()
        self.counted[:] = now
        if binned.sum() < 2:
            return  # alone, or nothing is known about anybody's noise
        self.origin[0] = mean[binned].mean()
        unit = self.sigma
        if math.isnan(unit):
            unit = math.sqrt(crowd.pool[SQUARES] / crowd.pool[FREEDOM])
        codes, masses = histogram_of(mean[binned] - self.origin[0], noise[binned], unit)
        n = int(binned.sum())
        # float32, as a simulation has it: the same compiled fit serves both
        self.fitted = FittedMixtures.of_rows(masses[None].astype(np.float32), Bins.of(codes, unit), float(n), n)

    def _known(self, slots: Slots) -> tuple[Floats, Floats, MixturePrior]:
        """Means from the origin, their variances, and the prior."""
        self._census()
        noise = self._noise(slots)
        has_prior = (noise > 0.0) & (noise < np.inf) & (self.fitted.n_components[0] > 0)
        prior = self.fitted.prior._replace(row=np.where(has_prior, 0, -1))
        return self.crowd.agents[slots, MEAN] - self.origin[0], noise, prior

    def _posterior(self, slots: Slots) -> tuple[Floats, NDArray[np.int64], Floats]:
        out = np.empty(len(slots)), np.zeros(len(slots), np.int64), np.empty(len(slots))
        posterior_mean(*self._known(slots), *out)
        return out

    def estimate(self, slots: Slots) -> Floats:
        """Equation (5)."""
        return self._posterior(slots)[0] + self.origin[0]

    def group(self, slots: Slots) -> tuple[NDArray[np.int64], Floats]:
        return self._posterior(slots)[1:]

    def interval(self, slots: Slots, level: float) -> tuple[Floats, Floats]:
        """Between the quantiles of the posterior."""
        mean, noise, prior = self._known(slots)
        lower, upper = np.empty((2, len(slots)))
        for end, tail in ((lower, 0.5 - 0.5 * level), (upper, 0.5 + 0.5 * level)):
            posterior_quantiles(tail, mean, noise, prior, end)
            end[noise == 0.0] = mean[noise == 0.0]
            end += self.origin[0]
        return lower, upper

    def snapshot(self) -> dict[str, NDArray[Any]]:
        arrays = {name: getattr(self, name) for name in self.saved}
        return arrays | {in_file: getattr(self.fitted, name) for name, in_file in _IN_FILE.items()}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        for name in self.saved:
            setattr(self, name, arrays[name])
        for name, in_file in _IN_FILE.items():
            setattr(self.fitted, name, arrays[in_file])


def rule_of(method: Method, sigma: float | None, degree: int, graph: Graph | None) -> Rule:
    """How the method learns event by event, or a refusal."""
    if isinstance(method, CLColME | CColME):
        return ConsensusRule(method, sigma, degree, graph)
    if not isinstance(method, Local | Census):
        raise MethodError(
            f"{type(method).__name__} cannot learn event by event: it needs common steps or the truth. "
            "Try Census(), CLColME(), CColME() or Local()."
        )
    if graph is not None:
        raise MethodError(f"{type(method).__name__} with graph=: in one place it needs no edges. Leave graph out.")
    return CensusRule(method, sigma) if isinstance(method, Census) else Rule(sigma)
