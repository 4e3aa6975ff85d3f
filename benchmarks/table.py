"""The measurements behind the table: each part gives some rows of `goals.GOALS`.

CPU time of one core, N = 5000, r = 10, all metrics at every step, unless the row says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import colme
from benchmarks import naive_loops, scipy_loop
from benchmarks import workloads as w
from benchmarks.estimates import rows as estimate_rows
from benchmarks.fresh import first_call, huge, large_census
from benchmarks.goals import GOALS
from benchmarks.measuring import Measured, in_turns, ratio, timed
from benchmarks.online import events
from benchmarks.roofline import share_of_roofline
from benchmarks.streaming import rows as stream_rows
from colme.graphs import random_regular_graph
from colme.sim.simulation import available_cores

Found = dict[str, Measured]
STEPS, B_STEPS, SEEDS = 2000, 1000, range(16)


def against_loops(quick: bool) -> Found:
    """CL-colME and C-colME against the same loops in SciPy and in naive numba."""
    rounds, lasting = (1, 0.0) if quick else (7, 0.4)
    if quick:
        for work in _loops(500, 1500).values():  # enough to compile everything
            work()
    works = {name: timed(work, lasting=lasting) for name, work in _loops(w.N, STEPS).items()}
    times = in_turns(works, rounds, warm=not quick)
    return {
        "scipy": ratio(times["scipy"], times["alone"]),
        "c_over_cl": ratio(times["c"], times["alone"]),
        "naive": ratio(times["naive"], times["alone"]),
        "scipy_gossip": ratio(times["scipy"], times["gossip"]),
        "scipy_c": ratio(times["scipy_c"], times["c"]),
    }


def _loops(n: int, steps: int) -> dict[str, Callable[[], object]]:
    graph = w.graph_of(n)
    return {
        "scipy": w.baseline(scipy_loop.run, graph, steps, step=w.STEP),
        "scipy_c": w.baseline(scipy_loop.run, graph, steps, step=None),
        "naive": w.baseline(naive_loops.run, graph, steps, step=w.STEP),
        "alone": w.simulate(w.CL, n, steps),
        "gossip": w.simulate(w.CL_GOSSIP, n, steps),
        "c": w.simulate(w.C, n, steps),
    }


def level_agent(quick: bool) -> Found:
    """Where classes part early, and SciPy's matrices soon are half as large."""
    rounds, lasting = (1, 0.0) if quick else (5, 0.4)
    works = {
        "scipy": w.baseline(scipy_loop.run, w.graph_of(w.N), STEPS, "agent", step=w.STEP),
        "alone": w.simulate(w.CL_AGENT, w.N, STEPS),
    }
    times = in_turns({name: timed(work, lasting=lasting) for name, work in works.items()}, rounds, warm=not quick)
    return {"scipy_agent": ratio(times["scipy"], times["alone"])}


def census(quick: bool) -> Found:
    """The census in nanoseconds, and against the SciPy loop of CL-colME in the same rounds."""
    steps, rounds = (200, 1) if quick else (STEPS, 5)
    works = {
        "scipy": w.baseline(scipy_loop.run, w.graph_of(w.N), steps, step=w.STEP),
        "census": w.simulate(colme.Census(), w.N, steps),
        "census_last": w.simulate(colme.Census(), w.N, steps, record=[steps]),
        "census_bare": w.simulate(colme.Census(guard=False), w.N, steps),
        "census_bare_last": w.simulate(colme.Census(guard=False), w.N, steps, record=[steps]),
    }
    times = in_turns({name: timed(work) for name, work in works.items()}, rounds)
    found = {name: times[name].measured(1e9 / (w.N * steps)) for name in works if name != "scipy"}
    return found | {"census_scipy": ratio(times["scipy"], times["census"])}


def b_colme(quick: bool) -> Found:
    """B-colME against its table of messages in NumPy, which is skipped where it is missing."""
    table = w.b_colme_table()
    if table is None:
        return {}
    steps, rounds = (40, 1) if quick else (B_STEPS, 3)
    graph = w.graph_of(w.N)
    times = in_turns(
        {
            "table": timed(w.baseline(table, graph, steps, depth=w.DEPTH)),
            "subtract": timed(w.baseline(table, graph, steps, depth=w.DEPTH, subtract=True)),
            "ours": timed(w.simulate(w.B, w.N, steps), lasting=0.0 if quick else 0.4),
        },
        rounds,
    )
    return {"b_table": ratio(times["table"], times["ours"]), "b_subtract": ratio(times["subtract"], times["ours"])}


