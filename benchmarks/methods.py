"""CPU time of whole runs over the work they do, N r T: in proportion, but for colME, where everybody asks everybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import colme
from benchmarks import workloads as w
from benchmarks.measuring import in_turns, timed
from colme.methods import Method

LABELS: dict[str, tuple[Method, int]] = {
    "local": (colme.Local(), 1_000_000),
    "oracle": (colme.Oracle(), 1_000_000),
    "CL-colME": (w.CL, 1_000_000),
    "CL-colME, gossip clock": (w.CL_GOSSIP, 1_000_000),
    "C-colME": (w.C, 1_000_000),
    "B-colME, depth 4": (w.B, 100_000),
    "census": (colme.Census(), 10_000),
    "colME": (colme.ColME(delta=w.DELTA), 2000),
}
"""Methods, each with the most agents it is measured with."""
FULL = ((200, 500), (1000, 500), (2000, 500), (10_000, 500), (100_000, 200), (1_000_000, 100))
QUICK = ((200, 100), (1000, 100))
"""Agents and steps."""


@dataclass(frozen=True)
class RunTime:
    """CPU seconds of one call of `simulate`, best of the rounds, the graph and all metrics included."""

    label: str
    n_agents: int
    n_steps: int
    seconds: float

    @property
    def work(self) -> int:
        return self.n_agents * w.DEGREE * self.n_steps

    @property
    def per_agent_step(self) -> float:
        """Nanoseconds."""
        return 1e9 * self.seconds / (self.n_agents * self.n_steps)


def measure(n_agents: int, n_steps: int, tell: Callable[[str], None]) -> list[RunTime]:
    """All methods that can, at this size, in turns."""
    tell(f"{n_agents:,} agents, {n_steps} steps: all methods, in turns")
    works = {
        label: timed(w.simulate(method, n_agents, n_steps), lasting=0.02)
        for label, (method, most) in LABELS.items()
        if n_agents <= most
    }
    rounds = 2 if n_agents >= 100_000 else 5
    times = in_turns(works, rounds, warm=n_agents < 100_000)
    return [RunTime(label, n_agents, n_steps, seen.best) for label, seen in times.items()]
