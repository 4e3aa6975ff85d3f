"""Means and errors of samples by the kernels `update_means` and `finish_errors`, called without a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.metrics import NOT_KNOWN
from colme.sim.sampling import Errors, finish_errors, update_means

Array = NDArray[np.float64]


def sampled(
    samples: Array, before: Array, t: int, judge: Errors, truth: Array | None, *,
    wanted: NDArray[np.bool_] | None = None, part: int | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """(local means of steps t, t + 1, .., metrics of the run at each), from the samples of those steps and the means
    before; agents all at once or in parts of so many."""
    steps, n = samples.shape
    errors, totals = (np.zeros((judge.hood.n_pages, steps, k)) for k in (3, len(judge.class_size)))
    means = np.full((steps, n), -1.0)
    wanted = np.ones(steps, bool) if wanted is None else wanted
    for start in range(0, n, part or n):
        agents = slice(start, start + (part or n))
        some = samples[:, agents].copy()
        update_means(
            some, some, before[agents], t, wanted, NOT_KNOWN if truth is None else truth[agents], judge.tolerance,
            judge.class_[agents], start, judge.hood.page, errors, totals,
        )  # fmt: skip
        means[:, agents] = some
    out = np.full((steps, 3), np.nan)
    if truth is not None:
        finish_errors(errors, totals, judge.class_truth(truth), judge.class_size, out)
    return means, out


def local_means(samples: NDArray[Any]) -> Array:
    """Those of all steps, from the first one on."""
    n = samples.shape[1]
    return sampled(samples, np.full(n, np.nan), 1, Errors(np.zeros(n, np.uint16), 0.1), None)[0]
