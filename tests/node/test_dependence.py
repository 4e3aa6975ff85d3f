"""Dependence between samples on nodes: agents learn it together over a lossy network, after restarts, from forged sums,
at gateways, and alone; and what it costs in bytes."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colme
from colme.dependence import CLIP, NUMBER, SIZES, SUMS, WEIGHT, WEIGHT_2, A, B, learn
from colme.graphs import random_regular_graph
from colme.node.config.node_toml import NodeConfig
from colme.node.dependence import LARGEST_HONEST, AsynchronousDependence, plausible
from colme.node.gateway import Gateway, core_of
from colme.node.messages import wire
from colme.node.net.memory import MemoryNetwork
from colme.node.rounds import TYPICAL, SumsRound
from tests.support.nodes import PERIOD, Fleet, Gateways, lone_core

N, LEVEL = 20, 0.9
CENSUS = colme.Census(guard=True)
LOSSY: dict[str, Any] = {"loss": 0.1, "delay": (0.0, PERIOD), "duplication": 0.1}


def autoregressive(rng: np.random.Generator, phi: float, n_steps: int, n: int = N) -> Any:
    x = rng.standard_normal((n_steps, n))
    for t in range(1, n_steps):
        x[t] = phi * x[t - 1] + math.sqrt(1.0 - phi * phi) * x[t]
    return x


def world(phi: float, n_steps: int, seed: int, **known: Any) -> tuple[Fleet, Any, Any]:
    """A fleet, its samples and true means."""
    rng = np.random.default_rng(seed)
    truth = 0.5 * rng.standard_normal(N)
    graph, network = random_regular_graph(N, 6, rng=seed), MemoryNetwork(seed=seed, **LOSSY)
    fleet = Fleet(CENSUS, graph, network, **{"sigma": None, "level": LEVEL} | known)
    return fleet, truth + autoregressive(rng, phi, n_steps), truth


def intervals(phi: float, n_steps: int, seed: int, **known: Any) -> tuple[float, float]:
    """(the share of intervals that hold the true mean, their mean width)."""
    fleet, samples, truth = world(phi, n_steps, seed, **known)
    fleet.run(samples)
    lower, upper = np.transpose([core.interval for core in fleet.cores])
    assert set().union(*(core.refused for core in fleet.cores)) <= {"old"}
    return float(np.mean((lower <= truth) & (truth <= upper))), float(np.mean(upper - lower))


def factors(fleet: Fleet) -> Any:
    found = [core.dependence for core in fleet.cores]
    return np.array([each.factors(core.n_samples).high_of_own for each, core in zip(found, fleet.cores, strict=True)])  # type: ignore[union-attr]


def test_intervals_hold_where_samples_depend_on_each_other() -> None:
    """The array form covers .88 of AR(.8) at n = 60; as independent ones they would cover .41. Three standard errors of
    40 intervals are .16 and .24."""
    learned, independent = (
        np.mean([intervals(0.8, 60, seed, independent=known)[0] for seed in (40, 41)]) for known in (False, True)
    )
    assert learned > 0.88 - 0.16 and independent < 0.41 + 0.24


def test_intervals_of_independent_samples_are_hardly_wider() -> None:
    learned, independent = (
        np.mean([intervals(0.0, 50, seed, independent=known)[1] for seed in (0,)]) for known in (False, True)
    )
    assert 0.98 < learned / independent < 1.02


def test_after_a_crash_an_agent_goes_on_with_what_it_knew() -> None:
    fleet, samples, _ = world(0.8, 75, 3)
    for row in samples[:45]:
        fleet.tick(row)
    name = fleet.names[0]
    old: Any = fleet.devices[name].core
    assert factors(fleet)[0] > 3.0
    fleet.devices[name].transport.close()
    fleet.devices[name] = fleet.start(name)
    core: Any = fleet.devices[name].core
    core.incarnation = 2
    core.restore(old.state())
    assert core.interval == old.interval and core.dependence.count == 45
    np.testing.assert_array_equal(core.dependence.batches, old.dependence.batches)
    for row in samples[45:]:
        fleet.tick(row)
    numbers = [each.dependence.number for each in fleet.cores]  # type: ignore[union-attr]
    assert max(numbers) - min(numbers) <= 1 and core.dependence.began > 45
    assert 9.4 / 3.0 < factors(fleet)[0] < 9.4 * 3.0  # the truth is 9.4


def own_sums(rng: np.random.Generator, n: int = 200) -> Any:
    """What an agent of n independent samples hands in."""
    alone = lone_dependence()
    for x in rng.standard_normal(n):
        alone.observe(x, alone.count)
    alone._hand_in()
    return alone.now[0].copy()


def lone_dependence() -> AsynchronousDependence:
    core = lone_core(CENSUS, "a", list("bcdefg"), n_agents=20, degree=6)
    assert core.dependence is not None
    return core.dependence


FORGED = {
    "long": lambda v: (v[B] * np.minimum(SIZES, 20.0), v[B], v[-4:]),
    "none": lambda v: (v[B] * 1e-6, v[B], v[-4:]),
    "huge": lambda v: (v[B] * 1e9, v[B] * 1e6, v[-4:] * 1e6),
    "certain": lambda v: (v[B] * 3.0, v[B], v[-4:] * [1.0, 0.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("lie", FORGED)
def test_in_a_round_a_neighbor_counts_like_an_agent_or_two(lie: str) -> None:
    """It moves no sum by more than two medians over 1 + degree, whatever it sends."""
    rng = np.random.default_rng(1)
    own, *others = (own_sums(rng) for _ in range(7))
    found = []
    for forged in (others[-1], np.concatenate(FORGED[lie](others[-1])).astype(np.float32)):
        dependence = lone_dependence()
        dependence.degree, dependence.number, dependence.t = 6, 1, 200
        dependence._begin(own)
        told = [*others[:-1], forged]
        dependence._next_round(
            {k: SumsRound(each, each, 6, 1, 200, 0, 0, 200) for k, each in enumerate(told)}, plain=False
        )
        found.append(dependence.now[0])
    sizes = np.abs([own, *(each - own for each in others)])
    most = np.sort(sizes, axis=0)[4]  # one of them forged: the median is at most the next larger one
    assert np.all(np.abs(found[1] - found[0]) <= 2.0 * TYPICAL * most / 7.0 * 1.001 + 1e-6)


NUMBERS = st.lists(st.floats(0.0, 2.0**99, width=32), min_size=SUMS, max_size=SUMS)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(NUMBERS, st.floats(1.0, 1e6))
def test_whatever_is_averaged_factors_are_those_of_a_variance(numbers: Any, most: float) -> None:
    sums = plausible(np.array(numbers, np.float32))
    assert np.all(sums[A] <= LARGEST_HONEST * sums[B] * (1 + 1e-6)) and np.all(sums[B] <= sums[B][0])
    assert sums[WEIGHT] <= CLIP * sums[NUMBER] * (1 + 1e-6) and sums[WEIGHT_2] <= CLIP * sums[WEIGHT] * (1 + 1e-6)
    table = learn(sums.astype(float), most)
    if table is not None:
        n = 2.0 ** (np.arange(table.shape[1]) / 16)
        assert np.isfinite(table).all() and np.all(table > 0.0) and np.all(table[1] <= np.maximum(0.98 * n, 1.001))


def test_what_agents_hand_in_is_plausible() -> None:
    rng = np.random.default_rng(2)
    for n in (3, 5, 17, 100, 1100):
        for x in (
            rng.standard_normal(n),
            np.arange(n) * 1.0,
            np.repeat([0.0, 1.0], [n - 1, 1]),
            np.arange(n) % 2 * 1.0,
        ):
            dependence = lone_dependence()
            for each in x:
                dependence.observe(each, dependence.count)
            dependence._hand_in()
            np.testing.assert_allclose(plausible(dependence.now[0]), dependence.now[0], rtol=1e-5)


@pytest.mark.parametrize("lie", ["long", "none"])
def test_a_liar_hardly_moves_its_neighbors(lie: str) -> None:
    """Independent samples: each factor of a neighbor is within 4, and their geometric mean within 1.3, of one. (The
    worst of eight lies, two seeds, n = 20, 50, 200: 2.6 and 1.09.)"""
    fleet, samples, _ = world(0.0, 50, 5)
    liar = fleet.names[0]
    transport: Any = fleet.devices[liar].transport
    tell = transport.publish

    def forge(raw: bytes) -> None:
        record = wire.unpack(raw)
        if record.sums is not None:
            values = np.concatenate(FORGED[lie](record.sums.values)).astype(np.float32)
            record = msgspec.structs.replace(record, sums=msgspec.structs.replace(record.sums, values=values))
        tell(wire.pack(record))

    transport.publish = forge
    fleet.run(samples)
    near = np.array([liar in fleet.neighbors[name] for name in fleet.names])
    away = np.log(factors(fleet)[near])
    assert np.abs(away).max() < math.log(4.0) and abs(away.mean()) < math.log(1.3)


def test_sums_take_at_most_160_bytes_and_only_while_they_are_averaged() -> None:
    sums = own_sums(np.random.default_rng(0), 1100)
    record = wire.Record(1, 5, 4, 0.25, 6, None)
    told = msgspec.structs.replace(record, sums=wire.SumsBody(2**40, 2**40, 2**40, 3, 6, sums))
    assert sums[B][-1] > 0.0 and len(wire.pack(told)) - len(wire.pack(record)) == wire.MOST_SUMS == 156
    body: Any = wire.unpack(wire.pack(told)).sums
    np.testing.assert_allclose(body.values[B], sums[B], rtol=2.0**-11)
    np.testing.assert_allclose(body.values[A] / body.values[B], sums[A] / sums[B], rtol=1e-6)
    fleet, samples, _ = world(0.0, 60, 1)
    spoke = []
    for row in samples:
        fleet.tick(row)
        spoke.append(np.mean([core.record().sums is not None for core in fleet.cores]))
    assert 0.0 < np.mean(spoke[30:]) < 0.8


def test_local_agents_of_a_gateway_share_what_they_learn() -> None:
    """New ones at once, and after a restart."""
    rng = np.random.default_rng(4)
    sizes, n_steps = [10, 10, 10], 60
    truth = 0.5 * rng.standard_normal(30)
    samples = truth + autoregressive(rng, 0.8, n_steps, 30)
    fleet = Gateways(CENSUS, sizes)
    for row in samples:
        fleet.tick(np.split(row, 3))
    held = [(core.interval[0] <= each) & (each <= core.interval[1])
            for core, each in zip(fleet.cores, np.split(truth, 3), strict=True)]  # fmt: skip
    assert np.mean(held) > 0.88 - 3.0 * math.sqrt(0.1 / 30)
    core = fleet.cores[0]
    fleet.devices[0].feed(9.0, [("new", 0.1)])
    fleet.devices[0].feed(9.1, [("new", 0.2), ("new", 0.3)])
    assert core.dependence.count.tolist() == [0, *[n_steps] * 10, 3] and core.agent.factors.high.shape == (12,)
    again = Gateway(CENSUS, core.name, core.neighbors, n_agents=3, max_ballots=10, degree=2, incarnation=2)
    again.restore(core.state())
    np.testing.assert_array_equal(again.interval, core.interval)


def test_alone_an_agent_learns_from_its_own_samples() -> None:
    samples = autoregressive(np.random.default_rng(6), 0.8, 300, 1)[:, 0]
    core = lone_core(CENSUS, "a", [], sigma=None)
    for t, x in enumerate(samples):
        core.tick(t * PERIOD, x, {})
    assert core.dependence is not None and 9.2 / 3.0 < core.dependence.factors(300).high_of_own < 9.2 * 3.0


def test_batches_begin_anew_with_the_samples() -> None:
    core: Any = lone_core(colme.CLColME(cut="difference"))
    for t in range(9):
        core.tick(t * PERIOD, float(t % 2), {})
    core.agent.count = 2  # as where it forgets its first samples
    core.tick(1.0, 0.5, {})
    assert core.dependence.count == 1 and core.dependence.square == 0.0


def test_samples_that_are_known_to_be_independent_cost_nothing() -> None:
    known, local = lone_core(CENSUS, independent=True), lone_core(colme.Local())
    assert known.dependence is None and local.dependence is None and known.record().sums is None
    assert known.inner.place.independent
    for fields, learns in (({}, True), ({"independent": True}, False)):
        config = NodeConfig.parse({"name": "a", "method": {"method": "census"}, **fields})
        assert (core_of(config).dependence is not None) == learns
