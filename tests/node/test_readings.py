"""Which readings count as samples: a range, and single wild readings; honest heavy tails lose next to nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colme
from colme.node.core import Core
from colme.node.device import Device
from colme.node.io.status import metrics, status_of
from colme.node.net.memory import MemoryNetwork
from colme.node.readings import DIFFERENT, FURTHER, WINDOW, ReadingFilter
from colme.node.store import AgentStore

RNG = np.random.default_rng(7)
N = 20_000
SMOOTH = RNG.normal(20.0, 0.5, 300).tolist()

LAWS: dict[str, tuple[Any, float]] = {
    # samples, and the index a of the tails: at most 50^-a of one in 65 are dropped
    "t(2.1)": (RNG.standard_t(2.1, N), 2.1),
    "Pareto 2.5": (RNG.pareto(2.5, N) + 1.0, 2.5),
    "lognormal": (RNG.lognormal(0.0, 1.0, N), 3.0),
    "lognormal, wide": (RNG.lognormal(0.0, 2.0, N), 2.1),
    "Laplace": (RNG.laplace(size=N), 3.0),
    "Weibull .3": (RNG.weibull(0.3, N), 3.0),
    "Gaussian": (RNG.standard_normal(N), 3.0),
    "AR(.99)": (np.convolve(RNG.standard_normal(N), 0.99 ** np.arange(1000))[:N], 3.0),
    "random walk": (np.cumsum(RNG.standard_t(2.1, N)), 2.1),
    "t(1.5), no variance": (RNG.standard_t(1.5, N), 1.5),
    "Cauchy": (RNG.standard_cauchy(N), 1.0),
}


@pytest.mark.parametrize("law", LAWS)
def test_honest_heavy_tails_lose_next_to_nothing(law: str) -> None:
    """The number of dropped ones is Poisson's, about; seven standard errors above the mean, and one, are allowed."""
    samples, a = LAWS[law]
    each = ReadingFilter()
    kept = each.admit(samples.tolist())
    expected = N * FURTHER**-a / (WINDOW + 1)
    assert each.outliers <= 1 + expected + 7.0 * math.sqrt(expected)
    assert len(kept) + each.outliers + len(each.held) == N
    if each.outliers == 0 and not each.held:
        assert kept == samples.tolist() or sorted(kept) == sorted(samples.tolist())


@pytest.mark.parametrize(
    "samples",
    [RNG.random(N) < 0.01, RNG.random(N) < 0.0005, RNG.poisson(0.05, N), 100 * (RNG.random(N) < 0.003),
     RNG.poisson(0.3, N) * np.where(RNG.random(N) < 0.002, 1000, 1), np.r_[np.zeros(5000), 1e6, np.zeros(5000)],
     np.round(RNG.normal(20.0, 0.3, N), 1) + 5000.0 * (RNG.random(N) < 0.001)],
    ids=["0/1, .01", "0/1, .0005", "counts", "rare bursts", "bursts of counts", "one event", "coarse"],
)  # fmt: skip
def test_samples_of_few_numbers_are_never_filtered(samples: Any) -> None:
    """A rare value is all there is to their mean: without it, the mean of 0/1 samples would be zero."""
    each = ReadingFilter()
    assert each.admit(samples.astype(float).tolist()) == samples.astype(float).tolist()
    assert each.outliers == 0 and len(set(samples[:WINDOW].tolist())) < DIFFERENT


def test_a_single_wild_reading_does_not_count() -> None:
    said: list[str] = []
    each = ReadingFilter(say=said.append)
    assert each.admit([*SMOOTH[:100], -999.0, *SMOOTH[100:]]) == SMOOTH
    assert each.outliers == 1 and each.held == [] and each.outside == 0
    assert said == [
        "a reading of -999 is 50 times further off than any of 64 before it: it does not count as a sample. "
        "See [samples] in node.toml."
    ]
    keeping = ReadingFilter(wild="keep")
    assert len(keeping.admit([*SMOOTH[:100], -999.0, *SMOOTH[100:]])) == 301 and keeping.outliers == 0


def test_a_jump_is_admitted_at_its_second_reading() -> None:
    """Nothing of it is lost, and what comes on the other side does not confirm it."""
    each = ReadingFilter()
    each.admit(SMOOTH)
    after = [x + 5000.0 for x in SMOOTH]
    assert each.admit(after[:1]) == [] and each.admit([*SMOOTH[:3], -5000.0]) == SMOOTH[:3]
    assert each.admit(after[1:40]) == after[:40] and each.outliers == 0
    assert each.admit(after[40:]) == after[40:] and each.outliers == 1  # that of -5000


def test_readings_outside_of_the_range_are_counted_and_reported_with_growing_gaps() -> None:
    said: list[str] = []
    each = ReadingFilter(least=-40.0, most=85.0, say=said.append)
    assert each.admit([-999.0, 20.0, 85.0, math.nan, -40.0]) == [20.0, 85.0, -40.0]
    each.admit([-999.0] * 99)
    assert each.outside == 100 and len(said) == 7  # the 1st, 2nd, 4th, .. 64th
    assert said[0] == (
        "a reading of -999 is outside of -40 to 85: it does not count as a sample. See [samples] in node.toml."
    )
    assert "(64 so far)" in said[-1]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    readings=st.lists(st.floats(-1e3, 1e3) | st.sampled_from([0.0, -999.0, 1e6, math.nan]), max_size=200),
    at=st.integers(0, 200),
)
def test_a_restart_forgets_nothing(readings: list[float], at: int) -> None:
    whole, first, second = (ReadingFilter(least=-1e5) for _ in range(3))
    expected = whole.admit(readings)
    found = first.admit(readings[:at])
    second.restore(first.state())
    assert found + second.admit(readings[at:]) == expected and second.state() == whole.state()


def test_the_device_saves_what_is_held_back(tmp_path: Path) -> None:
    def start() -> Device:
        core = Core(colme.Local(), "a", [], n_agents=2)
        return Device(core, network.join("a", []), AgentStore(tmp_path / "a.sqlite"), readings=ReadingFilter(most=1e4))

    network = MemoryNetwork()
    device = start()
    device.feed(0.0, [*SMOOTH[:100], -999.0, 2e4])
    device.save()
    device.transport.close()
    assert device.store is not None
    device.store.close()
    device = start()
    device.feed(1.0, SMOOTH[100:])
    assert device.core.agent.count == 300 and device.core.mean == pytest.approx(np.mean(SMOOTH))
    status = status_of(device, 1.0)
    assert status["readings_outside"] == status["readings_wild"] == 1
    told = metrics(status)
    assert 'colme_readings_wild_total{agent="a"} 1\n' in told and 'colme_readings_outside_total{agent="a"} 1\n' in told
