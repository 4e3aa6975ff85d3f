"""Many agents in one process: equal to the simulation to the bit with a barrier, however they are spread over hosts,
and nearly as good without one."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colme
from colme.errors import CheckpointError, MethodError, NodeError
from colme.graphs import from_edges, random_regular_graph
from colme.node.backoff import LONGEST
from colme.node.hosts.device import HostDevice
from colme.node.hosts.frame import Cuts, pack_cuts, unpack_cuts, unpack_frame
from colme.node.hosts.host import HostCore
from colme.node.messages.wire import CUT, CUT_HEARD
from colme.node.net.memory import MemoryNetwork
from colme.node.store import AgentStore
from colme.testing._promises import SIGMA, WIDTH, Case
from tests.node.test_core import LOSSY, two_classes
from tests.support.hosts import HostFleet, Hosts, LockstepHosts, row_of, spread

FLOW = colme.CLColME(consensus="flow")
METHODS = [
    colme.Local(), colme.CLColME(), colme.CLColME(clock="own"), colme.CLColME(clock="harmonic"),
    colme.CLColME(clock="constant", alpha=0.9), FLOW, colme.CColME(), colme.CLColME(bound="hoeffding"),
    colme.CLColME(bound="fourth-moment", gamma=0.5, sigma=0.1), colme.CLColME(cut="difference", gamma=0.01),
    colme.CColME(cut="difference", gamma=0.01, bound="hoeffding"),
    colme.CLColME(cut="difference", gamma=0.01, consensus="flow"),
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("n_hosts", [1, 2, 3])
def test_hosts_in_lockstep_equal_the_array_to_the_bit(method: Any, n_hosts: int) -> None:
    case = Case(method)
    # hosts expect counts to differ; a simulation without gaps has a sharper test, of equal counts
    equal = [] if getattr(method, "cut", None) == "difference" else [case.samples]
    for samples in (*equal, case.gappy()):
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
     (colme.CColME(), {}, 1.2), (colme.CColME(), LOSSY, 2.5), (colme.CLColME(cut="difference"), {}, 1.2),
     (colme.CLColME(cut="difference"), LOSSY, 2.5)],
    ids=repr,
)  # fmt: skip
def test_without_a_barrier_errors_are_nearly_those_of_the_simulation(method: Any, how: Any, factor: float) -> None:
    n, n_steps, graph = 40, 300, random_regular_graph(40, 6, rng=2)
    errors = np.zeros(3)
    for seed in range(3):
        samples, truth = two_classes(n, n_steps, seed)
        fleet = HostFleet(method, graph, spread(n, 3), MemoryNetwork(seed=seed, **how), sigma=SIGMA)
        estimates = fleet.run(samples)
        simulated = LockstepHosts(method, graph, np.zeros(n, np.int64), sigma=SIGMA).run(samples)[-1]
        local = samples.mean(axis=0)
        errors += [((each - truth) ** 2).mean() for each in (estimates, simulated, local)]
        assert fleet.one_sided == 0
        assert all((a - b) % 2 == 0 for a, b in fleet.edges()), "strangers are still believed"
        assert set(sum((core.refused for core in fleet.cores), Counter())) <= {"old"}
    assert errors[0] < factor * errors[1] and errors[0] < 0.25 * errors[2]


def test_flows_agree_on_the_mean_of_all_through_loss() -> None:
    """Samples have ended: everybody comes to the mean of all local means, over a network that loses and delays."""
    graph = random_regular_graph(30, 4, rng=1)
    fleet = HostFleet(FLOW, graph, spread(30, 3), MemoryNetwork(seed=1, **LOSSY), sigma=10.0)
    fleet.tick(np.random.default_rng(2).standard_normal(30))
    for _ in range(400):
        fleet.tick(np.full(30, np.nan))
    assert np.ptp(fleet.estimate) < 1e-5 and abs(fleet.estimate.mean() - fleet.mean.mean()) < 1e-6


def test_a_silent_host_weighs_nothing_and_is_kept() -> None:
    graph = random_regular_graph(24, 6, rng=1)
    samples = SIGMA * np.random.default_rng(3).standard_normal((150, 24))
    fleet = HostFleet(colme.CLColME(), graph, spread(24, 3), MemoryNetwork(seed=2), sigma=SIGMA)
    for t, row in enumerate(samples):
        if t == 40:
            fleet.network.partition(fleet.names[:1], fleet.names[1:])
        if t == 110:
            now = fleet.network.now
            for core in fleet.cores:
                for host, span in core.graph.spans.items():
                    assert core.fresh(now)[span].all() == (fleet.names[0] not in (host, core.name))
            alone = fleet.estimate
            fleet.network.partition()
        fleet.tick(row)
    assert all(core.fresh(fleet.network.now).all() for core in fleet.cores)
    assert len(fleet.edges()) == 2 * graph.n_edges and not np.array_equal(alone, fleet.estimate)


def test_restarts_of_clocks_do_not_echo() -> None:
    """Hosts count ticks from different beginnings, and hear of restarts with changing delays. When all strangers are
    cut and all have heard so, no clock restarts any more."""
    graph = random_regular_graph(40, 6, rng=2)
    samples, _ = two_classes(40, 250)
    fleet = HostFleet(colme.CLColME(), graph, spread(40, 3), MemoryNetwork(seed=1, **LOSSY), sigma=SIGMA)
    for t, row in enumerate(samples[:150]):
        fleet.tick(row, without=(0,) if t < 30 else ())
    edges = fleet.edges()
    restarts = [core.restart[: core.n_agents].copy() for core in fleet.cores]
    for row in samples[150:]:
        fleet.tick(row)
    assert fleet.edges() == edges and len(edges) < 2 * graph.n_edges
    for core, before in zip(fleet.cores, restarts, strict=True):
        now = core.restart[: core.n_agents]
        assert np.array_equal(now, before) and 2 < now.min() <= now.max() <= core.t


def pair(method: Any = FLOW, **known: Any) -> Hosts:
    """Two hosts of one agent each, who are neighbors."""
    return Hosts(method, from_edges([(0, 1)]), np.array([0, 1]), **{"sigma": 0.01, "n_agents": 9, "degree": 3} | known)


ONE = np.zeros(1, np.int64)


def test_only_newer_parts_count() -> None:
    a, b = pair(colme.CLColME()).cores
    b.observe((ONE, np.array([0.5])))
    for epoch, incarnation, accepted in ((5, 1, 1), (5, 1, 0), (4, 1, 0), (6, 1, 1), (1, 2, 1), (99, 1, 0), (2, 2, 1)):
        b.t, b.incarnation = epoch, incarnation
        assert a.hear(b.name, b.frame()[0], 0.0) == accepted, (epoch, incarnation)
    assert a.refused == {"old": 3} and a.links.marks == {(b.name, 0): (2, 2, 0)}


def test_strangers_other_methods_and_bad_samples_are_refused() -> None:
    a, b = pair(colme.CLColME()).cores
    other = pair(FLOW).cores[1]
    part = b.frame()[0]
    a.tick(0.0, (np.array([0, 0, 5, -1]), np.array([np.inf, 1e31, 1.0, 1.0])), [
        ("nobody", part), (b.name, other.frame()[0]), (b.name, b"?"),
    ])  # fmt: skip
    cut = pack_cuts(Cuts(CUT, 1, 1, np.array([7], np.uint32), np.array([0], np.uint32)))
    heard = pack_cuts(Cuts(CUT_HEARD, 1, 1, np.array([0], np.uint32), np.array([0], np.uint32)))
    a.tick(0.1, control=[("nobody", cut), (b.name, cut), (b.name, heard), (b.name, b"?")])
    assert a.messages() == [] and a.alive.all() and a.count.sum() == 0 and not a.urgent
    assert a.refused == {"sample": 4, "stranger": 3, "sense": 2, "size": 2}


def test_nothing_that_is_heard_raises() -> None:
    rng = random.Random(5)
    for method in (colme.CLColME(), FLOW, colme.CColME()):
        hosts = Hosts(method, random_regular_graph(12, 4, rng=1), spread(12, 2), sigma=SIGMA)
        a, b = hosts.cores
        for k in range(300):
            parts = [bytearray(raw) for raw in b.tick(0.05 * k, everybody(b, rng))]
            for raw in parts:
                for _ in range(rng.randrange(3)):
                    raw[rng.randrange(8, len(raw))] ^= 1 << rng.randrange(8)
            message = bytearray(pack_cuts(Cuts(rng.choice((CUT, CUT_HEARD)), 1, 1, *few(rng))))
            message[rng.randrange(5, len(message))] ^= 1 << rng.randrange(8)
            control = [(b.name, bytes(message))] if k > 250 else []
            a.tick(0.05 * k, everybody(a, rng), [(b.name, bytes(raw)) for raw in parts], control)
            a.saved()
            a.messages()
            assert np.all(np.abs(a.estimate) < 1e31)
        assert sum(a.refused.values()) > 50


def everybody(core: HostCore, rng: random.Random) -> Any:
    return np.arange(core.n_agents), np.array([rng.gauss(0.0, 1.0) for _ in range(core.n_agents)])


def few(rng: random.Random) -> Any:
    return np.array([rng.randrange(8)], np.uint32), np.array([rng.randrange(8)], np.uint32)


def test_a_cut_is_saved_then_told_until_it_is_known() -> None:
    a, b = pair(colme.CLColME()).cores
    for k in range(30):
        frames = [(b.name, raw) for raw in b.tick(0.05 * k, (ONE, np.array([50.0])))]
        a.tick(0.05 * k, (ONE, np.array([0.0])), frames)
        if not a.alive.any():
            break
    assert a.urgent and a.messages() == [] and a.frame() and not unpack_frame(a.frame()[0]).rows["agent"].size
    a.saved()
    ticks = []
    for k in range(200):
        told = a.messages()
        if told:
            ((name, raw),) = told
            cuts = unpack_cuts(raw)
            assert name == b.name and (cuts.kind, cuts.mine.tolist(), cuts.yours.tolist()) == (CUT, [0], [0])
            ticks.append(k)
        a.tick(10.0)
        assert not a.urgent
    assert ticks[:5] == [0, 1, 3, 7, 15] and max(np.diff(ticks)) == LONGEST
    for k in (1, 2):  # who hears of it cuts too, and says so every time
        b.tick(20.0 + k, control=[(a.name, raw), (a.name, raw)])
        assert b.urgent == (k == 1) and b.degree[0] == 0 and not b.alive.any() and b.restart[0] == b.t - k + 1
        b.saved()
        answers = b.messages()
        assert {(name, unpack_cuts(each).kind) for name, each in answers} == {(a.name, CUT_HEARD)}
    a.tick(30.0, control=[(b.name, each) for _, each in answers])
    assert a.urgent and not len(a.links.unknown(a.alive))
    a.saved()
    assert all(not (a.tick(31.0), a.messages())[1] for _ in range(150))


def test_many_cuts_fit_into_few_messages() -> None:
    """Everybody on one side parts from everybody on the other: 9000 edges, three lists."""
    n = 3000
    edges = [(a, n + (a + j) % n) for a in range(n) for j in range(3)]
    hosts = Hosts(colme.CLColME(), from_edges(edges), np.repeat([0, 1], n), sigma=0.01)
    a, b = hosts.cores
    for k in range(8):
        frames = [(b.name, raw) for raw in b.tick(0.05 * k, (np.arange(n), np.full(n, 9.0)))]
        a.tick(0.05 * k, (np.arange(n), np.zeros(n)), frames)
    a.saved()
    told = a.messages()
    assert len(frames) == a.links.n_parts == 3 and len(told) == 3 and len(hosts.edges()) == len(edges)
    b.tick(1.0, control=[(a.name, raw) for _, raw in told])
    b.saved()
    a.tick(1.0, control=[(b.name, raw) for _, raw in b.messages()])
    assert not len(a.links.unknown(a.alive)) and not hosts.edges() and not b.degree[:n].any()
    np.testing.assert_array_equal(b.estimate, b.mean)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_saved_state_goes_on_as_if_nothing_had_happened(method: Any) -> None:
    """But for what other hosts said last, which is heard anew."""
    graph = random_regular_graph(16, 4, rng=1)
    samples, _ = two_classes(16, 45)
    fleet = HostFleet(method, graph, spread(16, 2), MemoryNetwork(), sigma=SIGMA, width=WIDTH)
    for row in samples[:40]:
        fleet.tick(row)
    core, other = fleet.cores
    again = fleet.core(0)
    again.restore(core.state())
    assert again.state() == core.state() and again.links.marks == core.links.marks
    frames = [(other.name, raw) for raw in other.tick(9.0)]
    for each in (core, again):
        each.tick(9.0, row_of(samples[41][fleet.agents[0]]), frames)
    for name in ("estimate", "mean", "slots", "restart", "generation", "degree", "count"):
        np.testing.assert_array_equal(getattr(again, name)[: core.n_agents], getattr(core, name)[: core.n_agents])


def test_states_of_others_and_torn_ones_are_refused() -> None:
    state = pair().cores[0].state()
    for other, words in (
        (pair(colme.CColME()).cores[0], "for the method where"),
        (pair().cores[1], "for the name where"),
        (Hosts(FLOW, from_edges([(0, 1), (0, 2)]), np.array([0, 1, 1]), sigma=0.01).cores[0], "for the edges where"),
    ):
        with pytest.raises(CheckpointError, match=rf"the store holds .* {words} .* starts\. Use another store\."):
            other.restore(state)
    for torn in (b"", state[:-30], state[10:]):
        with pytest.raises(CheckpointError, match=r"torn|the store holds"):
            pair().cores[0].restore(torn)


@pytest.mark.parametrize("method", [colme.CLColME(), FLOW], ids=repr)
def test_hosts_crash_and_come_back(method: Any, tmp_path: Path) -> None:
    """Killed without saving, twice, while edges are cut and messages get lost: in the end both ends of every edge
    agree, no sample counts twice, and at most those of `save_every` ticks are forgotten."""
    graph, n_steps, save_every = random_regular_graph(24, 6, rng=2), 200, 10
    samples, truth = two_classes(24, n_steps)
    fleet = HostFleet(method, graph, spread(24, 3), MemoryNetwork(seed=3, **LOSSY), sigma=SIGMA)
    stores = [AgentStore(tmp_path / f"{name}.db") for name in fleet.names]
    kept = [device.transport for device in fleet.devices]
    fleet.devices = [
        HostDevice(core, door, store, save_every=save_every)
        for core, door, store in zip(fleet.cores, kept, stores, strict=True)
    ]
    for t, row in enumerate(samples):
        fleet.tick(row)
        if t in (25, 60):
            for h in (0, 1):
                fleet.devices[h].transport.close()
                fleet.cores[h] = fleet.core(h)
                fleet.devices[h] = HostDevice(fleet.cores[h], fleet.join(h), stores[h], save_every=save_every)
    assert [core.incarnation for core in fleet.cores] == [3, 3, 1]
    for core, crashes in zip(fleet.cores, (2, 2, 0), strict=True):
        assert np.all((n_steps - crashes * save_every <= core.count) & (core.count <= n_steps))
    assert fleet.one_sided == 0 and all((a - b) % 2 == 0 for a, b in fleet.edges())
    error, local = (((each - truth) ** 2).mean() for each in (fleet.estimate, fleet.mean))
    assert error < 0.4 * local
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    "method",
    [colme.CLColME(clock="global"), colme.CLColME(statistics=("mean", "deviation")), colme.Census(), colme.ColME()],
    ids=repr,
)
def test_what_a_host_cannot_run_is_refused(method: Any) -> None:
    with pytest.raises(NodeError, match=r"cannot run for many agents in one process\. Try CLColME\(\) or CColME\(\)"):
        pair(method)


def test_a_host_says_what_it_needs() -> None:
    with pytest.raises(MethodError, match=r"step=0\.5 with up to 3 neighbors"):
        pair(colme.CLColME(step=0.5))
    core = pair().cores[0]
    with pytest.raises(NodeError, match=r"host\.parts=0: the frames of 'host-0' have 1 parts\. Set parts = 1"):
        HostDevice(core, MemoryNetwork().join(core.name), parts=0)


def test_who_has_too_many_neighbors_elsewhere_is_refused() -> None:
    """What an agent says must fit into one part; also if it is not the last one."""
    edges = [(0, b) for b in range(2, 3502)] + [(1, 2)]
    with pytest.raises(
        NodeError, match=r"3501 edges to other hosts do not fit into 256 parts of a frame\. Use more hosts"
    ):
        Hosts(FLOW, from_edges(edges), np.repeat([0, 1], [2, 3500]), sigma=1.0)


def test_hosts_that_cut_by_another_rule_are_not_believed() -> None:
    one, other = (pair(colme.CLColME(cut=cut)).cores for cut in ("intervals", "difference"))
    samples = np.arange(one[0].n_agents), np.zeros(one[0].n_agents)
    frames = [core.tick(0.0, samples)[0] for core in (one[0], other[0])]
    assert not one[1].hear(one[0].name, frames[1], 0.1) and not other[1].hear(one[0].name, frames[0], 0.1)
    assert one[1].refused == {"sense": 1} and other[1].refused == {"sense": 1}
    assert one[1].hear(one[0].name, frames[0], 0.1) and other[1].hear(one[0].name, frames[1], 0.1)


def test_standard_errors_survive_a_restart() -> None:
    core = pair(colme.CLColME(cut="difference")).cores[0]
    core.tick(0.0, (np.arange(core.n_agents), np.zeros(core.n_agents)))
    again = pair(colme.CLColME(cut="difference")).cores[0]
    again.restore(core.state())
    np.testing.assert_array_equal(again.spread, core.spread)
    assert (again.spread[: again.n_agents] < again.radius[: again.n_agents]).all()
