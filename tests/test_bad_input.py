"""A mistake is answered by one ColmeError: what was got, the rule, the remedy, in a sentence or two."""

from __future__ import annotations

import math
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import colme
from colme import errors, graphs
from colme.confidence import difference_times, level_gamma, separation_time
from colme.errors import ColmeError, GraphError, MethodError, RunError, SampleError, ScenarioError
from colme.methods.colme import MAX_AGENTS
from colme.metrics import oracle_variance
from colme.samples import draw

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
REFUSALS: list[tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = [
    # scenarios
    *((scenario(**wrong), ScenarioError, fragments) for wrong, *fragments in (
        ({"n_agents": 0}, "n_agents=0", "from 1 to 4294967295", "Try n_agents="),
        ({"n_agents": 2.5}, "n_agents=2.5", "expected int, got float", "See help(colme.Scenario)"),
        ({"n_agents": 2**32}, "n_agents=4294967296", "from 1 to 4294967295", "Try n_agents="),
        ({"means": ()}, "means=()", "finite mean", "Try means="),
        ({"means": (1.0, math.inf)}, "means=(1.0, inf)", "finite mean", "Try means="),
        ({"means": (0.0,) * 13}, "n_agents=12 with 13 means", "every class needs an agent", "Try fewer means"),
        ({"means": (0.0, 1e31)}, "means=(0.0, 1e+31)", "between 1e-30 and 1e+30", "Try another unit"),
        ({"assignment": "blokcs"}, "'blokcs'", "one of 'equal', 'random', 'blocks'", "Did you mean 'blocks'?"),
        ({"assignment": "xxxxxx"}, "'xxxxxx'", "one of 'equal', 'random', 'blocks'", "Try 'equal'."),
        ({"sizes": (12,)}, "sizes=(12,)", "one size >= 0 for each of the 2 means", "Leave sizes out"),
        ({"sizes": (13, -1)}, "sizes=(13, -1)", "one size >= 0 for each of the 2 means", "Leave sizes out"),
        ({"sizes": (2.5, 1.5)}, "sizes=(2.5, 1.5)", "expected int, got float", "See help(colme.Scenario)"),
        ({"sizes": (0, 0), "assignment": "random"}, "sizes=(0, 0)", "positive size", "Try sizes=(1, 1)"),
        ({"sizes": (4, 5)}, "sizes=(4, 5) add up to 9", "add up to n_agents=12", "Try assignment='random'"),
        ({"distribution": "gaussain"}, "'gaussain'", "one of 'gaussian', 'uniform'", "Did you mean 'gaussian'?"),
        ({"distribution": "bernoulli", "sigma": 2.0}, "sigma=2.0", "no free scale", "Leave sigma out"),
        ({"distribution": "bernoulli", "means": (0.5, 1.5)}, "means=(0.5, 1.5)", "between 0 and 1", "Try means="),
        ({"distribution": "bernoulli", "shift_step": 5, "shift_means": (0.5, -0.5)}, "-0.5", "between 0 and 1"),
        ({"distribution": "bernoulli", "spread": 0.1}, "spread=0.1", "0 for 0/1 samples", "Try spread=0.4"),
        ({"distribution": "student", "df": 2.0}, "df=2.0", "df > 2", "Try df=5"),
        ({"distribution": "student", "df": math.inf}, "df=inf", "df > 2", "Try df=5"),
        *(({"sigma": bad}, f"sigma={bad}", "positive and finite", "Try sigma=2.0")
          for bad in (0.0, -1.0, math.inf, math.nan, (1.0, 0.0))),
        ({"sigma": (1.0,) * 5}, "sigma has 5 values", "one number, or one per agent (12) or one per class (2)"),
        ({"sigma": (-1.0,) * 12}, "sigma=(-1.0, -1.0,", "...: it must be positive"),
        ({"told_sigma": 0.0}, "told_sigma=0.0", "positive and finite", "Try told_sigma="),
        ({"skip_rate": 1.0}, "skip_rate=1.0", "at least 0 and below 1", "Try skip_rate=0.2"),
        ({"skip_rate": (0.5,) * 11 + (-0.1,)}, "skip_rate=(0.5, 0.5", "at least 0 and below 1", "Try skip_rate=0.2"),
        ({"skip_rate": (0.5, 0.5)}, "skip_rate has 2 values", "one number, or one per agent (12)", "Try one number"),
        ({"late_share": math.nan}, "late_share=nan", "between 0 and 1", "Try late_share="),
        ({"late_share": 0.5, "late_step": 0}, "late_step=0", "at least 1", "late_step=500"),
        ({"shift_step": 5}, "shift_step", "they go together", "Give both or neither"),
        ({"shift_means": (1.0, 2.0)}, "shift_step", "they go together", "Give both or neither"),
        ({"shift_step": 5, "shift_means": (1.0,)}, "shift_means=(1.0,)", "each of the 2 classes", "Repeat the old"),
        ({"shift_step": 5, "shift_means": (1.0, math.nan)}, "shift_means=(1.0, nan)", "finite new mean", "Repeat the"),
        ({"shift_step": 1, "shift_means": (1.0, 2.0)}, "shift_step=1", "from step 2 on", "Try shift_step=500"),
        ({"spread": math.inf}, "spread=inf", "at least 0 and finite", "Try spread=0.4"),
        ({"spread_shape": "round"}, "spread_shape 'round'", "one of 'gaussian', 'uniform'", "Try 'gaussian'"),
        ({"loss": 1.0}, "loss=1", "at least 0 and below 1", "Try loss=0.2"),
        ({"loss": math.nan}, "loss=nan", "at least 0 and below 1", "Try loss=0.2"),
        ({"sgima": 2.0}, "'sgima'", "one of", "Did you mean 'sigma'?"),
    )),
    # methods
    *((lambda method=method, wrong=wrong: method(**wrong), MethodError, fragments)
      for method in INTERVAL_METHODS for wrong, *fragments in (
        ({"delta": 0.0}, "delta=0.0", "between 0 and 1", "Try delta=0.1"),
        ({"delta": math.nan}, "delta=nan", "between 0 and 1", "Try delta=0.1"),
        ({"gamma": 1.5}, "gamma=1.5", "between 0 and 1", "Try gamma=0.1"),
        ({"sigma": 0.0}, "sigma=0.0", "positive and finite", "Try sigma=2.0"),
        ({"width": -1.0}, "width=-1.0", "positive and finite", "Try width=2.0"),
        ({"kurtosis": 0.5}, "kurtosis=0.5", "at least 1", "Try kurtosis=3.0"),
        ({"level": "edeg"}, "level 'edeg'", "one of 'agent', 'edge', 'network', 'population'", "mean 'edge'?"),
        ({"bound": "laplas"}, "bound 'laplas'", "one of 'laplace'", "Did you mean 'laplace'?"),
        ({"dleta": 0.1}, f"unknown field of {method.__name__} 'dleta'", "one of", "Did you mean 'delta'?"),
    )),
    *((lambda method=method, wrong=wrong: method(**wrong), MethodError, fragments)
      for method in (colme.CColME, colme.CLColME) for wrong, *fragments in (
        ({"clock": "globl"}, "clock 'globl'", "one of 'gossip', 'global'", "Did you mean 'global'?"),
        ({"clock": "constant"}, "clock='constant' with alpha=None", "needs alpha", "alpha=0.9"),
        ({"alpha": 0.5}, "clock='gossip' with alpha=0.5", "others take none", "clock='constant'"),
        ({"clock": "constant", "alpha": 2.0}, "alpha=2.0", "between 0 and 1", "Try alpha=0.9"),
    )),
    *((lambda wrong=wrong: colme.CLColME(**wrong), MethodError, fragments) for wrong, *fragments in (
        ({"consensus": "flows"}, "consensus 'flows'", "one of 'laplacian', 'flow'", "mean 'flow'?"),
        ({"consensus": "flow", "clock": "global"}, "clock='global' with consensus='flow'", "no clock", "Try without"),
        ({"step": -0.1}, "step=-0.1", "positive", "step='auto'"),
        ({"step": math.nan}, "step=nan", "positive", "step='auto'"),
        ({"step": "fast"}, "step='fast'", "number or 'auto'", "Try step='auto'"),
    )),
    (lambda: colme.CLColME(delta=5e-324).bound_for(1000, 5000), MethodError, ("underflows to zero",)),
    (lambda: colme.ColME(weights="aggresive"), MethodError, ("'aggresive'", "Did you mean 'aggressive'?")),
    (lambda: colme.ColME(queries=0), MethodError, ("queries=0", "at least one", "Try queries=1")),
    (lambda: colme.BColME(depth=0), MethodError, ("depth=0", "between 1 and 64 hops", "Try depth=4")),
    (simulate(colme.Scenario(n_agents=100, means=(0.0, 1.0)), colme.CLColME(step=0.2), degree=10), MethodError,
     ("step=0.2", "not stable", "lambda_max must be below 2", "so step < 0.1", "Try step='auto'")),
    (simulate(method=colme.CLColME(step=0.2), graph=graphs.complete_graph(12)), MethodError,
     ("step=0.2", "not stable", "lambda_max is 12", "so step < 0.1667", "Try step='auto'")),
    (simulate(colme.Scenario(n_agents=100_000, means=(0.0,)), colme.ColME(), graph=lambda rng: ring(100_000)),
     MethodError, ("100000 agents", "121 GiB", "at most 13000", "Try CLColME or fewer agents")),
    (sampled(np.zeros((3, 4))), MethodError, ("scale of the samples is not known", "Try sigma=...")),
    (simulate(method=colme.CLColME(bound="hoeffding")), MethodError, ("needs the width", "Try width=...")),
    (lambda: level_gamma("egde", 0.1, n_agents=3, n_edges=3), MethodError, ("unknown level 'egde'", "mean 'edge'?")),
    (lambda: oracle_variance(1.0, 0, 1), ColmeError, ("sigma=1.0, t=0, class_size=1", "all must be positive")),
    (lambda: draw(SCENARIO, 0, 5, first=3), SampleError, ("first=3", "multiple of 64", "Try first=0")),
    *((lambda wrong=wrong: separation_time(**{"gap": 1.0, "sigma": 1.0, "gamma": 0.1} | wrong), error, fragments)
      for wrong, error, *fragments in (
        ({"gap": math.nan}, ColmeError, "gap=nan", "positive and finite", "Try gap=0.8"),
        ({"gap": [1.0, 1.0]}, ColmeError, "gap=[1.0, 1.0]", "two different, finite means", "Try gap=(1.2, 2.0)"),
        ({"gap": 1e-15}, ColmeError, "a gap of 1e-15", "more than 2^60 steps", "Try a larger gap"),
        ({"sigma": -1.0}, ColmeError, "sigma=-1.0", "positive and finite", "Try sigma=2.0"),
        ({"gamma": 0.0}, MethodError, "gamma=0.0", "between 0 and 1", "Try gamma=0.1"),
    )),
    *((lambda wrong=wrong: difference_times(**{"gap": 0.8, "sigma": 2.0, "alpha": 0.1} | wrong), error, fragments)
      for wrong, error, *fragments in (
        ({"alpha": 0.0}, MethodError, "alpha=0.0", "between 0 and 1", "Try alpha=0.1"),
        ({"n_edges": 0}, ColmeError, "n_edges=0", "whole number of at least 1", "Try n_edges=1"),
    )),
    *((call, MethodError, fragments) for call, *fragments in (
        (lambda: colme.CLColME(cut="diff"), "unknown cut 'diff'", "Did you mean 'difference'"),
        (lambda: colme.CLColME(cut="difference", bound="fourth-moment"), "sub-Gaussian scale", "Try cut='intervals'"),
        (lambda: colme.CColME(cut="difference", statistics=("mean", "deviation")), "compare means", "Try cut="),
        (lambda: colme.BColME(cut="difference", level="population"), "unknown level of difference tests 'population'"),
        (lambda: colme.ColME(cut="difference"), "colME's classes and weights are made of intervals"),
        (lambda: colme.CollaborativeMean(colme.CLColME(cut="difference")), "without a scale", "Try sigma="),
        (simulate(np.ones((3, 4)), colme.CLColME(cut="difference")), "scale of the samples is not known"),
    )),
    # graphs
    *((call, GraphError, fragments) for call, *fragments in (
        (lambda: graphs.random_regular_graph(5, 3), "3-regular graph on 5 agents", "n*d must be even", "n=6 or d=4."),
        (lambda: graphs.random_regular_graph(5, 7), "7-regular graph on 5 agents", "between 0 and n-1", "degree=4."),
        (lambda: graphs.random_regular_graph(5, -2), "degree=-2", "whole number of at least 0", "Try degree=0."),
        (lambda: graphs.random_regular_graph(5, 2.5), "degree=2.5", "whole number of at least 0", "Try degree=0."),
        (lambda: graphs.random_regular_graph(5.5, 2), "n_agents=5.5", "whole number from 1", "Try n_agents="),
        (lambda: graphs.gnp_random_graph(-3, 0.5), "n_agents=-3", "whole number from 1", "Try n_agents="),
        (lambda: graphs.complete_graph(0), "n_agents=0", "whole number from 1", "Try n_agents="),
        (lambda: graphs.complete_graph(2**32), "n_agents=4294967296", "from 1 to 4294967295", "Try n_agents="),
        (lambda: graphs.complete_graph(40_000), "n_agents=40000", "too many beyond 32768", "Try random_regular_graph"),
        (lambda: graphs.gnp_random_graph(5, 1.5), "p=1.5", "probability between 0 and 1", "Try p=0.1."),
        (lambda: graphs.gnp_random_graph(5, math.nan), "p=nan", "probability between 0 and 1", "Try p=0.1."),
        (lambda: graphs.watts_strogatz_graph(9, 2, -0.1), "p=-0.1", "probability between 0 and 1", "Try p=0.1."),
        (lambda: graphs.watts_strogatz_graph(8, 3, 0.5), "degree 3 on 8 agents", "even and below n", "Try degree=4."),
        (lambda: graphs.ring_lattice_graph(8, 8), "degree 8 on 8 agents", "even and below n", "Try degree=6."),
        (lambda: graphs.ring_lattice_graph(6, 5), "degree 5 on 6 agents", "even and below n", "Try degree=4."),
        (lambda: graphs.ring_lattice_graph("ten", 2), "n_agents='ten'", "whole number from 1", "Try n_agents="),
        (lambda: graphs.from_edges([]), "no edge and no n_agents", "not known", "Try n_agents=10."),
        (lambda: graphs.from_edges(7), "edges=7", "pairs of agents", "Try [(0, 1), (1, 2)]."),
        (lambda: graphs.from_edges([(0, 1, 2)]), "shape (1, 3)", "pairs of whole numbers", "Try [(0, 1), (1, 2)]."),
        (lambda: graphs.from_edges([(0, 1.5)]), "type float64", "pairs of whole numbers", "Try [(0, 1), (1, 2)]."),
        (lambda: graphs.from_edges([(0, 1), (2, 5)], 4), "edge (2, 5)", "agents are 0..3", "Try a larger n_agents."),
        (lambda: graphs.from_edges([(0, -1)], 4), "edge (0, -1)", "agents are 0..3", "Try a larger n_agents."),
        (lambda: graphs.from_edges([(0, 1), (2, 2)]), "edge (2, 2) is a loop", "no neighbor of itself", "Leave loops"),
        (lambda: graphs.from_edges([(0, 1), (1, 2), (1, 0)]), "edge (1, 0) is given twice", "list every edge once."),
        (lambda: graphs.from_networkx(nx.Graph([("a", "b")])), "must be named 0..1", "convert_node_labels_to_integers"),
        (lambda: graphs.from_networkx(nx.DiGraph([(0, 1)])), "directed", "must be simple", "Try networkx.Graph("),
        (lambda: graphs.from_networkx(nx.MultiGraph([(0, 1)])), "parallel", "must be simple", "Try networkx.Graph("),
        (lambda: graphs.complete_graph(3).relabel([0, 0, 1]), "[0, 0, 1]", "permutation of 0..2", "rng.permutation("),
        (lambda: graphs.complete_graph(3).relabel([0, 1]), "[0, 1]", "permutation of 0..2", "Try rng.permutation("),
        (lambda: graphs.Graph([0, 2], [1]), "indptr does not cut indices into rows", "Try from_edges."),
        (lambda: graphs.Graph([0, 1, 1], [1]), "not those of a simple undirected graph", "Try from_edges."),
        (simulate(degree=12), "12-regular graph on 12", "between 0 and n-1", "Try degree=11"),
    )),
    # runs
    *((simulate(**wrong), RunError, fragments) for wrong, *fragments in (
        ({"steps": 0}, "steps=0", "from 1 to 1000000000", "Try steps="),
        ({"steps": 2.5}, "steps=2.5", "from 1 to 1000000000", "Try steps="),
        ({"steps": True}, "steps=True", "from 1 to 1000000000", "Try steps="),
        ({"steps": 2**31}, "steps=2147483648", "from 1 to 1000000000", "Try steps="),
        ({"source": np.zeros((3, 4)), "method": colme.Local(), "steps": 5}, "steps=5", "has 3 steps", "Ask for"),
        ({"step": 5}, "'step'", "Did you mean 'steps'?"),
        ({"seed": -1}, "seed=-1", "from 0 to 2^64 - 1", "Try seed=0"),
        ({"seed": 2**64}, f"seed={2**64}", "from 0 to 2^64 - 1", "Try seed=0"),
        ({"seed": 1.5}, "seed=1.5", "whole number", "Try seed=0"),
        ({"seed": True}, "seed=True", "whole number", "Try seed=0"),
        ({"seeds": [3, 1, 3]}, "seeds=[3, 1, 3]", "each once", "seeds=range(10)"),
        ({"seeds": []}, "seeds=[]", "at least one seed", "seeds=range(10)"),
        ({"seeds": [0, -1]}, "seed=-1", "from 0 to", "Try seed=0"),
        ({"seed": 1, "seeds": [2]}, "seed=1, seeds=[2]", "give one seed, or several"),
        ({"degree": -1}, "degree=-1", "at least 0", "Try degree=10"),
        ({"degree": 4, "graph": graphs.complete_graph(12)}, "degree=4 and graph=", "has its degrees", "Leave one out"),
        ({"graph": graphs.complete_graph(5)}, "5 agents", "the samples 12", "must be the same"),
        ({"graph": lambda rng: graphs.complete_graph(7)}, "7 agents", "12", "must be the same"),
        ({"graph": lambda rng: 3}, "returned int", "must return a colme.Graph"),
        ({"graph": 3}, "graph=3", "a graph of colme or networkx", "from_edges"),
        ({"n_jobs": 0}, "n_jobs=0"),
        ({"tolerance": 0.0}, "tolerance=0.0", "positive", "Try tolerance=0.1"),
        ({"tolerance": math.nan}, "tolerance=nan", "finite", "Try tolerance=0.1"),
        ({"precision": "duble"}, "precision 'duble'", "one of 'mixed'", "Did you mean 'double'?"),
        ({"record": "lgo"}, "record 'lgo'", "one of 'all', 'log'", "mean 'log'?"),
        ({"record": 0}, "record=0", "at least 1", "Try record='log'"),
        *(({"record": bad}, "outside 1..2", "Try record='log'") for bad in ([1, 3], [0, 1], [])),
        ({"method": "cl-colme"}, "method='cl-colme'", "a method", "Try colme.CLColME("),
        ({"method": colme.CLColME}, "it must be a method", "Try colme.CLColME("),
        ({"method": []}, "method=[]", "a method", "Try colme.CLColME("),
        ({"method": [CL, "cl-colme"]}, "'cl-colme'", "a method or a list of them", "Try colme.CLColME("),
        ({"source": "scenario.toml"}, "'scenario.toml'", "come from a Scenario, a Recording or an array"),
        ({"source": [[1.0, 2.0]]}, "[[1.0, 2.0]]", "Scenario", "array (steps, agents)"),
    )),
    # samples
    *((simulate(wrong), SampleError, fragments) for wrong, *fragments in (
        (WITH_INF, "agent 1 at step 3 is infinite", "finite", "by NaN"),
        (np.full((3, 4), math.nan), "are NaN", "at least one number", "Check"),
        (np.zeros(7), "shape (7,)", "must be (steps, agents)"),
        (np.zeros((2, 2, 2)), "shape (2, 2, 2)", "(steps, agents)"),
        (np.zeros((2, 0)), "shape (2, 0)", "at least one of each"),
        (np.array([["a", "b"]]), "are not numbers", "array of numbers", "Try np.asarray(...)"),
    )),
    *((lambda known=known: colme.Recording(np.zeros((2, 3)), **known), SampleError, fragments)
      for known, *fragments in (
        ({"means": [1.0]}, "means has shape (1,)", "per agent, (3,)", "Try means=None"),
        ({"means": 1.0}, "means has shape ()", "per agent, (3,)", "Try means=None"),
        ({"means": [1.0, math.nan, 1.0]}, "means of agent 1 is nan", "must be finite", "Try means=None"),
        ({"classes": [1]}, "shape (1,)", "per agent, (3,)", "Try classes=None"),
        ({"means": [0, 1, 1], "classes": [0, 0, 1]}, "agents 0 and 1", "different means", "Leave classes out"),
        ({"sigma": -1.0}, "sigma=-1.0", "positive and finite", "sigma=2.0"),
        ({"sigma": math.nan}, "sigma=nan", "positive and finite", "sigma=2.0"),
        ({"sigma": [1.0, 0.0, 1.0]}, "sigma of agent 1 is 0.0", "positive", "sigma=2.0"),
        ({"sigma": [1.0, 2.0]}, "sigma has shape (2,)", "per agent, (3,)", "Try sigma=None"),
        ({"width": -1.0}, "width=-1.0", "positive", "width=1.0"),
    )),
]  # fmt: skip


def test_a_mistake_is_answered_with_what_was_got_the_rule_and_the_remedy() -> None:
    for call, error, fragments in REFUSALS:
        with pytest.raises(error) as caught:
            call()
            pytest.fail(f"not refused: {fragments}")
        message, place = str(caught.value), 0
        assert type(caught.value) is error, message
        for fragment in fragments:
            place = message.find(fragment, place)
            assert place >= 0, f"{fragment!r} is missing, or too early, in: {message}"
        assert "\n" not in message and len(message) < 300 and message[-1] in ".?", message
        assert len(re.split(r"[.?] (?=[A-Z])", message)) <= 2, f"more than two sentences: {message}"


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


def test_numbers_of_numpy_are_numbers() -> None:
    """np.float64 from x.std(), an array of one number, an np.int64: all as if typed."""
    samples = np.random.default_rng(0).normal(size=(20, 12))
    method = colme.CLColME(sigma=samples.std(), step=np.float64(0.05))
    assert repr(method) == f"CLColME(sigma={float(samples.std())!r}, step=0.05)"
    trace = colme.simulate(method, samples, record=np.int64(5), tolerance=np.float32(0.25), seed=np.int64(1))
    assert np.isfinite(trace.final.estimate).all() and trace.seed == 1
    scenario = colme.Scenario(n_agents=np.int64(12), means=[np.float32(0), np.int64(1)], sigma=np.array(2.0))
    assert scenario == colme.Scenario(n_agents=12, means=(0.0, 1.0), sigma=2.0)
    assert colme.BColME(depth=np.int64(3)) == colme.BColME(depth=3)


def test_masked_samples_are_missing_ones() -> None:
    masked = np.ma.masked_less(np.arange(12.0).reshape(4, 3), 2.0)
    assert np.isnan(colme.Recording(masked).values).sum() == 2
