"""The four panels of a census show the numbers of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import colme
from colme import lab
from colme.errors import ColmeError
from colme.lab import plots
from colme.lab.experiment import Experiment
from colme.lab.plots.census import PARTS, ExplainedCensus
from colme.sim.spec import RunSpec

SCENARIO = colme.Scenario(n_agents=600, means=(0.0, 3.0), sigma=2.0)


@pytest.fixture(scope="module")
def found() -> ExplainedCensus:
    return plots.explain_census(RunSpec(method=colme.Census(), source=SCENARIO, degree=8, steps=60))


def test_a_histogram_starts_with_one_agent_and_ends_with_all(found: ExplainedCensus) -> None:
    assert found.masses[0].sum() == pytest.approx(1.0) and (found.masses[0] > 0).sum() <= 2
    nearest = np.abs(found.center - found.mean).argmin()
    assert found.masses[0, nearest] >= 0.5 - 1e-6
    assert found.masses[0] @ found.center == pytest.approx(found.mean, abs=1e-6)
    off = np.abs(found.masses - found.population).sum(axis=1)
    assert off[-1] < 0.05 < off[0], "consensus"
    assert len(found.table()) == found.masses.size


def test_mixture_and_posterior_are_those_of_the_scenario(found: ExplainedCensus) -> None:
    """Locations are off by at most 4 standard errors of a mean of 300 means; near a component, estimates are close
    to it."""
    np.testing.assert_allclose(np.sort(found.location), [0.0, 3.0], atol=4 * found.sigma_of_mean / np.sqrt(300))
    assert found.weight.sum() == pytest.approx(1.0)
    for curve in (found.estimate, found.lower, found.upper):
        assert (np.diff(curve) > 0).all()
    assert (found.lower < found.upper).all()
    inside = np.abs(found.own - found.location[0]) < found.sigma_of_mean
    np.testing.assert_allclose(found.estimate[inside], found.location[0], atol=found.sigma_of_mean / 2)


@pytest.mark.parametrize("part", PARTS)
def test_every_panel_has_a_title_axes_and_a_legend(found: ExplainedCensus, part: str) -> None:
    ax = plots.plot_census(found, part)
    assert ax.get_title("left") and ax.get_xlabel() and ax.get_ylabel() and ax.get_legend() is not None
    if part == "bins":
        bars = [patch.get_height() for patch in ax.containers[1]]
        np.testing.assert_allclose(bars, found.masses[0])


def test_too_few_steps_for_a_census_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ColmeError, match="no census ends within 1 steps"):
        plots.explain_census(RunSpec(method=colme.Census(), source=SCENARIO, degree=8, steps=1))


def test_the_figure_of_an_experiment(tmp_path: Path) -> None:
    table = {
        "seeds": 1, "steps": 30, "degree": 8, "figures": ["census"], "methods": [{"method": "census"}],
        "scenario": {"n_agents": 600, "means": [0.0, 3.0], "sigma": 2.0},
    }  # fmt: skip
    lab.run(Experiment.parse(table, name="c"), results=tmp_path, jobs=1)
    page = Path(lab.report(Experiment.parse(table, name="c"), results=str(tmp_path))).read_text()
    assert 'id="census"' in page and "How a census works" in page
    table["methods"] = [{"method": "local"}]
    lab.run(Experiment.parse(table, name="d"), results=tmp_path, jobs=1)
    with pytest.raises(ColmeError, match="no method is a census"):
        lab.report(Experiment.parse(table, name="d"), results=str(tmp_path))
