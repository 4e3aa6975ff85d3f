"""The baseline: B-colME as a careful researcher writes it, a table of messages vectorised with NumPy over edges.

Honest: index tables are rebuilt only at steps that cut an edge, (S, K) travel as one complex number so that they are
gathered and summed together, normals come from NumPy's fastest generator, and the same metrics are recorded at every
step. A message is the paper's sum over the sender's other neighbors; `subtract=True` takes the sum over all of them
minus what the receiver had sent instead, which is less to read and rounds differently.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

NAMES = ("mse", "error_rate", "local_mse", "local_error_rate", "oracle_mse", "wrong_edges", "lost_edges", "isolated")


class Messages:
    """Who tells whom: row e is the message of sender[e] to receiver[e], rows sorted by receiver."""

    def __init__(self, edges: NDArray[np.int64], n: int, *, subtract: bool):
        receiver, sender = np.concatenate([edges, edges[:, ::-1]]).T
        order = np.lexsort((sender, receiver))
        self.receiver, self.sender, self.n, self.subtract = receiver[order], sender[order], n, subtract
        key = self.receiver * n + self.sender
        self.back = np.searchsorted(key, self.sender * n + self.receiver)  # the message the other way
        self._index()

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Forget the other rows."""
        self.back = (np.cumsum(kept) - 1)[self.back[kept]]
        self.receiver, self.sender = self.receiver[kept], self.sender[kept]
        self._index()

    def _index(self) -> None:
        self.degree = np.bincount(self.receiver, minlength=self.n)
        first = np.cumsum(self.degree) - self.degree
        self.some = np.flatnonzero(self.degree)  # reduceat cannot sum nothing
        self.first = first[self.some]
        if not self.subtract:
            others = self.degree[self.sender] - 1
            begin = np.cumsum(others) - others
            source = np.arange(others.sum()) + np.repeat(first[self.sender] - begin, others)
            self.source = source + (source >= np.repeat(self.back, others))  # leaves the receiver out
            self.relays = np.flatnonzero(others)
            self.begin = begin[self.relays]

    def sums(self, row: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """What each agent was told."""
        out = np.zeros(len(self.degree), complex)
        out[self.some] = np.add.reduceat(row, self.first)
        return out

    def passed_on(self, row: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """The sum over the sender's neighbors other than the receiver."""
        out = np.zeros(len(row), complex)
        if len(self.relays):
            out[self.relays] = np.add.reduceat(row.take(self.source), self.begin)
        return out


def run(
    edges: NDArray[np.int64], truth: NDArray[np.float64], *, n_steps: int, sigma: float, gamma: float, depth: int,
    tolerance: float = 0.1, seed: int = 0, subtract: bool = False, samples: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float64]]:  # fmt: skip
    """The metrics at every step, and the last estimates. `samples` (steps, agents) replaces the normals."""
    n = len(truth)
    rng = np.random.Generator(np.random.SFC64(seed))
    a, b = edges[:, 0].copy(), edges[:, 1].copy()
    classes, class_ = np.unique(truth, return_inverse=True)
    size = np.bincount(class_)
    n_wrong = int((truth[a] != truth[b]).sum())
    wrong, lost = n_wrong, 0
    links = Messages(edges, n, subtract=subtract)
    table = [np.zeros(len(links.sender), complex) for _ in range(depth)]  # S + iK of every message, by hop
    told = [np.zeros(n, complex) for _ in range(depth)]  # the sums of its rows by receiver
    own = np.zeros(n, complex)
    out = {name: np.empty(n_steps) for name in NAMES}
    mean = np.zeros(n)
    for t in range(1, n_steps + 1):
        sample = truth + sigma * rng.standard_normal(n) if samples is None else samples[t - 1]
        mean += (sample - mean) / t
        radius = sigma * math.sqrt(2.0 / t * (1.0 + 1.0 / t) * math.log(math.sqrt(t + 1.0) / gamma))
        if subtract:
            pairs = zip(told[:-1], table[:-1], strict=True)
            later = [whole.take(links.sender) - row.take(links.back) for whole, row in pairs]
        else:
            later = [links.passed_on(row) for row in table[:-1]]
        table = [own.take(links.sender), *later]
        cut = np.abs(mean[a] - mean[b]) > 2.0 * radius
        if cut.any():
            wrong -= int((truth[a[cut]] != truth[b[cut]]).sum())
            a, b = a[~cut], b[~cut]
            lost = len(edges) - n_wrong - (len(a) - wrong)
            kept = np.abs(mean[links.receiver] - mean[links.sender]) <= 2.0 * radius
            links.keep(kept)
            table = [row[kept] for row in table]
        told = [links.sums(row) for row in table]
        own = t * mean + 1j * t
        pooled = own + sum(told)
        estimate = np.where(links.degree == 0, mean, pooled.real / pooled.imag)
        error, local = estimate - truth, mean - truth
        oracle = np.bincount(class_, mean) / size - classes
        out["mse"][t - 1], out["local_mse"][t - 1] = error @ error / n, local @ local / n
        out["error_rate"][t - 1] = np.count_nonzero(np.abs(error) > tolerance) / n
        out["local_error_rate"][t - 1] = np.count_nonzero(np.abs(local) > tolerance) / n
        out["oracle_mse"][t - 1] = (size * oracle * oracle).sum() / n
        out["wrong_edges"][t - 1] = wrong / max(1, n_wrong)
        out["lost_edges"][t - 1] = lost / max(1, len(edges) - n_wrong)
        out["isolated"][t - 1] = np.count_nonzero(links.degree == 0)
    return out | {"estimate": estimate}
