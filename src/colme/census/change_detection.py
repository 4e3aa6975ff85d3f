"""Who has changed: a two-sided CUSUM of an agent's own samples against its own mean, and a new beginning on alarm.

With z = (x - X') / sigma, where X' is the mean of the n' samples before the sum began to rise, the sums
S <- max(0, S + z - d) and S <- max(0, S - z - d) rise when samples leave the mean by more than d deviations; an alarm
is a sum beyond h = 28. d = 0.15 + 2 / sqrt(n') allows for the error of X' itself. A change by g deviations is found
after about h / (g - d) samples. Who is in doubt keeps silent in a census: its mean may be a mixture of an old and a
new one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import at, helper, kernel
from colme.samples import running_mean

SLACK = 0.15
ALARM = 28.0
DOUBT = 12.0
"""Beyond this sum an agent keeps silent."""
SETTLED = 30
"""Samples before a mean is good enough to compare with."""


@helper
def _rise(x, sign, sigma, mean, count, rise, a):
    """One side of the CUSUM of agent a; rise[a] = the sum, the samples since it was zero, and their total."""
    before = count - rise[a, 1]
    if before < SETTLED:
        return False
    reference = (mean * count - rise[a, 2]) / before
    total = rise[a, 0] + sign * (x - reference) / sigma - (SLACK + 2.0 / np.sqrt(before))
    if total > 0.0:
        rise[a, 0] = total
        rise[a, 1] += 1.0
        rise[a, 2] += x
    else:
        rise[a, 0] = rise[a, 1] = rise[a, 2] = 0.0
    return total > ALARM


@kernel
def _follow(means, counts, sigma, last, seen, mean, count, up, down):
    """mean, count = those since the last alarm. `means`, `counts` are those of all samples, `last`, `seen` those of the
    step before; a sample is what moved the one to the other."""
    for a in range(means.size):
        if counts[a] <= seen[a]:
            continue
        x = means[a] if counts[a] == 1 else last[a] + (means[a] - last[a]) * counts[a]
        last[a], seen[a] = means[a], counts[a]
        risen = _rise(x, 1.0, at(sigma, a), mean[a], count[a], up, a)
        fallen = _rise(x, -1.0, at(sigma, a), mean[a], count[a], down, a)
        if risen or fallen:
            for i in range(3):
                up[a, i] = down[a, i] = 0.0
            count[a] = 0
        count[a] += 1
        mean[a] = x if count[a] == 1 else running_mean(mean[a], x, count[a])


class Followed:
    """Means and counts of agents since their last change, as far as they noticed."""

    saved: ClassVar[tuple[str, ...]] = ("mean", "count", "_last", "_seen", "_up", "_down")

    def __init__(self, n_agents: int):
        self.mean, self.count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)
        self._last, self._seen = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)
        self._up, self._down = np.zeros((n_agents, 3)), np.zeros((n_agents, 3))

    def observe(self, means: NDArray[np.float64], counts: NDArray[Any], sigma: Any) -> None:
        """The means and counts of all samples so far."""
        _follow(means, counts, sigma, self._last, self._seen, self.mean, self.count, self._up, self._down)

    @property
    def in_doubt(self) -> NDArray[np.bool_]:
        """Who may have changed."""
        return np.maximum(self._up[:, 0], self._down[:, 0]) > DOUBT
