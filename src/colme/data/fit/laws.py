"""The laws of rates and counts: how samples vary around a true rate, and the conjugate prior of that rate."""

from __future__ import annotations

import numpy as np
from scipy import special

from colme.support.arrays import Floats


class Binomial:
    """y successes in n trials. The prior is Beta(s m, s (1 - m))."""

    most = 1.0
    """The largest rate."""

    def variance(self, rate: Floats) -> Floats:
        """The variance of one trial, or of the number of events in exposure 1."""
        return rate * (1.0 - rate)

    def log_density(self, y: Floats, n: Floats, rate: Floats) -> Floats:
        """Of y successes or events at a true rate between 0 and `most`; constants are left out."""
        return special.xlogy(y, rate) + special.xlog1py(n - y, -rate)

    def stabilized(self, rate: Floats) -> Floats:
        """A scale on which the variance of a rate is 1 / (4 n), whatever the rate."""
        return np.arcsin(np.sqrt(rate))

    def at(self, scale: Floats) -> Floats:
        """The rate at a place of that scale."""
        return np.square(np.sin(scale))

    def little(self, rate: float) -> float:
        """As many trials, or as much exposure, as hold about one success, failure or event less than an agent sees."""
        return 1.0

    def log_likelihood(self, y: Floats, n: Floats, place: Floats, number: Floats, weight: float) -> float:
        """Of a prior with these means and this weight in trials or exposure; `number`: of such agents. Constants are
        left out."""
        a, b = weight * place, weight * (1.0 - place)
        return float(number @ (special.betaln(y + a, n - y + b) - special.betaln(a, b)))

    def quantile(self, share: float, y: Floats, n: Floats) -> Floats:
        """Of a posterior with y successes or events in n, the prior's included."""
        return special.betaincinv(y, np.maximum(n - y, 1e-300), share)

    def cdf(self, rate: Floats, y: Floats, n: Floats) -> Floats:
        """Of such a posterior: the probability that the true rate is at most this one."""
        return special.betainc(y, np.maximum(n - y, 1e-300), np.clip(rate, 0.0, 1.0))

    def draw(self, rng: np.random.Generator, y: Floats, n: Floats) -> Floats:
        """A true rate from each such posterior."""
        return rng.beta(y, np.maximum(n - y, 1e-300))

    def prior_weight(self, place: Floats, variance: Floats) -> Floats:
        """The weight of the prior that has this mean and variance."""
        return np.maximum(self.variance(place) / variance - 1.0, 1e-300)


class Poisson:
    """y events in exposure n, with the methods of `Binomial`. The prior is Gamma(s m) with rate s."""

    most = np.inf

    def variance(self, rate: Floats) -> Floats:
        return rate

    def log_density(self, y: Floats, n: Floats, rate: Floats) -> Floats:
        return special.xlogy(y, rate) - n * rate

    def stabilized(self, rate: Floats) -> Floats:
        return np.sqrt(rate)

    def at(self, scale: Floats) -> Floats:
        return np.square(scale)

    def little(self, rate: float) -> float:
        return 0.5 / rate

    def log_likelihood(self, y: Floats, n: Floats, place: Floats, number: Floats, weight: float) -> float:
        a = weight * place
        whole = special.gammaln(y + a) - special.gammaln(a) + a * np.log(weight) - (y + a) * np.log(n + weight)
        return float(number @ whole)

    def quantile(self, share: float, y: Floats, n: Floats) -> Floats:
        return special.gammaincinv(y, share) / n

    def cdf(self, rate: Floats, y: Floats, n: Floats) -> Floats:
        return special.gammainc(y, n * np.maximum(rate, 0.0))

    def draw(self, rng: np.random.Generator, y: Floats, n: Floats) -> Floats:
        return rng.standard_gamma(y) / n

    def prior_weight(self, place: Floats, variance: Floats) -> Floats:
        return self.variance(place) / variance


Law = Binomial | Poisson
LAWS: dict[str, Law] = {"binomial": Binomial(), "Poisson": Poisson()}
