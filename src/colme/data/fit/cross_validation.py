"""Choose an estimator by cross-validation within each agent's samples; the local mean is the default.

Each split trains on some folds of all agents and predicts their other folds. With random folds, all but one predict
that one. In time order, the earlier folds predict all later ones. Agents have equal weight. The loss of an estimator
for agent a is (its estimate - mean of the held-out folds)^2. Subtracting the loss of a's own mean cancels their noise:

    ratio = 1 + mean of the differences / error of the local means

is the error of the estimator relative to that of the local means; its standard error comes from the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.data.fit.estimators import AgentStatistics, Estimator, LocalMean, Pooled, Shrinkage
from colme.data.fit.mixture_estimator import MixtureEstimator
from colme.data.fit.moments import N_FOLDS, FoldMoments
from colme.data.fit.noise import KINDS, Noise
from colme.data.fit.overlaps import ConsensusLimit, OverlapPooling
from colme.data.fit.prior import Prior
from colme.data.report.result import Candidate

CANDIDATES: tuple[Estimator, ...] = (
    LocalMean(), Pooled(variance="pooled"), Shrinkage(variance="pooled"), Shrinkage(),
    MixtureEstimator(variance="pooled"), MixtureEstimator(), OverlapPooling(variance="pooled"),
    OverlapPooling(), ConsensusLimit(),
)  # fmt: skip
"""The estimators that `auto` chooses from, the simplest first."""
FEWEST = 5
"""Fewest agents with two samples for a cross-validation."""
_WIDEST = 20.0
"""Largest factor by which intervals are widened."""
Progress = Callable[[int, int | None], object]
_VAGUE = 0.5
"""If the standard error of a ratio is larger, cross-validation is inconclusive."""
_LATEST = (3, 4)
"""In time order, split after this many of the five folds: training on much less would answer another question."""


class Scored(NamedTuple):
    """An estimator and its score in cross-validation."""

    estimator: Estimator
    candidate: Candidate


def statistics_of(moments: FoldMoments, noise: Noise, kind: str, prior: Prior) -> AgentStatistics:
    """What an estimator is given, with pooled or moderated variances (`kind`); every agent has a sample."""
    return AgentStatistics(moments.mean, noise.of_mean(moments, kind), moments.worth / noise.factor, prior)


class _Split(NamedTuple):
    """One split: the training statistics of agents with training samples, and the test folds of those that have any."""

    train: FoldMoments
    statistics: dict[str, AgentStatistics]
    """By kind of variance."""
    agents: NDArray[np.int64]
    """The agents with test samples, as indices of all agents."""
    scored: NDArray[np.bool_]
    """Which of the agents in `train` have test samples."""
    test: FoldMoments

    @classmethod
    def of(cls, train: FoldMoments, test: FoldMoments, noise: Noise, prior: Prior) -> _Split:
        agents = train.n > 0
        scored = (test.n > 0)[agents]
        train, prior = train.select(agents), prior.select(agents)
        return cls(train, {kind: statistics_of(train, noise, kind, prior) for kind in KINDS},
                   np.flatnonzero(agents)[scored], scored, test.select(agents & (test.n > 0)))  # fmt: skip


class CrossValidation:
    """All splits in which at least `FEWEST` agents have samples on both sides.

    forward  the folds are periods of time, and earlier ones predict later ones; else each fold is held out once
    """

    def __init__(self, folds: FoldMoments, noise: Noise, prior: Prior, *, forward: bool):
        self.n_agents, self.noise = len(folds.n), noise
        every = (_Split.of(train, test, noise, prior) for train, test in _train_and_test(folds, forward=forward))
        self.splits = [split for split in every if len(split.agents) >= FEWEST]

    def score(self, estimators: Sequence[Estimator], progress: Progress | None = None) -> list[Scored]:
        """The score of each estimator (the first is local); empty if too few agents have two samples.

        Census estimators take longest: of these, only the one with the kind of variance that did best elsewhere."""
        if not self.splits:
            return []
        quick = [each for each in estimators if each.name != "census"]
        scores = self._score(quick, progress)
        slow = [each for each in estimators if each.name == "census"]
        if len(quick) > 1:
            best = min(scores[1:], key=lambda each: each.candidate.ratio).estimator.variance
            slow = [each for each in slow if each.variance == best]
        return scores + self._score([quick[0], *slow], progress)[1:] if slow else scores

    def _score(self, estimators: Sequence[Estimator], progress: Progress | None) -> list[Scored]:
        loss = np.zeros((len(estimators), self.n_agents))
        times, expected = np.zeros((2, self.n_agents))
        for done, split in enumerate(self.splits):
            for each, total in zip(estimators, loss, strict=True):
                fit = each.fit(split.statistics[each.variance])
                total[split.agents] += np.square(fit.estimate[split.scored] - split.test.mean)
            loss[:, split.agents] -= self.noise.of_mean(split.test, "pooled")  # the loss of the true mean
            expected[split.agents] += self.noise.of_mean(split.train.select(split.scored), "pooled")
            times[split.agents] += 1.0
            if progress is not None:
                progress(done + 1, len(self.splits))
        there = times > 0.0
        loss = loss[:, there] / times[there]
        # the observed error of the local means, or the expected one where outliers hide most of it
        error, expected_error = float(loss[0].mean()), float((expected[there] / times[there]).mean())
        error = error if error > 0.5 * expected_error else expected_error
        return [
            Scored(each, _candidate(each.label, own - loss[0], error))
            for each, own in zip(estimators, loss, strict=True)
        ]

    def interval_factor(self, estimator: Estimator, level: float) -> float:
        """The factor on standard errors with which intervals, widened by the noise of the held-out means, hold a share
        `level` of these means; 1 if they do without it, up to chance."""
        off, claimed, unknowable = [], [], []
        for split in self.splits:
            fit = estimator.fit(split.statistics[estimator.variance])
            off.append(np.abs(fit.estimate[split.scored] - split.test.mean))
            claimed.append(np.square(fit.error()[split.scored]))
            sample = self.noise.of_sample(split.train.select(split.scored), estimator.variance)
            unknowable.append(self.noise.factor * sample / split.test.worth)
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


def _train_and_test(folds: FoldMoments, *, forward: bool) -> Iterator[tuple[FoldMoments, FoldMoments]]:
    if forward:
        for k in _LATEST:
            yield folds.merged(slice(0, k)), folds.merged(slice(k, None))
    else:
        for k in range(N_FOLDS):
            yield folds.merged([other for other in range(N_FOLDS) if other != k]), folds.merged([k])


def _candidate(name: str, away: NDArray[np.float64], error: float) -> Candidate:
    return Candidate(name, 1.0 + float(away.mean()) / error, float(away.std(ddof=1)) / len(away) ** 0.5 / error)


def best_of(scores: Sequence[Scored]) -> tuple[Scored, str]:
    """The estimator to use, and why: local (the first), unless another gains more than one standard error."""
    best = min(scores, key=lambda each: each.candidate.ratio)
    local, gain = scores[0], 1.0 - best.candidate.ratio
    if best is local:
        return local, "no collaborative estimator beats the local mean in cross-validation"
    if best.candidate.se > _VAGUE:
        return local, (
            f"cross-validation is inconclusive: the error of the best alternative, {best.candidate.name}, relative to "
            f"the local mean's has a standard error of {best.candidate.se:.2f}"
        )
    if gain <= best.candidate.se:
        return local, (
            f"the best alternative, {best.candidate.name}, gains {gain:.1%} in cross-validation, which is within its "
            f"standard error of {best.candidate.se:.1%}"
        )
    return best, (
        f"{best.candidate.name} has the smallest error in cross-validation: {best.candidate.ratio:.2f} times that of "
        f"the local mean (standard error {best.candidate.se:.2f})"
    )
