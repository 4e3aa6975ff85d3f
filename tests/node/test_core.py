"""The core of a node: equal to the simulation to the bit with a barrier, and nearly as good without one, through loss,
delay, duplication, reordering, crashes and restarts."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import colme
from colme.errors import ColmeError
from colme.graphs import random_regular_graph
from colme.lockstep import lockstep
from colme.node.backoff import LONGEST
from colme.node.core import Core
from colme.node.messages import wire
from colme.node.messages.wire import ConsensusBody, FlowBody, Record, pack
from colme.node.net.memory import MemoryNetwork, lockstep_over
from colme.testing import SIGMA, WIDTH, Case
from tests.support.nodes import PERIOD, Fleet, lone_core, notice, samples_of

FLOW = colme.CLColME(consensus="flow")
ALL = ("mean", "deviation", "kurtosis")
GUARDED = [
    colme.CLColME(guard=True), colme.CLColME(consensus="flow", guard=True), colme.CColME(guard=True),
    colme.Census(fits="own", guard=True), colme.Census(fits="own", estimate_sigma=True, guard=True),
]  # fmt: skip
DEVICES = [
    colme.Local(), colme.CLColME(), colme.CLColME(clock="own"), colme.CLColME(clock="harmonic"),
    colme.CLColME(clock="constant", alpha=0.9), colme.CLColME(statistics=ALL), FLOW,
    colme.CLColME(consensus="flow", statistics=("mean", "deviation")), colme.CColME(),
    colme.CLColME(bound="hoeffding"), colme.CLColME(cut="difference"),
    colme.CColME(cut="difference", bound="hoeffding"),
    colme.CLColME(cut="difference", consensus="flow"), colme.Census(guard=False, fits="own"),
    colme.Census(guard=False, fits="own", estimate_sigma=True),
    colme.Census(guard=False, fits="own", restart=True), *GUARDED,
]  # fmt: skip


def alone(method: Any = FLOW, neighbors: tuple[str, ...] = ("b",), **known: Any) -> Core:
    return lone_core(method, "a", neighbors, **known)


def hello(epoch: int, mean: float = 0.0, *, incarnation: int = 1, radius: float = 0.5, **body: Any) -> bytes:
    told = ConsensusBody(((mean, radius),), body.pop("estimate", mean), body.pop("restart", 2), **body)
    return pack(Record(incarnation, epoch, epoch, mean, 1, told))


# With a barrier


@pytest.mark.parametrize("method", DEVICES, ids=repr)
def test_lockstep_over_bytes_equals_the_array_to_the_bit(method: Any) -> None:
    case = Case(method)
    for samples in (case.samples, case.gappy()):
        origin = colme.Recording(samples).origin
        network = MemoryNetwork(seed=1, delay=(0.0, 0.1), duplication=0.3)
        got = lockstep_over(network, method, samples - origin, case.graph, sigma=SIGMA, width=WIDTH)
        np.testing.assert_array_equal(got + origin, case.run(samples, independent=True))
        assert network.lost == 0 and (network.sent > 0) != isinstance(method, colme.Local)


NOT_SERVED = r"cannot run on a node: .*\. Try CLColME\(\), CColME\(\), Census\(\) or Local\(\)\.$"
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    **{
        repr(method): (lambda method=method: alone(method), NOT_SERVED)
        for method in (colme.Oracle(), colme.ColME(), colme.BColME(), colme.CLColME(clock="global"))
    },
    "no agent": (lambda: alone(colme.Bayes()), "cannot run on a node"),
    "its own neighbor": (lambda: alone(neighbors=("a",)), "'a' is among its own neighbors"),
    "neighbors": (lambda: alone(neighbors=tuple("bcde")), "4 neighbors.*at most degree=3"),
    "step": (
        lambda: alone(colme.CLColME(step=0.4)), r"step=0\.4 with up to 3 neighbors.*at most 1 / degree.*'auto'",
    ),
    "stale": (lambda: alone(stale_after=0.0), "stale_after=0.0.*positive"),
    "no sigma": (lambda: alone(sigma=None), "scale of the samples is not known"),
    "state of another method": (
        lambda: alone(colme.CColME()).restore(alone().state()),
        r"the store holds .* for the method where .* starts\. Use another store\.",
    ),
    "state of another origin": (
        lambda: alone(origin=20.0).restore(alone().state()),
        r"the store holds 0\.0 for the origin where 20\.0 starts\.",
    ),
    **{
        f"torn state, {part}": (lambda part=part: alone().restore(alone().state()[part]), r"torn|the store holds")
        for part in (slice(0), slice(-30), slice(10, None))
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(ColmeError, match=words):
        call()


# Without


LOSSY: dict[str, Any] = {"loss": 0.2, "delay": (0.0, 3 * PERIOD), "duplication": 0.1}


COMPARED = [  # how many seeds and steps, and what the error relative to that of the simulation must not exceed
    *((method, LOSSY, factor, 1, 200) for method, factor in (
        (colme.CLColME(), 2.5), (FLOW, 1.5), (colme.CColME(), 2.5), (colme.CLColME(cut="difference"), 2.5))),
    *(pytest.param(method, how, factor, 3, 300, marks=pytest.mark.slow)
      for method, lossy in ((colme.CLColME(), 2.5), (FLOW, 1.5), (colme.CLColME(cut="difference"), 2.5),
                            (colme.CColME(), 2.5))
      for how, factor in (({}, 1.2), (LOSSY, lossy))),
]  # fmt: skip


@pytest.mark.parametrize(("method", "how", "factor", "n_seeds", "n_steps"), COMPARED, ids=repr)
def test_without_a_barrier_errors_are_nearly_those_of_the_simulation(
    method: Any, how: Any, factor: float, n_seeds: int, n_steps: int
) -> None:
    """Without loss what is heard is fresher than in lockstep. With loss the leaning forms do not conserve the mean:
    each one-sided exchange moves it by a share of a difference that has shrunk to sigma / t, as have the errors.

    Errors are means over seeds of the squared error at the end, when classes are apart: every component of about 20 has
    an error of its own, so the ratio of two such means of the same samples scatters little."""
    n, graph = 40, random_regular_graph(40, 6, rng=2)
    errors = np.zeros(3)
    for seed in range(n_seeds):
        samples, truth = samples_of(2, n, n_steps, seed)
        fleet = Fleet(method, graph, MemoryNetwork(seed=seed, **how), sigma=SIGMA)
        estimates = fleet.run(samples)[-1]
        simulated, local = lockstep(method, samples, graph, sigma=SIGMA)[-1], samples.mean(axis=0)
        errors += [((each - truth) ** 2).mean() for each in (estimates, simulated, local)]
        assert fleet.one_sided == 0
        cross = [(a, b) for core in fleet.cores for a, b in [(core.name, b) for b in core.neighbors]]
        assert cross and all((int(a[-3:]) - int(b[-3:])) % 2 == 0 for a, b in cross), "strangers are still believed"
        assert set(sum((core.refused for core in fleet.cores), Counter())) <= {"old"}
    assert errors[0] < factor * errors[1] and errors[0] < 0.25 * errors[2]


def test_the_census_without_a_barrier() -> None:
    """From when on everybody has been heard of, errors are a small part of the local ones, as in lockstep; before, they
    are no worse than local ones. (In lockstep momentum brings the first census after a handful of steps.)"""
    n, n_steps, graph = 40, 120, random_regular_graph(40, 6, rng=2)
    samples, truth = samples_of(2, n, n_steps)
    fleet = Fleet(colme.Census(guard=False), graph, MemoryNetwork(seed=1, **LOSSY), sigma=SIGMA)
    estimates = fleet.run(samples)
    local = np.cumsum(samples, axis=0) / np.arange(1, n_steps + 1)[:, None]
    ratio = ((estimates - truth) ** 2).mean(axis=1) / ((local - truth) ** 2).mean(axis=1)
    assert (ratio < 1.05).all() and ratio[-40:].max() < 0.35, ratio
    numbers: set[Any] = {core.agent.number for core in fleet.cores}  # type: ignore[attr-defined]
    assert max(numbers) - min(numbers) <= 1 < min(numbers)
    assert set(sum((core.refused for core in fleet.cores), Counter())) <= {"old"}


def test_who_comes_late_joins_the_census_under_way() -> None:
    graph = random_regular_graph(12, 4, rng=1)
    samples, _ = samples_of(2, 12, 90)
    fleet = Fleet(colme.Census(guard=False), graph, MemoryNetwork(), sigma=SIGMA)
    late = fleet.devices.pop(fleet.names[-1])
    for row in samples[:50]:
        fleet.tick(row)
    fleet.devices[late.core.name] = late
    for row in samples[50:]:
        fleet.tick(row)
    numbers: list[Any] = [core.agent.number for core in fleet.cores]  # type: ignore[attr-defined]
    assert min(numbers) >= 4 and max(numbers) - min(numbers) <= 1
    assert late.core.agent.fitted.row[0] >= 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("late", [0, 1, 3])
def test_flows_bear_delay_up_to_the_largest_step(late: int) -> None:
    """Samples have ended, and everything is heard late. With b = 1 / r all agree on the mean of all local means; twice
    that is beyond what is stable at any delay (docs/developer/node.md)."""
    graph = random_regular_graph(12, 4, rng=1)
    first = np.random.default_rng(2).standard_normal(12)
    for share, agree in ((1.0, True), (2.0, False)):
        fleet = Fleet(FLOW, graph, MemoryNetwork(seed=1, delay=(late * PERIOD, late * PERIOD)), sigma=10.0)
        for core in fleet.cores:
            core.agent.step_size *= share  # type: ignore[attr-defined]
        fleet.tick(first)
        for _ in range(250):
            fleet.tick(math.nan)
            if (spread := np.ptp([core.estimate for core in fleet.cores])) > 100.0:
                break
        assert (spread < 1e-5 and abs(fleet.imbalance) < 1e-6) if agree else spread > 1.0


def test_a_silent_neighbor_weighs_nothing_and_is_kept() -> None:
    """Half of the graph is cut off for a while."""
    graph, n_steps = random_regular_graph(12, 4, rng=1), 150
    samples = SIGMA * np.random.default_rng(3).standard_normal((n_steps, 12))
    fleet = Fleet(colme.CLColME(), graph, MemoryNetwork(seed=2), sigma=SIGMA)
    for t, row in enumerate(samples):
        if t == 40:
            fleet.network.partition(fleet.names[:6], fleet.names[6:])
        if t == 110:
            now = fleet.network.now
            for core in fleet.cores:
                side = set(fleet.names[:6] if core.name in fleet.names[:6] else fleet.names[6:])
                assert set(core.fresh(now)) == side.intersection(core.neighbors) and not core.cuts.edges
            fleet.network.partition()
        fleet.tick(row)
    now = fleet.network.now
    assert all(core.fresh(now) == core.neighbors == sorted(fleet.neighbors[core.name]) for core in fleet.cores)


# What is refused


def test_only_newer_records_count() -> None:
    core = alone(colme.CLColME())
    for epoch, incarnation, accepted in ((5, 1, 1), (5, 1, 0), (4, 1, 0), (6, 1, 1), (1, 2, 1), (99, 1, 0), (2, 2, 1)):
        before = core.refused["old"]
        core.tick(0.0, 0.0, {"b": hello(epoch, incarnation=incarnation)})
        assert core.refused["old"] - before == 1 - accepted, (epoch, incarnation)
    assert core.marks == {"b": (2, 2, 0)}


def test_strangers_other_methods_and_bad_samples_are_refused() -> None:
    core = alone(colme.CLColME())
    core.tick(0.0, math.inf, {"x": hello(1), "b": pack(Record(1, 1, 1, 0.0, 1, FlowBody(((0.0, 1.0),), 0.0, {})))})
    core.tick(0.0, 1e31, {"b": pack(Record(1, 2, 2, 0.0, 1, ConsensusBody(((0.0, 1.0),) * 2, 0.0, 2)))})
    cut = notice(wire.CUT)
    _, answers = core.tick(0.0, math.nan, {}, [("x", cut), ("b", b"?")])
    assert answers == [] and core.neighbors == ["b"] and core.agent.count == 0 and not core.marks
    assert core.refused == {"sample": 2, "sense": 2, "stranger": 1, "size": 1}


def test_nothing_that_is_heard_raises() -> None:
    """Mutilated records and control messages, among them lies that are well formed."""
    rng = random.Random(5)
    for method in (colme.CLColME(), FLOW, colme.CColME(), colme.Census(guard=False), colme.Local(), *GUARDED):
        other = lone_core(method, "b", ["a"])
        core = alone(method)
        cut = notice(wire.CUT_HEARD)
        for k in range(600):
            raw = bytearray(other.tick(k * PERIOD, rng.gauss(0, 1), {"a": pack(core.record())})[0])
            for _ in range(rng.randrange(1, 3)):
                raw[rng.randrange(8, len(raw))] ^= 1 << rng.randrange(8)
            message = bytearray(cut)
            message[rng.randrange(5, 18)] ^= 1 << rng.randrange(8)
            core.tick(k * PERIOD, rng.gauss(0, 1), {"b": bytes(raw)}, [("b", bytes(message))] if k > 500 else [])
            assert abs(core.estimate) < 1e31
        assert sum(core.refused.values()) > 0


def test_a_census_cannot_be_stuffed() -> None:
    core = alone(colme.Census(guard=False))
    other = lone_core(colme.Census(guard=False), "b", ["a"])
    for k in range(20):  # it begins after as many ticks as it has rounds
        record, _ = other.tick(k * PERIOD, 0.1, {"a": pack(core.record())})
    body: Any = wire.unpack(record).body
    for wrong in (body.values * 50, -body.values):
        lie = wire.HistogramBody(body.census, body.began, body.since, body.round, body.codes, wrong, body.before)
        core.tick(0.0, 0.1, {"b": pack(Record(1, 9, 9, 0.1, 1, lie))})
    assert core.refused == {"sense": 2}
    far = wire.HistogramBody(2**41, 1, 1, 0, body.codes, body.values, body.before)
    core.tick(0.0, 0.1, {"b": pack(Record(1, 9, 9, 0.1, 1, far))})
    assert core.agent.number < 3  # type: ignore[attr-defined]


# Cuts


def test_a_cut_is_told_until_it_is_known() -> None:
    core = alone(colme.CLColME())
    for k in range(30):
        _, messages = core.tick(k * PERIOD, 0.0, {"b": hello(k + 1, 50.0)})
        if core.cuts.edges:
            break
    assert core.urgent and core.neighbors == [] and core.cuts.edges.keys() == {"b"}
    ticks = [0] if messages else []
    for k in range(1, 200):
        _, messages = core.tick(k * PERIOD, math.nan, {})
        if messages:
            assert [(name, wire.unpack_control(raw).kind) for name, raw in messages] == [("b", wire.CUT)]
            ticks.append(k)
        assert not core.urgent
    assert ticks[:5] == [0, 1, 3, 7, 15] and max(np.diff(ticks)) == LONGEST
    heard = notice(wire.CUT_HEARD)
    assert core.tick(20.0, math.nan, {}, [("b", heard)])[1] == [] and core.urgent
    assert core.gone(20.0) == [] and core.gone(20.0 + core.stale_after + 0.1) == ["b"]
    assert not core.add_neighbor("b") and core.add_neighbor("c") and core.neighbors == ["c"]


def test_restarts_of_clocks_do_not_echo() -> None:
    """Everybody cuts strangers in the beginning. Then no clock restarts any more, although all hear of restarts with
    ever changing delays and count ticks from different beginnings."""
    graph = random_regular_graph(20, 6, rng=2)
    samples, _ = samples_of(2, 20, 250)
    fleet = Fleet(colme.CLColME(), graph, MemoryNetwork(seed=1, **LOSSY), sigma=SIGMA)
    late = [fleet.devices.pop(name) for name in fleet.names[:3]]
    for row in samples[:30]:
        fleet.tick(row)
    fleet.devices |= {device.core.name: device for device in late}
    for row in samples[30:150]:
        fleet.tick(row)
    cuts = sum(len(core.cuts.edges) for core in fleet.cores)
    agents: list[Any] = [core.agent for core in fleet.cores]
    restarts = [agent.restart for agent in agents]
    for row in samples[150:]:
        fleet.tick(row)
    assert cuts == sum(len(core.cuts.edges) for core in fleet.cores) > 0
    assert restarts == [agent.restart for agent in agents] and max(restarts) > 2
    assert all(agent.restart <= agent.t for agent in agents)


# More samples than ticks; states


@pytest.mark.parametrize("method", DEVICES, ids=repr)
def test_a_saved_state_goes_on_as_if_nothing_had_happened(method: Any) -> None:
    """But for what neighbors said last, which is heard anew, and averages under way, which are joined anew."""
    graph = random_regular_graph(8, 3, rng=1)
    samples, _ = samples_of(2, 8, 45)
    fleet = Fleet(method, graph, MemoryNetwork(), sigma=SIGMA, width=WIDTH)
    for row in samples[:40]:
        fleet.tick(row)
    core = fleet.cores[0]
    again = Core(method, core.name, fleet.neighbors[core.name], **fleet.known, incarnation=2)
    again.restore(core.state())
    assert again.neighbors == core.neighbors and again.marks == core.marks
    assert again.cuts.edges.keys() == core.cuts.edges.keys()
    if not isinstance(method, colme.Census) and not method.learns_dependence:
        assert again.state() == core.state()
    records = {b: fleet.devices[b].core.tick(fleet.network.now, 0.1, {})[0] for b in core.neighbors}
    for each in (core, again):
        each.tick(fleet.network.now, 0.3, records)
    assert again.mean == core.mean and again.agent.count == core.agent.count == 41
    assert again.estimate == core.estimate or isinstance(method, colme.Census)


@pytest.mark.parametrize("cut", ["intervals", "difference"])
@pytest.mark.parametrize("consensus", ["laplacian", "flow"])
def test_agents_that_cut_by_another_rule_are_not_believed(consensus: str, cut: str) -> None:
    """A radius taken for a standard error would void the promise of either rule."""
    core = alone(colme.CLColME(cut=cut, consensus=consensus))
    core.observe(0.0)
    for rule in ("difference", "intervals") if cut == "intervals" else ("intervals", "difference"):
        twin = lone_core(colme.CLColME(cut=rule, consensus=consensus), "b", ("a",))
        twin.observe(0.0)
        core.tick(0.1, 0.0, {"b": twin.tick(0.0, 0.0, {})[0]})
        assert core.refused == {"sense": 1} and core.fresh(0.1) == (["b"] if rule == cut else [])
