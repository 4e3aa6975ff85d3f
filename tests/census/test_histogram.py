"""Linear binning on a common grid, and rounds of consensus on bin masses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colme.census.histogram import (
    REACH,
    WIDTH,
    Bins,
    bin_means,
    channel,
    clip_masses,
    disagreement,
    in_channels,
    plausible,
    width_exponents,
)
from colme.noise import AVERAGE, RATIO, average_ratio

MEANS = st.floats(-1e3, 1e3)
NOISES = st.floats(1e-4, 1e4)


@given(mean=MEANS, noise=NOISES, unit=st.floats(0.01, 100.0))
def test_a_mean_is_a_unit_mass_on_the_two_bins_around_it(mean: float, noise: float, unit: float) -> None:
    codes, values = bin_means(np.float64(mean), np.float64(noise), unit)
    center, square, _ = Bins.of(codes, unit)
    h = np.sqrt(square[0])
    assert np.isnan(center[0]) and (square == square[0]).all()
    assert h / np.sqrt(noise) == pytest.approx(0.75 * WIDTH, abs=0.25 * WIDTH * (1 + 1e-9))
    assert values[1:].sum() == 1.0 and (values[1:] >= 0.0).all()
    assert values[1:] @ center[1:] == pytest.approx(mean, abs=1e-3 * h)
    assert values[0] * square[0] == pytest.approx(noise)
    assert center[2] - center[1] == pytest.approx(h)


def test_the_mean_of_a_histogram_is_the_mean_of_means() -> None:
    """Also in float32, up to its rounding, and whatever the noise of each; so is the mean noise."""
    rng = np.random.default_rng(0)
    mean, noise = rng.normal(3.0, 10.0, 500), rng.uniform(0.1, 9.0, 500)
    codes, values = bin_means(mean, noise, 1.5)
    masses = values.astype(np.float32).astype(float)
    center, square, grid = (part.reshape(codes.shape) for part in Bins.of(codes.ravel(), 1.5))
    assert masses[:, 1:].sum() == pytest.approx(500.0, rel=1e-7)
    assert (masses * np.nan_to_num(center)).sum() / 500 == pytest.approx(
        mean.mean(), abs=2**-24 * np.abs(center[:, 1:]).max()
    )
    assert (masses[:, 0] * square[:, 0]).sum() / 500 == pytest.approx(noise.mean(), rel=2**-23)
    for g in np.unique(grid):  # and of the agents of each grid
        mine = grid[:, 0] == g
        assert (masses[mine, 0] * square[mine, 0]).mean() == pytest.approx(noise[mine].mean(), rel=2**-23)


def test_means_beyond_the_grid_fall_into_the_last_bin() -> None:
    codes, values = bin_means(np.array([1e12, -1e12]), np.ones(2), 1.0)
    center, square, _ = Bins.of(codes.ravel(), 1.0)
    ends = center.reshape(2, 3)[np.arange(2), values[:, 1:].argmax(axis=1) + 1]
    assert values[:, 1:].max(axis=1).tolist() == [1.0, 1.0]
    assert (ends / np.sqrt(square[0])).tolist() == [REACH, -REACH]


def test_agents_of_similar_noise_share_bins() -> None:
    assert width_exponents(np.array([1.0, 1.4, 2.0]), 1.0).tolist() == [-1, -1, 0]
    one, other = bin_means(np.array([0.3, 0.31]), np.array([1.0, 1.1]), 1.0)[0]
    assert one.tolist() == other.tolist()


def test_variances_have_channels_of_their_own() -> None:
    codes, values = in_channels(AVERAGE, np.array([[2.0, 1.0], [3.0, 1.0]]))
    assert values.tolist() == [[2.0, 1.0], [3.0, 1.0]]
    masses = np.array([[1.5, 0.75], [0.0, 0.0]], np.float32)
    both = np.concatenate([bin_means(np.float64(0.0), np.float64(1.0), 1.0)[0], codes[0]])
    wide = np.concatenate([np.ones((2, 3), np.float32), masses], axis=1)
    assert [channel(both, wide, AVERAGE + k).tolist() for k in range(3)] == [[1.5, 0.0], [0.75, 0.0], [0.0, 0.0]]
    assert np.isnan(Bins.of(codes[0], 1.0).center).all()


def test_disagreement_is_measured_in_sampling_variances() -> None:
    """Histograms of n agents each differ from the whole by one, on average over bins."""
    rng = np.random.default_rng(2)
    whole = np.array([0.1, 0.2, 0.3, 0.4])
    masses = rng.multinomial(200, whole, size=400) / 200
    center = np.arange(4.0)
    out = np.empty(400)
    disagreement(masses.astype(np.float32), whole, center, 200.0, out)
    # n sum of (z - p)^2 / p is chi-square with 3 degrees of freedom, over 4 bins; 400 of them
    assert out.mean() == pytest.approx(0.75, abs=4 * np.sqrt(6 / 400) / 4)
    disagreement(np.tile(whole, (2, 1)).astype(np.float32), whole, center, 200.0, out[:2])
    assert out[:2].max() < 1e-9


def test_the_average_ratio_of_variances() -> None:
    ratio = np.array([0.5, 1.0, 3.0, 100.0])
    codes, masses = in_channels(RATIO, np.stack([ratio, np.ones(4), ratio**2], axis=-1))
    every = masses.mean(axis=0)
    mean, variance, part = average_ratio(*every[:, None])
    assert mean.item() == pytest.approx(ratio.mean()) and variance.item() == pytest.approx(ratio.var()) and part == 1.0
    assert plausible(codes[0], every) and not plausible(codes[0], every * [5, 1, 1])
    assert not plausible(codes[0], every * [1, 1.1, 1]) and not plausible(codes[0], every * [1, 1, 5])
    assert plausible(codes[0], clip_masses(codes[0], 1e3 * every)) and plausible(
        codes[0], clip_masses(codes[0], -every)
    )
    # forged: no numbers have this sum and this sum of squares
    assert average_ratio(*(every * [1, 1, 0.1])[:, None])[2] == 0.0
    assert average_ratio(*np.zeros((3, 2)))[2].tolist() == [0.0, 0.0]
