"""What a run writes down, and when."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from colme.errors import RunError, one_of
from colme.methods import State, World
from colme.metrics import METRICS, Judge

Record = str | int | Sequence[int]


def recorded_steps(record: Record, n_steps: int) -> NDArray[np.int64]:
    """The steps to record: "all", "log" (about 40 per decade), every k-th, or a list. The last step always is."""
    if isinstance(record, str):
        one_of(record, ("all", "log"), "record", RunError)
        if record == "all":
            return np.arange(1, n_steps + 1)
        # The grid does not depend on n_steps, so a longer run records a superset.
        grid = np.unique(np.floor(10 ** (np.arange(0, 40 * np.log10(n_steps) + 1) / 40)).astype(np.int64))
    elif isinstance(record, int):
        if record < 1:
            raise RunError(f"record={record}: record every k-th step with k >= 1. Try record='log'.")
        grid = np.arange(record, n_steps + 1, record)
    else:
        grid = np.unique(np.asarray(record, np.int64))
        if len(grid) == 0 or grid[0] < 1 or grid[-1] > n_steps:
            raise RunError(f"record lists steps outside 1..{n_steps}: list steps of the run. Try record='log'.")
    return np.unique(np.append(grid[grid <= n_steps], n_steps))


class Recorder:
    """The metrics of every method at the recorded steps."""

    def __init__(self, steps: NDArray[np.int64], n_methods: int):
        self.steps = steps
        self.values = np.full((n_methods, len(METRICS), len(steps)), np.nan)
        self.filled = 0

    def wants(self, t: int) -> bool:
        return self.filled < len(self.steps) and self.steps[self.filled] == t

    def write(self, world: World, states: list[State], judge: Judge, truth: NDArray[np.float64] | None) -> None:
        k = self.filled
        local = oracle = (np.nan, np.nan)
        if truth is not None:
            local = judge.errors(world.mean, truth)
            oracle = (judge.oracle_mse(world.mean, world.count, truth), np.nan)
        for row, state in zip(self.values, states, strict=True):
            mse = judge.errors(state.estimate, truth) if truth is not None else (np.nan, np.nan)
            row[:, k] = (*mse, *local, oracle[0], state.wrong_share, state.lost_share, state.isolated)
        self.filled += 1

    def take_over(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Continue a record that was saved; steps that this run does not want (an earlier end) are dropped."""
        wanted = np.isin(steps, self.steps)
        self.filled = int(wanted.sum())
        self.values[:, :, : self.filled] = values[:, :, wanted]
