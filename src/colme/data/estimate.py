"""`estimate`: from a table of samples to a better mean for every agent, with an interval, a group and a summary.

    read     the table, wherever it is, as moments by agent              read/table.py, engines.py, summaries.py
    measure  counts, means and squares by fold; the noise of a sample    moments.py, fit/noise.py
    choose   the estimator with the smallest cross-validated error       fit/cross_validation.py
    fit      estimates                                                   fit/estimators.py, mixture_estimator.py,
                                                                         conjugate.py
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

from colme.confidence import check_probability
from colme.data.fit import FLAGS
from colme.data.fit.conjugate import ConjugateFit, ConjugateLocal, RateMixtureFit
from colme.data.fit.cross_validation import (
    ESTIMATORS,
    FEWEST,
    CrossValidation,
    Scored,
    best_of,
    candidates,
    is_worse,
    statistics_of,
)
from colme.data.fit.diagnosis import Diagnosis, diagnose
from colme.data.fit.estimators import AgentStatistics, Close, Estimator, Fit, LocalMean, spread_evidence
from colme.data.fit.groups import Groups
from colme.data.fit.laws import LAWS
from colme.data.fit.mixture_estimator import MixtureEstimator, MixtureFit, PooledFit
from colme.data.fit.noise import judging_variances, measure_noise
from colme.data.fit.population import AgentPopulation
from colme.data.fit.posterior import AgentPosteriors, Shape, StudentShape
from colme.data.fit.prior import Prior, beyond_chance, standardized
from colme.data.moments import AgentMoments, moments_of
from colme.data.partials import check_names, moments_in
from colme.data.read.format import TableFormat
from colme.data.read.summaries import Columns, read_summaries
from colme.data.read.table import Names, Progress, Table, read_moments, read_samples, unit_unknown
from colme.data.report.result import Result, Summary
from colme.data.report.sentences import count
from colme.data.thinning import as_independent
from colme.errors import ColmeError, MethodError, one_of, positive, whole
from colme.methods.partition import MOST
from colme.noise import Factors, student
from colme.support.arrays import Array, Floats, Integers, Mask
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


class EstimateOptions(msgspec.Struct):
    """The options of `estimate`, checked."""

    sigma: float | None = None
    method: str = "auto"
    groups: int | None = None
    log_n: bool = False
    """Use the logarithm of the counts as a covariate."""
    half_life: Any = None
    """In units of the times; given as such, or with a unit."""
    level: float = 0.9
    seed: int = 0
    in_seconds: bool = False
    """Whether the half-life was given with a unit."""
    independent: bool = False
    """The samples of an agent are known to be independent."""

    def __post_init__(self) -> None:
        if self.sigma is not None:
            self.sigma = positive(self.sigma, "sigma", "sigma=2.0")
        one_of(self.method, ("auto", *ESTIMATORS), "method", MethodError)
        if self.groups is not None:
            self.groups = whole(self.groups, "groups", "groups=3")
        if isinstance(self.half_life, datetime.timedelta | np.timedelta64):
            self.half_life, self.in_seconds = as_time(self.half_life), True
        if self.half_life is not None:
            self.half_life = positive(self.half_life, "half_life", "half_life=86400")
        check_probability("level", self.level)
        self.level, self.seed = float(self.level), whole(self.seed, "seed", "seed=0", low=0)


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
    independent: bool = False,
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
    method      "auto" or one of "local", "pooled", "shrinkage", "close", "census", "partition",
                "one-hop", "cl-colme"
    groups      the largest number of groups to report (default: no limit; 1: do not search for groups)
    label       the column of known groups, one per agent
    covariates  columns that may predict an agent's mean; "log n" is the logarithm of its number of samples. "auto" uses
                those that do beyond chance, other methods use all
    half_life   the weight of a sample halves in this time, in units of the times (seconds for dates); a `timedelta` if
                times are dates
    level       the probability with which an interval should contain the true mean
    seed        decides the random folds of the cross-validation
    independent whether the samples of an agent are known to be independent. If not, the order of its rows, or the time,
                tells how they depend on each other, and how uncertain that makes its mean (`colme.dependence`)
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
    options = EstimateOptions(
        sigma, method, groups, LOG_N in names, half_life, level, seed, independent=bool(independent)
    )  # fmt: skip
    columns = tuple(name for name in names if name != LOG_N)
    summaries = {"mean": mean, "se": se, "n": n, "successes": successes, "trials": trials, "exposure": exposure}
    timed = {"time": time, "weight": weight, "half_life": half_life}
    moments = moments_in(source)
    if moments is not None:
        plain = {"agent": agent, "value": value, "label": label, "covariates": columns or None}
        check_names(moments, plain | timed | summaries)
        return _estimate(moments, options, progress)
    form = TableFormat(decimal, thousands, time_format, encoding, sheet)
    if any(each is not None for each in summaries.values()):
        roles = Columns.of(summaries, value, timed | {"sigma": sigma})
        named = Names.of(agent, next(iter(roles.given.values())), label=label, covariates=columns)
        moments = read_summaries(source, named, roles, form, seed=options.seed, progress=progress)
    else:
        named = Names.of(agent, value, time=time, weight=weight, label=label, covariates=columns)
        moments = _read(source, named, form, options, progress)
    return _estimate(moments, options, progress)


def _read(
    source: Any, names: Names, form: TableFormat, options: EstimateOptions, progress: Progress | None
) -> AgentMoments:  # fmt: skip
    """The moments of a table: aggregated by the engine of a lazy frame, or read here."""
    from colme.data.read.engines import engine_moments, lazy_frame  # imports pyarrow and narwhals

    frame = lazy_frame(source)
    if options.half_life is not None and names.time is None:
        raise ColmeError("half_life needs the time of every sample, but no time was given. Try time=...")
    if frame is not None:
        return engine_moments(
            frame, names, seed=options.seed, half_life=options.half_life, in_seconds=options.in_seconds
        )
    if names.time is None:
        return read_moments(
            source, names, form, seed=options.seed, ordered=not options.independent, progress=progress
        )  # fmt: skip
    return _moments(read_samples(source, names, form, progress=progress), options)


def estimate_table(table: Table, *, progress: Progress | None = None, **options: Any) -> Result:
    """`estimate` for a table that is already read; options are those of `EstimateOptions`."""
    checked = EstimateOptions(**options)
    return _estimate(_moments(table, checked), checked, progress)


def estimate_moments(moments: AgentMoments, **options: Any) -> Result:
    """`estimate` for moments that are already at hand, with options as in `estimate_table`."""
    return _estimate(moments, EstimateOptions(**options), None)


def _moments(table: Table, options: EstimateOptions) -> AgentMoments:
    if options.in_seconds and not table.dates:
        raise unit_unknown(options.half_life, table.names.time)
    return moments_of(
        table, seed=options.seed, half_life=options.half_life, independent=options.independent
    )  # fmt: skip


def _estimate(moments: AgentMoments, options: EstimateOptions, progress: Progress | None) -> Result:
    moments, factors = as_independent(
        moments, options.seed, independent=options.independent, forward=options.half_life is not None
    )  # fmt: skip
    measured = _with_covariates(_Measured(moments, options, factors), options)
    choice = _choose(measured, options, progress)
    fit = choice.estimator.fit(measured.statistics[choice.estimator.variance])
    groups, groups_sentence = _find_groups(measured, choice.estimator, fit, options)
    grouped = moments.label is None and groups is not None and groups.n_groups > 0
    fitted = _with_intervals(measured, choice.estimator, fit, options.level, grouped=grouped)
    population = _population(measured, choice.estimator, groups if grouped else None)
    diagnosis = diagnose(moments, measured.noise)

    def full(values: Array, empty: float = math.nan) -> Array:
        """With a row for agents without a sample."""
        out = np.full(len(measured.present), empty, values.dtype)
        out[measured.present] = values
        return out

    n = len(fit.estimate)
    group, probability = (np.full(n, -1), np.zeros(n)) if groups is None else groups[:2]
    with np.errstate(over="ignore"):  # an end of an interval may become infinite
        mean, estimate, lower, upper = (
            full(each) * moments.unit
            for each in (measured.moments.mean, fitted.posterior.estimate, fitted.lower, fitted.upper)
        )
    return Result(
        agent=moments.labels, n=measured.n, mean=mean, estimate=estimate, lower=lower, upper=upper,
        group=full(group, -1), probability=full(probability, 0.0), borrowed=full(fit.borrowed), flags=diagnosis.flags,
        summary=_summarize(measured, options, choice, fitted.widened, groups, groups_sentence, diagnosis),
        names=moments.names, parts=moments.parts, group_names=moments.group_names,
        posterior=fitted.posterior, population=population,
    )  # fmt: skip


# measure


class _Measured:
    """Moments, noise and prior of the agents that have a sample.

    every       the moments of all agents
    n           the number of samples of every agent
    present     which agents have a sample; everything else is about these only
    excess      by what the variance of each mean for intervals exceeds that to shrink by, relative to it
    folds       moments by fold; `moments`: of all folds together
    covariates  the names of those that are used; `columns`: their values, in the units of the table
    variance    of a sample of each agent, to judge estimates by
    alone       why no agent can learn from another, if so
    """

    def __init__(self, every: AgentMoments, options: EstimateOptions, factors: Factors):
        self.every = every
        self.n = every.folds.n.sum(axis=1) if every.reported is None else every.reported
        self.present = every.folds.n.sum(axis=1) > 0
        if not self.present.any():
            raise ColmeError("the table has no samples: at least one agent must have a value. Check the value column.")
        self.folds = every.folds.select(self.present)
        self.moments = self.folds.merged()
        low, high, low_of_own, high_of_own = (
            np.broadcast_to(each, len(every.labels))[self.present] for each in factors[:4]
        )
        sigma = _sigma(every, options.sigma)
        factor = np.median(low if sigma is not None else low_of_own) if sigma is not None or every.forward else 1.0
        self.noise = measure_noise(self.folds, sigma, law=every.law, factor=float(factor))
        self.excess = (high_of_own / low_of_own if sigma is None else high / low) - 1.0
        self.effective_share = 1.0 / float(np.median(high_of_own))
        self.law = LAWS.get(every.law)
        self.label = None if every.label is None else every.label[self.present]
        self._set_prior(log_n=options.log_n)
        successive = every.successive[self.present] if every.forward and every.successive is not None else None
        self.variance = judging_variances(self.moments, self.noise, successive)
        self.alone = self._alone(options)

    def widened(self, factor: Floats, own: Floats) -> Floats:
        """This factor on claimed variances, and the excess, in which estimates have a part as they have in own means.
        Later samples, predicted from earlier ones, have shown it already."""
        more = 1.0 + self.excess * own
        return np.where(more > 1.0, np.maximum(factor, more), factor) if self.every.forward else factor * more

    def _set_prior(self, *, log_n: bool) -> None:
        self.covariates, self.columns = _covariates(self.every, log_n=log_n)
        scaled = None if self.columns is None else standardized(self.columns)
        self.prior = Prior(self.every.label, scaled).select(self.present)

    def with_log_n(self) -> _Measured:
        """The same with the logarithm of the counts as one more covariate."""
        other = copy.copy(self)
        other._set_prior(log_n=True)
        return other._judged_like(self)

    def with_covariates(self, some: Integers) -> _Measured:
        """The same with some of the covariates."""
        other = copy.copy(self)
        other.covariates = tuple(self.covariates[k] for k in some)
        other.columns = None if self.columns is None or not len(some) else self.columns[:, some]
        other.prior = self.prior.with_columns(some)
        return other._judged_like(self)

    def _judged_like(self, other: _Measured) -> _Measured:
        """After another prior was set: in the splits of the other."""
        vars(self).pop("statistics", None)  # it depends on the prior
        self.validation = other.validation.with_prior(self.prior.select(self._judging))
        return self

    @property
    def _judging(self) -> Mask:
        """The agents of the cross-validation: every k-th, if there are very many."""
        n = len(self.moments.n)
        return np.arange(n) % (n // _VALIDATED + 1) == 0

    @functools.cached_property
    def statistics(self) -> dict[str, AgentStatistics]:
        """What estimators are given, by kind of variance."""
        return statistics_of(self.moments, self.noise, self.prior)

    def local(self, kind: str) -> Estimator:
        """Every agent's own mean, with this kind of variances or those of the law."""
        return ConjugateLocal(variance=self.noise.law) if self.law else LocalMean(variance=kind)

    @functools.cached_property
    def validation(self) -> CrossValidation:
        used = self._judging
        return CrossValidation(self.folds.select(used), self.noise, self.prior.select(used), self.variance[used],
                               forward=self.every.forward)  # fmt: skip

    def posterior(
        self, kind: str, estimate: Floats, error: Floats, shape: tuple[Shape, Floats, Floats] | None = None
    ) -> AgentPosteriors:  # fmt: skip
        """The posteriors that intervals are made of. `shape`, center and scale (see `AgentPosteriors`) are those of
        Student's t if they are not given."""
        row = np.where(self.present, np.cumsum(self.present) - 1, -1)
        student = StudentShape(self.noise.freedoms(self.moments, kind))
        form, center, scale = shape or (student, np.zeros(len(error)), error)
        low, high = (0.0, self.law.most) if self.law else (-math.inf, math.inf)
        noise = np.sqrt(self.statistics[kind].noise)
        return AgentPosteriors(form, row, estimate, center, scale, error, noise, low, high, self.every.unit)

    def _alone(self, options: EstimateOptions) -> str | None:
        if self.present.sum() < 2:
            return "there is only one agent, so there is no other to learn from"
        if self.law:
            return None
        if math.isnan(self.noise.pooled):
            recent = "" if options.half_life is None or self.n.max() < 2 else " within a half-life"
            return (f"no agent has two samples{recent}, so noise cannot be separated from real differences. If you "
                    "know the standard deviation of a sample, pass it as sigma (--sigma)")  # fmt: skip
        if self.noise.pooled == 0.0:
            return "no agent's samples vary, so every mean is exact"
        return None


