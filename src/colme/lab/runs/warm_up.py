"""`warm_up`: compile or load every kernel that a run needs, before its time is measured."""

from __future__ import annotations

import functools

import numpy as np

from colme._core.jit import LANES
from colme.confidence import BURN_IN
from colme.methods import Method
from colme.scenario import Scenario
from colme.sim.run import Run
from colme.sim.sampling import Sampler
from colme.sim.spec import RunSpec

FEW = 256
"""Number of agents in the warm-up."""
STEPS = 12


@functools.lru_cache(maxsize=1024)
def warm_up(method: Method, scenario: Scenario, precision: str = "mixed") -> None:
    """Run the first few agents of the same scenario for a few steps, with the types that the whole will have."""
    change_at = max(BURN_IN) if method.needs_moments else STEPS // 2
    n_steps = change_at + STEPS // 2
    spec = RunSpec(method=method, source=scenario, steps=n_steps, precision=precision).with_fewer_agents(FEW)
    run = Run([spec])
    # In small parts, step by step: then a change of the means lasts.
    run.sampler = Sampler(run.stream, run.world, run.world.errors, run.recorder.steps, LANES)
    for t in range(1, n_steps + 1):
        run.step(t)
        if t == change_at:
            # So far no edge may have been cut. Moving half of the means far away makes sure that some are.
            run.world.mean[::2] += 1e9 * (1.0 + np.nanmax(np.abs(run.world.mean), initial=0.0))
            if run.world.moments is not None:  # and noisier
                run.world.moments.second[::2] *= 1e18
                run.world.moments.fourth[::2] *= 1e36
    edges = run.states[0].edges
    edges.groups(edges.graph())
