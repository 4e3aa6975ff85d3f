"""The recorder: which steps of a run are recorded, and the metrics at these steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import RunError, one_of, shorten, whole
from colme.metrics import OF_METHOD, OF_RUN

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
    """The metrics at the recorded steps: `of_method[m]` those of each method, `of_run` those that all share.

    smoothness    also keep room for the smoothness of each method's estimates (`colme.spectrum.smoothness`)"""

    def __init__(self, steps: NDArray[np.int64], n_methods: int, *, smoothness: bool = False):
        self.steps = steps
        self.of_method = np.full((n_methods, len(steps), len(OF_METHOD)), np.nan)
        self.of_run = np.full((len(steps), len(OF_RUN)), np.nan)
        self.smoothness = np.full((n_methods, len(steps)), np.nan) if smoothness else None
        self.filled = 0

    def next_step(self) -> int:
        """The next step to be recorded."""
        return int(self.steps[min(self.filled, len(self.steps) - 1)])

    def due(self, first: int, n_steps: int) -> NDArray[np.int64]:
        """Which of the steps first, first + 1, .. are to be recorded next, counted from 0."""
        return self.steps[self.filled : self.steps.searchsorted(first + n_steps)] - first

    def write(self, rows: NDArray[np.int64], of_method: NDArray[np.float64], of_run: NDArray[np.float64]) -> None:
        """The steps that were due, from the metrics of all steps."""
        start, end = self.filled, self.filled + len(rows)
        if len(rows) == len(of_run):  # all of them
            self.of_method[:, start:end], self.of_run[start:end] = of_method[:, : len(rows)], of_run
        else:
            self.of_method[:, start:end], self.of_run[start:end] = of_method[:, rows], of_run[rows]
        self.filled = end

    def write_smoothness(self, values: list[float]) -> None:
        """Of each method, at the step that was written last."""
        assert self.smoothness is not None
        self.smoothness[:, self.filled - 1] = values

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps."""
        k = self.filled
        arrays = {"steps": self.steps[:k], "of_method": self.of_method[:, :k], "of_run": self.of_run[:k]}
        return arrays if self.smoothness is None else arrays | {"smoothness": self.smoothness[:, :k]}

    def take_over(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Continue from a snapshot; steps that this run does not want (an earlier end) are dropped."""
        wanted = np.isin(arrays["steps"], self.steps)
        k = int(wanted.sum())
        self.of_method[:, :k] = arrays["of_method"][:, wanted]
        self.of_run[:k] = arrays["of_run"][wanted]
        if self.smoothness is not None:
            self.smoothness[:, :k] = arrays["smoothness"][:, wanted]
        self.filled = k

    def metrics(self, number: int) -> dict[str, NDArray[Any]]:
        """All metrics of a method by name."""
        columns = [*self.of_method[number].T.copy(), *self.of_run.T.copy()]
        table = dict(zip(OF_METHOD + OF_RUN, columns, strict=True))
        if self.smoothness is not None:
            table["smoothness"] = self.smoothness[number].copy()
        return table | {"isolated": table["isolated"].astype(np.int64)}
