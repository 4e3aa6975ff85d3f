"""Threads that share a census, or a guard, give the bits of one: for any noise, graph, gaps and loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import colme
from colme._core.team import Neighborhood, Team
from colme.graphs import Graph, from_edges, gnp_random_graph, ring_lattice_graph
from colme.method import World, arrived
from colme.sim.threads import run_threads
from tests.support.in_ranks import digest

GAPS: dict[str, Any] = {"skip_rate": 0.3, "late_share": 0.2, "late_step": 20}
BLOCKS: dict[str, Any] = {"sigma": (1.0, 3.0, 1.0), "assignment": "blocks"}
BINARY: dict[str, Any] = {"means": (0.2, 0.5, 0.7), "sigma": None, "distribution": "bernoulli"}
EXPONENTIAL: dict[str, Any] = {"means": (1.0, 2.0, 4.0), "sigma": 1.0, "distribution": "exponential"}


def star(n_agents: int) -> Graph:
    return from_edges([(0, a) for a in range(1, n_agents)])


GRAPHS = {
    "regular": None,
    "random": lambda: gnp_random_graph(5000, 8 / 5000, rng=1),
    "ring": lambda: ring_lattice_graph(5000, 6),
    "star": lambda: star(5000),
}


def assert_shared(
    method: colme.methods.Method, threads: tuple[int, ...], graph: str = "regular", *, steps: int = 60,
    n_agents: int = 5000, **scenario: Any,
) -> colme.Trace:  # fmt: skip
    """Runs that these numbers of threads share have the bits of a plain one, which is returned."""
    source = colme.Scenario(n_agents=n_agents, **{"means": (0.0, 1.2, 2.0), "sigma": 1.0} | scenario)
    made = GRAPHS[graph]
    given: dict[str, Any] = {"steps": steps, "seed": 3, "graph": None if made is None else made()}
    plain = colme.simulate(method, source, **given)
    for n in threads:
        assert digest(colme.simulate(method, source, threads=n, **given)) == digest(plain), n
    return plain


def test_a_shared_census_has_the_bits_of_a_plain_one() -> None:
    assert_shared(colme.Census(), (2,), steps=25)


def test_so_has_one_on_an_irregular_graph_that_loses_messages() -> None:
    assert_shared(colme.Census(), (3,), "random", steps=20, loss=0.2)


def test_so_have_fits_that_start_from_an_agent_of_another_thread() -> None:
    """Each class has a thread of its own, and one of them a grid of its own (`FittedMixtures.of_agents`)."""
    assert_shared(colme.Census(guard=False), (3,), "random", steps=25, **BLOCKS)


def test_so_have_means_over_agents_of_what_they_learned_about_the_variance() -> None:
    assert_shared(colme.Census(), (2,), steps=25, **BINARY)


@pytest.mark.parametrize("method", [colme.CLColME(guard=True), colme.BColME(guard=True)])
def test_so_has_a_guard_around_another_method(method: colme.methods.Method) -> None:
    plain = assert_shared(method, (2,), steps=25)
    assert 0.0 < plain.trust[-1] < 1.0


def test_workers_know_which_messages_arrive_at_their_own_agents() -> None:
    slots = [777, 1300, 64]  # of the rows of each

    def work(team: Team) -> Any:
        hood = Neighborhood(3000, team)
        n = hood.n_own
        world = World(np.zeros(n, np.uint16), 1.0, None, np.zeros(n), None, loss=0.3, seed=5, t=9, hood=hood)
        own = world.arrived(slots[team.rank])
        assert own is not None
        return team.gather(own)

    np.testing.assert_array_equal(run_threads(3, work), arrived(5, 9, sum(slots), 0.3))


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["regular", "random", "ring", "star"])
@pytest.mark.parametrize(("method", "scenario"), [
    (colme.Census(), {}),
    (colme.Census(guard=False), GAPS),
    (colme.Census(estimate_sigma=True), {}),
    (colme.Census(estimate_sigma=True), GAPS),
    (colme.Census(sigma=0.8), {}),
    (colme.Census(restart=True), {"shift_step": 30, "shift_means": (2.0, 1.2, 0.0)}),
    (colme.Census(), {"loss": 0.2} | GAPS),
    (colme.Census(), BINARY),
    (colme.Census(estimate_sigma=True), EXPONENTIAL),
    (colme.Census(), BLOCKS),
    (colme.Census(estimate_sigma=True, guard=False), BLOCKS),
    (colme.Census(), {"loss": 0.3} | BLOCKS),
    (colme.Census(), {"spread": 0.5}),
    (colme.CLColME(guard=True), GAPS),
    (colme.CColME(guard=True), {}),
    (colme.BColME(guard=True, depth=2), {}),
])  # fmt: skip
def test_methods_on_graphs_have_the_same_bits_for_any_number_of_threads(
    method: colme.methods.Method, scenario: dict[str, Any], graph: str
) -> None:
    assert_shared(method, (2, 3, 4), graph, **scenario)


@pytest.mark.slow
def test_agents_that_fit_their_own_histograms_have_the_same_bits() -> None:
    assert_shared(colme.Census(fits="own"), (2,), steps=40, n_agents=2048)


@pytest.mark.slow
def test_ten_pages_of_agents_have_the_same_bits_in_three_and_seven_parts() -> None:
    assert_shared(colme.Census(), (3, 7), n_agents=10_000, **GAPS)
