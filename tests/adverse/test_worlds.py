"""The adverse worlds are what they say: valid input, functions of their seed, with the truth as expectation."""

import numpy as np
import pytest

import colme

from .measure import FIRST, local_error, measure, method_of
from .worlds import WORLDS

NAMES = sorted(WORLDS)


@pytest.mark.parametrize("name", NAMES)
def test_valid_and_seeded(name: str) -> None:
    world, again, other = WORLDS[name](1), WORLDS[name](1), WORLDS[name](2)
    steps, agents = world.samples.shape
    assert 3 <= agents <= 1000
    assert world.graph.n_agents == agents
    assert np.array_equal(world.samples, again.samples, equal_nan=True)
    assert world.graph == again.graph
    assert not np.array_equal(world.samples, other.samples, equal_nan=True)
    assert (WORLDS[name].__doc__ or "").startswith("Attacks ")
    trace = colme.simulate(colme.Local(), world.recording(), graph=world.graph)
    scale = np.nanmax(np.abs(world.samples)) ** 2 * 1e-15
    assert trace.mse == pytest.approx(local_error(world), rel=1e-6, abs=scale)
    assert trace.mse.size == steps


@pytest.mark.parametrize("name", NAMES)
def test_truth_is_the_expectation(name: str) -> None:
    """The mean of sample - truth is 0 over 12 independent seeds, of the agents with low and with high truth.

    |t| < 7 fails with a probability of 2e-5 (11 degrees of freedom), in each of the two halves.
    """
    means = np.zeros((12, 2))
    for seed in range(12):
        world = WORLDS[name](seed)
        residual = world.samples - world.truth
        typical = np.mean(np.broadcast_to(world.truth, residual.shape), axis=0)
        for half, chosen in enumerate((typical <= np.median(typical), typical >= np.median(typical))):
            means[seed, half] = np.nanmean(residual[:, chosen])
    error = means.std(axis=0, ddof=1) / np.sqrt(12)
    assert (np.abs(means.mean(axis=0)) < 7 * error).all()


def test_measure(capsys: pytest.CaptureFixture[str]) -> None:
    """Local means have the ratio 1; a method by its text; a refusal is no row."""
    (row,) = measure([colme.Local()], ["dozen_in_three_classes"], seeds=(0, 1))
    assert row.ratio == pytest.approx(1)
    assert row.error == pytest.approx(0, abs=1e-9)
    assert row.worst_step >= FIRST
    assert row.met
    assert "dozen_in_three_classes" in str(row)
    assert method_of("CLColME(level='agent', delta=0.2)") == colme.CLColME(level="agent", delta=0.2)
    assert list(measure([colme.CLColME()], ["lossy_hubs"], seeds=(0,))) == []
    assert "refused" in capsys.readouterr().err
