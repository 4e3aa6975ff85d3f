"""A mistake is answered by one ColmeError: what was got, the rule, the remedy, in a sentence or two."""

from __future__ import annotations

import math
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import colme
from colme import errors, graphs
from colme.errors import ColmeError, GraphError, MethodError, RunError, SampleError, ScenarioError
from colme.methods.colme import MAX_AGENTS
from tests.support.examples import examples

SCENARIO = colme.Scenario(n_agents=12, means=(0.0, 1.0))
CL = colme.CLColME()
INTERVAL_METHODS = (colme.ColME, colme.BColME, colme.CColME, colme.CLColME)
WITH_INF = np.where(np.arange(12).reshape(4, 3) == 7, math.inf, 0.0)


def scenario(**wrong: Any) -> Callable[[], Any]:
    return lambda: colme.Scenario(**{"n_agents": 12, "means": (0.0, 1.0)} | wrong)


def simulate(source: Any = SCENARIO, method: Any = CL, **wrong: Any) -> Callable[[], Any]:
    return lambda: colme.simulate(method, source, **{"steps": 2} | wrong)


def ring(n_agents: int) -> graphs.Graph:
    """A graph of many that is quickly made."""
    return graphs.ring_lattice_graph(n_agents, 2)


def sampled(values: Any, method: Any = CL, **known: Any) -> Callable[[], Any]:
    return lambda: colme.simulate(method, colme.Recording(values, **known))


