"""Standard errors of a fitted mixture."""

from __future__ import annotations

import numpy as np
import pytest

from colme.census.mixture import Mixture, log_likelihood, moments_of
from colme.census.uncertainty import added_variance, parameter_variances
from tests.support.edges import Floats
from tests.support.mixtures import plain_histogram


def test_the_uncertainty_is_that_of_the_curvature() -> None:
    """At the expected histogram of a mixture, the information is minus the Hessian of the log-likelihood."""
    weight, location, spread = np.array([0.3, 0.45, 0.25]), np.array([0.0, 2.5, 6.0]), np.array([0.0, 0.7, 0.0])
    wide = spread > 0.0
    center = np.arange(-9.0, 16.0, 0.2)
    noise = np.full(len(center), 0.9)
    d, v = center[:, None] - location, noise[:, None] + spread
    count = 1000.0 * 0.2 * (np.exp(-0.5 * d * d / v) / np.sqrt(2.0 * np.pi * v)) @ weight
    histogram, mixture = plain_histogram(center, count, noise), Mixture(weight, location, spread, wide)

    def likelihood(x: Floats) -> float:
        tau2 = spread.copy()
        tau2[wide] = x[3:4]
        w = np.array([x[4], x[5], 1.0 - x[4] - x[5]])
        return float(log_likelihood(histogram, Mixture(w, x[:3], tau2, wide), 3))

    x = np.concatenate([location, spread[wide], weight[:2]])
    hessian, step = np.empty((6, 6)), 1e-3 * np.eye(6)
    for i in range(6):
        for j in range(6):
            corners = [likelihood(x + a * step[i] + b * step[j]) * a * b for a in (1, -1) for b in (1, -1)]
            hessian[i, j] = sum(corners) / 4e-6
    out = np.empty(6)
    parameter_variances(histogram, mixture, 3, out)
    np.testing.assert_allclose(out[:4], np.linalg.inv(-hessian).diagonal()[:4], rtol=2e-3)
    added, allowed = np.empty((2, 3))
    added_variance(histogram, mixture, 3, *moments_of(histogram)[1:], added, allowed)
    assert (allowed >= added).all()
    assert (added > out[:3]).all()  # points may have a spread all the same
    # the spread that was found is uncertain and positive: by a sum over spreads
    every = np.empty(6)
    parameter_variances(histogram, mixture._replace(wide=np.ones(3, np.bool_)), 3, every)
    tau2 = np.linspace(0.0, 20.0, 2_000_001)
    likelihood_of = np.exp(-0.5 * (tau2 - spread[1]) ** 2 / every[4])
    assert added[1] == pytest.approx(out[1] + likelihood_of @ tau2 / likelihood_of.sum() - spread[1], rel=1e-5)


@pytest.mark.parametrize("z", [2.0, 3.5, 8.0])
def test_the_spread_of_a_lone_component_counts_with_its_probability(z: float) -> None:
    """Two components 40 deviations apart, of 2500 agents each. The error of a spread is sqrt(2 / 2500) of the variance,
    the prior a half at zero and a half between zero and the variance of all true means, 400: by a sum over spreads."""
    n, noise = 2500.0, 1.0
    e = np.sqrt(2.0 / n)
    e /= 1.0 - z * e  # of a variance that itself is larger by z e
    spread = np.array([z * e, 0.0])
    center = np.arange(-8.0, 48.0, 0.25)
    d, v = center[:, None] - np.array([0.0, 40.0]), noise + spread
    count = 2.0 * n * 0.25 * (0.5 * np.exp(-0.5 * d * d / v) / np.sqrt(2.0 * np.pi * v)).sum(axis=1)
    kept = count > 1e-9
    histogram = plain_histogram(center[kept], count[kept], np.full(kept.sum(), noise))
    added, allowed = np.empty((2, 2))
    mixture = Mixture(np.full(2, 0.5), np.array([0.0, 40.0]), spread, spread > 0.0)
    added_variance(histogram, mixture, 2, *moments_of(histogram)[1:], added, allowed)
    tau2 = np.linspace(0.0, 30.0 * e, 300_001)
    likelihood = np.exp(-0.5 * (tau2 / e - min(z, 6.0)) ** 2)
    evidence = likelihood.sum() * tau2[1] / 400.0
    probability = evidence / (evidence + np.exp(-0.5 * min(z, 6.0) ** 2))
    expected = probability * max(likelihood @ tau2 / likelihood.sum(), spread[0])
    assert spread[0] + added[0] == pytest.approx(expected + v[0] / n, rel=0.01)
    # for intervals there always is one
    expected = max(likelihood @ tau2 / likelihood.sum(), spread[0])
    assert spread[0] + allowed[0] == pytest.approx(expected + v[0] / n, rel=0.01)
