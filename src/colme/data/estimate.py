"""From a table of samples to a better mean for every agent: diagnose, choose, estimate, say why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from colme.confidence import check_probability
from colme.data.fit.choice import Progress
from colme.data.fit.estimators import METHODS
from colme.data.pipeline import Options, Workings
from colme.data.read.table import Table, read_table
from colme.data.report.result import Result
from colme.errors import ColmeError, MethodError, one_of, positive, whole

LOG_N = "log n"
"""The covariate that is no column."""
_FAR = 1e50
"""Values whose squares' squares are still numbers lie between this and its inverse; others get another unit."""


def estimate(
    source: Any,
    *,
    agent: str | Sequence[str],
    value: str,
    time: str | None = None,
    weight: str | None = None,
    sigma: float | None = None,
    method: str = "auto",
    groups: int | None = None,
    label: str | None = None,
    covariates: str | Sequence[str] = (),
    half_life: float | None = None,
    level: float = 0.9,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Each agent's mean, better than its own samples give it, with an interval, a group and an honest word.

    source      a file (CSV, Parquet, Arrow), a data frame, or batches
    agent       the column that says whose sample a row is, or several
    value       the column of samples
    time        when; samples are then judged in time order
    weight      a sample of weight w counts as w samples
    sigma       standard deviation of a sample, if it is known
    method      "auto" or one of "local", "pooled", "shrinkage", "census", "one-hop", "cl-colme"
    groups      how many groups to look for at most (default: as many as there are; 1: none)
    label       the column of known groups, constant within an agent
    covariates  columns that may tell of an agent's mean; "log n" is the logarithm of its number of samples
    half_life   in units of time (seconds for dates): a sample counts half after so long
    level       of the intervals
    seed        decides the random folds of the cross-validation
    progress    called with (done, total) while rows are read and methods are judged

    Without time, the order of an agent's rows and the order in which agents appear decide (with the seed) who is in
    which fold, and nothing else.
    """
    options = _checked(sigma, method, groups, half_life, level, seed)
    names: list[Any] = list(covariates) if isinstance(covariates, list | tuple) else [covariates]
    columns = tuple(name for name in names if name != LOG_N)
    table = read_table(source, agent=agent, value=value, time=time, weight=weight, label=label, covariates=columns,
                       progress=progress)  # fmt: skip
    return _estimated(table, options, LOG_N in names, progress)


def estimate_table(
    table: Table,
    *,
    sigma: float | None = None,
    method: str = "auto",
    groups: int | None = None,
    log_n: bool = False,
    half_life: float | None = None,
    level: float = 0.9,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """What `estimate` does with a table that is read. `log_n`: the logarithm of counts is a covariate."""
    return _estimated(table, _checked(sigma, method, groups, half_life, level, seed), log_n, progress)


def _checked(
    sigma: float | None, method: str, groups: int | None, half_life: float | None, level: float, seed: int
) -> Options:  # fmt: skip
    if sigma is not None:
        sigma = positive(sigma, "sigma", "sigma=2.0")
    one_of(method, ("auto", *METHODS), "method", MethodError)
    if groups is not None:
        groups = whole(groups, "groups", "groups=3")
    if half_life is not None:
        half_life = positive(half_life, "half_life", "half_life=86400")
    check_probability("level", level)
    return Options(sigma, method, groups, half_life, float(level), whole(seed, "seed", "seed=0", low=0))


def _estimated(table: Table, options: Options, log_n: bool, progress: Progress | None) -> Result:
    if options.half_life is not None and table.time is None:
        raise ColmeError("half_life needs to know when samples were taken: no time was given. Try time=...")
    if not len(table.value):
        raise ColmeError("the table has no sample: somebody must see a number. Check the value column.")
    largest = max(abs(float(table.value.min())), abs(float(table.value.max()))) or options.sigma or 1.0
    if options.sigma is not None and not 1.0 / _FAR < options.sigma / largest < _FAR:
        raise ColmeError(f"sigma={options.sigma:g} with samples of up to {largest:g}: it must be their standard "
                         "deviation. Check its unit.")  # fmt: skip
    if 1.0 / _FAR < largest < _FAR:
        return Workings(table, options, log_n, progress).result()
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1)  # a power of two changes no digit
    sigma = None if options.sigma is None else options.sigma / unit
    small = table._replace(value=np.asarray(table.value / unit))
    return _times(Workings(small, options._replace(sigma=sigma), log_n, progress).result(), unit)


def _times(result: Result, unit: float) -> Result:
    """A result in another unit."""
    with np.errstate(over="ignore"):  # an end of an interval may be infinite
        ends = {name: getattr(result, name) * unit for name in ("mean", "estimate", "lower", "upper")}
    summary = msgspec.structs.replace(
        result.summary, sigma=result.summary.sigma * unit, tau=result.summary.tau * unit
    )  # fmt: skip
    return msgspec.structs.replace(result, summary=summary, **ends)
