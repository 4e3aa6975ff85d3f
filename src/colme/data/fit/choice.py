"""Which estimator: cross-validation inside every agent's own samples, with the local mean as the floor.

Each split trains on some folds of everybody and predicts everybody's other folds. Random folds: all but one predict
the one. In time order: what came first predicts all that came later. Agents weigh equally. For agent a the loss of an
estimator is (its estimate - mean of the other folds)^2; minus the same of a's own mean, their noise cancels:

    ratio = 1 + mean of the differences / error of the local means,

the error of the estimator relative to that of the local means, and its standard error comes from the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.data.fit.estimators import Estimator, Evidence, LocalMean, Pooled, Shrinkage
from colme.data.fit.mixture_estimator import MixtureEstimator
from colme.data.fit.moments import N_FOLDS, FoldMoments
from colme.data.fit.overlaps import ConsensusLimit, OneHop
from colme.data.fit.prior import Prior
from colme.data.fit.variances import KINDS, Noise
from colme.data.report.result import Candidate

FAMILY: tuple[Estimator, ...] = (
    LocalMean(), Pooled(variance="pooled"), Shrinkage(variance="pooled"), Shrinkage(),
    MixtureEstimator(variance="pooled"), MixtureEstimator(), OneHop(variance="pooled"), OneHop(), ConsensusLimit(),
)  # fmt: skip
"""What `auto` chooses from, the simplest first."""
FEWEST = 5
"""Agents with two samples that make a cross-validation worth its name."""
_WIDEST = 20.0
Progress = Callable[[int, int | None], object]
_VAGUE = 0.5
"""A standard error of a ratio beyond which cross-validation says nothing."""
_LATEST = (3, 4)
"""In time order, splits after so many of the five folds: training on much less would be another question."""


class Scored(NamedTuple):
    """An estimator that was cross-validated."""

    estimator: Estimator
    candidate: Candidate


def evidence_of(moments: FoldMoments, noise: Noise, kind: str, prior: Prior) -> Evidence:
    """What an estimator is told of agents with samples."""
    sample = noise.of_sample(moments, kind)
    return Evidence(moments.mean, noise.of_mean(moments, kind), sample, moments.worth / noise.factor, prior)


def some(moments: FoldMoments, agents: NDArray[np.bool_]) -> FoldMoments:
    """The moments of some agents."""
    return FoldMoments(moments.n[agents], *(part[agents] for part in moments[1:]))


def _splits(folds: FoldMoments, *, forward: bool) -> Iterator[tuple[FoldMoments, FoldMoments]]:
    if forward:
        for k in _LATEST:
            yield folds.merged(slice(0, k)), folds.merged(slice(k, None))
    else:
        for k in range(N_FOLDS):
            yield folds.merged([other for other in range(N_FOLDS) if other != k]), folds.merged([k])


class _Split(NamedTuple):
    """What one split asks: agents with something to learn from, and of those, who can be judged, on what."""

    train: FoldMoments
    told: dict[str, Evidence]
    """What estimators are told of the agents, by whose variances they believe."""
    agents: NDArray[np.int64]
    judged: NDArray[np.bool_]
    test: FoldMoments

    @classmethod
    def of(cls, train: FoldMoments, test: FoldMoments, noise: Noise, prior: Prior) -> _Split:
        agents = train.n > 0
        judged = (test.n > 0)[agents]
        train, prior = some(train, agents), prior.of(agents)
        return cls(train, {kind: evidence_of(train, noise, kind, prior) for kind in KINDS},
                   np.flatnonzero(agents)[judged], judged, some(test, agents & (test.n > 0)))  # fmt: skip


class Judges:
    """Agents whose folds are predicted from their others: all splits that are worth it."""

    def __init__(self, folds: FoldMoments, noise: Noise, prior: Prior, *, forward: bool):
        self.n_agents, self.noise = len(folds.n), noise
        every = (_Split.of(train, test, noise, prior) for train, test in _splits(folds, forward=forward))
        self.splits = [split for split in every if len(split.agents) >= FEWEST]


def cross_validate(judges: Judges, family: Sequence[Estimator], progress: Progress | None = None) -> list[Scored]:
    """Every estimator of the family (the first is local), judged; empty if too few agents have two samples."""
    if not judges.splits:
        return []
    # of censuses, which take longest, only the one that believes the same variances as the best of the others
    quick = [each for each in family if each.name != "census"]
    scores = _judged(judges, quick, progress)
    slow = [each for each in family if each.name == "census"]
    if len(quick) > 1:
        best = min(scores[1:], key=lambda each: each.candidate.ratio).estimator.variance
        slow = [each for each in slow if each.variance == best]
    return scores + _judged(judges, [quick[0], *slow], progress)[1:] if slow else scores


def _judged(judges: Judges, family: Sequence[Estimator], progress: Progress | None) -> list[Scored]:
    n_agents, noise = judges.n_agents, judges.noise
    loss, times, claimed = np.zeros((len(family), n_agents)), np.zeros(n_agents), np.zeros(n_agents)
    for done, split in enumerate(judges.splits):
        for each, total in zip(family, loss, strict=True):
            fit = each.fit(split.told[each.variance])
            total[split.agents] += np.square(fit.estimate[split.judged] - split.test.mean)
        loss[:, split.agents] -= noise.of_mean(split.test, "pooled")  # what even the truth would miss
        claimed[split.agents] += noise.of_mean(some(split.train, split.judged), "pooled")
        times[split.agents] += 1.0
        if progress is not None:
            progress(done + 1, len(judges.splits))
    there = times > 0.0
    loss = loss[:, there] / times[there]
    # the error of local means as it is seen; as counts tell it, where wild samples hide most of it
    error, told_error = float(loss[0].mean()), float((claimed[there] / times[there]).mean())
    error = error if error > 0.5 * told_error else told_error
    return [Scored(each, _candidate(each.label, own - loss[0], error)) for each, own in zip(family, loss, strict=True)]


def _candidate(name: str, away: NDArray[np.float64], error: float) -> Candidate:
    return Candidate(name, 1.0 + float(away.mean()) / error, float(away.std(ddof=1)) / len(away) ** 0.5 / error)


def stretch(judges: Judges, estimator: Estimator, level: float) -> float:
    """By what the standard errors of an estimator must be multiplied so that its intervals, widened by the noise of
    what they predict, hold a share `level` of the other folds; 1 if they do so within chance."""
    off, claimed, unknowable = [], [], []
    for split in judges.splits:
        fit = estimator.fit(split.told[estimator.variance])
        off.append(np.abs(fit.estimate[split.judged] - split.test.mean))
        claimed.append(np.square(fit.error()[split.judged]))
        whole = some(split.train, split.judged)
        sample = judges.noise.of_sample(whole, estimator.variance)
        unknowable.append(judges.noise.factor * sample / split.test.worth)
    if not off:
        return 1.0
    z = NormalDist().inv_cdf(0.5 + 0.5 * level)
    distance, square, blur = (np.concatenate(part) for part in (off, claimed, unknowable))

    def covered(factor: float) -> float:
        return float((distance <= z * np.sqrt(factor * factor * square + blur)).mean())

    chance = (level * (1.0 - level) / len(off[0])) ** 0.5
    if covered(1.0) >= level - chance:
        return 1.0
    low, high = 1.0, _WIDEST
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if covered(middle) < level else (low, middle)
    return high


def chosen(scores: Sequence[Scored]) -> tuple[Scored, str]:
    """The best one and why; local, unless another gains more than a standard error."""
    best = min(scores, key=lambda each: each.candidate.ratio)
    local, gain = scores[0], 1.0 - best.candidate.ratio
    if best is local:
        return local, "no collaboration beats the local mean in cross-validation"
    if best.candidate.se > _VAGUE:
        return local, (
            f"cross-validation cannot tell: the error of the best alternative, {best.candidate.name}, relative to the "
            f"local mean's has a standard error of {best.candidate.se:.2f}"
        )
    if gain <= best.candidate.se:
        return local, (
            f"the best alternative, {best.candidate.name}, gains {gain:.1%} in cross-validation, which is within its "
            f"standard error of {best.candidate.se:.1%}"
        )
    return best, (
        f"{best.candidate.name} has the least error in cross-validation: {best.candidate.ratio:.2f} of the local "
        f"mean's (standard error {best.candidate.se:.2f})"
    )