# (the call, the error, fragments of its message in order: what was got, the rule, the remedy)
Case = tuple[Callable[[], Any], type[Exception], tuple[str, ...]]
BAD: dict[str, Case] = {
    # scenarios
    "no agents": (scenario(n_agents=0), ScenarioError, ("n_agents=0", "at least one", "Try n_agents=")),
    "no means": (scenario(means=()), ScenarioError, ("means=()", "finite mean", "Try means=")),
    "infinite mean": (scenario(means=(0.0, math.inf)), ScenarioError, ("inf", "finite mean", "Try means=")),
    "sigma zero": (scenario(sigma=0.0), ScenarioError, ("sigma=0.0", "positive", "Try sigma=2.0")),
    "sigma negative": (scenario(sigma=-1.0), ScenarioError, ("sigma=-1.0", "positive", "Try sigma=2.0")),
    "sigma nan": (scenario(sigma=math.nan), ScenarioError, ("sigma=nan", "positive and finite", "Try sigma=2.0")),
    "sigma of some agents": (scenario(sigma=(1.0,) * 5), ScenarioError, ("5 values", "per agent (12)")),
    "sizes do not add up": (scenario(sizes=(1, 2)), ScenarioError, ("add up to 3", "n_agents=12", "Try assign")),
    "skip rate of one": (scenario(skip_rate=1.0), ScenarioError, ("skip_rate=1.0", "below 1", "Try skip_rate=0.2")),
    "unknown distribution": (
        scenario(distribution="gausian"), ScenarioError, ("'gausian'", "one of", "Did you mean 'gaussian'?"),
    ),
    "unknown assignment": (
        scenario(assignment="radnom"), ScenarioError, ("'radnom'", "one of", "Did you mean 'random'?"),
    ),
    "unlike anything": (
        scenario(distribution="zzz"), ScenarioError, ("'zzz'", "one of 'gaussian'", "Try 'gaussian'."),
    ),
    # methods
    "unknown weights": (
        lambda: colme.ColME(weights="aggresive"), MethodError, ("'aggresive'", "Did you mean 'aggressive'?"),
    ),
    "no queries": (lambda: colme.ColME(queries=0), MethodError, ("queries=0", "at least one", "Try queries=1")),
    "no hops": (lambda: colme.BColME(depth=0), MethodError, ("depth=0", "between 1 and 64 hops", "Try depth=4")),
    "negative step": (lambda: colme.CLColME(step=-0.1), MethodError, ("step=-0.1", "positive", "step='auto'")),
    "nan step": (lambda: colme.CLColME(step=math.nan), MethodError, ("step=nan", "positive", "step='auto'")),
    "step is a word": (
        lambda: colme.CLColME(step="fast"), MethodError, ("step='fast'", "number or 'auto'", "Try step='auto'"),
    ),
    "unstable step": (
        simulate(colme.Scenario(n_agents=100, means=(0.0, 1.0)), colme.CLColME(step=0.2), degree=10), MethodError,
        ("step=0.2", "not stable", "lambda_max must be below 2", "so step < 0.1", "Try step='auto'"),
    ),
    "unstable step on a graph given": (
        lambda: colme.simulate(colme.CLColME(step=0.2), SCENARIO, graph=graphs.complete_graph(12)), MethodError,
        ("step=0.2", "not stable", "lambda_max is 12", "so step < 0.1667", "Try step='auto'"),
    ),
    "colME on too many": (
        simulate(colme.Scenario(n_agents=100_000, means=(0.0,)), colme.ColME(), graph=lambda rng: ring(100_000)),
        MethodError,
        ("100000 agents", "121 GiB", "at most 13000", "Try CLColME or fewer agents"),
    ),
    "no sigma anywhere": (
        sampled(np.zeros((3, 4))), MethodError, ("scale of the samples is not known", "Try sigma=..."),
    ),
    "no width for Hoeffding": (
        simulate(method=colme.CLColME(bound="hoeffding")), MethodError, ("needs the width", "Try width=..."),
    ),
    # graphs
    "odd regular graph": (
        simulate(colme.Scenario(n_agents=5, means=(0.0,)), degree=3), GraphError,
        ("3-regular graph on 5 agents", "n*d must be even (n=5, d=3)", "Try n=6 or d=4."),
    ),
    "degree too high": (
        simulate(degree=12), GraphError, ("12-regular graph on 12", "between 0 and n-1", "Try degree=11"),
    ),
    "negative degree": (
        simulate(degree=-1), RunError, ("degree=-1", "at least 0", "Try degree=10"),
    ),
    "odd ring": (lambda: graphs.ring_lattice_graph(10, 3), GraphError, ("degree 3 on 10", "even", "degree=4")),
    "no probability": (lambda: graphs.gnp_random_graph(5, 1.5), GraphError, ("p=1.5", "between 0 and 1")),
    "no small world": (
        lambda: graphs.watts_strogatz_graph(10, 4, -0.1, rng=0), GraphError, ("p=-0.1", "between 0 and 1"),
    ),
    "graph of nobody": (lambda: graphs.complete_graph(0), GraphError, ("n_agents=0", "at least 1", "Try n_agents=")),
    "loop": (lambda: graphs.from_edges([(0, 1), (2, 2)]), GraphError, ("(2, 2)", "loop", "Leave loops out")),
    "edge twice": (lambda: graphs.from_edges([(0, 1), (1, 0)]), GraphError, ("(0, 1) is given twice", "once")),
    "edge to a stranger": (lambda: graphs.from_edges([(0, 7)], 3), GraphError, ("edge (0, 7)", "are 0..2")),
    "edge of three": (lambda: graphs.from_edges([(0, 1, 2)]), GraphError, ("shape (1, 3)", "pairs")),
    "edge of floats": (lambda: graphs.from_edges([(0, 1.5)]), GraphError, ("float64", "whole numbers")),
    "no permutation": (lambda: graphs.complete_graph(3).relabel([0, 0, 1]), GraphError, ("permutation of 0..2",)),
    # runs
    "no steps": (simulate(steps=0), RunError, ("steps=0", "at least 1", "Try steps=")),
    "negative steps": (simulate(steps=-5), RunError, ("steps=-5", "at least 1", "Try steps=")),
    "too many steps": (simulate(steps=2**31), RunError, ("steps=2147483648", "at most 1,000,000,000")),
    "more steps than recorded": (
        simulate(np.zeros((3, 4)), colme.Local(), steps=5), RunError, ("steps=5", "has 3 steps", "at most that many"),
    ),
    "negative seed": (simulate(seed=-1), RunError, ("seed=-1", "from 0 to 2^64 - 1", "Try seed=0")),
    "seed too large": (simulate(seed=2**64), RunError, (f"seed={2**64}", "from 0 to 2^64 - 1", "Try seed=0")),
    "fractional seed": (simulate(seed=1.5), RunError, ("seed=1.5", "whole number", "Try seed=0")),
    "seeds repeated": (simulate(seeds=[3, 1, 3]), RunError, ("seeds=[3, 1, 3]", "each once", "seeds=range(10)")),
    "no seeds": (simulate(seeds=[]), RunError, ("seeds=[]", "at least one seed", "seeds=range(10)")),
    "a seed is negative": (simulate(seeds=[0, -1]), RunError, ("seed=-1", "from 0 to", "Try seed=0")),
    "degree and graph": (
        lambda: colme.simulate(CL, SCENARIO, degree=4, graph=graphs.complete_graph(12)), RunError,
        ("degree=4 and graph=Graph", "a graph has its degrees", "Leave one out"),
    ),
    "graph of the wrong size": (
        lambda: colme.simulate(CL, SCENARIO, graph=graphs.complete_graph(5)), RunError,
        ("5 agents", "the samples 12", "must be the same"),
    ),
    "made graph of the wrong size": (
        simulate(graph=lambda rng: graphs.complete_graph(7)), RunError, ("7 agents", "12", "must be the same"),
    ),
    "no graph made": (simulate(graph=lambda rng: 3), RunError, ("returned int", "must return a colme.Graph")),
    "tolerance zero": (simulate(tolerance=0.0), RunError, ("tolerance=0.0", "positive", "Try tolerance=0.1")),
    "tolerance nan": (simulate(tolerance=math.nan), RunError, ("tolerance=nan", "finite", "Try tolerance=0.1")),
    "unknown precision": (
        simulate(precision="duble"), RunError, ("precision 'duble'", "one of 'mixed'", "Did you mean 'double'?"),
    ),
    "unknown record": (simulate(record="lgo"), RunError, ("record 'lgo'", "one of 'all', 'log'", "mean 'log'?")),
    "record never": (simulate(record=0), RunError, ("record=0", "at least 1", "Try record='log'")),
    "record beyond the end": (simulate(record=[1, 3]), RunError, ("outside 1..2", "Try record='log'")),
    "method is a word": (
        simulate(method="cl-colme"), RunError, ("method='cl-colme'", "a method", "Try colme.CLColME("),
    ),
    "no method": (simulate(method=[]), RunError, ("method=[]", "a method", "Try colme.CLColME(")),
    "source is a list": (simulate([[1.0, 2.0]]), RunError, ("[[1.0, 2.0]]", "Scenario", "array (steps, agents)")),
    # samples
    "infinite sample": (
        simulate(WITH_INF, steps=None), SampleError, ("agent 1 at step 3 is infinite", "finite", "by NaN"),
    ),
    "no number": (simulate(np.full((3, 4), math.nan)), SampleError, ("are NaN", "at least one number", "Check")),
    "one dimension": (simulate(np.zeros(7)), SampleError, ("shape (7,)", "must be (steps, agents)")),
    "three dimensions": (simulate(np.zeros((2, 2, 2))), SampleError, ("shape (2, 2, 2)", "(steps, agents)")),
    "no agents recorded": (simulate(np.zeros((2, 0))), SampleError, ("shape (2, 0)", "at least one of each")),
    "means of some": (sampled(np.zeros((2, 3)), means=[1.0]), SampleError, ("shape (1,)", "per agent, (3,)")),
    "classes of some": (sampled(np.zeros((2, 3)), classes=[1]), SampleError, ("shape (1,)", "per agent, (3,)")),
    "negative scale": (sampled(np.zeros((2, 3)), sigma=-1.0), SampleError, ("sigma", "positive", "sigma=2.0")),
}  # fmt: skip