def _covariates(every: AgentMoments, *, log_n: bool) -> tuple[tuple[str, ...], Floats | None]:
    """(names, values by agent): those of the table, and the logarithm of the counts."""
    names: tuple[str, ...] = ()
    columns = list[Floats]()
    if every.covariates is not None:
        names, columns = every.names.covariates, [np.asarray(every.covariates, np.float64)]
    if log_n:
        worth = every.folds.merged().worth if every.law else every.folds.n.sum(axis=1)
        names, columns = (*names, LOG_N), [*columns, np.log(np.maximum(worth, 1e-300 if every.law else 1))[:, None]]
    return names, np.concatenate(columns, axis=1) if columns else None


def _sigma(moments: AgentMoments, sigma: float | None) -> float | None:
    """The given standard deviation, in the unit of the moments."""
    if moments.sigma is not None or sigma is None:
        return moments.sigma
    largest = max(abs(float(moments.low.min())), abs(float(moments.high.max()))) * moments.unit
    if not 1.0 / _FAR < sigma / (largest or sigma) < _FAR:
        raise ColmeError(f"sigma={sigma:g} with samples of up to {largest:g}: it must be their standard deviation. "
                         "Check its unit.")  # fmt: skip
    return sigma / moments.unit


# choose


def _with_covariates(measured: _Measured, options: EstimateOptions) -> _Measured:
    """With those covariates, of the given ones and log n, that tell the mean.

    Those that tell most come first: 1, 2, 4, 8, ... of them are tried. More are used if they are more likely beyond
    chance than the fewer that are used so far, unless shrinkage with them is worse in cross-validation. (Whether they
    make it better beyond chance is not seen there in small tables, however much they tell.)"""
    if options.method != "auto" or measured.alone is not None or not measured.validation.splits:
        return measured
    n, every = measured.moments.worth, measured
    if not options.log_n and np.ptp(n) > 0.0 and len(n) >= _COUNTED:
        every = measured.with_log_n()
    if not every.covariates:
        return measured
    agents = measured.statistics[measured.noise.kinds[0]]
    order = every.prior.ranked(agents.mean, agents.noise)
    family = [each for each in candidates(measured.noise.law) if each.name in ("local", "shrinkage")]
    best, scores = every.with_covariates(order[:0]) if measured.covariates else measured, list[Scored]()
    most = best.prior.log_likelihood(agents.mean, agents.noise)
    for size in sorted({*(2**k for k in range(len(order).bit_length())), len(order)}):
        tried, used = every.with_covariates(np.sort(order[:size])), len(best.covariates)
        likely = tried.prior.log_likelihood(agents.mean, agents.noise)
        more = size - used
        chance = _CHANCE / math.comb(len(order) - used, more)  # they are the best ones of so many
        free = max(1.0 - (size + 1) / len(n), 0.0)  # few agents fit many covariates by chance
        if beyond_chance(free * (likely - most), more, chance):
            scores = scores or best.validation.score(family)[1:]
            found = tried.validation.score(family)[1:]
            if not is_worse(found, scores):
                best, most, scores = tried, likely, found
    return best


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
    if method == "auto" and abs(spread_evidence(measured.statistics["pooled"])) < _HINT:
        family = [each for each in family if each.name != "close"]
    if method == "auto" and len(measured.moments.n) > MOST:
        family = [each for each in family if each.name != "partition"]
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
    return f"only {count(able, 'agent')} of {n:,} {has} two samples, and comparing methods takes at least {FEWEST}"


