"""Choose an estimator by cross-validation within each agent's samples, and calibrate its intervals.

Each split trains on some folds of all agents and predicts their other folds. With random folds, all but one predict
that one. In time order, the earlier folds predict all later ones. Agents have equal weight. The loss of an estimator
for agent a is (its estimate - mean of the held-out folds)^2. Subtracting the loss of a's own mean cancels their noise:

    ratio = 1 + mean of the differences / error of the local means

is the error of the estimator relative to that of the local means; its standard error comes from the agents. Without
time, the error of the local means is the one that counts and variances imply: an observed risk may be near zero or
negative by chance. In time order the noise of the later samples is estimated by successive differences, which drift
does not inflate (`colme.data.fit.noise.judging_variances`). The error of the local means is their loss minus that
noise; but as far as it exceeds what counts imply (agents drift, or samples are correlated), nothing is subtracted, and
the ratio is that of the prediction errors as they are.

Training on fewer samples flatters every collaborative estimator. What is reported is the ratio for all samples, if the
other agents add as much to the precision of an estimate as they did in training:

    1 / error (all samples) = 1 / error (training) + 1 / local error (all samples) - 1 / local error (training)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from colme.data.fit import Candidate
from colme.data.fit.conjugate import ConjugateLocal, ConjugateShrinkage, RateMixture
from colme.data.fit.estimators import (
    AgentStatistics,
    Close,
    Estimator,
    LocalMean,
    PartitionEstimator,
    Pooled,
    Shrinkage,
    mean_above_zero,
    standard_error,
)
from colme.data.fit.mixture_estimator import ConsensusLimit, MixtureEstimator, OverlapPooling
from colme.data.fit.noise import Noise
from colme.data.fit.prior import Prior
from colme.data.moments import N_FOLDS, FoldMoments
from colme.data.read.table import Progress
from colme.support.arrays import Floats, Integers, Mask

FEWEST = 5
"""Fewest agents with two samples for a cross-validation."""
_CLEAR = 0.1
"""If the standard error of a ratio is larger, cross-validation is inconclusive, and shrinkage is the default."""
_LEAD = {"census": 1.0, "close": 1.0}
"""Standard errors by which another estimator must be better than shrinkage; 2 for those that are not listed."""
_SLOW = ("census", "close")
_LATEST = (3, 4)
"""In time order, split after this many of the five folds: training on much less would answer another question."""
_STRATUM = 25
"""Fewest agents of a stratum of similar counts in which intervals are calibrated."""
_STRATA = 4
_NARROW, _NARROWEST = 1.0, 0.6
"""Claimed variances are made smaller only as far as they exceed the shown errors by more than so many standard errors,
and not by a smaller factor."""


class Scored(NamedTuple):
    """An estimator and its score in cross-validation."""

    estimator: Estimator
    candidate: Candidate
    away: Floats
    """For each agent: its loss minus that of the agent's own mean."""


def candidates(law: str = "") -> tuple[Estimator, ...]:
    """The estimators that `auto` chooses from, the simplest first; with the likelihood of rates or counts if they have
    a law."""
    if law:
        return (
            ConjugateLocal(variance=law), Pooled(variance="pooled"), ConjugateShrinkage(variance=law),
            Close(variance="pooled"), RateMixture(variance=law), OverlapPooling(variance="pooled"),
            ConsensusLimit(variance="pooled"),
        )  # fmt: skip
    return (
        LocalMean(), Pooled(variance="pooled"), Shrinkage(variance="pooled"), Shrinkage(),
        PartitionEstimator(variance="pooled"), PartitionEstimator(), Close(variance="pooled"), Close(),
        MixtureEstimator(variance="pooled"), MixtureEstimator(),
        OverlapPooling(variance="pooled"), OverlapPooling(), ConsensusLimit(),
    )  # fmt: skip


ESTIMATORS = tuple(dict.fromkeys(each.name for each in candidates()))
"""The names of all estimators."""


def statistics_of(moments: FoldMoments, noise: Noise, prior: Prior) -> dict[str, AgentStatistics]:
    """What estimators are given, by kind of variance; every agent has a sample."""
    worth = moments.worth / noise.factor
    return {kind: AgentStatistics(moments.mean, noise.of_mean(moments, kind), worth, prior) for kind in noise.kinds}