for _method in INTERVAL_METHODS:

    def _make(method: Any = _method, **wrong: Any) -> Callable[[], Any]:
        return lambda: method(**wrong)

    BAD |= {
        f"{_method.__name__} {name}": (_make(**wrong), MethodError, fragments)
        for name, wrong, fragments in (
            ("delta zero", {"delta": 0.0}, ("delta=0.0", "between 0 and 1", "Try delta=0.1")),
            ("delta one", {"delta": 1.0}, ("delta=1.0", "between 0 and 1", "Try delta=0.1")),
            ("delta nan", {"delta": math.nan}, ("delta=nan", "between 0 and 1", "Try delta=0.1")),
            ("gamma", {"gamma": 1.5}, ("gamma=1.5", "between 0 and 1", "Try gamma=0.1")),
            ("sigma", {"sigma": 0.0}, ("sigma=0.0", "positive and finite", "Try sigma=2.0")),
            ("width", {"width": -1.0}, ("width=-1.0", "positive and finite", "Try width=2.0")),
            ("kurtosis", {"kurtosis": 0.5}, ("kurtosis=0.5", "at least 1", "Try kurtosis=3.0")),
            (
                "level",
                {"level": "edeg"},
                ("level 'edeg'", "one of 'agent', 'edge', 'network', 'population'", "mean 'edge'?"),
            ),
            ("bound", {"bound": "laplas"}, ("bound 'laplas'", "one of 'laplace'", "Did you mean 'laplace'?")),
        )
    }
    if _method in (colme.CColME, colme.CLColME):
        BAD |= {
            f"{_method.__name__} {name}": (_make(**wrong), MethodError, fragments)
            for name, wrong, fragments in (
                ("clock", {"clock": "globl"}, ("clock 'globl'", "one of 'gossip', 'global'", "Did you mean 'global'?")),
                ("no alpha", {"clock": "constant"}, ("clock='constant' with alpha=None", "needs alpha", "alpha=0.9")),
                ("alpha", {"alpha": 0.5}, ("clock='gossip' with alpha=0.5", "others take none", "clock='constant'")),
                ("alpha 2", {"clock": "constant", "alpha": 2.0}, ("alpha=2.0", "between 0 and 1", "Try alpha=0.9")),
            )
        }
