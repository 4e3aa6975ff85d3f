"""Checks of the reference of the guard by hand computation and closed forms."""

import math

import numpy as np
import pytest

from .common import Array, running_means
from .guard import (
    GRID,
    MEMORY,
    TYPICAL,
    Belief,
    Vote,
    aged,
    filtered,
    first_belief,
    guarded,
    honest,
    moved,
    one_round,
    read,
)

NAN = math.nan
EVEN = Belief((1 / 6,) * 6)


def complete(agents: int) -> Array:
    return np.full((agents, agents), 1 / agents)


def run(
    means: Array, estimates: Array, samples: Array, *, trusting: bool = False, refresh: float = 1.0
) -> tuple[Array, Array]:
    """Exact averages after one round, all agents heard."""
    agents = samples.shape[1]
    heard = np.full((4, agents), float(agents))
    return guarded(
        means, estimates, samples, complete(agents), 1.0, heard, trusting=trusting, refresh=refresh, rounds=1
    )


def test_first_beliefs() -> None:
    assert first_belief(trusting=True).p == pytest.approx((0.075, 0.025, 0.025, 0.025, 0.025, 0.825))
    assert first_belief(trusting=False).p == pytest.approx((0.65, 0.05, 0.05, 0.05, 0.05, 0.15))


def test_probabilities_move_and_fall() -> None:
    assert moved(EVEN.p, 0.0) == pytest.approx(EVEN.p)
    assert moved((0, 0, 0, 0, 0, 1.0), 1e9) == pytest.approx((1, 0, 0, 0, 0, 0))
    b, f = (1 - math.exp(-0.15)) / 2, 1 - math.exp(-0.05)  # u = 1/2
    assert moved((0, 0, 0, 1.0, 0, 0), 0.5) == pytest.approx((f, 0, (1 - f) * b, (1 - f) * (1 - 2 * b), (1 - f) * b, 0))
    assert moved((0, 0, 0, 0, 0, 1.0), 0.5) == pytest.approx((f, 0, 0, 0, (1 - f) * b, (1 - f) * (1 - b)))
    assert sum(moved((0.1, 0.2, 0.3, 0.1, 0.2, 0.1), 0.7)) == pytest.approx(1)


def test_evidence_is_a_likelihood() -> None:
    """With u = 0, no temper and sigma^2 = Q / D = 3, p is the prior times exp(-(l^2 D - 2 l A) / 6)."""
    A, D, Q = 1.5, 2.0, 6.0
    expected = np.array([math.exp(-(value**2 * D - 2 * value * A) / 6) for value in GRID])
    after = filtered(EVEN, A, D, Q, 0.0)
    assert after.p == pytest.approx(expected / expected.sum())
    assert (after.D, after.Q, after.judged) == (D, Q, True)
    m, v = np.mean(GRID), np.var(GRID)
    assert after.surprises[-1] == pytest.approx((A - m * D) ** 2 / (3 * D + v * D**2))
    assert after.surprises[:-1] == (TYPICAL,) * (MEMORY - 1)


def test_noise_is_the_largest_of_now_and_all_time() -> None:
    earlier = Belief(EVEN.p, D=1.0, Q=99.0)
    expected = np.array([math.exp(-(value**2 - 2 * value) / (2 * 50)) for value in GRID])  # (99 + 1) / (1 + 1)
    assert filtered(earlier, 1.0, 1.0, 1.0, 0.0).p == pytest.approx(expected / expected.sum())
    calm = Belief(EVEN.p, D=99.0, Q=1.0)
    expected = np.array([math.exp(-(value**2 - 2 * value) / 2) for value in GRID])
    assert filtered(calm, 1.0, 1.0, 1.0, 0.0).p == pytest.approx(expected / expected.sum())


def test_repeated_surprises_temper() -> None:
    """Seven surprises of 15 do not move the median, eight do: then the noise counts so many times more."""
    A, D, Q = -9.0, 1.0, 1.0
    m, v = float(np.mean(GRID)), float(np.var(GRID))
    surprise = (A - m * D) ** 2 / (1 + v)
    seven = Belief(EVEN.p, surprises=(TYPICAL,) * 9 + (1e6,) * 6)  # the vote's own is the seventh
    expected = np.array([math.exp(-(value**2 * D - 2 * value * A) / 2) for value in GRID])
    assert filtered(seven, A, D, Q, 0.0).p == pytest.approx(expected / expected.sum())
    eight = Belief(EVEN.p, surprises=(TYPICAL,) * 8 + (1e6,) * 7)
    temper = surprise / TYPICAL  # the smallest of the eight is the median
    expected = np.array([math.exp(-(value**2 * D - 2 * value * A) / (2 * temper)) for value in GRID])
    assert filtered(eight, A, D, Q, 0.0).p == pytest.approx(expected / expected.sum())


