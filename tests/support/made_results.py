"""Results of tables that nobody has: three groups or a continuum, as a method that knows everything would give them."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from colme.data.fit import Candidate
from colme.data.fit.posterior import AgentPosteriors, StudentShape
from colme.data.read.table import Names
from colme.data.report.result import Result, Summary

SIGMA = 6.0
PLACES = np.array([15.0, 21.0, 35.0])


def summary_of(n: Any, **changes: Any) -> Summary:
    made = Summary(
        method="census", variance="pooled", why="census has the least error in cross-validation", gain=0.69,
        gain_se=0.02, candidates=(Candidate("local", 1.0, 0.0), Candidate("census (pooled variance)", 0.31, 0.02)),
        folds="random", level=0.9, stretch=1.0, n_agents=len(n), n_samples=int(np.sum(n)), n_groups=3,
        groups_sentence="3 groups", sigma=SIGMA, tau=0.4, n_half=225.0, autocorrelation=math.nan, effective_share=1.0,
        drift=math.nan, count_correlation=math.nan, faulty=(), dominant=(), zero_variance=0, flagged={}, half_life=None,
        notes=(),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def made_result(n_agents: int, *, groups: bool = True, seed: int = 0, **changes: Any) -> Result:
    rng = np.random.default_rng(seed)
    n = rng.geometric(1 / 8, n_agents)
    tau = 0.4 if groups else 3.0
    group = rng.choice(3, n_agents, p=[0.5, 0.3, 0.2]) if groups else np.full(n_agents, -1)
    place = PLACES[group] if groups else np.full(n_agents, 7.0)
    mean = place + rng.normal(0, tau, n_agents) + rng.normal(0, SIGMA, n_agents) / np.sqrt(n)
    kept = tau**2 / (tau**2 + SIGMA**2 / n)
    estimate, radius = place + kept * (mean - place), 1.645 * np.sqrt(kept * SIGMA**2 / n)
    none = {} if groups else {"n_groups": 0, "groups_sentence": "no evidence of groups", "tau": tau, "n_half": 4.0}
    posterior = AgentPosteriors(StudentShape(np.full(n_agents, 1e6)), np.arange(n_agents), estimate, np.zeros(n_agents),
                                radius / 1.645, radius / 1.645, SIGMA / np.sqrt(n))  # fmt: skip
    return Result(
        agent=np.array([f"sensor-{k}" for k in range(n_agents)], object), n=n, mean=mean, estimate=estimate,
        lower=estimate - radius, upper=estimate + radius, group=group,
        probability=np.full(n_agents, 0.9 if groups else math.nan), borrowed=1 - kept,
        flags=(n == 1).astype(np.uint8), summary=summary_of(n, **none | changes), names=Names("sensor", "temperature"),
        posterior=posterior,
    )  # fmt: skip