# fit


class _Fitted(NamedTuple):
    """Posteriors and intervals; `widened` is the factor on standard errors that cross-validation asked for."""

    posterior: AgentPosteriors
    lower: Floats
    upper: Floats
    widened: float = 1.0


def _with_intervals(
    measured: _Measured, estimator: Estimator, fit: Fit, level: float, *, grouped: bool
) -> _Fitted:  # fmt: skip
    """The fit with intervals. `grouped`: there is evidence of groups, so that those of a mixture hold."""
    kind, statistics, persistence = estimator.variance, measured.statistics, measured.noise.persistence
    quantile = student(level, measured.noise.freedoms(measured.moments, kind))
    one = np.ones(len(fit.estimate))
    if measured.alone is not None:
        if isinstance(fit, ConjugateFit):
            error = fit.error()
            own_rate = fit.with_errors(error)
            posterior = measured.posterior(kind, fit.estimate, error, (own_rate, fit.estimate, one))
            return _Fitted(posterior, *own_rate.interval(level))
        pooled = measured.noise.pooled
        error = fit.error() if pooled > 0.0 else one * (0.0 if pooled == 0.0 else math.inf)
        radius = error * quantile
        posterior = measured.posterior(kind, fit.estimate, error)
        return _Fitted(posterior, fit.estimate - radius, fit.estimate + radius)
    estimate, claimed = estimator.claimed(statistics, persistence, grouped=grouped)
    mixed = fit if isinstance(fit, MixtureFit | RateMixtureFit) and grouped else None
    doubt = _DOUBT if mixed is not None else 0.0
    worth, validation = measured.moments.worth, measured.validation
    factors = validation.calibrate(estimator, worth, grouped=grouped, doubt=doubt)
    if measured.law or isinstance(estimator, Close):  # with the right likelihood or spread it is not too wide
        factors = np.maximum(factors, 1.0)
    # never wider than the interval of the agent's own mean
    local = measured.local(kind)
    own = local.claimed(statistics, persistence)[1] * measured.widened(validation.calibrate(local, worth), one)
    factors = measured.widened(factors, 1.0 - fit.borrowed)
    error = np.sqrt(np.minimum(claimed * factors, np.maximum(own, claimed)))
    held: ConjugateFit | MixtureFit | RateMixtureFit | None = mixed
    scale = one if mixed is None else error / np.maximum(mixed.error(), 1e-300)
    if isinstance(fit, ConjugateFit):
        held = fit.with_errors(error)
    below = above = error * quantile
    shape: tuple[Shape, Floats, Floats] | None = None
    if held is not None:
        lower, upper = held.interval(level)
        # with few components, the posterior mean may lie outside the quantiles
        lower, upper = np.minimum(lower, fit.estimate), np.maximum(upper, fit.estimate)
        below, above = scale * (fit.estimate - lower), scale * (upper - fit.estimate)
        shape = held, fit.estimate, scale
    posterior = measured.posterior(kind, estimate, error, shape)
    lower, upper = np.maximum(estimate - below, posterior.low), np.minimum(estimate + above, posterior.high)
    return _Fitted(posterior, lower, upper, float(np.median(error / np.maximum(np.sqrt(claimed), 1e-300))))


