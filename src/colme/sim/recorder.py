"""What a run writes down, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import RunError, one_of, shorten, whole
from colme.methods import State, World
from colme.metrics import OF_METHOD, OF_RUN, Judge

WRONG_EDGES, LOST_EDGES, ISOLATED = (OF_METHOD.index(name) for name in ("wrong_edges", "lost_edges", "isolated"))

Record = str | int | Sequence[int]


def recorded_steps(record: Record, n_steps: int) -> NDArray[np.int64]:
    """The steps to record: "all", "log" (about 40 per decade), every k-th, or a list. The last step always is."""
    if isinstance(record, str):
        one_of(record, ("all", "log"), "record", RunError)
        if record == "all":
            return np.arange(1, n_steps + 1)
        # The grid does not depend on n_steps, so a longer run records a superset.
        grid = np.unique(np.floor(10 ** (np.arange(0, 40 * np.log10(n_steps) + 1) / 40)).astype(np.int64))
    elif np.ndim(record) == 0:
        k = whole(record, "record", "record='log'", RunError)
        grid = np.arange(k, n_steps + 1, k)
    else:
        asked = np.asarray(record)
        grid = np.unique(asked)
        if asked.dtype.kind not in "iu" or len(grid) == 0 or grid[0] < 1 or grid[-1] > n_steps:
            raise RunError(
                f"record={shorten(record)}: a list must hold whole steps, none outside 1..{n_steps}. Try record='log'."
            )
    return np.unique(np.append(grid[grid <= n_steps], n_steps))


class Recorder:
    """The metrics at the recorded steps: `of_method[m]` those of each method, `of_run` those that all share."""

    def __init__(self, steps: NDArray[np.int64], n_methods: int):
        self.steps = steps
        self.of_method = np.full((n_methods, len(OF_METHOD), len(steps)), np.nan)
        self.of_run = np.full((len(OF_RUN), len(steps)), np.nan)
        self._tables = list(self.of_method)
        self.filled = 0
        self.next = int(steps[0])
        """The step to record next; 0 when all are."""

    def write(self, world: World, states: list[State], judge: Judge, truth: NDArray[np.float64] | None) -> None:
        k = self.filled
        if truth is not None:
            judge.means(world.mean, world.count, truth, self.of_run, k)
        for table, state in zip(self._tables, states, strict=True):
            if truth is not None:
                judge.estimates(state.estimate, truth, table, k)
            if world.classes_known:
                table[WRONG_EDGES, k], table[LOST_EDGES, k] = state.wrong_share, state.lost_share
            table[ISOLATED, k] = state.isolated
        self._advance(k + 1)

    def _advance(self, filled: int) -> None:
        self.filled = filled
        self.next = int(self.steps[filled]) if filled < len(self.steps) else 0

    def snapshot(self) -> dict[str, NDArray[Any]]:
        k = self.filled
        return {"steps": self.steps[:k], "of_method": self.of_method[:, :, :k], "of_run": self.of_run[:, :k]}

    def take_over(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Continue from a snapshot; steps that this run does not want (an earlier end) are dropped."""
        wanted = np.isin(arrays["steps"], self.steps)
        k = int(wanted.sum())
        self.of_method[:, :, :k] = arrays["of_method"][:, :, wanted]
        self.of_run[:, :k] = arrays["of_run"][:, wanted]
        self._advance(k)

    def metrics(self, number: int) -> dict[str, NDArray[Any]]:
        """All metrics of a method by name."""
        table = dict(zip(OF_METHOD, self.of_method[number], strict=True)) | dict(zip(OF_RUN, self.of_run, strict=True))
        return table | {"isolated": table["isolated"].astype(np.int64)}
