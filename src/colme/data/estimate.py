"""`estimate`: from a table of samples to a better mean for every agent, with an interval, a group and a summary.

    read     the table, wherever it is, as moments by agent              read/table.py, engines.py, summaries.py
    measure  counts, means and squares by fold; the noise of a sample    moments.py, fit/noise.py
    choose   the estimator with the smallest cross-validated error       fit/cross_validation.py
    fit      estimates       fit/estimators.py, mixture_estimator.py, overlaps.py, conjugate.py
    groups   whether there is evidence of groups                         fit/groups.py
    widen    intervals, by what held-out samples show                    fit/cross_validation.py, posterior.py
    report   flags, the summary, the result                              fit/diagnosis.py, report/result.py
    answer   questions to the result                                     fit/population.py, report/questions.py

`_estimate` below is this sequence, up to the questions, which come later.
"""

from __future__ import annotations

import copy
import datetime
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import special

from colme.confidence import check_probability
from colme.data.fit import FLAGS
from colme.data.fit.conjugate import ConjugateFit, ConjugateLocal, RateMixtureFit
from colme.data.fit.cross_validation import (
    FEWEST,
    CrossValidation,
    Progress,
    Scored,
    best_of,
    candidates,
    is_worse,
    statistics_of,
)
from colme.data.fit.diagnosis import Diagnosis, diagnose
from colme.data.fit.estimators import ESTIMATORS, AgentStatistics, Close, Estimator, Fit, LocalMean, spread_evidence
from colme.data.fit.groups import Groups
from colme.data.fit.laws import LAWS
from colme.data.fit.mixture_estimator import MixtureFit, mixture_fit
from colme.data.fit.noise import judging_variances, measure_noise, t_quantile
from colme.data.fit.population import AgentPopulation
from colme.data.fit.posterior import AgentPosteriors, Shape, StudentShape
from colme.data.fit.prior import Prior, standardized
from colme.data.moments import AgentMoments, Floats, Integers, Mask, moments_of
from colme.data.partials import check_names, moments_in
from colme.data.read.format import TableFormat
from colme.data.read.summaries import Columns, read_summaries
from colme.data.read.table import Names, Table, read_moments, read_samples, unit_unknown
from colme.data.report.result import Result, Summary
from colme.data.thinning import in_random_order
from colme.errors import ColmeError, MethodError, one_of, positive, whole
from colme.support.columns import as_time

LOG_N = "log n"
"""The covariate that is not a column: the logarithm of the number of samples."""
_FAR = 1e50
"""A standard deviation that is larger or smaller than the samples by this factor is a mistake."""
_DOUBT = 0.5
"""Standard errors added to the error that is shown for a census, whose posterior may be very narrow: its own errors are
small where the model of groups and noise is right, and large where it is not."""
_PERSISTENT = 0.5
"""Groups are found with the variances of the estimator if so much of the differences between own variances persists."""
_ANSCOMBE = 0.375
"""Successes, failures or events that are added before rates are put on that scale (Anscombe 1948)."""
_NAMED = 20
"""Agents that the summary lists by name for a flag."""
_CHANCE = 0.01
"""Probability of the likelihood ratio of covariates that tell nothing to count as evidence."""
_HINT = 1.5
"""Standard errors of evidence that the spread of the agents depends on their counts, for this to be tried."""
_COUNTED = 30
"""Fewest agents to tell whether counts predict means."""
_VALIDATED = 100_000
"""Agents used in cross-validation, about, at most: more would not change its outcome."""


class EstimateOptions(NamedTuple):
    """The options of `estimate`, checked."""

    sigma: float | None
    method: str
    groups: int | None
    log_n: bool
    half_life: float | None
    in_seconds: bool
    """Whether the half-life was given with a unit."""
    level: float
    seed: int


