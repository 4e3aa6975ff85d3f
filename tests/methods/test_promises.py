"""Every method keeps every promise, and agrees with the reading of its paper in tests/reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from colme.confidence import level_gamma
from colme.graphs import Graph
from colme.lockstep import lockstep
from colme.method import Agent, Place, Round
from colme.methods import METHODS, Method
from colme.methods.baselines import LocalState
from colme.methods.intervals import IntervalMethod
from colme.methods.skeleton import OneHop
from colme.node.net.memory import MemoryNetwork, lockstep_over
from colme.testing import PROMISES, SIGMA, WIDTH, Case, check_method, matches_the_reference
from tests import reference
from tests.reference.cuts import any_counts as dense_any_counts
from tests.reference.cuts import difference, level_alpha, precision
from tests.support.recordings import recording_like_a_scenario

ALL: list[Method] = [
    colme.Local(),
    colme.Oracle(),
    colme.ColME(delta=0.1),
    colme.ColME(delta=0.1, weights="soft", restricted=False),
    colme.ColME(delta=0.1, weights="aggressive", queries=3),
    colme.BColME(delta=0.1, depth=4),
    colme.CColME(delta=0.1),
    colme.CLColME(delta=0.1),
    colme.CLColME(delta=0.1, step=0.1, clock="global"),
    colme.CLColME(delta=0.1, clock="harmonic", gamma=0.05),
    colme.CLColME(delta=0.1, bound="fourth-moment"),
    colme.CLColME(delta=0.1, bound="hoeffding"),
    colme.CLColME(delta=0.1, consensus="flow"),
    colme.CLColME(delta=0.1, cut="difference"),
    colme.CLColME(delta=0.1, cut="difference", clock="global", level="agent", bound="hoeffding"),
    colme.CColME(delta=0.1, cut="difference", gamma=0.01),
    colme.BColME(delta=0.1, depth=3, statistics=("mean", "deviation")),
    colme.CLColME(delta=0.1, statistics=("mean", "deviation")),
    colme.Census(guard=False, fits="own"),
    colme.BColME(delta=0.1, depth=3, guard=True),
    colme.CLColME(delta=0.1, clock="global", guard=True),
    colme.Census(fits="own", restart=True, guard=True),
    colme.Partition(guard=False),
    colme.Partition(),
]
MORE: list[Method] = [
    colme.BColME(delta=0.1, depth=1),
    colme.CColME(delta=0.1, clock="global", level="agent"),
    colme.CLColME(delta=0.1, step=0.1, clock="own", level="population"),
    colme.CLColME(delta=0.1, clock="constant", alpha=0.8),
    colme.CLColME(delta=0.1, consensus="flow", step=0.1, level="agent"),
    colme.CLColME(delta=0.1, cut="difference", consensus="flow"),
    colme.ColME(delta=0.1, statistics=("mean", "kurtosis"), weights="soft"),
    colme.CColME(delta=0.1, statistics=("deviation",)),
    colme.CLColME(delta=0.1, statistics=("mean", "deviation", "kurtosis"), clock="global"),
    colme.CLColME(delta=0.1, statistics=("mean", "deviation"), consensus="flow"),
    colme.CLColME(delta=0.1, consensus="flow", guard=True),
    colme.Census(fits="own", guard=True),
    colme.Census(guard=False, fits="own", estimate_sigma=True),
    colme.CColME(delta=0.1, guard=True),
    colme.BColME(delta=0.1, cut="difference", depth=3),
    colme.ColME(delta=0.1, statistics=("mean", "deviation")),
]
"""More of their options, for `make test-all`."""


def gamma_of(method: IntervalMethod, graph: Graph) -> float:
    if method.gamma is not None:
        return method.gamma
    return level_gamma(method.level, method.delta, n_agents=graph.n_agents, n_edges=graph.n_edges)


def kept_of(method: IntervalMethod, samples: Any, graph: Graph, sigma: Any, scale: Any) -> Any:
    """The graphs of difference tests, step by step: for equal counts and one sigma the sharper rule. With sigmas of
    their own, all agents take the precision of the largest."""
    adjacency = graph.adjacency()
    level = method.level if method.gamma is None else method.gamma
    rho = precision(np.max(scale), np.max(scale))

    def any_counts(v_a: float, v_b: float, _: float, alpha: float) -> float:
        return dense_any_counts(v_a, v_b, rho, alpha)

    equal = np.ndim(sigma) == 0 and not np.isnan(samples).any()
    rule = difference if equal else any_counts
    alpha = level_alpha(level, method.delta, adjacency)
    return reference.cuts(samples, adjacency, sigma=scale, alpha=alpha, rule=rule)


def reference_of(method: Method) -> Callable[..., Any]:
    """The dense reading of the same paper with the same parameters."""

    def estimates(samples: Any, graph: Graph, classes: Any, sigma: Any) -> Any:
        if isinstance(method, colme.Local):
            return reference.local(samples).estimate
        if isinstance(method, colme.Oracle):
            return reference.oracle(samples, classes).estimate
        if isinstance(method, colme.Census):
            origin = colme.Recording(samples).origin  # where the grid begins
            known = None if method.estimate_sigma else sigma
            found = reference.census(samples - origin, graph.adjacency(), sigma=known, restart=method.restart)
            return found.estimate + origin
        if isinstance(method, colme.Partition):
            return reference.partition(samples, graph.adjacency(), sigma=sigma)
        assert isinstance(method, IntervalMethod)
        radius = reference.laplace_radius
        if method.bound == "fourth-moment":
            radius = reference.fourth_moment_radius
        known = sigma
        if method.bound == "hoeffding":
            sigma = WIDTH / 2.0
        common = {
            "sigma": sigma, "gamma": gamma_of(method, graph), "radius": radius, "statistics": method.statistics,
        }  # fmt: skip
        if method.cut == "difference":
            common["kept"] = kept_of(method, samples, graph, known, sigma)
        adjacency = graph.adjacency()
        if isinstance(method, colme.ColME):
            options = {"weights": method.weights, "restricted": method.restricted, "queries": method.queries}
            return reference.colme(samples, **common, **options).estimate
        if isinstance(method, colme.BColME):
            return reference.b_colme(samples, adjacency, **common, depth=method.depth).estimate
        clock = {"clock": method.clock, "alpha": method.alpha}
        if isinstance(method, colme.CLColME):
            step = 1.0 / graph.degrees.max() if method.step == "auto" else method.step
            if method.consensus == "flow":
                return reference.flow(samples, adjacency, **common, step=step).estimate
            return reference.cl_colme(samples, adjacency, **common, **clock, step=step).estimate
        return reference.c_colme(samples, adjacency, **common, **clock).estimate

    return estimates


class Known(Case):
    """A case that uses the kernels that other tests compile for scenarios."""

    def record(
        self, samples: NDArray[np.float64], *, sigma: Any = SIGMA, width: float = WIDTH,
        classes: NDArray[Any] | None = None, **known: Any,
    ) -> colme.Recording:  # fmt: skip
        return recording_like_a_scenario(
            samples, self.classes if classes is None else classes, sigma=sigma, width=width, **known
        )


class Short(Known):
    """The first steps only, for a slow reference."""

    @property
    def samples(self) -> NDArray[np.float64]:
        return super().samples[:10]


def reads(method: Method, promise: Callable[[Case], None]) -> bool:
    """The guard around a method has a reference of its own, in tests/test_guard.py."""
    return promise is not matches_the_reference or not getattr(method, "guard", False)


def is_slow(method: Method, promise: Callable[[Case], None]) -> bool:
    """The reference of the census; and of variance-aware intervals all but one method of each kind: each compiles."""
    if promise is matches_the_reference and isinstance(method, colme.Census):
        return True
    return isinstance(method, colme.CLColME) and method.needs_moments and method.statistics != ("mean", "deviation")


@pytest.mark.parametrize(
    ("method", "promise"),
    [
        pytest.param(
            method, promise, id=f"{method!r}-{promise.__name__}",
            marks=[pytest.mark.slow] if method in MORE or is_slow(method, promise) else [],
        )
        for method in ALL + MORE
        for promise in PROMISES
        if reads(method, promise)
    ],
)  # fmt: skip
def test_method_keeps_promise(method: Method, promise: Callable[[Case], None]) -> None:
    promise(Known(method, reference_of(method)))


@pytest.mark.parametrize("estimate_sigma", [False, True])
def test_the_census_matches_the_reference_at_first(estimate_sigma: bool) -> None:
    method = colme.Census(guard=False, fits="own", estimate_sigma=estimate_sigma)
    matches_the_reference(Short(method, reference_of(method)))


def test_every_method_is_checked() -> None:
    assert {type(method) for method in ALL} == set(METHODS) - {colme.Bayes}, (
        "a bound has no form that an agent could run"
    )


def test_the_small_world_does_part() -> None:
    """The promises are tested where something happens: edges are cut, but not all, and classes separate."""
    case = Case(colme.CLColME(delta=0.1))
    trace = colme.simulate(
        case.method, colme.Recording(case.samples, classes=case.classes, sigma=0.5), graph=case.graph
    )
    assert trace.wrong_edges[0] == 1.0 and trace.wrong_edges[-1] < 0.1
    assert trace.lost_edges[-1] == 0.0


@pytest.mark.parametrize("fields", [{}, {"statistics": ("mean", "deviation")}, {"cut": "difference"}], ids=str)
def test_the_skeleton_is_a_method(fields: dict[str, Any]) -> None:
    check_method(OneHop(delta=0.1, **fields))


class Liar(colme.Local, frozen=True, tag="liar"):  # type: ignore[call-arg]
    """Its array form is not its agent form."""

    def start(self, world: Any, graph: Any) -> Any:
        return LiarState(self, world)


class LiarState(LocalState):
    def step(self, world: Any) -> None:
        super().step(world)
        self.estimate += 1e-9


class Talkative(Agent):
    """Sends the mean of its samples, in the way that a test wants."""

    def step(self, sample: float) -> Round:
        self.observe(sample)
        yield self.outbox()
        self.estimate = self.mean

    def outbox(self) -> Any:
        return dict.fromkeys(self.neighbors, self.mean)


class Personal(Talkative):
    """Tells each neighbor something else."""

    def __init__(self, place: Place):
        super().__init__(place)
        self.neighbors = list(place.neighbors)

    def step(self, sample: float) -> Round:
        self.observe(sample)
        inbox = yield {b: [self.mean, self.mean * (k + 1)] for k, b in enumerate(self.neighbors)}
        self.estimate = sum((k + 1) * inbox[b][1] for k, b in enumerate(self.neighbors))


class Forgetful(Talkative):
    """Does not call the constructor of its parent."""

    def __init__(self, place: Place):
        self.neighbors = list(place.neighbors)


class Astray(Talkative):
    """Sends to an agent that it has no edge to."""

    def outbox(self) -> Any:
        return {"agent 99": self.mean}


class Untidy(Talkative):
    """Yields a list of messages instead of a dictionary."""

    def outbox(self) -> Any:
        return [self.mean]


class ForgetfulState(LocalState):
    def __init__(self, method: Any, world: Any):
        self.estimate = np.full(world.n_agents, np.nan)


class ForgetfulArray(colme.Local, frozen=True, tag="forgetful-array"):  # type: ignore[call-arg]
    def start(self, world: Any, graph: Any) -> Any:
        return ForgetfulState(self, world)


def of(kind: type[Agent]) -> Method:
    """A method with these agents."""

    class Wrong(Method, frozen=True, kw_only=True, tag="wrong"):
        def agent(self, place: Place) -> Agent:
            return kind(place)

    return Wrong()


def test_a_message_to_one_neighbor_reaches_this_neighbor_as_bytes_too() -> None:
    case, known = Case(of(Personal)), {"sigma": SIGMA, "width": WIDTH}
    alone = lockstep(case.method, case.samples, case.graph, independent=True, **known)
    np.testing.assert_array_equal(
        lockstep_over(MemoryNetwork(seed=1), case.method, case.samples, case.graph, **known), alone
    )
    assert np.isfinite(alone).all()


def test_check_method_says_what_is_wrong() -> None:
    for method, sentence in (
        (Liar(), "agent_form_equals_array_form"),
        (of(Forgetful), r"Forgetful has no 't', which Forgetful.__init__ leaves to its parent.*super\(\).__init__"),
        (of(Astray), r"agent 0 \(Astray\) sends a message to 'agent 99', which is not among its neighbors"),
        (of(Untidy), r"Untidy.step yields \[.*\]: it must be a dictionary"),
        (ForgetfulArray(), r"ForgetfulState has no 'edges'.*Call super\(\).__init__\(\.\.\.\) first"),
    ):
        with pytest.raises(AssertionError, match=sentence):
            check_method(method)
