"""Every kernel by itself, at a size that fits the caches and at one that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import workloads as w
from benchmarks.roofline import FORMS, Gather, name_of
from colme._core.edges import KeptEdges, _check_all, _sort_into_buckets
from colme.graphs import random_regular_graph
from colme.methods import CLColME, World
from colme.samples import ScenarioStream
from colme.sim.run import Run
from colme.sim.sampling import Errors, Sampler
from colme.sim.spec import recorded_steps

SIZES = pytest.mark.parametrize("n", [5000, 100_000], ids=lambda n: f"{n} agents")
T = 100
"""A step in the middle of a run, when nothing is cut any more in vain and little yet in earnest."""


def at_work(n: int, method: CLColME = w.CL) -> Run:
    """A run at step T."""
    run, _ = w.ready(method, w.graph_of(n), 4 * T)
    w.advance(run, T)
    return run


@SIZES
def bench_samples(benchmark: Any, n: int) -> None:
    """Drawing a normal for everybody."""
    stream, out = ScenarioStream(w.scenario(n), 0), np.empty((1, n))
    benchmark(lambda: stream.fill(out, T))


@SIZES
def bench_sampling(benchmark: Any, n: int) -> None:
    """Samples, means and their errors, as many steps as are seen at once; a fresh look each time."""
    stream = ScenarioStream(w.scenario(n), 0)
    assert stream.class_ is not None
    errors = Errors(stream.class_, 0.1)
    world = World(stream.class_, stream.sigma, stream.width, np.zeros(n), None, errors=errors)
    seen = Sampler(stream, world, recorded_steps("all", 2 * T))

    def see() -> None:
        seen._from = seen._to = 1
        seen.sample(T, T)

    benchmark(see)
    benchmark.extra_info["steps seen at once"] = seen.most


@SIZES
@pytest.mark.parametrize(
    "method", [w.CL, w.CL_GOSSIP, w.CL_FLOW, w.C], ids=["CL-colME", "CL-colME gossip", "CL-colME flow", "C-colME"]
)
def bench_run_steps(benchmark: Any, n: int, method: Any) -> None:
    """One step of averaging: `run_steps` over one row of means."""
    run = at_work(n, method)
    state, world = run.states[0], run.world
    means, out = world.mean[None, :].copy(), np.empty((1, 5))
    world.reference.displacements(means, world.t)
    benchmark(lambda: state.average(world, means, 0, np.full(1, 10.0), out, pruned=True))  # type: ignore[attr-defined]


@SIZES
def bench_full_look(benchmark: Any, n: int) -> None:
    """A look at every edge, none of which is parted."""
    run = at_work(n)
    edges, reference = run.states[0].edges, run.world.reference  # type: ignore[attr-defined]
    reference.set(run.world.mean)
    found = edges.found
    benchmark(lambda: _check_all(
        edges.table, run.world.mean, 10.0, 1.5, 20.0, reference.means, found
    ))  # fmt: skip


@SIZES
def bench_sort(benchmark: Any, n: int) -> None:
    """Sorting what a full check found into buckets."""
    run = at_work(n)
    edges, reference = run.states[0].edges, run.world.reference  # type: ignore[attr-defined]
    reference.set(run.world.mean)
    listed, mean = edges.candidates, run.world.mean
    n_found, complete = _check_all(
        edges.table, mean, 10.0, 1.5, 20.0, reference.means, edges.found
    )  # fmt: skip
    assert complete
    sort = (reference.means, 20.0, 18.5, mean, 10.0, edges.found.copy(), n_found, listed.edges, listed.ends)
    benchmark(lambda: _sort_into_buckets(*sort))
    benchmark.extra_info["edges sorted"] = int(n_found)


@SIZES
def bench_tighten(benchmark: Any, n: int) -> None:
    """Dropping the slots of cut edges, half of all; each time on a new table."""
    graph, class_ = w.graph_of(n), np.arange(n, dtype=np.float64) % 2.0

    def loose() -> tuple[tuple[Any, ...], dict[str, Any]]:
        edges = KeptEdges(graph, class_.astype(np.uint16))
        edges.prune(10.0 * class_, 1.0)
        return (edges,), {}

    benchmark.pedantic(lambda edges: edges.tighten(), setup=loose, rounds=10, warmup_rounds=1)


@pytest.mark.parametrize("n", [5000, 100_000, 1_000_000], ids=lambda n: f"{n} agents")
def bench_graph(benchmark: Any, n: int) -> None:
    """A random regular graph of degree 10."""
    random_regular_graph(640, w.DEGREE, rng=0)
    benchmark.pedantic(lambda: random_regular_graph(n, w.DEGREE, rng=0), rounds=5, warmup_rounds=1)


@SIZES
@pytest.mark.parametrize("form", FORMS, ids=name_of)
def bench_random_reads(benchmark: Any, n: int, form: Any) -> None:
    """The forms of the roofline."""
    gather = Gather(w.graph_of(n))
    benchmark(lambda: form(gather.x, gather.indices, gather.pairs))