def estimate(
    source: Any,
    *,
    agent: str | Sequence[str] | None = None,
    value: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    mean: str | None = None,
    se: str | None = None,
    n: str | None = None,
    successes: str | None = None,
    trials: str | None = None,
    exposure: str | None = None,
    sigma: float | None = None,
    method: str = "auto",
    groups: int | None = None,
    label: str | None = None,
    covariates: str | Sequence[str] = (),
    half_life: float | datetime.timedelta | None = None,
    level: float = 0.9,
    seed: int = 0,
    decimal: str = ".",
    thousands: str | None = None,
    time_format: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    progress: Progress | None = None,
) -> Result:
    """Estimate every agent's mean from a table of samples, with those of other agents where that helps.

    source      a file (CSV, JSON lines, Parquet, Arrow, .xlsx, .ods), a data frame, a dict of arrays, an iterator of
                such batches; a lazy frame, which its engine aggregates (DuckDB, Polars, Ibis, Spark); or moments of
                `colme.data.partials`, which need no names of columns
    agent       the column that identifies the agent, or several columns
    value       the column of samples: numbers, or yes and no
    time        the column of times; methods are then compared by how well earlier samples predict later ones
    weight      the column of weights: a sample of weight w counts as w samples
    mean, se, n the columns of means, their standard errors and, if known, numbers of samples, instead of `value`
    successes, trials
                the columns of rates: how many of how many trials succeeded, instead of `value`
    exposure    the column of exposures, if `value` counts events: person-years, hours, area; the mean is then a rate
    sigma       the standard deviation of a sample, if known
    method      "auto" or one of "local", "pooled", "shrinkage", "close", "census", "one-hop", "cl-colme"
    groups      the largest number of groups to report (default: no limit; 1: do not search for groups)
    label       the column of known groups, one per agent
    covariates  columns that may predict an agent's mean; "log n" is the logarithm of its number of samples. "auto" uses
                those that do beyond chance, other methods use all
    half_life   the weight of a sample halves in this time, in units of the times (seconds for dates); a `timedelta` if
                times are dates
    level       the probability with which an interval should contain the true mean
    seed        decides the random folds of the cross-validation
    decimal     the decimal sign of numbers in text: "." or ","
    thousands   the sign between groups of three digits in text: ".", ",", " " or "'"
    time_format how dates in text are written, as in `datetime.strptime`: "%d.%m.%Y %H:%M"
    encoding    of a text file, such as "latin-1" or "utf-16"; None: UTF-8
    sheet       of a spreadsheet; None: the first one that is not empty
    progress    called with (done, total) while rows are read and while methods are compared

    Returns a `Result`: one row per agent, and a summary. Without time, the order of an agent's rows and the order in
    which agents appear decide, with the seed, which sample is in which fold, and nothing else.

    >>> stores = {"store": list("aaabbbccc"), "sales": [9.0, 10.0, 11.0, 9.5, 10.0, 10.5, 14.0, 15.0, 16.0]}
    >>> result = estimate(stores, agent="store", value="sales", method="shrinkage")
    >>> result.agent.tolist(), result.mean.tolist(), result.estimate.round(2).tolist()
    (['a', 'b', 'c'], [10.0, 10.0, 15.0], [10.07, 10.07, 14.85])

    See also: Result, CollaborativeMean, MeanEncoder, partial_moments
    """
    names: list[Any] = list(covariates) if isinstance(covariates, list | tuple) else [covariates]
    options = _checked(sigma, method, groups, LOG_N in names, half_life, level, seed)
    columns = tuple(name for name in names if name != LOG_N)
    summaries = {"mean": mean, "se": se, "n": n, "successes": successes, "trials": trials, "exposure": exposure}
    timed = {"time": time, "weight": weight, "half_life": half_life}
    made = moments_in(source)
    if made is not None:
        check_names(
            made, {"agent": agent, "value": value, "label": label, "covariates": columns or None} | timed | summaries
        )
        return _estimate(made, options, progress)
    form = TableFormat(decimal, thousands, time_format, encoding, sheet)
    if any(each is not None for each in summaries.values()):
        roles = Columns.of(summaries, value, timed | {"sigma": sigma})
        named = Names.of(agent, next(iter(roles.given.values())), label=label, covariates=columns)
        return _estimate(read_summaries(source, named, roles, form, seed=options.seed, progress=progress), options,
                         progress)  # fmt: skip
    named = Names.of(agent, value, time=time, weight=weight, label=label, covariates=columns)
    return _estimate(_read(source, named, form, options, progress), options, progress)


