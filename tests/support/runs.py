"""Runs as the engine makes them, to be driven by hand."""

from __future__ import annotations

from typing import Any

from colme.graphs import Graph
from colme.methods import Method
from colme.recording import Recording
from colme.samples import ScenarioStream
from colme.scenario import Scenario
from colme.sim.engine import Run
from colme.sim.prepare import EXCHANGE, first_graph
from colme.sim.recorder import recorded_steps
from colme.sim.sampling import BLOCK


def run_of(
    methods: list[Method], source: Scenario | Recording, *, steps: int, degree: int | None = None,
    graph: Graph | None = None, seed: int = 0, record: Any = "all", precision: str = "mixed", block: int = BLOCK,
) -> Run:  # fmt: skip
    """A run before its first step."""
    stream = ScenarioStream(source, seed) if isinstance(source, Scenario) else source
    return Run(
        methods, stream, first_graph(graph, degree, stream.n_agents, seed), recorded_steps(record, steps), seed=seed,
        tolerance=0.1, exchange=EXCHANGE[precision], configuration={}, block=block,
    )  # fmt: skip
