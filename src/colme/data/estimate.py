"""From a table of samples to a better mean for every agent: diagnose, choose, estimate, say why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from colme.data.choice import Progress
from colme.data.estimators import METHODS
from colme.data.result import Result
from colme.data.table import Table, read_table
from colme.data.workings import Options, Workings
from colme.errors import ColmeError, MethodError, one_of, positive, shorten, whole

LOG_N = "log n"
"""The covariate that is no column."""


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
    """
    options = _checked(sigma, method, groups, half_life, level, seed)
    names = [covariates] if isinstance(covariates, str) else list(covariates)
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
    if isinstance(level, bool | str) or not 0.0 < level < 1.0:
        raise ColmeError(f"level={shorten(level)}: it must be between 0 and 1, both excluded. Try level=0.9.")
    return Options(sigma, method, groups, half_life, level, whole(seed, "seed", "seed=0", low=0))


def _estimated(table: Table, options: Options, log_n: bool, progress: Progress | None) -> Result:
    if options.half_life is not None and table.time is None:
        raise ColmeError("half_life needs to know when samples were taken: no time was given. Try time=...")
    if not len(table.value):
        raise ColmeError("the table has no sample: somebody must see a number. Check the value column.")
    return Workings(table, options, log_n, progress).result()