def _read(
    source: Any, names: Names, form: TableFormat, options: EstimateOptions, progress: Progress | None
) -> AgentMoments:  # fmt: skip
    """The moments of a table: aggregated by the engine of a lazy frame, or read here."""
    from colme.data.read.engines import engine_moments, lazy_frame  # imports pyarrow and narwhals

    frame = lazy_frame(source)
    if names.time is None:
        _check_half_life(options)
    if frame is not None:
        return engine_moments(
            frame, names, seed=options.seed, half_life=options.half_life, in_seconds=options.in_seconds
        )
    if names.time is None:
        return read_moments(source, names, form, seed=options.seed, progress=progress)
    return _moments(read_samples(source, names, form, progress=progress), options)


def estimate_table(
    table: Table,
    *,
    sigma: float | None = None,
    method: str = "auto",
    groups: int | None = None,
    log_n: bool = False,
    half_life: float | datetime.timedelta | None = None,
    level: float = 0.9,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """`estimate` for a table that is already read. `log_n`: use the logarithm of the counts as a covariate."""
    options = _checked(sigma, method, groups, log_n, half_life, level, seed)
    return _estimate(_moments(table, options), options, progress)


def estimate_moments(
    moments: AgentMoments,
    *,
    sigma: float | None = None,
    method: str = "auto",
    groups: int | None = None,
    log_n: bool = False,
    level: float = 0.9,
) -> Result:
    """`estimate` for moments that are already at hand. `log_n`: use the logarithm of the counts as a covariate."""
    return _estimate(moments, _checked(sigma, method, groups, log_n, None, level, 0), None)


def _checked(
    sigma: float | None, method: str, groups: int | None, log_n: bool, half_life: float | datetime.timedelta | None,
    level: float, seed: int,
) -> EstimateOptions:  # fmt: skip
    if sigma is not None:
        sigma = positive(sigma, "sigma", "sigma=2.0")
    one_of(method, ("auto", *ESTIMATORS), "method", MethodError)
    if groups is not None:
        groups = whole(groups, "groups", "groups=3")
    in_seconds = isinstance(half_life, datetime.timedelta | np.timedelta64)
    if half_life is not None:
        half_life = positive(as_time(half_life) if in_seconds else half_life, "half_life", "half_life=86400")
    check_probability("level", level)
    seed = whole(seed, "seed", "seed=0", low=0)
    return EstimateOptions(sigma, method, groups, log_n, half_life, in_seconds, float(level), seed)


def _moments(table: Table, options: EstimateOptions) -> AgentMoments:
    _check_half_life(options, table)
    return moments_of(table, seed=options.seed, half_life=options.half_life)


def _check_half_life(options: EstimateOptions, table: Table | None = None) -> None:
    if options.half_life is not None and (table is None or table.time is None):
        raise ColmeError("half_life needs the time of every sample, but no time was given. Try time=...")
    if options.in_seconds and table is not None and not table.dates:
        raise unit_unknown(options.half_life, table.names.time)


def _estimate(moments: AgentMoments, options: EstimateOptions, progress: Progress | None) -> Result:
    moments = in_random_order(moments, options.seed)
    options, measured = _with_covariates(_Measured(moments, options), options)
    choice = _choose(measured, options, progress)
    fit = choice.estimator.fit(measured.statistics(choice.estimator.variance))
    groups, groups_sentence = _find_groups(measured, choice.estimator, fit, options)
    grouped = moments.label is None and groups is not None and groups.n_groups > 0
    fitted = _with_intervals(measured, choice.estimator, fit, options, grouped=grouped)
    population = _population(measured, choice.estimator, groups if grouped else None, options)
    diagnosis = diagnose(moments, measured.noise)
    summary = _summarize(measured, options, choice, fitted, groups, groups_sentence, diagnosis)
    return _in_unit(_result(measured, fitted, groups, diagnosis, summary, population), moments.unit)


def _sigma(moments: AgentMoments, sigma: float | None) -> float | None:
    """The given standard deviation, in the unit of the moments."""
    if moments.sigma is not None:
        return moments.sigma
    largest = max(abs(float(moments.low.min())), abs(float(moments.high.max()))) * moments.unit
    if sigma is not None and not 1.0 / _FAR < sigma / (largest or sigma) < _FAR:
        raise ColmeError(f"sigma={sigma:g} with samples of up to {largest:g}: it must be their standard deviation. "
                         "Check its unit.")  # fmt: skip
    return None if sigma is None else sigma / moments.unit


def _in_unit(result: Result, unit: float) -> Result:
    """A result with all values multiplied by the unit."""
    if unit == 1.0:
        return result
    with np.errstate(over="ignore"):  # an end of an interval may become infinite
        ends = {name: getattr(result, name) * unit for name in ("mean", "estimate", "lower", "upper")}
    summary = msgspec.structs.replace(
        result.summary, sigma=result.summary.sigma * unit, tau=result.summary.tau * unit
    )  # fmt: skip
    more = {name: msgspec.structs.replace(each, unit=unit) for name in ("posterior", "population")
            if (each := getattr(result, name)) is not None}  # fmt: skip
    return msgspec.structs.replace(result, summary=summary, **ends, **more)


# measure


class _Measured:
    """Moments, noise and prior of the agents that have a sample.

    every    the moments of all agents, with the covariates that are used
    names    the columns that were given
    n        the number of samples of every agent
    present  which agents have a sample; everything else is about these only
    forward  whether the folds are periods of time
    folds    moments by fold; `moments`: of all folds together
    alone    why no agent can learn from another, if so
    """

    def __init__(self, every: AgentMoments, options: EstimateOptions):
        self.every = every
        self.n = every.folds.n.sum(axis=1) if every.reported is None else every.reported
        self.present = every.folds.n.sum(axis=1) > 0
        if not self.present.any():
            raise ColmeError("the table has no samples: at least one agent must have a value. Check the value column.")
        self.forward = every.forward
        self.folds = every.folds.select(self.present)
        self.moments = self.folds.merged()
        self.noise = measure_noise(self.folds, _sigma(every, options.sigma), ordered=self.forward, law=every.law)
        self.names = every.names
        self.prior = _prior(every, log_n=options.log_n).select(self.present)
        successive = None if every.successive is None else every.successive[self.present]
        self.variance = judging_variances(self.moments, self.noise, successive)
        self.alone = self._alone(options)
        self._statistics: dict[str, AgentStatistics] = {}

    def statistics(self, kind: str) -> AgentStatistics:
        """What estimators are given, with pooled or moderated variances."""
        if kind not in self._statistics:
            self._statistics[kind] = statistics_of(self.moments, self.noise, kind, self.prior)
        return self._statistics[kind]

    def local(self, kind: str) -> Estimator:
        """Every agent's own mean, with this kind of variances or those of the law."""
        return ConjugateLocal(variance=self.noise.law) if self.noise.law else LocalMean(variance=kind)

    def with_covariates(self, prior: Prior, columns: Integers) -> _Measured:
        """The same with some columns of a prior, of which those of the table come first."""
        other, every = copy.copy(self), self.every
        if every.covariates is not None:
            some = columns[columns < every.covariates.shape[1]]
            names = every.names._replace(covariates=tuple(every.names.covariates[k] for k in some))
            other.every = every._replace(covariates=every.covariates[:, some] if len(some) else None, names=names)
        other.prior, other._statistics = prior.with_columns(columns), {}
        other.validation = self.validation.with_prior(other.prior.select(self._used))
        return other

    @functools.cached_property
    def validation(self) -> CrossValidation:
        """The cross-validation, on every k-th agent if there are very many."""
        used = self._used
        return CrossValidation(self.folds.select(used), self.noise, self.prior.select(used), self.variance[used],
                               forward=self.forward)  # fmt: skip

    @property
    def _used(self) -> Mask:
        n = len(self.moments.n)
        return np.asarray(np.arange(n) % (n // _VALIDATED + 1) == 0)

    def _alone(self, options: EstimateOptions) -> str | None:
        if self.present.sum() < 2:
            return "there is only one agent, so there is no other to learn from"
        if self.noise.law:
            return None
        if math.isnan(self.noise.pooled):
            recent = "" if options.half_life is None or self.n.max() < 2 else " within a half-life"
            return (f"no agent has two samples{recent}, so noise cannot be separated from real differences. If you "
                    "know the standard deviation of a sample, pass it as sigma (--sigma)")  # fmt: skip
        if self.noise.pooled == 0.0:
            return "no agent's samples vary, so every mean is exact"
        return None


def _covariates(every: AgentMoments, *, log_n: bool) -> Floats | None:
    """(agents, covariates): those of the table, and the logarithm of the counts."""
    columns = [] if every.covariates is None else [np.asarray(every.covariates, np.float64)]
    if log_n:
        worth = every.folds.merged().worth if every.law else every.folds.n.sum(axis=1)
        columns.append(np.log(np.maximum(worth, 1e-300 if every.law else 1))[:, None])
    return np.concatenate(columns, axis=1) if columns else None


def _prior(every: AgentMoments, *, log_n: bool) -> Prior:
    columns = _covariates(every, log_n=log_n)
    return Prior(every.label, None if columns is None else standardized(columns))


# choose


def _with_covariates(measured: _Measured, options: EstimateOptions) -> tuple[EstimateOptions, _Measured]:
    """With those covariates, of the given ones and log n, that tell the mean.

    Those that tell most come first: 1, 2, 4, 8, ... of them are tried. More are used if they are more likely beyond
    chance than the fewer that are used so far, unless shrinkage with them is worse in cross-validation. (Whether they
    make it better beyond chance is not seen there in small tables, however much they tell.)"""
    if options.method != "auto" or measured.alone is not None or not measured.validation.splits:
        return options, measured
    n, every, log_n = measured.moments.worth, measured.prior, options.log_n
    if not log_n and np.ptp(n) > 0.0 and len(n) >= _COUNTED:
        every, log_n = _prior(measured.every, log_n=True).select(measured.present), True
    if every.covariates is None:
        return options, measured
    agents = measured.statistics(measured.noise.kinds[0])
    order = every.ranked(agents.mean, agents.noise)
    family = [each for each in candidates(measured.noise.law) if each.name in ("local", "shrinkage")]

    def likelihood(columns: Integers) -> float:
        return every.with_columns(columns).log_likelihood(agents.mean, agents.noise)

    used, scores = order[:0], list[Scored]()
    best, most = measured.with_covariates(every, used), likelihood(used)
    for size in sorted({*(2**k for k in range(len(order).bit_length())), len(order)}):
        columns, more = np.sort(order[:size]), size - len(used)
        likely = likelihood(columns)
        chance = _CHANCE / math.comb(len(order) - len(used), more)  # they are the best ones of so many
        free = max(1.0 - (size + 1) / len(n), 0.0)  # few agents fit many covariates by chance
        if free * (likely - most) > 0.5 * special.chdtri(more, chance):
            scores = scores or best.validation.score(family)[1:]
            tried = measured.with_covariates(every, columns)
            found = tried.validation.score(family)[1:]
            if not is_worse(found, scores):
                best, used, most, scores = tried, columns, likely, found
    return options._replace(log_n=log_n and len(order) - 1 in used), best


class _Choice(NamedTuple):
    """The estimator to use, why, and the scores of all in cross-validation."""

    estimator: Estimator
    why: str
    scores: list[Scored]


def _choose(measured: _Measured, options: EstimateOptions, progress: Progress | None) -> _Choice:
    """The best estimator in cross-validation, of all or of those of the requested method."""
    if measured.alone is not None:
        return _Choice(measured.local("pooled"), measured.alone, [])
    method = options.method
    family = [each for each in candidates(measured.noise.law) if method in ("auto", each.name) or each.name == "local"]
    if method == "auto" and abs(spread_evidence(measured.statistics("pooled"))) < _HINT:
        family = [each for each in family if each.name != "close"]
    scores = measured.validation.score(family, progress)
    if method != "auto":
        own = [each for each in scores if each.estimator.name == method]
        best = min(own, key=lambda each: each.candidate.ratio).estimator if own else family[-1]
        return _Choice(best, f"{method} was requested", scores)
    if not scores:
        return _Choice(measured.local("moderated"), _too_few(measured), [])
    winner, why = best_of(scores)
    return _Choice(winner.estimator, why, scores)


def _too_few(measured: _Measured) -> str:
    """Why there is no cross-validation."""
    n, able = int(measured.present.sum()), int((measured.n > 1).sum())
    if n < FEWEST:
        return f"there are only {n} agents, and comparing methods takes at least {FEWEST} with two samples each"
    if able >= FEWEST:
        return f"fewer than {FEWEST} agents have samples in different folds, and comparing methods takes so many"
    has = "has" if able == 1 else "have"
    return f"only {_count(able, 'agent')} of {n:,} {has} two samples, and comparing methods takes at least {FEWEST}"


# fit


class _Fitted(NamedTuple):
    """Estimates and intervals; `widened` is the factor on standard errors that cross-validation asked for."""

    agents: AgentStatistics
    fit: Fit
    estimate: Floats
    lower: Floats
    upper: Floats
    widened: float
    posterior: AgentPosteriors


def _with_intervals(
    measured: _Measured, estimator: Estimator, fit: Fit, options: EstimateOptions, *, grouped: bool
) -> _Fitted:
    """The fit with intervals. `grouped`: there is evidence of groups, so that those of a mixture hold."""
    agents = measured.statistics(estimator.variance)
    if measured.alone is not None:
        if isinstance(fit, ConjugateFit):
            posterior = _posterior(measured, agents, fit.estimate, fit.error(), fit.shape(), fit.estimate, 1.0)
            return _Fitted(agents, fit, fit.estimate, *fit.interval(options.level), 1.0, posterior)
        error = np.full(len(fit.estimate), 0.0 if measured.noise.pooled == 0.0 else math.inf)
        if measured.noise.pooled > 0.0:
            error = fit.error()
        radius = _radius(measured, "pooled", error, options.level)
        return _Fitted(agents, fit, fit.estimate, fit.estimate - radius, fit.estimate + radius, 1.0,
                       _student(measured, agents, fit.estimate, error, "pooled"))  # fmt: skip
    statistics = {kind: measured.statistics(kind) for kind in measured.noise.kinds}
    estimate, claimed = estimator.claimed(statistics, measured.noise.persistence, grouped=grouped)
    mixed = fit if isinstance(fit, MixtureFit | RateMixtureFit) and grouped else None
    doubt = _DOUBT if mixed is not None else 0.0
    factor = measured.validation.calibrate(estimator, grouped=grouped, doubt=doubt)
    factors = factor.of(measured.moments.worth)
    if measured.noise.law or isinstance(estimator, Close):  # with the right likelihood or spread it is not too wide
        factors = np.maximum(factors, 1.0)
    variance = claimed * factors
    # never wider than the interval of the agent's own mean
    local = measured.local(estimator.variance)
    own = local.claimed(statistics, measured.noise.persistence)[1]
    own = own * measured.validation.calibrate(local).of(measured.moments.worth)
    error = np.sqrt(np.minimum(variance, np.maximum(own, claimed)))
    if mixed is not None:
        lower, upper = mixed.interval(options.level)
        # with few components, the posterior mean may lie outside the quantiles
        lower, upper = np.minimum(lower, fit.estimate), np.maximum(upper, fit.estimate)
        scale = error / np.maximum(fit.error(), 1e-300)
        below, above = scale * (fit.estimate - lower), scale * (upper - fit.estimate)
        shape = mixed if isinstance(mixed, MixtureFit) else mixed.shape
        posterior = _posterior(measured, agents, estimate, error, shape, fit.estimate, scale)
    elif isinstance(fit, ConjugateFit):
        lower, upper = fit.interval(options.level, error)
        below, above = fit.estimate - lower, upper - fit.estimate
        posterior = _posterior(measured, agents, estimate, error, fit.shape(error), fit.estimate, 1.0)
    else:
        below = above = _radius(measured, estimator.variance, error, options.level)
        posterior = _student(measured, agents, estimate, error, estimator.variance)
    stretch = float(np.median(error / np.maximum(np.sqrt(claimed), 1e-300)))
    lower, upper = estimate - below, estimate + above
    if measured.noise.law:
        lower, upper = np.maximum(lower, 0.0), np.minimum(upper, LAWS[measured.noise.law].most)
    return _Fitted(agents, fit, estimate, lower, upper, stretch, posterior)


def _posterior(
    measured: _Measured, agents: AgentStatistics, estimate: Floats, error: Floats, shape: Shape, center: Floats,
    scale: Floats | float,
) -> AgentPosteriors:  # fmt: skip
    """The posteriors that intervals are made of (see `AgentPosteriors` for the arguments)."""
    row = np.where(measured.present, np.cumsum(measured.present) - 1, -1)
    low, high = (0.0, LAWS[measured.noise.law].most) if measured.noise.law else (-math.inf, math.inf)
    scales = np.broadcast_to(np.asarray(scale, np.float64), estimate.shape)
    return AgentPosteriors(shape, row, estimate, center, scales, error, np.sqrt(agents.noise), low, high)


def _student(
    measured: _Measured, agents: AgentStatistics, estimate: Floats, error: Floats, kind: str
) -> AgentPosteriors:  # fmt: skip
    shape = StudentShape(measured.noise.freedoms(measured.moments, kind))
    return _posterior(measured, agents, estimate, error, shape, np.zeros(len(estimate)), error)


def _radius(measured: _Measured, kind: str, error: Floats, level: float) -> Floats:
    freedom = measured.noise.freedoms(measured.moments, kind)
    return np.asarray(error * t_quantile(0.5 + 0.5 * level, freedom))


def _population(
    measured: _Measured, estimator: Estimator, groups: Groups | None, options: EstimateOptions
) -> AgentPopulation | None:  # fmt: skip
    """What the agents tell about others; None if there is only one, or if noise cannot be separated from it."""
    exact = measured.noise.pooled == 0.0 and not measured.noise.law
    if measured.present.sum() < 2 or (measured.alone is not None and not exact):
        return None
    law = LAWS[measured.noise.law] if measured.noise.law else None
    agents = measured.statistics(measured.noise.law) if law else _grouping_statistics(measured, estimator)
    label = None if measured.every.label is None else measured.every.label[measured.present]
    columns = _covariates(measured.every, log_n=options.log_n)
    names = tuple(map(str, measured.every.names.covariates)) if measured.every.covariates is not None else ()
    return AgentPopulation(agents, law, label, None if columns is None else columns[measured.present],
                      names + (LOG_N,) * options.log_n, groups)  # fmt: skip


# groups


def _find_groups(
    measured: _Measured, estimator: Estimator, fit: Fit, options: EstimateOptions
) -> tuple[Groups | None, str]:
    """(groups, how many in words); None if none were searched for."""
    if measured.every.label is not None:
        group = measured.every.label[measured.present]
        n_groups = len(np.unique(group[group >= 0]))
        return Groups(group, (group >= 0).astype(np.float64), n_groups), _count(n_groups, "known group")
    if options.groups == 1 or measured.alone is not None:
        return None, "groups were not searched for"
    if fit.groups is not None and options.method != "auto":  # of a requested estimator that forms groups itself
        found = Groups.parts(fit.groups)
    else:
        found = Groups.of(mixture_fit(_grouping_statistics(measured, estimator)), options.groups, _steps(measured))
    return found, _count(found.n_groups, "group") if found.n_groups else "no evidence of groups"


def _grouping_statistics(measured: _Measured, estimator: Estimator) -> AgentStatistics:
    """What groups are searched in: rates and counts on the scale on which their variance does not depend on them."""
    if measured.noise.law:
        law, n = LAWS[measured.noise.law], measured.moments.worth
        more = _ANSCOMBE if law.most == 1.0 else 0.0
        mean = law.stabilized((n * measured.moments.mean + _ANSCOMBE) / (n + 2.0 * more))
        return AgentStatistics(mean, 0.25 / (n + more), n, measured.prior)
    own = estimator.variance != "pooled" and measured.noise.persistence > _PERSISTENT
    return measured.statistics("moderated" if own else "pooled")


def _steps(measured: _Measured) -> Floats:
    """The smallest difference between two means that each agent could have, if samples are rounded or counts."""
    if not measured.noise.law:
        return np.asarray(measured.every.resolution / measured.moments.n)
    law, n, mean = LAWS[measured.noise.law], measured.moments.worth, measured.moments.mean
    more = np.minimum(mean + 0.5 / n, law.most)
    return law.stabilized(more) - law.stabilized(np.maximum(more - 1.0 / n, 0.0))


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


# report


def _summarize(
    measured: _Measured, options: EstimateOptions, choice: _Choice, fitted: _Fitted, groups: Groups | None,
    groups_sentence: str, diagnosis: Diagnosis,
) -> Summary:  # fmt: skip
    spread, sigma = math.nan, math.sqrt(measured.noise.pooled)
    if measured.alone is None:
        spread = measured.prior.fit(fitted.agents.mean, fitted.agents.noise).spread
    score = next((each.candidate for each in choice.scores if each.estimator == choice.estimator), None)
    flagged = {name: int((diagnosis.flags >> i & 1).sum()) for i, name in enumerate(FLAGS)}
    return Summary(
        method=choice.estimator.name, variance=choice.estimator.variance, why=choice.why,
        gain=1.0 - score.ratio if score else 0.0, gain_se=score.se if score else 0.0,
        candidates=tuple(each.candidate for each in choice.scores),
        folds="forward" if measured.forward else "random", level=options.level, stretch=fitted.widened,
        n_agents=len(measured.n), n_samples=int(measured.n.sum()),
        n_groups=None if groups is None else groups.n_groups, groups_sentence=groups_sentence,
        sigma=sigma, tau=math.sqrt(spread), n_half=sigma * sigma / spread if spread != 0.0 else math.inf,
        autocorrelation=diagnosis.autocorrelation, effective_share=1.0 / measured.noise.factor, drift=diagnosis.drift,
        count_correlation=diagnosis.count_correlation, faulty=_named(measured, diagnosis, "faulty"),
        dominant=_named(measured, diagnosis, "dominant sample"), zero_variance=flagged["zero variance"],
        flagged=flagged, half_life=options.half_life, log_n=options.log_n, covariates=measured.every.names.covariates,
        notes=measured.every.notes,
    )  # fmt: skip


def _named(measured: _Measured, diagnosis: Diagnosis, flag: str) -> tuple[str, ...]:
    agents = np.flatnonzero(diagnosis.flags >> FLAGS.index(flag) & 1)[:_NAMED]
    return tuple(str(measured.every.labels[a]) for a in agents)


def _result(
    measured: _Measured, fitted: _Fitted, groups: Groups | None, diagnosis: Diagnosis, summary: Summary,
    population: AgentPopulation | None,
) -> Result:  # fmt: skip
    def full(values: NDArray[Any], empty: float = math.nan) -> NDArray[Any]:
        """With a row for agents without a sample."""
        out = np.full(len(measured.present), empty, values.dtype)
        out[measured.present] = values
        return out

    n = len(fitted.estimate)
    group, probability = (np.full(n, -1), np.zeros(n)) if groups is None else groups[:2]
    return Result(
        agent=measured.every.labels, n=measured.n, mean=full(measured.moments.mean),
        estimate=full(fitted.estimate), lower=full(fitted.lower), upper=full(fitted.upper), group=full(group, -1),
        probability=full(probability, 0.0), borrowed=full(fitted.fit.borrowed), flags=diagnosis.flags,
        summary=summary, names=measured.names, parts=measured.every.parts,
        group_names=measured.every.group_names, posterior=fitted.posterior, population=population,
    )  # fmt: skip
