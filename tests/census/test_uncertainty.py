"""Standard errors of a fitted mixture."""

from __future__ import annotations

import numpy as np
import pytest

from colme.census.mixture import Histogram, Mixture, log_likelihood
from colme.census.uncertainty import added_variance, parameter_variances
from tests.support.edges import Floats


def test_the_uncertainty_is_that_of_the_curvature() -> None:
    """At the expected histogram of a mixture, the information is minus the Hessian of the log-likelihood."""
    weight, location, spread = np.array([0.3, 0.45, 0.25]), np.array([0.0, 2.5, 6.0]), np.array([0.0, 0.7, 0.0])
    wide = spread > 0.0
    center = np.arange(-9.0, 16.0, 0.2)
    noise = np.full(len(center), 0.9)
    d, v = center[:, None] - location, noise[:, None] + spread
    count = 1000.0 * 0.2 * (np.exp(-0.5 * d * d / v) / np.sqrt(2.0 * np.pi * v)) @ weight
    histogram, mixture = Histogram(center, count, noise), Mixture(weight, location, spread, wide)

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
    added = np.empty(3)
    added_variance(histogram, mixture, 3, added)
    assert (added > out[:3]).all()  # points may have a spread all the same
    # the spread that was found is uncertain and positive: by a sum over spreads
    every = np.empty(6)
    parameter_variances(histogram, mixture._replace(wide=np.ones(3, np.bool_)), 3, every)
    tau2 = np.linspace(0.0, 20.0, 2_000_001)
    likelihood_of = np.exp(-0.5 * (tau2 - spread[1]) ** 2 / every[4])
    assert added[1] == pytest.approx(out[1] + likelihood_of @ tau2 / likelihood_of.sum() - spread[1], rel=1e-5)
