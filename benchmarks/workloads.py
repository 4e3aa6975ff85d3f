"""What is run: the setting of CL-colME at any size, by us and by the baselines, as whole calls or as some steps."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import colme
from benchmarks import naive_loops, scipy_loop
from benchmarks.measuring import Timed
from colme.graphs import random_regular_graph
from colme.methods import Method
from colme.samples import draw
from colme.sim.run import Run
from colme.sim.sampling import STRETCH
from colme.sim.spec import RunSpec

N, DEGREE, SIGMA, DELTA, STEP, DEPTH = 5000, 10, 2.0, 0.1, 0.1, 4
MEANS = (1.2, 2.0)
WARM_UP = 2
"""Steps that are not timed where only a few are."""

CL = colme.CLColME(delta=DELTA, clock="global", step=STEP)
CL_AGENT = colme.CLColME(delta=DELTA, level="agent", clock="global", step=STEP)
CL_GOSSIP = colme.CLColME(delta=DELTA, step=STEP)
CL_FLOW = colme.CLColME(delta=DELTA, step=STEP, consensus="flow")
C = colme.CColME(delta=DELTA, clock="global")
B = colme.BColME(delta=DELTA, depth=DEPTH)


def scenario(n: int = N) -> colme.Scenario:
    return colme.Scenario(n_agents=n, means=MEANS, sigma=SIGMA)


def gamma(n: int = N, level: str = "edge") -> float:
    """What an interval may miss, at DELTA."""
    return DELTA / (4 * DEGREE * n) if level == "edge" else DELTA / 2


def graph_of(n: int) -> colme.Graph:
    return random_regular_graph(n, DEGREE, rng=0)


def truth_of(n: int) -> NDArray[np.float64]:
    return np.where(np.arange(n) % 2, *MEANS)


def simulate(method: Method, n: int, steps: int, **options: Any) -> Callable[[], object]:
    """A whole call, graph and set-up included."""
    options = {"degree": DEGREE, "n_jobs": 1} | options
    return lambda: colme.simulate(method, scenario(n), steps=steps, **options)


def baseline(run: Callable[..., Any], graph: colme.Graph, steps: int, level: str = "edge", **options: Any) -> Any:
    """A whole call of a baseline; the graph is given."""
    n = graph.n_agents
    edges, truth = graph.edges(), truth_of(n)
    return lambda: run(edges, truth, n_steps=steps, sigma=SIGMA, gamma=gamma(n, level), **options)


def baseline_steps(run: Callable[..., Any], graph: colme.Graph, steps: int) -> Timed:
    """CPU seconds of so many steps of a baseline after the warm-up, without its set-up: a difference."""
    long, short = (baseline(run, graph, count, step=STEP) for count in (WARM_UP + steps, WARM_UP))

    def seconds() -> float:
        short()  # the first call in a while finds cold caches, and would make the difference too small
        started = time.process_time()
        short()
        between = time.process_time()
        long()
        return (time.process_time() - between) - (between - started)

    return seconds


def steps_alone(graph: colme.Graph, steps: int) -> Timed:
    """CPU seconds of so many steps of CL-colME after the warm-up, in a run of its own each time."""

    def seconds() -> float:
        run, warm = ready(CL, graph, steps)
        started = time.process_time()
        advance(run, warm + steps)
        return time.process_time() - started

    return seconds


def ready(method: Method, graph: colme.Graph, steps: int) -> tuple[Run, int]:
    """A run after its warm-up, with so many steps to go; and its steps so far. Few agents see a stretch of steps at
    once: the warm-up then is as long, or the first steps to go would have been seen for nothing."""
    run = Run([RunSpec(method=method, source=scenario(graph.n_agents), graph=graph, steps=STRETCH + steps, seed=0)])
    warm = max(WARM_UP, run.sampler.most)
    advance(run, warm)
    return run, warm


def advance(run: Run, last: int) -> None:
    """On to step `last`, as `simulate` goes."""
    while run.world.t < last:
        run.advance(run.world.t + 1, last)


def b_colme_table() -> Callable[..., Any] | None:
    """The baseline of B-colME, if it is there."""
    if importlib.util.find_spec("benchmarks.b_colme_table") is None:
        return None
    return importlib.import_module("benchmarks.b_colme_table").run


def check_baselines() -> None:
    """Baselines that compute something else would be no baselines: on our samples they give our curves."""
    n, steps, graph = 500, 600, graph_of(500)
    trace = colme.simulate(CL, scenario(n), graph=graph, steps=steps)
    assert trace.final.truth is not None
    truth, samples = trace.final.truth, draw(scenario(n), 0, steps)
    given: dict[str, Any] = {"n_steps": steps, "sigma": SIGMA, "gamma": gamma(n), "samples": samples}
    theirs = {"SciPy loop": scipy_loop.run(graph.edges(), truth, step=STEP, **given),
              "naive loops": naive_loops.run(graph.edges(), truth, step=STEP, **given)}  # fmt: skip
    ours = dict.fromkeys(theirs, trace)
    table = b_colme_table()
    if table is not None:
        theirs["B-colME table"] = table(graph.edges(), truth, depth=DEPTH, **given)
        ours["B-colME table"] = colme.simulate(B, scenario(n), graph=graph, steps=steps)
    for name, curves in theirs.items():
        for metric in ("mse", "local_mse", "oracle_mse", "wrong_edges"):
            if not np.allclose(curves[metric], getattr(ours[name], metric), rtol=1e-4, atol=1e-9):
                raise SystemExit(f"the {name} and colme differ in {metric}: one of them is wrong. Run the tests.")


def bytes_of(run: Run) -> int:
    """Bytes held by the arrays of a run, without what was recorded."""
    return _array_bytes([run.world, run.sampler, *run.states], set())


def _array_bytes(things: list[Any], seen: set[int]) -> int:
    total = 0
    for thing in things:
        if isinstance(thing, np.ndarray):
            owner = thing if thing.base is None else thing.base
            if id(owner) not in seen:
                seen.add(id(owner))
                total += owner.nbytes
        elif type(thing).__module__.startswith("colme") and id(thing) not in seen and hasattr(thing, "__dict__"):
            seen.add(id(thing))
            total += _array_bytes(list(vars(thing).values()), seen)
    return total
