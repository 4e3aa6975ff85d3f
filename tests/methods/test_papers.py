"""The papers' settings, and the numbers to check against (docs/methods.md). Seeds are fixed, tolerances derived."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from scipy import stats

import colme
from colme.metrics import oracle_variance
from colme.sim import Traces

N, SEEDS, SIGMA = 5000, range(10), 2.0
C = colme.CColME(delta=0.1, level="agent", clock="global")
CL = colme.CLColME(delta=0.1, level="agent", clock="global", step=0.1)
HARMONIC = colme.CLColME(delta=0.1, level="agent", clock="harmonic", step=0.1)
OWN = colme.CLColME(delta=0.1, level="agent", clock="own", step=0.1)
GOSSIP = colme.CLColME(delta=0.1, level="agent", clock="gossip", step=0.1)


@pytest.fixture(scope="module")
def paper() -> Traces:
    """The CL-colME paper's experiment: two classes of 2500, r = 10, gamma = .05, b = .1, global clock."""
    scenario = colme.Scenario(n_agents=N, means=(1.2, 2.0), sigma=SIGMA)
    return colme.simulate([C, CL], scenario, degree=10, steps=2000, seeds=SEEDS)


def values(traces: Iterable[colme.Trace], metric: str, t: int) -> np.ndarray:
    return np.array([trace.at(t)[metric] for trace in traces])


def agrees(measured: np.ndarray, expected: float, last_digit: float) -> None:
    """Our mean and theirs are both means over ten seeds, theirs rounded: four standard errors of the difference."""
    error = np.sqrt(2.0) * measured.std(ddof=1) / np.sqrt(len(measured))
    assert abs(measured.mean() - expected) <= last_digit / 2 + 4.0 * error, (measured.mean(), expected, error)


@pytest.mark.parametrize(
    ("method", "t", "metric", "expected", "last_digit"),
    [  # the errors of local means are those of theory, see below
        (C, 100, "mse", 4.7e-2, 1e-3),
        (CL, 100, "mse", 4.9e-2, 1e-3),
        (C, 400, "mse", 1.19e-2, 1e-4),
        (CL, 400, "mse", 1.19e-2, 1e-4),
        (C, 1000, "mse", 2.2e-5, 1e-6),
        (CL, 1000, "mse", 3.3e-5, 1e-6),
        (C, 2000, "mse", 4.3e-6, 1e-7),
        (CL, 2000, "mse", 4.35e-6, 1e-8),
        (CL, 100, "wrong_edges", 0.935, 1e-3),
        (CL, 400, "wrong_edges", 0.173, 1e-3),
        (C, 400, "wrong_edges", 0.173, 1e-3),
    ],
)
def test_table_of_the_cl_colme_setting(
    paper: Traces, method: colme.CLColME, t: int, metric: str, expected: float, last_digit: float
) -> None:
    agrees(values(paper.select(method=method), metric, t), expected, last_digit)


@pytest.mark.parametrize("t", [100, 400, 1000, 2000])
def test_local_and_oracle_errors_are_what_theory_says(paper: Traces, t: int) -> None:
    """Local: sigma^2/t from N agents. Oracle: sigma^2/(t |class|), a chi-square with two degrees per seed."""
    runs = paper.select(method=CL)
    local = values(runs, "local_mse", t).mean() / (SIGMA**2 / t)
    assert abs(local - 1.0) < 4.0 * np.sqrt(2.0 / (N * len(SEEDS)))
    oracle = values(runs, "oracle_mse", t).mean() / oracle_variance(SIGMA, t, N // 2)
    freedom = 2 * len(SEEDS)
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], freedom) / freedom
    assert low < oracle < high


@pytest.mark.parametrize("method", [C, CL], ids=["C", "CL"])
def test_after_the_separation_both_are_forty_times_better_than_local(paper: Traces, method: colme.CColME) -> None:
    """Table: 2.2e-5 and 3.3e-5 at t = 1000, where a cut some steps ago still shows, so that seeds scatter widely."""
    runs = paper.select(method=method)
    assert 1e-5 < np.median(values(runs, "mse", 1000)) < 1e-4
    assert (values(runs, "local_mse", 1000) / np.median(values(runs, "mse", 1000)) > 40).all()


@pytest.mark.parametrize("method", [C, CL], ids=["C", "CL"])
def test_the_end_is_twice_the_oracle_without_the_isolated(paper: Traces, method: colme.CColME) -> None:
    """Table: 1.6e-6 at t = 2000 without isolated agents, a chi-square with two degrees of freedom per seed."""
    errors = []
    for trace in paper.select(method=method):
        final = trace.final
        assert final.truth is not None
        there = final.graph.degrees > 0
        errors.append(((final.estimate - final.truth)[there] ** 2).mean())
    freedom = 2 * len(SEEDS)
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], freedom) / freedom
    assert low < np.mean(errors) / 1.6e-6 < high


