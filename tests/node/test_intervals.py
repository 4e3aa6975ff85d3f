"""The interval that a node reports around its estimate: how often it holds the true mean, and when there is none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import colme
from colme.graphs import random_regular_graph
from colme.node.device import Device
from colme.node.io.status import metrics, report_of, status_of
from colme.node.net.memory import MemoryNetwork
from colme.testing import SIGMA
from tests.support.nodes import PERIOD, Fleet, lone_core, lone_device

LEVEL, N = 0.9, 24
LOOKS = (20, 30, 40, 50, 60)
CENSUS, CL = colme.Census(guard=True), colme.CLColME(guard=True, cut="difference")


def coverage(method: Any, world: str, told: float, loss: float, seeds: range) -> float:
    """The share of agents and looks whose interval holds the true mean."""
    held = []
    for seed in seeds:
        rng = np.random.default_rng(300 + seed)
        truth = SIGMA * (np.arange(N) % 2 if world == "classes" else rng.standard_normal(N))
        network = MemoryNetwork(seed=seed, loss=loss, delay=(0.0, 3 * PERIOD))
        fleet = Fleet(method, random_regular_graph(N, 6, rng=seed), network, sigma=told * SIGMA, level=LEVEL)
        for t in range(1, LOOKS[-1] + 1):
            fleet.tick(truth + SIGMA * rng.standard_normal(N))
            if t in LOOKS:
                lower, upper = np.transpose([core.interval for core in fleet.cores])
                held.append((lower <= truth) & (truth <= upper))
    return float(np.mean(held))


def three_errors(seeds: range) -> float:
    """Of a share of independent agents; the looks at one agent are taken to agree."""
    return 3.0 * math.sqrt(LEVEL * (1.0 - LEVEL) / (N * len(seeds)))


SLOW = [(method, world, told, loss, 4) for method in (CENSUS, CL) for world in ("classes", "continuum")
        for told in (1.0, 2.0, 0.5) for loss in (0.0, 0.2)]  # fmt: skip


@pytest.mark.parametrize(("method", "world", "told", "loss", "n_seeds"), [
    *((method, "classes", 2.0, 0.2, 1) for method in (CENSUS, CL, colme.Local())),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW),
], ids=repr)  # fmt: skip
def test_intervals_hold(method: Any, world: str, told: float, loss: float, n_seeds: int) -> None:
    """They may be wider than needed for classes, and where the guard lets an agent gain by CL-colME."""
    seeds = range(n_seeds)
    found = coverage(method, world, told, loss, seeds)
    assert found > LEVEL - three_errors(seeds)
    if world == "continuum":
        assert found < LEVEL + three_errors(seeds)


def alone(method: Any, samples: Any, **known: Any) -> Device:
    device = lone_device(lone_core(method, "a", [], **known))
    for t, sample in enumerate(samples):
        device.tick(t * PERIOD, sample)
    return device


@pytest.mark.parametrize("method", [colme.Local(), CENSUS, CL], ids=["local", "census", "cl-colme"])
def test_alone_it_is_students_whatever_sigma_was_told(method: Any) -> None:
    samples = np.array([3.0, 5.0, 4.0, 8.0])
    device = alone(method, samples, origin=4.0)
    radius = 2.3534 * samples.std(ddof=1) / 2.0  # the 95 % point of Student's distribution with 3 degrees of freedom
    report = report_of(device)
    np.testing.assert_allclose([report["lower"], report["upper"]], [5.0 - radius, 5.0 + radius], rtol=1e-3)
    assert report["level"] == LEVEL
    assert f'colme_lower{{agent="a"}} {report["lower"]:.3f}'[:-2] in metrics(status_of(device, 0.0))


def test_one_sample_or_no_guard_around_an_average_gives_no_interval() -> None:
    one, unguarded = alone(CL, [3.0]), alone(colme.CLColME(), [3.0, 5.0, 4.0])
    for device in (one, unguarded):
        report = report_of(device)
        assert report["lower"] is None and report["upper"] is None
        assert "colme_lower" not in metrics(status_of(device, 0.0))
    assert report_of(one)["trust"] == 0.0 and 'colme_trust{agent="a"} 0\n' in metrics(status_of(one, 0.0))


def test_a_higher_level_is_wider() -> None:
    narrow, wide = (alone(CL, [3.0, 5.0, 4.0], level=level).core.interval for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