class _Split(NamedTuple):
    """One split: the training statistics of agents with training samples, and the test folds of those that have any."""

    train: FoldMoments
    statistics: dict[str, AgentStatistics]
    """By kind of variance."""
    agents: Integers
    """The agents with test samples, as indices of all agents."""
    scored: Mask
    """Which of the agents in `train` have test samples."""
    test: FoldMoments
    trained: Mask
    """Which of all agents are in `train`."""

    @classmethod
    def of(cls, train: FoldMoments, test: FoldMoments, noise: Noise, prior: Prior) -> _Split:
        agents = train.n > 0
        scored = (test.n > 0)[agents]
        train, prior = train.select(agents), prior.select(agents)
        return cls(train, statistics_of(train, noise, prior), np.flatnonzero(agents)[scored], scored,
                   test.select(agents & (test.n > 0)), agents)  # fmt: skip

    def with_prior(self, prior: Prior) -> _Split:
        some = prior.select(self.trained)
        changed = {kind: replace(each, prior=some, cache={}) for kind, each in self.statistics.items()}
        return self._replace(statistics=changed)


class CrossValidation:
    """All splits in which at least `FEWEST` agents have samples on both sides.

    variance  the variance of a sample of each agent, to judge by
    forward   the folds are periods of time, and earlier ones predict later ones; else each fold is held out once
    """

    def __init__(self, folds: FoldMoments, noise: Noise, prior: Prior, variance: Floats, *, forward: bool):
        every = list(range(N_FOLDS))
        if forward:
            pairs = [(every[:k], every[k:]) for k in _LATEST]
        else:
            pairs = [([*every[:k], *every[k + 1 :]], [k]) for k in every]
        splits = (_Split.of(folds.merged(train), folds.merged(test), noise, prior) for train, test in pairs)
        self.noise = noise
        self.splits = [split for split in splits if len(split.agents) >= FEWEST]
        self._times = np.zeros(len(folds.n))
        for split in self.splits:
            self._times[split.agents] += 1.0
        self._there = self._times > 0.0
        self._worth = folds.merged().worth[self._there]
        self._local = self._losses([LocalMean(variance="pooled")])[0]
        # the error of the local mean of all samples, and of the training samples
        self._full = variance[self._there] / self._worth
        self._implied = self._averaged(lambda split: variance[split.agents] / split.train.worth[split.scored])[0]
        self._error = self._reference = self._implied
        if forward and self._there.any():
            noise_of_test = self._averaged(lambda split: variance[split.agents] / split.test.worth)[0]
            seen = self._local - noise_of_test
            more = 1.0 - float(self._implied.mean()) / max(float(seen.mean()), 1e-300)
            if more > 0.0:
                self._error, self._reference = seen, seen + more * noise_of_test

    def with_prior(self, prior: Prior) -> CrossValidation:
        """The same splits with another prior."""
        other = copy.copy(self)
        other.splits = [split.with_prior(prior) for split in self.splits]
        return other

    def _averaged(
        self, values: Callable[[_Split], Floats], rows: int = 1, progress: Progress | None = None
    ) -> Floats:  # fmt: skip
        """(rows, agents): the mean over splits of what is known of the scored agents of a split."""
        total = np.zeros((rows, len(self._times)))
        for k, split in enumerate(self.splits, 1):
            total[:, split.agents] += values(split)
            if progress is not None:
                progress(k, len(self.splits))
        return total[:, self._there] / self._times[self._there]

    def _losses(self, estimators: Sequence[Estimator], progress: Progress | None = None) -> Floats:
        """(estimators, agents): the squared loss."""

        def of_split(split: _Split) -> Floats:
            fits = [each.estimates(split.statistics[each.variance])[split.scored] for each in estimators]
            return np.square(np.stack(fits) - split.test.mean)

        return self._averaged(of_split, len(estimators), progress)

    def score(self, estimators: Sequence[Estimator], progress: Progress | None = None) -> list[Scored]:
        """The score of each estimator (the first is local); empty if too few agents have two samples.

        Census and close take longest: of each, only the one with the kind of variance that did best elsewhere."""
        if not self.splits:
            return []
        scores = self._score([each for each in estimators if each.name not in _SLOW], progress)
        slow = [each for each in estimators if each.name in _SLOW]
        if len(scores) > 1:
            best = _smallest(scores[1:]).estimator.variance
            names = [each.name for each in slow]
            slow = [each for each in slow if each.variance == best or names.count(each.name) == 1]
        return scores + self._score(slow, progress) if slow else scores

    def _score(self, estimators: Sequence[Estimator], progress: Progress | None) -> list[Scored]:
        error = float(self._reference.mean())
        share = float(self._full.mean() / self._implied.mean()) if self._implied.any() else 1.0
        scores = []
        for estimator, loss in zip(estimators, self._losses(estimators, progress), strict=True):
            away = loss - self._local
            gain = -float(away.mean()) / error if error > 0.0 else 0.0
            # the standard error of a ratio of two means over agents
            se = standard_error(away + gain * self._reference) / error if error > 0.0 else 0.0
            # an error is not negative, and a judge of this standard error cannot show that it is zero
            gain = min(gain, 1.0 - mean_above_zero(max(1.0 - gain, 0.0), se))
            if gain > 0.0:
                own = 1.0 - (1.0 - share) * gain
                gain, se = share * gain / own, share * se / (own * own)
            scores.append(Scored(estimator, Candidate(estimator.label, 1.0 - gain, se), away))
        return scores

    def calibrate(
        self, estimator: Estimator, worth: Floats, *, grouped: bool = True, doubt: float = 0.0
    ) -> Floats:  # fmt: skip
        """The factors on claimed variances with which they are as large as the errors that held-out samples show, for
        agents with these effective sample sizes: one factor for those of similar sizes.

        (Strata must not depend on the means: given a mean, the error of an agent's own mean is not what counts imply.)

        grouped  whether there is evidence of groups (`Estimator.claimed`)
        doubt    how many standard errors of these errors are added to them"""
        if not self.splits:
            return np.ones(len(worth))

        def both(split: _Split) -> Floats:
            estimate, variance = estimator.claimed(split.statistics, self.noise.persistence, grouped=grouped)
            return np.stack([variance[split.scored], np.square(estimate[split.scored] - split.test.mean)])

        claimed, loss = self._averaged(both, 2)
        shown = self._error + (loss - self._local)
        strata = min(_STRATA, max(1, len(claimed) // _STRATUM))
        edges = np.unique(np.quantile(self._worth, np.arange(1, strata) / strata))
        stratum = np.searchsorted(edges, self._worth)
        factor = np.ones(len(edges) + 1)
        for k in range(len(factor)):
            if (stratum == k).sum() > 1:
                factor[k] = _rescaling(shown[stratum == k], claimed[stratum == k], doubt)
        return factor[np.searchsorted(edges, worth)]


def _rescaling(shown: Floats, claimed: Floats, doubt: float) -> float:
    """The factor on claimed variances: little of a difference within its standard error, all of a clear one."""
    middle = float(claimed.mean())
    if middle <= 0.0:
        return 1.0
    excess, se = float((shown - claimed).mean()), standard_error(shown - claimed)
    if excess > 0.0:
        sure = excess / (1.0 + (se / excess) ** 2)
    else:
        sure = min(excess + _NARROW * se, 0.0)
    return max(1.0 + (max(sure, 0.0) + doubt * se if doubt else sure) / middle, _NARROWEST)


def best_of(scores: Sequence[Scored]) -> tuple[Scored, str]:
    """The estimator to use, and why. The first score is that of the local mean.

    Shrinkage has the fewest parameters, so another must be better by standard errors of the difference (`_LEAD`). It
    is also the default where cross-validation cannot tell."""
    local, best = scores[0], _smallest(scores)
    plain = _smallest([each for each in scores if each.estimator.name == "shrinkage"] or [local])
    others = "has the smallest error in cross-validation:"
    if plain is not local:
        ahead = [
            each for each in scores if each is not plain and _leads(each, plain, _LEAD.get(each.estimator.name, 2.0))
        ]
        best = _smallest([plain, *ahead])
        if best is plain and _smallest(scores) is not plain:
            others = "is not beaten beyond chance in cross-validation; its error is"
    gain, se = 1.0 - best.candidate.ratio, best.candidate.se
    if best is not local and gain > se:
        return best, (
            f"{best.candidate.name} {others} {best.candidate.ratio:.2f} times that of the local mean (standard error "
            f"{se:.2f})"
        )
    default, error = 1.0 - plain.candidate.ratio, plain.candidate.se
    if plain is not local and error > _CLEAR and default > -error:
        return plain, (
            f"cross-validation is inconclusive, so {plain.candidate.name} is used, which has the fewest parameters: "
            f"{plain.candidate.ratio:.2f} times the error of the local mean (standard error {error:.2f})"
        )
    if best is local:
        return local, "no collaborative estimator beats the local mean in cross-validation"
    alternative = f"the best alternative, {best.candidate.name},"
    if gain < 0.0:
        return local, f"{alternative} has {-gain:.1%} more error in cross-validation (standard error {se:.1%})"
    return local, f"{alternative} gains {gain:.1%} in cross-validation, which is within its standard error of {se:.1%}"


def is_worse(some: Sequence[Scored], others: Sequence[Scored]) -> bool:
    """Whether the best of some estimators is worse than the best of others by a standard error."""
    return _leads(_smallest(others), _smallest(some), 1.0)


def _leads(one: Scored, other: Scored, errors: float) -> bool:
    """Whether an estimator is better than another by so many standard errors of the difference."""
    lead = other.away - one.away
    return float(lead.mean()) > errors * standard_error(lead)


def _smallest(scores: Sequence[Scored]) -> Scored:
    return min(scores, key=lambda each: float(each.away.mean()))
