"""The steps between a table and its result: measure the noise, choose, estimate, find groups, summarise."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.data.fit.choice import (
    FAMILY,
    FEWEST,
    Judges,
    Progress,
    Scored,
    chosen,
    cross_validate,
    evidence_of,
    some,
    stretch,
)
from colme.data.fit.diagnosis import Diagnosis, diagnose
from colme.data.fit.estimators import Estimator, Evidence, Fit, LocalMean
from colme.data.fit.groups import Groups
from colme.data.fit.mixture_estimator import MixtureEstimator, MixtureFit
from colme.data.fit.moments import fold_moments
from colme.data.fit.prior import Prior, standard
from colme.data.fit.variances import measured, t_quantile
from colme.data.read.table import Table
from colme.data.report.result import FLAGS, Result, Summary

Floats = NDArray[np.float64]
NAMED = 20
"""Agents that a summary names."""
JUDGES = 100_000
"""Agents at most, about, that cross-validation asks: more do not change its verdict."""


class Options(NamedTuple):
    """What the user asked for, checked."""

    sigma: float | None = None
    method: str = "auto"
    groups: int | None = None
    half_life: float | None = None
    level: float = 0.9
    seed: int = 0


class Chosen(NamedTuple):
    """An estimator, why, and how all did in cross-validation."""

    estimator: Estimator
    why: str
    scores: list[Scored]

    @property
    def score(self) -> Scored | None:
        return next((each for each in self.scores if each.estimator == self.estimator), None)


class Workings:
    """What is worked out of one table; only agents with a sample take part."""

    def __init__(self, table: Table, options: Options, log_n: bool, progress: Progress | None):
        self.table, self.options, self.progress = table, options, progress
        self.n = np.diff(table.start)
        self.there = self.n > 0
        self.forward = table.time is not None
        every = fold_moments(table, forward=self.forward, seed=options.seed, half_life=options.half_life)
        self.folds = some(every, self.there)
        self.moments = self.folds.merged(slice(None))
        self.noise = measured(self.folds, options.sigma, ordered=self.forward)
        self.prior = _prior(table, log_n, self.n).of(self.there)
        self._told: dict[str, Evidence] = {}

    @functools.cached_property
    def judges(self) -> Judges:
        n = len(self.moments.n)
        asked = np.arange(n) % (n // JUDGES + 1) == 0
        return Judges(some(self.folds, asked), self.noise, self.prior.of(asked), forward=self.forward)

    def result(self) -> Result:
        picked = self.choose()
        seen = diagnose(self.table, self.noise, ordered=self.forward)
        widened = 1.0
        if self._hopeless() is None:
            widened = stretch(self.judges, picked.estimator, self.options.level)
            evidence = self._evidence(picked.estimator.variance)
            fit = picked.estimator.fit(evidence)
            lower, upper = self._interval(picked.estimator, fit, evidence, widened)
            groups, sentence = self._groups(fit, evidence)
        else:
            fit = LocalMean().fit(self._evidence("pooled"))
            radius = np.full(len(fit.estimate), 0.0 if self.noise.pooled == 0.0 else math.inf)
            if self.noise.pooled > 0.0:
                radius = self._radius("pooled", fit.error())
            lower, upper = fit.estimate - radius, fit.estimate + radius
            groups, sentence = self._known() or (None, "groups were not looked for")
        nobody = np.full(len(fit.estimate), -1), np.zeros(len(fit.estimate))
        group, probability = groups[:2] if groups is not None else nobody
        summary = self._summary(picked, seen, widened, groups, sentence)
        return Result(
            agent=self.table.labels, n=self.n, mean=self._full(self.moments.mean), estimate=self._full(fit.estimate),
            lower=self._full(lower), upper=self._full(upper), group=self._full(group, -1),
            probability=self._full(probability, 0.0), borrowed=self._full(fit.borrowed), flags=seen.flags,
            summary=summary, names=self.table.names,
        )  # fmt: skip

    def choose(self) -> Chosen:
        """An estimator by cross-validation, of all or of the method that was asked for."""
        method, why = self.options.method, self._hopeless()
        if why is not None:
            return Chosen(LocalMean(), why, [])
        family = [each for each in FAMILY if method in ("auto", each.name) or each.name == "local"]
        scores = cross_validate(self.judges, family, self.progress)
        if method != "auto":
            own = [each for each in scores if each.estimator.name == method]
            best = min(own, key=lambda each: each.candidate.ratio).estimator if own else family[-1]
            return Chosen(best, f"{method} was asked for", scores)
        if not scores:
            return Chosen(LocalMean(), f"fewer than {FEWEST} agents have two samples, too few to judge by", [])
        picked, why = chosen(scores)
        return Chosen(picked.estimator, why, scores)

    def _hopeless(self) -> str | None:
        """Why nobody can borrow from anybody here, if so."""
        if self.there.sum() < 2:
            return "one agent has nobody to borrow from"
        if math.isnan(self.noise.pooled):
            forgot = "" if self.options.half_life is None or self.n.max() < 2 else " within a half-life"
            return f"nobody has two samples{forgot}, so noise cannot be told from difference: sigma would tell"
        if self.noise.pooled == 0.0:
            return "no agent's samples vary, so every mean is exact"
        return None

    def _evidence(self, kind: str) -> Evidence:
        if kind not in self._told:
            self._told[kind] = evidence_of(self.moments, self.noise, kind, self.prior)
        return self._told[kind]

    def _radius(self, kind: str, error: Floats) -> Floats:
        tail = 0.5 + 0.5 * self.options.level
        return np.asarray(error * t_quantile(tail, self.noise.freedoms(self.moments, kind)))

    def _interval(self, by: Estimator, fit: Fit, evidence: Evidence, widened: float) -> tuple[Floats, Floats]:
        # never wider than what is known without the others
        most = np.maximum(np.sqrt(evidence.noise) / np.maximum(fit.error(), 1e-300), 1.0)
        factor = np.minimum(widened, most) if by.name != "local" else np.full(len(most), widened)
        if isinstance(fit, MixtureFit):
            lower, upper = fit.interval(self.options.level)
            # between few tribes the posterior mean may lie outside of its quantiles
            lower, upper = np.minimum(lower, fit.estimate), np.maximum(upper, fit.estimate)
            return fit.estimate - factor * (fit.estimate - lower), fit.estimate + factor * (upper - fit.estimate)
        radius = factor * self._radius(by.variance, fit.error())
        return fit.estimate - radius, fit.estimate + radius

    def _known(self) -> tuple[Groups, str] | None:
        """Groups that were told."""
        if self.table.label is None:
            return None
        group = self.table.label[self.there]
        n_groups = len(np.unique(group[group >= 0]))
        return Groups(group, (group >= 0).astype(np.float64), n_groups), _count(n_groups, "known group")

    def _groups(self, fit: Fit, evidence: Evidence) -> tuple[Groups | None, str]:
        known = self._known()
        if known is not None:
            return known
        if self.options.groups == 1:
            return None, "groups were not looked for"
        if fit.groups is not None:
            found = Groups.parts(fit.groups)
        else:
            census = fit if isinstance(fit, MixtureFit) else MixtureEstimator().fit(evidence)
            found = Groups.of(census, self.options.groups)
        return found, _count(found.n_groups, "group") if found.n_groups else "no evidence of groups"

    def _full(self, values: NDArray[Any], empty: float = math.nan) -> NDArray[Any]:
        """With a place for agents without a sample."""
        out = np.full(len(self.there), empty, values.dtype)
        out[self.there] = values
        return out

    def _summary(
        self, picked: Chosen, seen: Diagnosis, widened: float, groups: Groups | None, sentence: str
    ) -> Summary:  # fmt: skip
        spread, sigma = math.nan, math.sqrt(self.noise.pooled)
        if self._hopeless() is None:
            evidence = self._evidence(picked.estimator.variance)
            spread = self.prior.fit(evidence.mean, evidence.noise).spread
        score = picked.score.candidate if picked.score is not None else None
        flagged = {name: int((seen.flags >> i & 1).sum()) for i, name in enumerate(FLAGS)}
        return Summary(
            method=picked.estimator.name, variance=picked.estimator.variance, why=picked.why,
            gain=1.0 - score.ratio if score else 0.0, gain_se=score.se if score else 0.0,
            candidates=tuple(each.candidate for each in picked.scores),
            folds="forward" if self.forward else "random", level=self.options.level, stretch=widened,
            n_agents=len(self.n), n_samples=int(self.n.sum()),
            n_groups=None if groups is None else groups.n_groups, groups_sentence=sentence,
            sigma=sigma, tau=math.sqrt(spread), n_half=sigma * sigma / spread if spread != 0.0 else math.inf,
            autocorrelation=seen.autocorrelation, effective_share=1.0 / self.noise.factor, drift=seen.drift,
            count_correlation=seen.count_correlation, faulty=self._named(seen, "faulty"),
            dominant=self._named(seen, "dominant sample"), zero_variance=flagged["zero variance"], flagged=flagged,
            half_life=self.options.half_life, notes=self.table.notes,
        )  # fmt: skip

    def _named(self, seen: Diagnosis, flag: str) -> tuple[str, ...]:
        who = np.flatnonzero(seen.flags >> FLAGS.index(flag) & 1)[:NAMED]
        return tuple(str(self.table.labels[a]) for a in who)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def _prior(table: Table, log_n: bool, n: NDArray[np.int64]) -> Prior:
    columns = [] if table.covariates is None else [np.asarray(table.covariates, np.float64)]
    if log_n:
        columns.append(np.log(np.maximum(n, 1))[:, None])
    return Prior(table.label, standard(np.concatenate(columns, axis=1)) if columns else None)