def test_cuts_end_near_step_1000_and_cost_few_edges(paper: Traces) -> None:
    """Table: last cut at 866..1141, about 3 same-class edges lost and 5 agents isolated per run: Poisson counts."""
    runs = paper.select(method=CL)
    last = [int(run.t[1:][np.diff(run.wrong_edges) < 0][-1]) for run in runs]
    assert min(last) > 800 and max(last) < 1250
    assert all(run.wrong_edges[-1] == 0 for run in runs)
    isolated = sum(int(run.isolated[-1]) for run in runs)
    assert abs(isolated - 50) < 4.0 * np.sqrt(2 * 50)
    lost = sum(run.lost_edges[-1] * N * 10 / 4 for run in runs)  # half of the 25 000 edges lie within a class
    assert abs(lost - 30) < 4.0 * np.sqrt(2 * 30)


def test_the_clock_decides() -> None:
    """Table of the clocks at t = 3000 (harmonic 6e-3, own cut 9e-4, local 1.4e-3); gossip ends like global."""
    scenario = colme.Scenario(n_agents=N, means=(1.2, 2.0), sigma=SIGMA)
    runs = colme.simulate([HARMONIC, OWN, GOSSIP, CL], scenario, steps=3000, seeds=range(3), record="log")

    def end(method: colme.CLColME) -> float:
        return float(np.mean([run.mse[-1] for run in runs.select(method=method)]))

    assert end(HARMONIC) == pytest.approx(6e-3, rel=0.1)
    assert end(OWN) == pytest.approx(9e-4, rel=0.1)
    assert end(HARMONIC) > runs[0].local_mse[-1] > end(OWN) > 100 * end(GOSSIP)
    assert end(GOSSIP) == pytest.approx(end(CL), rel=0.01)


def test_aaai_curve_of_c_and_cl() -> None:
    """N = 10^4, means 0/1 drawn per agent, delta = .1 per edge: error rate 1e-3 at t about 1210 (C), none lost."""
    scenario = colme.Scenario(n_agents=10_000, means=(0.0, 1.0), sigma=SIGMA, assignment="random")
    methods = [colme.CColME(delta=0.1, clock="global"), colme.CLColME(delta=0.1, clock="global", step=0.1)]
    for trace in colme.simulate(methods, scenario, degree=10, steps=1400, seeds=range(2)):
        reached = int(trace.t[trace.error_rate < 1e-3][0])
        assert 0.95 * 1210 < reached < 1.05 * 1210
        assert trace.lost_edges[-1] == 0 and trace.wrong_edges[-1] < 1e-3
        assert trace.local_error_rate[-1] > 0.04  # P(|N(0, 4/1400)| > .1) = .061


def test_b_colme_follows_c_colme() -> None:
    """The AAAI figure: B reaches an error rate within a tenth of the time that C does (1190 against 1210 there)."""
    scenario = colme.Scenario(n_agents=1500, means=(0.0, 1.0), sigma=SIGMA, assignment="random")
    methods = [colme.BColME(delta=0.1, depth=4), colme.CColME(delta=0.1, clock="global")]
    b, c = colme.simulate(methods, scenario, degree=10, steps=1300, seed=1)
    assert np.array_equal(b.wrong_edges, c.wrong_edges)
    reached = [int(trace.t[trace.error_rate < 0.01][0]) for trace in (b, c)]
    assert reached[0] == pytest.approx(reached[1], rel=0.1)
    assert b.mse[-1] < b.local_mse[-1] / 20


def test_tmlr_setting() -> None:
    """N = 200, means .2/.4/.8, sigma .5, delta .001: guarantees hold, weights order, the oracle is reached."""
    scenario = colme.Scenario(n_agents=200, means=(0.2, 0.4, 0.8), sigma=0.5)
    simple, soft, aggressive = (colme.ColME(delta=0.001, weights=name) for name in ("simple", "soft", "aggressive"))
    runs = colme.simulate([simple, soft, aggressive], scenario, steps=2500, seeds=range(2))
    for run in runs:
        assert run.lost_edges.max() == 0, "an agent of the same class was excluded"
        assert run.wrong_edges[-1] == 0
        assert run.mse[-1] < run.local_mse[-1] / 20
        assert run.mse[-1] < 20 * oracle_variance(0.5, 2500, 66)
    for seed in range(2):
        at_500 = [runs.select(method=m, seed=seed)[0].at(500)["mse"] for m in (aggressive, soft, simple)]
        assert at_500 == sorted(at_500)
