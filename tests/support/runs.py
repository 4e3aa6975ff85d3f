"""Runs to be driven by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colme._core.team import ALONE, Team
from colme.methods import Method
from colme.sim.run import Run
from colme.sim.sampling import BLOCK, Sampler
from colme.sim.spec import RunSpec


def run_of(
    methods: list[Method], source: Any, *, block: int = BLOCK, team: Team = ALONE, checkpoint: Path | None = None,
    **fields: Any,
) -> Run:  # fmt: skip
    """A run before its first step; with another `block`, samples are made that many at a time."""
    specs = [RunSpec(method=method, source=source, **fields) for method in methods]
    run = Run(specs, team=team, checkpoint=checkpoint)
    if block != BLOCK:
        run.sampler = Sampler(run.stream, run.world, run.recorder.steps, block)
    return run