def test_without_evidence_only_time_passes() -> None:
    before = first_belief(trusting=False)
    for vote in ((0.0, 0.0, 0.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0), (NAN, NAN, NAN)):
        after = filtered(before, *vote, 0.3)
        assert after == Belief(tuple(moved(before.p, 0.3)))
        assert read(after, trusting=False) == 0


def test_read() -> None:
    assert read(first_belief(trusting=True), trusting=True) == 1
    assert read(first_belief(trusting=False), trusting=False) == 0
    half = (0.5, 0, 0, 0, 0, 0.5)
    assert read(Belief(half, judged=True), trusting=False) == 1
    assert read(Belief((0.2, 0.2, 0.2, 0.2, 0.2, 0.0), judged=True), trusting=False) == pytest.approx(0.206)
    assert aged(1.0, 2, 100) == 1
    assert aged(0.6, 5, 8) == pytest.approx(0.3)
    assert aged(0.6, 1, 3) == pytest.approx(0.2)  # at least 1 / t


def test_overwhelming_evidence() -> None:
    """Nothing overflows; the filter picks the value of the grid that is nearest to A / D."""
    for target, expected in ((1.0, 1.0), (0.0, 0.0), (-5.0, 0.0), (9.0, 1.0), (0.29, 0.3)):
        after = filtered(EVEN, 1e12 * target, 1e12, 1e12, 0.1)
        assert read(after, trusting=False) == pytest.approx(expected, abs=1e-9)


def test_two_agents_by_hand() -> None:
    """X = (0, 2), y = 1 for both, x(2) = (3, 1): d = (1, -1), g = (3, 1), so A = 4, D = 2, Q = 10 and u = ln 2."""
    means = np.array([[0.0, 2.0], [1.5, 1.5], [1.0, 1.0]])
    estimates = np.ones((3, 2))
    samples = np.array([[0.0, 2.0], [3.0, 1.0], [NAN, NAN]])
    blend, weight = run(means, estimates, samples)
    assert weight[0] == pytest.approx(0)  # wary
    assert blend[0] == pytest.approx(means[0])
    p = np.array(moved(first_belief(trusting=False).p, math.log(2)))
    p *= [math.exp(-(value**2 * 2 - 2 * value * 4) / (2 * 5)) for value in GRID]
    p /= p.sum()
    assert p[-1] < 0.5
    assert weight[1] == pytest.approx([p @ GRID / 4] * 2)  # aged by (2 - 1) / 2, and halved in the first steps
    assert blend[1] == pytest.approx(1.5 - 0.5 * weight[1])
    p = np.array(moved(tuple(p), math.log(3 / 2)))  # no sample at step 3: a vote without evidence
    assert weight[2] == pytest.approx([(1.0 if p[-1] >= 0.5 else p @ GRID) / 2 * 2 / 3] * 2)


def test_trusted_estimates_are_untouched() -> None:
    rng = np.random.default_rng(1)
    samples = rng.normal(size=(60, 20)) + 1e6
    means, _ = running_means(samples)
    estimates = means.mean(axis=1, keepdims=True).repeat(20, axis=1) + 1e-9 * rng.normal(size=(60, 20))
    blend, weight = run(means, estimates, samples, trusting=True)
    assert (weight == 1).all()
    assert (blend == estimates).all()


def test_schedule_of_votes() -> None:
    """Refresh 1: votes begin at 2, 4 (two rounds), 7 and 11 (three and four rounds); each is read until the next."""
    agents, steps = 5, 14
    rng = np.random.default_rng(2)
    samples = rng.normal(size=(steps, agents))
    means, _ = running_means(samples)
    seen: list[int] = []

    def note(t: int, own: list[Vote]) -> list[Vote]:
        seen.append(t)
        return own

    def votes(refresh: float, rounds: int) -> list[int]:
        seen.clear()
        heard = np.full((rounds, agents), 5.0)
        guarded(
            means, means + 1, samples, complete(agents), 1.0, heard,
            trusting=True, refresh=refresh, rounds=rounds, forge=note,
        )  # fmt: skip
        return list(seen)

    assert votes(1.0, 9) == [2, 4, 7, 11]
    assert votes(1.0, 1) == list(range(2, steps + 1))
    assert votes(1.5, 1) == [2, 3, 5, 8, 12]


def test_momentum() -> None:
    """On an eigenvector with eigenvalue w = cos(s), c = 2 gives Chebyshev's cos(k s)."""
    s = 0.3
    W = np.array([[math.cos(s)]])
    z = before = np.ones((1, 1))
    for k in range(1, 9):
        z, before = one_round(W, 2.0, z, None if k == 1 else before), z
        assert z[0, 0] == pytest.approx(math.cos(k * s))


