"""The peers: each takes samples of agents and returns an estimate of every agent's mean, with intervals if it has them.

Every peer runs with the defaults of its package. Mixed models have an intercept and one random effect,
the agent; lme4 and MixedLM fit it by REML.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import lme4

Floats = NDArray[np.float64]
LEVEL = 0.9
NORMAL = 1.6448536269514722
"""The normal quantile of intervals of this level."""


class Samples(NamedTuple):
    """The samples that peers learn from, those of an agent together; agents are numbered from 0."""

    agent: NDArray[np.int64]
    value: Floats
    n_agents: int
    time: NDArray[Any] | None = None
    """In time order only; colme is the one peer that uses it."""


class Estimates(NamedTuple):
    """The estimate of every agent's mean and its 90 % interval, None if the peer has none."""

    estimate: Floats
    lower: Floats | None = None
    upper: Floats | None = None
    remark: str = ""
    """colme: the method that it chose."""


class Peer(NamedTuple):
    """Who is compared, and what to say about it."""

    fit: Callable[[Samples], Estimates]
    package: str
    """The distribution that must be installed; "" if nothing is needed, "lme4" is R's."""
    words: str

    @property
    def version(self) -> str | None:
        """None: not installed."""
        if self.package == "lme4":
            return lme4.version()
        try:
            return metadata.version(self.package) if self.package else ""
        except metadata.PackageNotFoundError:
            return None


def _around(estimate: Floats, error: Floats) -> Estimates:
    return Estimates(estimate, estimate - NORMAL * error, estimate + NORMAL * error)


def colme_auto(samples: Samples) -> Estimates:
    import colme

    table = {"agent": samples.agent, "value": samples.value}
    if samples.time is not None:
        table["time"] = samples.time
    found = colme.estimate(table, agent="agent", value="value", time=None if samples.time is None else "time",
                           level=LEVEL)  # fmt: skip
    place = np.empty(samples.n_agents, np.int64)
    place[np.asarray(found.agent, np.int64)] = np.arange(samples.n_agents)
    return Estimates(found.estimate[place], found.lower[place], found.upper[place], found.summary.method)


def local_means(samples: Samples) -> Estimates:
    """Own means, with Student's intervals from own variances."""
    from scipy.special import stdtrit

    n = np.bincount(samples.agent, minlength=samples.n_agents)
    mean = np.bincount(samples.agent, samples.value, samples.n_agents) / n
    squares = np.bincount(samples.agent, np.square(samples.value - mean[samples.agent]), samples.n_agents)
    radius = stdtrit(n - 1.0, 0.5 + 0.5 * LEVEL) * np.sqrt(squares / (n - 1.0) / n)
    return Estimates(mean, mean - radius, mean + radius)


def grand_mean(samples: Samples) -> Estimates:
    return Estimates(np.full(samples.n_agents, samples.value.mean()))


def mixed_lm(samples: Samples) -> Estimates:
    from statsmodels.regression.mixed_linear_model import MixedLM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance at its bound is a warning, and a good answer
        found = MixedLM(samples.value, np.ones((len(samples.value), 1)), groups=samples.agent).fit()
        if np.asarray(found.cov_re)[0, 0] > 0.0:
            effect, spread = found.random_effects, found.random_effects_cov
        else:  # all agents are the same: statsmodels has no effects then
            return _around(np.full(samples.n_agents, found.fe_params[0]), np.zeros(samples.n_agents))
    order = range(samples.n_agents)
    estimate = found.fe_params[0] + np.array([np.asarray(effect[agent])[0] for agent in order])
    return _around(estimate, np.sqrt([np.asarray(spread[agent])[0, 0] for agent in order]))


def gpboost(samples: Samples) -> Estimates:
    import gpboost as gpb

    model = gpb.GPModel(group_data=samples.agent, likelihood="gaussian", num_parallel_threads=1)
    model.fit(y=samples.value, X=np.ones((len(samples.value), 1)))
    found = model.predict(
        group_data_pred=np.arange(samples.n_agents), X_pred=np.ones((samples.n_agents, 1)),
        predict_var=True, predict_response=False,
    )  # fmt: skip
    return _around(np.asarray(found["mu"], float), np.sqrt(found["var"]))


def lmer(samples: Samples) -> Estimates:
    mean, error = lme4.random_intercepts(samples.agent, samples.value)
    return _around(mean, error)


def sklearn_target(samples: Samples) -> Estimates:
    from sklearn.preprocessing import TargetEncoder

    encoder = TargetEncoder(target_type="continuous").fit(samples.agent[:, None], samples.value)
    return Estimates(np.asarray(encoder.encodings_[0], float))  # categories are sorted


def _encoder(name: str) -> Callable[[Samples], Estimates]:
    def fit(samples: Samples) -> Estimates:
        import category_encoders
        import pandas

        agents = pandas.DataFrame({"agent": samples.agent})
        asked = pandas.DataFrame({"agent": np.arange(samples.n_agents)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            encoder = getattr(category_encoders, name)(cols=["agent"]).fit(agents, samples.value)
            return Estimates(encoder.transform(asked)["agent"].to_numpy(float))

    return fit


PEERS: dict[str, Peer] = {
    "colme": Peer(colme_auto, "", '`colme.estimate`, `method="auto"`'),
    "local": Peer(local_means, "", "each agent's own mean, Student's interval"),
    "grand mean": Peer(grand_mean, "", "the mean of all samples"),
    "gpboost": Peer(gpboost, "gpboost", "`GPModel(group_data=agent)`"),
    "MixedLM": Peer(mixed_lm, "statsmodels", "statsmodels, `MixedLM(y, 1, groups=agent)`"),
    "lme4": Peer(lmer, "lme4", "R, `lmer(y ~ 1 + (1 \\| agent))`"),
    "sklearn Target": Peer(sklearn_target, "scikit-learn", "scikit-learn, `TargetEncoder()`"),
    "ce JamesStein": Peer(_encoder("JamesSteinEncoder"), "category_encoders", "`JamesSteinEncoder()`"),
    "ce MEstimate": Peer(_encoder("MEstimateEncoder"), "category_encoders", "`MEstimateEncoder()`"),
    "ce Target": Peer(_encoder("TargetEncoder"), "category_encoders", "`TargetEncoder()`"),
}
"""By name, in the order of the tables."""


def installed() -> dict[str, str]:
    """The versions of the peers that can run here."""
    found = {name: peer.version for name, peer in PEERS.items()}
    return {name: version for name, version in found.items() if version is not None}
