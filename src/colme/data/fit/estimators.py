"""Ways to better a mean, behind one interface: evidence in, an estimate per agent out, an error on request.

Each is a frozen struct with `fit(evidence) -> Fit`. All see counts only through the variance of a mean, so agents may
have one sample or a million. What is known beforehand (covariates, labels) is taken off first, see `prior`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.data.fit.prior import Prior

Floats = NDArray[np.float64]
METHODS = ("local", "pooled", "shrinkage", "census", "one-hop", "cl-colme")


class Evidence(msgspec.Struct, frozen=True, eq=False):
    """What estimators know: agents with at least one sample each."""

    mean: Floats
    noise: Floats
    """Variance of the mean."""
    sample: Floats
    """Variance of a sample."""
    worth: Floats
    """Independent samples that the mean is worth."""
    prior: Prior
    """What is known of agents beside their samples."""
    found: dict[str, Any] = msgspec.field(default_factory=dict)
    """What takes long to work out of it and several ask for."""


class Fit(Protocol):
    """What an estimator found."""

    @property
    def estimate(self) -> Floats: ...

    @property
    def borrowed(self) -> Floats:
        """Weight on others."""

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """Only of estimators that make their own."""

    def error(self) -> Floats:
        """Standard error of each estimate."""


class PlainFit(msgspec.Struct, frozen=True):
    """Where the variance of estimates has a formula."""

    estimate: Floats
    borrowed: Floats
    variance: Floats
    groups: NDArray[np.int64] | None = None

    def error(self) -> Floats:
        return np.sqrt(self.variance)


class Estimator(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A way to better a mean. `variance`: whose variances it believes."""

    name: ClassVar[str]
    variance: str = "moderated"

    @abstractmethod
    def fit(self, evidence: Evidence) -> Fit:
        """What it makes of the evidence."""

    @property
    def label(self) -> str:
        return self.name if self.name == "local" else f"{self.name} ({self.variance} variance)"


class LocalMean(Estimator, frozen=True, kw_only=True):
    """Everybody for himself: the floor."""

    name = "local"

    def fit(self, evidence: Evidence) -> Fit:
        return PlainFit(evidence.mean, np.zeros(len(evidence.mean)), evidence.noise)


class Pooled(Estimator, frozen=True, kw_only=True):
    """One mean for all (or for all of a label, or on the plane of the covariates)."""

    name = "pooled"

    def fit(self, evidence: Evidence) -> Fit:
        found = evidence.prior.fit(evidence.mean, evidence.noise, spread=0.0)
        return PlainFit(found.mean, np.ones(len(evidence.mean)), found.variance)


class Shrinkage(Estimator, frozen=True, kw_only=True):
    """Normal empirical Bayes: means are drawn from N(prior mean, tau^2), tau by maximum likelihood (Morris 1983)."""

    name = "shrinkage"

    def fit(self, evidence: Evidence) -> Fit:
        found = evidence.prior.fit(evidence.mean, evidence.noise)
        kept = found.spread / (found.spread + evidence.noise)
        away = evidence.mean - found.mean
        # if no spread was seen, it may be as large as the mean of half a normal around zero
        spread = max(found.spread, math.sqrt(2.0 / math.pi) * found.spread_error)
        believed = spread / (spread + evidence.noise)
        doubt = np.square((1.0 - believed) * (found.spread_error / (spread + evidence.noise)))
        variance = believed * evidence.noise + np.square(1.0 - kept) * found.variance + doubt * np.square(away)
        return PlainFit(found.mean + kept * away, 1.0 - kept, variance)