BAD |= {
    f"CLColME {name}": (_make(colme.CLColME, **wrong), MethodError, fragments)
    for name, wrong, fragments in (
        ("consensus", {"consensus": "flows"}, ("consensus 'flows'", "one of 'laplacian', 'flow'", "mean 'flow'?")),
        (
            "flow with a clock", {"consensus": "flow", "clock": "global"},
            ("clock='global' with consensus='flow'", "flows have no clock", "Try without clock and alpha"),
        ),
        (
            "flow with alpha", {"consensus": "flow", "clock": "constant", "alpha": 0.9},
            ("clock='constant' with consensus='flow'", "flows have no clock", "Try without clock and alpha"),
        ),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_answered_with_what_was_got_the_rule_and_the_remedy(name: str) -> None:
    call, error, fragments = BAD[name]
    with pytest.raises(colme.ColmeError) as caught:
        call()
    assert type(caught.value) is error
    message = str(caught.value)
    place = 0
    for fragment in fragments:
        place = message.find(fragment, place)
        assert place >= 0, f"{fragment!r} is missing, or too early, in: {message}"
    assert "\n" not in message and len(message) < 250
    assert len(re.split(r"[.?] (?=[A-Z])", message)) <= 2, f"more than two sentences: {message}"
    assert message[-1] in ".?"


def test_every_error_is_a_value_error_and_a_colme_error() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(kinds) >= 8
    for kind in kinds:
        assert issubclass(kind, colme.ColmeError) and issubclass(kind, ValueError)
    assert issubclass(errors.MissingExtra, ImportError)


def test_colme_on_too_many_agents_is_refused_before_memory_is_taken() -> None:
    crowd = colme.Scenario(n_agents=MAX_AGENTS + 1, means=(0.0, 1.0))
    tracemalloc.start()
    try:
        with pytest.raises(MethodError, match=rf"colME on {MAX_AGENTS + 1} agents needs 2 GiB: .* Try CLColME"):
            colme.simulate(colme.ColME(), crowd, graph=ring(MAX_AGENTS + 1), steps=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50 * 2**20  # the N^2 memories would take 2 GiB
    colme.ColME().check(MAX_AGENTS, ring(MAX_AGENTS))  # one agent fewer is welcome


@pytest.mark.parametrize("n_agents", [100, 5000])  # the dense spectrum, and Lanczos' method
def test_the_bound_that_an_unstable_step_is_told_is_the_bound(n_agents: int) -> None:
    crowd = colme.Scenario(n_agents=n_agents, means=(0.0, 1.0))
    with pytest.raises(MethodError) as caught:
        colme.simulate(colme.CLColME(step=0.2), crowd, degree=10, steps=1)
    told = re.search(r"so step < ([0-9.]+)\. Try", str(caught.value))
    assert told is not None
    limit = float(told[1])  # four digits
    assert colme.simulate(colme.CLColME(step=0.999 * limit), crowd, degree=10, steps=1)
    with pytest.raises(MethodError, match="not stable"):
        colme.simulate(colme.CLColME(step=1.001 * limit), crowd, degree=10, steps=1)


def test_the_step_of_the_paper_and_the_automatic_step_are_accepted() -> None:
    for step in (0.1, "auto"):
        assert colme.simulate(colme.CLColME(step=step), SCENARIO, degree=10, steps=1)


def works(call: Callable[[], Any]) -> bool:
    try:
        call()
    except colme.ColmeError:
        return False
    return True


@examples(30)
@given(n=st.integers(1, 12), degree=st.integers(-3, 15))
def test_the_remedy_for_an_impossible_graph_works(n: int, degree: int) -> None:
    try:
        assert graphs.random_regular_graph(n, degree, rng=0).max_degree == degree
    except GraphError as error:
        remedies = dict(re.findall(r"(degree|n|d)=(-?\d+)", str(error).split("Try")[1]))
        for name, value in remedies.items():
            better = {"n_agents": n, "degree": degree} | {"n_agents" if name == "n" else "degree": int(value)}
            assert works(lambda better=better: graphs.random_regular_graph(**better, rng=0)), str(error)
        assert remedies
    try:
        assert graphs.ring_lattice_graph(n, degree).max_degree == degree
    except GraphError as error:
        better_degree = int(str(error).split("Try degree=")[1].rstrip("."))
        assert works(lambda: graphs.ring_lattice_graph(n, better_degree)), str(error)


def test_a_mistake_that_only_a_later_seed_makes_is_told_too() -> None:
    made: list[int] = []

    def graph(rng: np.random.Generator) -> graphs.Graph:
        made.append(1)
        return graphs.complete_graph(12 if len(made) == 1 else 11)

    with pytest.raises(RunError, match="the graph has 11 agents and the samples 12"):
        colme.simulate(CL, SCENARIO, graph=graph, steps=2, seeds=[0, 1], n_jobs=1)


def test_a_mistake_leaves_no_checkpoint_behind(tmp_path: Path) -> None:
    for wrong in ({"tolerance": 0.0}, {"degree": 12}, {"seed": -1}, {"record": "lgo"}):
        with pytest.raises(colme.ColmeError):
            colme.simulate(CL, SCENARIO, steps=2, checkpoint=tmp_path / "run.npz", **wrong)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_is_a_folder_is_refused_and_so_is_a_file_for_seeds(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"it must be a file, and this is a folder\. Try "):
        colme.simulate(CL, SCENARIO, steps=2, checkpoint=tmp_path)
    file = tmp_path / "run.npz"
    file.touch()
    with pytest.raises(RunError, match=r"with seeds= it must be a folder, and this is a file"):
        colme.simulate(CL, SCENARIO, steps=2, seeds=[0, 1], checkpoint=file)


def test_numbers_of_numpy_are_numbers() -> None:
    """np.float64 from x.std(), an array of one number, an np.int64: all as if typed."""
    samples = np.random.default_rng(0).normal(size=(20, 12))
    method = colme.CLColME(sigma=samples.std(), step=np.float64(0.05))
    assert repr(method) == f"CLColME(sigma={float(samples.std())!r}, step=0.05)"
    assert np.isfinite(colme.simulate(method, samples, record=np.int64(5)).final.estimate).all()
    scenario = colme.Scenario(n_agents=np.int64(12), means=np.array([0.0, 1.0]), sigma=np.array(2.0))
    assert scenario == colme.Scenario(n_agents=12, means=(0.0, 1.0), sigma=2.0)
    assert colme.BColME(depth=np.int64(3)) == colme.BColME(depth=3)


def test_repr_does_not_depend_on_where_a_method_came_from() -> None:
    method = colme.CLColME(step=0.1)
    assert repr(msgspec.json.decode(msgspec.json.encode(method), type=colme.CLColME)) == repr(method)


def test_masked_samples_are_missing_ones() -> None:
    masked = np.ma.masked_less(np.arange(12.0).reshape(4, 3), 2.0)
    assert np.isnan(colme.Recording(masked).values).sum() == 2


@pytest.mark.parametrize(
    ("call", "fragment"),
    [
        (lambda: colme.Recording(np.ones((3, 2)), width=-1.0), "width=-1.0: it must be positive"),
        (lambda: colme.Recording([["a", "b"]]), "are not numbers"),
        (lambda: colme.Recording(np.ones((3, 2)), means=[0, 1], classes=[0, 0]), "different means"),
        (lambda: colme.Scenario(n_agents=4, means=(0.0,), distribution="student", df=math.inf), "df=inf"),
        (lambda: colme.Scenario(n_agents=4, means=(0.0, 1.0), sizes=(2.5, 1.5)), "expected int, got float"),
        (lambda: colme.simulate(colme.CLColME, np.ones((3, 2))), "it must be a method"),
        (lambda: colme.simulate(colme.Local(), np.ones((3, 2)), seed=1, seeds=[2]), "give one seed, or several"),
        (lambda: colme.simulate(colme.Local(), np.ones((3, 2)), graph=3), "from_edges"),
        (lambda: colme.simulate(colme.Local(), np.ones((3, 2)), n_jobs=0), "n_jobs=0"),
        (lambda: colme.CLColME(delta=5e-324).bound_for(1000, 5000), "underflows to zero"),
        (lambda: graphs.random_regular_graph(5.5, 2), "whole number"),
        (lambda: colme.CLColME(dleta=0.1), "unknown field of CLColME 'dleta'.*Did you mean 'delta'"),
        (lambda: colme.Scenario(n_agents=4, means=(0.0,), sgima=2.0), "Did you mean 'sigma'"),
        (lambda: colme.simulate(colme.Local(), np.ones((3, 2)), step=5), "Did you mean 'steps'"),
    ],
)
def test_the_less_common_mistakes_too(call: Callable[[], object], fragment: str) -> None:
    with pytest.raises(ColmeError, match=fragment):
        call()