def _population(measured: _Measured, estimator: Estimator, groups: Groups | None) -> AgentPopulation | None:
    """What the agents tell about others; None if there is only one, or if noise cannot be separated from it."""
    exact = measured.noise.pooled == 0.0 and not measured.law
    if measured.present.sum() < 2 or (measured.alone is not None and not exact):
        return None
    agents = measured.statistics[measured.noise.law] if measured.law else _grouping_statistics(measured, estimator)
    columns = None if measured.columns is None else measured.columns[measured.present]
    return AgentPopulation(agents, measured.law, measured.label, columns, tuple(map(str, measured.covariates)), groups,
                           measured.every.unit)  # fmt: skip


# groups


def _find_groups(
    measured: _Measured, estimator: Estimator, fit: Fit, options: EstimateOptions
) -> tuple[Groups | None, str]:
    """(groups, how many in words); None if none were searched for."""
    if measured.label is not None:
        known = measured.label >= 0
        n_groups = len(np.unique(measured.label[known]))
        return Groups(measured.label, known.astype(np.float64), n_groups), count(n_groups, "known group")
    if options.groups == 1 or measured.alone is not None:
        return None, "groups were not searched for"
    if isinstance(fit, PooledFit) and fit.groups is not None and options.method != "auto":  # it forms groups itself
        found = Groups.parts(fit.groups)
    else:
        mixture = MixtureEstimator().fit(_grouping_statistics(measured, estimator))
        found = Groups.of(mixture, options.groups, _steps(measured))
    return found, count(found.n_groups, "group") if found.n_groups else "no evidence of groups"


