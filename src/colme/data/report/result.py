"""What is known of every agent in the end, and of the table as a whole."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.data.read.table import Names
from colme.errors import ColmeError, missing_extra, one_of

Floats = NDArray[np.float64]
FLAGS = ("one sample", "zero variance", "faulty", "dominant sample", "autocorrelated", "drifting")
"""What may be odd about an agent; flag i is bit i of `Result.flags`.

one sample       nothing is known of its variance but what others tell
zero variance    all its samples are the same
faulty           its mean is far from everybody's and its variance is unlike everybody's
dominant sample  without one of its samples, its mean would be another
autocorrelated   its samples resemble the ones before
drifting         its first and its second half have different means
"""
COLUMNS = ("agent", "n", "mean", "estimate", "lower", "upper", "group", "probability", "borrowed", "flags")
BACKENDS = ("pandas", "polars", "pyarrow")


class Candidate(msgspec.Struct, frozen=True):
    """An estimator's cross-validated error relative to the local mean's, with its standard error."""

    name: str
    ratio: float
    se: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The honest word on a table."""

    method: str
    """The name of the method, as `estimate` takes it."""
    variance: str
    """Whose variances it believes: "pooled" or "moderated"."""
    why: str
    gain: float
    """1 - cross-validated error / that of the local means."""
    gain_se: float
    candidates: tuple[Candidate, ...]
    folds: str
    """Of the cross-validation: "random" or "forward" (time order)."""
    level: float
    """Of the intervals."""
    stretch: float
    """By what standard errors were multiplied to hold this level in cross-validation."""
    n_agents: int
    n_samples: int
    n_groups: int | None
    """None: groups were not looked for."""
    groups_sentence: str
    sigma: float
    """Standard deviation of a sample within agents; NaN if nobody has two samples."""
    tau: float
    """Standard deviation of true means between agents; NaN if it cannot be told."""
    n_half: float
    """Samples at which an agent's own mean is as good as what the others tell: sigma^2 / tau^2; NaN if unknown."""
    autocorrelation: float
    """Between an agent's consecutive samples; NaN without time."""
    effective_share: float
    """Independent samples that a sample is worth, from how much early and late means differ; 1 without time."""
    drift: float
    """Share of agents whose first and second half differ, beyond chance; NaN without time."""
    count_correlation: float
    """Of log n with the mean; NaN if all counts are the same."""
    faulty: tuple[str, ...]
    """The first few agents that look faulty."""
    dominant: tuple[str, ...]
    """The first few agents of which one sample decides the mean."""
    zero_variance: int
    """Agents with two samples or more, all the same."""
    flagged: dict[str, int]
    """How many agents have each flag."""
    half_life: float | None
    notes: tuple[str, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One row per agent, and a summary.

    agent        whose
    n, mean      its samples and their mean
    estimate     the better mean, between lower and upper with probability `level`
    group        which group it belongs to (-1: none), with what probability
    borrowed     the weight of others in the estimate, 0 to 1
    flags        what is odd about it: bit i stands for FLAGS[i]
    """

    agent: NDArray[Any]
    n: NDArray[np.int64]
    mean: Floats
    estimate: Floats
    lower: Floats
    upper: Floats
    group: NDArray[np.int64]
    probability: Floats
    borrowed: Floats
    flags: NDArray[np.uint8]
    summary: Summary
    names: Names

    def flagged(self, flag: str) -> NDArray[np.bool_]:
        """Which agents have a flag."""
        one_of(flag, FLAGS, "flag")
        return np.asarray(self.flags >> FLAGS.index(flag) & 1, bool)

    def flag_words(self) -> NDArray[Any]:
        """The flags of each agent in words, with commas between."""
        words = [", ".join(flag for i, flag in enumerate(FLAGS) if mask >> i & 1) for mask in range(1 << len(FLAGS))]
        return np.array(words, object)[self.flags]

    def to_columns(self) -> dict[str, NDArray[Any]]:
        """Every column of the result; flags in words."""
        return {name: self.flag_words() if name == "flags" else getattr(self, name) for name in COLUMNS}

    def to_frame(self, backend: str = "pandas") -> Any:
        """The columns as a data frame of pandas, polars or pyarrow."""
        one_of(backend, BACKENDS, "backend", ColmeError)
        columns = self.to_columns()
        try:
            if backend == "pandas":
                import pandas

                return pandas.DataFrame(columns)
            if backend == "polars":
                import polars

                return polars.DataFrame({name: values.tolist() for name, values in columns.items()})
            import pyarrow

            return pyarrow.table({name: pyarrow.array(values.tolist()) for name, values in columns.items()})
        except ImportError as error:
            raise missing_extra(backend, "data", f"a frame of {backend}") from error

    def __repr__(self) -> str:
        s = self.summary
        words = f"{s.method}: gain {s.gain:.0%}, {s.groups_sentence}"
        return f"<Result: {s.n_agents} agents, {s.n_samples} samples, {words}>"