def test_honest_sums_pass_and_forged_ones_do_not() -> None:
    rng = np.random.default_rng(3)
    for steps in (1, 2, 7, 50):
        for _ in range(200):
            d, g = rng.standard_cauchy((2, steps))
            assert honest(g.sum(), (d**2).sum(), (g**2).sum(), steps)
        assert honest(steps * 0.1, 1.0, steps * 0.01, steps)  # all equal: the bound is reached
        assert not honest(steps * 0.1001, 1.0, steps * 0.01, steps)
    assert not honest(1.0, 1.0, 0.0, 9)
    assert not honest(0.0, -1.0, 1.0, 9)
    assert not honest(NAN, 1.0, 1.0, 9)
    assert not honest(0.0, math.inf, 1.0, 9)


def test_a_forged_vote_counts_as_none() -> None:
    rng = np.random.default_rng(4)
    samples = rng.normal(size=(30, 8))
    means, _ = running_means(samples)
    estimates = means + 1.0
    heard = np.full((2, 8), 8.0)

    def weights(sums: Vote) -> Array:
        def forge(t: int, own: list[Vote]) -> list[Vote]:
            return [sums, *own[1:]]

        return guarded(
            means, estimates, samples, complete(8), 1.0, heard, trusting=False, refresh=1.0, rounds=2, forge=forge
        )[1]

    nothing = weights((0.0, 0.0, 0.0))
    assert (weights((1e9, 1.0, 1.0)) == nothing).all()
    assert (weights((NAN, 1.0, 1.0)) == nothing).all()


def test_a_large_forged_q_is_the_limit_of_the_check() -> None:
    """The evidence for lambda = 1 is (2 A - D) / (2 Q / D). All others have A = 0, which speaks against it.

    A forged (sqrt(steps q), 0, q) passes the check and makes it D (sqrt(steps q) - D / 2) / (Q + q), positive for
    q > D^2 / (4 steps) and, for D^2 much larger than Q, largest near q = D^2 / steps, where it is about steps / 2.
    """
    D, Q, steps = 200.0, 200.0, 5
    small, large = D**2 / (8 * steps), D**2 / steps
    for q in (small, large):
        assert honest(math.sqrt(steps * q), 0.0, q, steps)
    without = filtered(EVEN, 0.0, D, Q, 0.0)
    assert without.p[-1] < 1e-20
    assert filtered(EVEN, math.sqrt(steps * small), D, Q + small, 0.0).p[-1] < 1 / 6
    assert filtered(EVEN, math.sqrt(steps * large), D, Q + large, 0.0).p[-1] > 1 / 6


def test_missing_samples_judge_nothing() -> None:
    """Agents without a new sample, or without X or y the step before, are skipped; they read the weight too."""
    rng = np.random.default_rng(5)
    samples = rng.normal(size=(40, 12))
    samples[:20, 0] = NAN
    samples[rng.random((40, 12)) < 0.4] = NAN
    means, _ = running_means(samples)
    estimates = np.where(np.isnan(means), NAN, np.nanmean(samples))
    blend, weight = run(means, estimates, samples)
    assert np.isfinite(weight).all()
    assert (np.isnan(blend) == np.isnan(means)).all()


@pytest.mark.parametrize("spread", [1.0, pytest.param(0.0, marks=pytest.mark.slow)])
def test_pooling_is_taken_where_it_is_right(spread: float) -> None:
    """y = the average of all means, whose best weight is about s2 / (s2 + spread^2), s2 = 1 / t.

    Without spread it is 1 and the filter gathers evidence at 99 steps. With spread, the weight costs at most about
    z^2 / (w N) of the local error with z ~ N(0, 1) and a memory of a quarter of t, w = .25: .01 at N = 400, times 9 for
    three standard errors.
    """
    agents, steps = 400, 100
    rng = np.random.default_rng(6)
    mu = spread * rng.normal(size=agents)
    samples = mu + rng.normal(size=(steps, agents))
    means, _ = running_means(samples)
    estimates = means.mean(axis=1, keepdims=True).repeat(agents, axis=1)
    blend, weight = run(means, estimates, samples)
    local, raw, mixed = (((each - mu) ** 2).mean(axis=1) for each in (means, estimates, blend))
    if spread == 0:
        assert (weight[20:] == 1).all()
    else:
        assert (mixed[2:] < 1.09 * local[2:]).all()
        assert (mixed[10:] / local[10:]).mean() < 1
        assert raw[-1] > 20 * local[-1]