def _grouping_statistics(measured: _Measured, estimator: Estimator) -> AgentStatistics:
    """What groups are searched in: rates and counts on the scale on which their variance does not depend on them."""
    if measured.law:
        law, n = measured.law, measured.moments.worth
        more = _ANSCOMBE if law.most == 1.0 else 0.0
        mean = law.stabilized((n * measured.moments.mean + _ANSCOMBE) / (n + 2.0 * more))
        return AgentStatistics(mean, 0.25 / (n + more), n, measured.prior)
    own = estimator.variance != "pooled" and measured.noise.persistence > _PERSISTENT
    return measured.statistics["moderated" if own else "pooled"]


def _steps(measured: _Measured) -> Floats:
    """The smallest difference between two means that each agent could have, if samples are rounded or counts."""
    if not measured.law:
        return measured.every.resolution / measured.moments.n
    law, n, mean = measured.law, measured.moments.worth, measured.moments.mean
    more = np.minimum(mean + 0.5 / n, law.most)
    return law.stabilized(more) - law.stabilized(np.maximum(more - 1.0 / n, 0.0))


# report


def _summarize(
    measured: _Measured, options: EstimateOptions, choice: _Choice, stretch: float, groups: Groups | None,
    groups_sentence: str, diagnosis: Diagnosis,
) -> Summary:  # fmt: skip
    estimator, every = choice.estimator, measured.every
    spread, sigma = math.nan, math.sqrt(measured.noise.pooled)
    if measured.alone is None:
        agents = measured.statistics[estimator.variance]
        spread = measured.prior.fit(agents.mean, agents.noise).spread
    score = next((each.candidate for each in choice.scores if each.estimator == estimator), None)
    flagged = {name: np.flatnonzero(diagnosis.flags >> i & 1) for i, name in enumerate(FLAGS)}
    named = {name: tuple(str(every.labels[a]) for a in agents[:_NAMED]) for name, agents in flagged.items()}
    return Summary(
        method=estimator.name, variance=estimator.variance, why=choice.why,
        gain=1.0 - score.ratio if score else 0.0, gain_se=score.se if score else 0.0,
        candidates=tuple(each.candidate for each in choice.scores),
        folds="forward" if every.forward else "random", level=options.level, stretch=stretch,
        n_agents=len(measured.n), n_samples=int(measured.n.sum()),
        n_groups=None if groups is None else groups.n_groups, groups_sentence=groups_sentence,
        sigma=sigma * every.unit, tau=math.sqrt(spread) * every.unit,
        n_half=sigma * sigma / spread if spread != 0.0 else math.inf,
        autocorrelation=diagnosis.autocorrelation, effective_share=measured.effective_share, drift=diagnosis.drift,
        count_correlation=diagnosis.count_correlation, faulty=named["faulty"], dominant=named["dominant sample"],
        zero_variance=len(flagged["zero variance"]), flagged={name: len(agents) for name, agents in flagged.items()},
        half_life=options.half_life, log_n=LOG_N in measured.covariates,
        covariates=tuple(each for each in measured.covariates if each != LOG_N), notes=every.notes,
    )  # fmt: skip