def roofline(quick: bool) -> Found:
    """How much of what memory allows the averaging reaches."""
    sizes = {"roofline_1e5": (100_000, 10)} | ({} if quick else {"roofline_1e6": (1_000_000, 4)})
    rounds = 5 if quick else 15
    return {key: share_of_roofline(w.graph_of(n), rounds, steps)[0] for key, (n, steps) in sizes.items()}


def memory(quick: bool) -> Found:
    """Counted, not timed."""
    n = 1_000_000
    run, _ = w.ready(w.CL, w.graph_of(n), 1)
    return {"memory": Measured.once(w.bytes_of(run) / n)}


def graphs(quick: bool) -> Found:
    """Making a random regular graph; beside it, what NumPy takes to shuffle as many ends and to sort them by agent."""
    n = 1_000_000

    def shuffle_and_sort() -> None:
        ends = np.repeat(np.arange(n, dtype=np.uint32), w.DEGREE)
        np.random.default_rng(0).shuffle(ends)
        pairs = ends.reshape(-1, 2)
        owners, partners = np.concatenate([pairs, pairs[:, ::-1]]).T
        partners[np.argsort(owners, kind="stable")]

    works = {"ours": timed(lambda: random_regular_graph(n, w.DEGREE, rng=0)), "numpy": timed(shuffle_and_sort)}
    times = in_turns(works, 1 if quick else 5, warm=not quick)
    return {"graph": times["ours"].measured(), "graph_numpy": ratio(times["numpy"], times["ours"])}


def threads(quick: bool) -> Found:
    """Realisations on graphs of their own, by one thread and by two."""
    if available_cores() < 2:
        return {}
    steps, rounds = (200, 3) if quick else (1000, 7)
    works = {
        str(jobs): timed(w.simulate(w.CL, w.N, steps, seeds=SEEDS, n_jobs=jobs), clock=time.perf_counter)
        for jobs in (1, 2)
    }
    times = in_turns(works, rounds)
    return {"threads": ratio(times["1"], times["2"])}


@dataclass(frozen=True)
class Part:
    """Some rows that are measured together."""

    words: str
    measure: Callable[[bool], Found]
    rows: tuple[str, ...]
    huge: bool = False
    """Needs the memory of ten million agents."""
    long: bool = False
    """Left out of a first impression."""

    @property
    def checked(self) -> bool:
        return any(GOALS[row].checked for row in self.rows)


PARTS = (
    Part("CL-colME and C-colME against SciPy and naive loops", against_loops,
         ("scipy", "c_over_cl", "naive", "scipy_gossip", "scipy_c")),
    Part('CL-colME at level "agent" against SciPy', level_agent, ("scipy_agent",)),
    Part("the census", census, ("census", "census_last", "census_bare", "census_bare_last", "census_scipy")),
    Part("the census of 200,000 agents, in fresh processes", large_census, ("census_large", "census_memory"),
         long=True),
    Part("B-colME against a table in NumPy", b_colme, ("b_table", "b_subtract")),
    Part("averaging against the random-gather roofline", roofline, ("roofline_1e5", "roofline_1e6")),
    Part("memory", memory, ("memory",)),
    Part("random regular graphs", graphs, ("graph", "graph_numpy")),
    Part("ten million agents: set-up, and memory of a fresh process", huge, ("huge_setup", "huge_memory"), huge=True),
    Part("learning event by event", events,
         ("online_dict", "online_dict_cl", "online_dict_one", "online_rate", "online_one")),
    Part("estimates of a table of 3 million rows", estimate_rows,
         ("estimate_3e3", "estimate_1e5", "estimate_1e6", "estimate_seconds", "estimate_memory")),
    Part("one pass over 20 million rows", stream_rows,
         ("stream", "stream_text", "stream_memory", "push_polars", "push_duckdb")),
    Part("two threads over realisations", threads, ("threads",)),
    Part("import and first call in fresh processes", first_call, ("import_warm", "import_cold", "estimate_cold")),
)  # fmt: skip


def part_with(row: str) -> Part:
    return next(part for part in PARTS if row in part.rows)
