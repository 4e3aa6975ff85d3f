"""Many agents in one process: to the bit what is simulated where there is a barrier, however they are spread over
hosts, and nearly as good where there is none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import colme
from colme.graphs import random_regular_graph
from colme.node.lockstep import lockstep
from colme.node.memory import MemoryNetwork
from colme.testing._promises import SIGMA, WIDTH, Case
from tests.hosts import HostFleet, LockstepHosts, spread
from tests.test_node_core import LOSSY, two_classes

FLOW = colme.CLColME(consensus="flow")
METHODS = [
    colme.Local(), colme.CLColME(), colme.CLColME(clock="own"), colme.CLColME(clock="harmonic"),
    colme.CLColME(clock="constant", alpha=0.9), FLOW, colme.CColME(), colme.CLColME(bound="hoeffding"),
    colme.CLColME(bound="fourth-moment", gamma=0.5, sigma=0.1),
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("n_hosts", [1, 2, 3])
def test_hosts_in_lockstep_equal_the_array_to_the_bit(method: Any, n_hosts: int) -> None:
    case = Case(method)
    for samples in (case.samples, case.gappy()):
        origin = colme.Recording(samples).origin
        hosts = LockstepHosts(
            method, case.graph, spread(case.graph.n_agents, n_hosts), sigma=SIGMA, width=WIDTH
        )  # fmt: skip
        got = hosts.run(samples - origin)
        np.testing.assert_array_equal(got + origin, case.run(samples))
        assert not sum((core.refused for core in hosts.cores), Counter())
        assert isinstance(method, colme.Local) or len(hosts.edges()) < 2 * case.graph.n_edges, "nothing was cut"


@pytest.mark.parametrize(
    ("method", "how", "factor"),
    # the bounds of test_node_core, where every agent is a device of its own
    [(colme.CLColME(), {}, 1.2), (colme.CLColME(), LOSSY, 2.5), (FLOW, {}, 1.2), (FLOW, LOSSY, 1.5),
     (colme.CColME(), {}, 1.2), (colme.CColME(), LOSSY, 2.5)],
    ids=repr,
)  # fmt: skip
def test_without_a_barrier_errors_are_nearly_those_of_the_simulation(method: Any, how: Any, factor: float) -> None:
    n, n_steps, graph = 40, 300, random_regular_graph(40, 6, rng=2)
    errors = np.zeros(3)
    for seed in range(3):
        samples, truth = two_classes(n, n_steps, seed)
        fleet = HostFleet(method, graph, spread(n, 3), MemoryNetwork(seed=seed, **how), sigma=SIGMA)
        estimates = fleet.run(samples)
        simulated, local = lockstep(method, samples, graph, sigma=SIGMA)[-1], samples.mean(axis=0)
        errors += [((each - truth) ** 2).mean() for each in (estimates, simulated, local)]
        assert fleet.one_sided == 0
        assert all((a - b) % 2 == 0 for a, b in fleet.edges()), "strangers are still believed"
        assert set(sum((core.refused for core in fleet.cores), Counter())) <= {"old"}
    print(f"{method!r} {how}: {errors[0] / errors[1]:.2f}")
    assert errors[0] < factor * errors[1] and errors[0] < 0.25 * errors[2]
