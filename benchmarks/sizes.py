"""Nanoseconds per agent and step over the number of agents, beside the roofline and the baselines."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import naive_loops, scipy_loop
from benchmarks import workloads as w
from benchmarks.measuring import Timed, in_turns
from benchmarks.roofline import Gather, passes_for


@dataclass(frozen=True)
class Size:
    """How long is measured at this many agents."""

    n_agents: int
    n_steps: int
    rounds: int

    @property
    def huge(self) -> bool:
        return self.n_agents > 1_000_000


FULL = (Size(5000, 1000, 5), Size(100_000, 100, 3), Size(1_000_000, 20, 2), Size(10_000_000, 5, 1))
QUICK = (Size(5000, 100, 1), Size(100_000, 5, 1))
MEMORY = 16 * 2**30
"""Bytes that ought to be free for ten million agents."""


@dataclass(frozen=True)
class Cost:
    """Best of the rounds, in nanoseconds per agent and step; None: not measured at this size."""

    n_agents: int
    n_steps: int
    roofline: float
    form: str
    alone: float
    naive: float | None
    scipy: float | None


def measure(size: Size, tell: Callable[[str], None]) -> Cost:
    """Everybody at this size, in turns; the graph is the same for all."""
    tell(f"{size.n_agents:,} agents: graph and roofline")
    graph = w.graph_of(size.n_agents)
    form, _, roofline = Gather(graph).fastest(2 if size.huge else 5, passes_for(size.n_agents))
    tell(f"{size.n_agents:,} agents: {size.n_steps} steps of everybody, in turns")
    works: dict[str, Timed] = {"alone": w.steps_alone(graph, size.n_steps)}
    if not size.huge:
        works["naive"] = w.baseline_steps(naive_loops.run, graph, size.n_steps)
        works["scipy"] = w.baseline_steps(scipy_loop.run, graph, size.n_steps)
    _compile()
    times = in_turns(works, size.rounds, warm=size.n_agents < 100_000)
    unit = 1e9 / (size.n_agents * size.n_steps)
    found = {name: unit * seen.best for name, seen in times.items()}
    del graph, works
    gc.collect()
    return Cost(
        size.n_agents, size.n_steps, roofline, form, found["alone"], found.get("naive"), found.get("scipy")
    )  # fmt: skip


def _compile() -> None:
    """Few agents in parts compile what many need; the graph's own kernels are compiled by now."""
    from colme.lab.runs.worker import warm_up

    warm_up(w.CL, w.scenario(100_000))
    small = w.graph_of(640)
    w.baseline_steps(naive_loops.run, small, 3)()
