"""Gateways: many local agents behind a node, each with its own posterior, and one ballot each in every census."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import colme
from colme.census.histogram import ballots_in
from colme.cli.node_command import command
from colme.errors import CheckpointError
from colme.graphs import random_regular_graph
from colme.node.core import Core
from colme.node.device import Device
from colme.node.gateway import KERNELS, MOST_PER_TICK, REVIEW, Gateway
from colme.node.io.journal import Journal
from colme.node.io.mqtt import place_of, wild_part
from colme.node.io.sources import NamedLineParser
from colme.node.io.status import metrics, report_of, reports_of, status_of
from colme.node.messages.wire import MOST_BYTES, Record, pack
from colme.node.net.memory import MemoryNetwork
from colme.node.readings import LocalReadings, ReadingFilter
from colme.node.store import AgentStore
from tests.support.nodes import Fleet, Gateways, bins_of, lone_device

UNKNOWN = colme.Census(estimate_sigma=True)
METHODS = {
    "told": (colme.Census(sigma=1.0), {"sigma": 1.0}),
    "told three times": (colme.Census(sigma=3.0), {"sigma": 3.0}),
    "not told": (UNKNOWN, {}),
    "no guard, restarts": (colme.Census(sigma=1.0, restart=True, guard=False), {"sigma": 1.0}),
}


class OneEach(Fleet):
    """Gateways with one local agent."""

    def core(self, name: str) -> Core:
        return Gateway(self.method, name, self.neighbors[name], **self.known)


def lone_gateway(method: Any = UNKNOWN, *, store: Any = None, **known: Any) -> tuple[Gateway, Device]:
    core = Gateway(method, "g", [], **{"n_agents": 1} | known)
    return core, lone_device(core, store, save_every=1)


@pytest.mark.parametrize("kind", [*METHODS, "zeros and ones"])
def test_a_gateway_with_one_local_agent_is_a_node_bit_for_bit(kind: str) -> None:
    method, known = METHODS.get(kind, (UNKNOWN, {}))
    rng, graph = np.random.default_rng(3), random_regular_graph(12, 4, rng=1)
    samples = np.repeat([0.0, 2.0], 6) + rng.normal(size=(60, 12))
    if kind == "zeros and ones":
        samples = (rng.uniform(size=(60, 12)) < np.repeat([0.1, 0.6], 6)).astype(float)
    samples[rng.uniform(size=samples.shape) < 0.2] = np.nan
    nodes, gateways = (
        fleet(method, graph, MemoryNetwork(seed=2, loss=0.1, delay=(0.0, 0.1), duplication=0.05), **known)
        for fleet in (Fleet, OneEach)
    )
    for t, row in enumerate(samples):
        n = 2 if t % 9 == 8 else 1  # samples in a tick
        nodes.tick(row, lambda _, device, now, x, n=n: device.feed(now, [x] * n if x == x else []))
        gateways.tick(row, lambda name, device, now, x, n=n: device.feed(now, [(name, x)] * n if x == x else []))
        for node, gateway in zip(nodes.cores, gateways.cores, strict=True):
            assert pack(node.record()) == pack(gateway.record())
            if isinstance(gateway, Gateway) and gateway.n_local:
                found = [gateway.mean[0], gateway.estimate[0], *(end[0] for end in gateway.interval)]
                np.testing.assert_array_equal(found, [node.mean, node.estimate, *node.interval])


def classes(rng: np.random.Generator, sizes: list[int]) -> list[NDArray[np.float64]]:
    return [rng.integers(0, 2, size).astype(float) for size in sizes]


def ratio(fleet: Gateways, truth: list[NDArray[np.float64]]) -> float:
    """Squared error over that of local means."""
    error, local = (
        np.concatenate([getattr(core, what) - mean for core, mean in zip(fleet.cores, truth, strict=True)])
        for what in ("estimate", "mean")
    )
    return float((error**2).mean() / (local**2).mean())


@pytest.mark.parametrize(
    "sizes", [[1] * 6 + [100] * 2, *(pytest.param(sizes, marks=pytest.mark.slow) for sizes in ([100] * 3, [300]))]
)
def test_local_agents_learn_like_agents_of_one_census(sizes: list[int]) -> None:
    """Two classes one sigma apart, of a hundred agents or more each: at t = 60 the class of nearly everyone is known
    (means are sqrt(60) / 2 = 3.9 deviations from the middle between classes, and 1e-4 of them beyond it), and what is
    left is the error of the mean of a class, 2 / n of the local one, with some agents that are not sure. Alone, a
    gateway of six would not know."""
    rng = np.random.default_rng(sum(sizes))
    truth = classes(rng, sizes)
    fleet = Gateways(colme.Census(sigma=1.0), sizes, MemoryNetwork(seed=1, loss=0.1, delay=(0.0, 0.05)), sigma=1.0)
    for _ in range(60):
        fleet.tick([mean + rng.normal(size=len(mean)) for mean in truth])
    assert ratio(fleet, truth) < 0.05
    for core, mean in zip(fleet.cores, truth, strict=True):
        assert core.inner.ballots == pytest.approx(sum(sizes) / len(sizes), rel=0.2)
        group, probability = core.groups
        for value in (0.0, 1.0):  # groups are classes
            assert len(set(group[(mean == value) & (probability > 0.99)])) <= 1


@pytest.mark.parametrize("empty", [1, 2])
def test_gateways_without_samples_do_not_take_the_gain(empty: int) -> None:
    """As without them: see above. They hand in nothing to votes, and pass on what others do."""
    rng = np.random.default_rng(0)
    truth = [*classes(rng, [100]), *[np.zeros(0)] * empty]
    fleet = Gateways(colme.Census(sigma=0.5), [100, *[0] * empty], sigma=0.5)
    for _ in range(60):
        fleet.tick([mean + 0.5 * rng.normal(size=len(mean)) for mean in truth])
    core = fleet.cores[0]
    assert core.trust == 1.0
    assert np.square(core.estimate - truth[0]).mean() < 0.1 * np.square(core.mean - truth[0]).mean()


def test_the_message_of_a_gateway_is_no_longer_for_many_local_agents() -> None:
    sizes, rng = [3000, 3], np.random.default_rng(0)
    truth = classes(rng, sizes)
    fleet = Gateways(colme.Census(sigma=1.0), sizes, sigma=1.0)
    for _ in range(25):
        fleet.tick([mean + rng.normal(size=len(mean)) for mean in truth])
        large, small = (
            len(pack(msgspec.structs.replace(core.record(), sums=None))) for core in fleet.cores
        )  # each speaks of dependence as long as it must
        assert large < MOST_BYTES / 8
    assert large == small  # both hold the average


def histogram(record: Record, ballots: float) -> Record:
    """All ballots at 30, and none elsewhere, in every round."""
    body: Any = getattr(record.body, "inner", record.body)
    if not len(body.codes):
        return record
    top = int(body.codes[(body.codes & ((1 << 44) - 1)) != 0][0] >> 44)
    width = 2.0**top
    codes = np.array([top << 44, (top << 44) + (1 << 43) + int(30 / width)])
    masses = np.array([ballots * 1.5, ballots], np.float32)
    return bins_of(record, codes=codes, values=masses, before=masses)


def test_a_gateway_weighs_no_more_than_the_cap_however_many_agents_it_claims() -> None:
    """Three gateways of 40 honest agents, and one that claims 10^9 at a mean of 30 in every round: it is refused.
    If it claims as many as the cap, it weighs what a node weighs that never moves: of four, it draws the histogram to
    itself. Then nobody gains, and nobody is worse than alone."""
    rng = np.random.default_rng(5)
    for claimed in (1e9, 40.0):
        truth = classes(rng, [40, 40, 40, 1])
        lies = {3: lambda record, claimed=claimed: histogram(record, claimed)}
        fleet = Gateways(colme.Census(sigma=1.0), [40, 40, 40, 1], lies=lies, sigma=1.0)
        for _ in range(60):
            fleet.tick([mean + rng.normal(size=len(mean)) for mean in truth])
        for core, mean in zip(fleet.cores[:3], truth, strict=False):
            assert ballots_in(core.inner.codes, core.inner.masses) <= 40 * 1.001
            error, own = np.square(core.estimate - mean).mean(), np.square(core.mean - mean).mean()
            assert error < 0.5 * own if claimed > 40 else 0.9 * own < error < 1.02 * own
        assert (fleet.cores[0].refused["sense"] > 0) == (claimed > 40)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("method", [colme.Census(sigma=1.0), UNKNOWN, colme.Census(sigma=1.0, restart=True)], ids=repr)
def test_own_ballots_beyond_the_cap_are_scaled_down(method: colme.Census, constant: bool) -> None:
    """Also those of variances: before agents know a variance, a census has theirs and no means; and constant samples
    never have a mean in it."""
    rng = np.random.default_rng(0)
    fleet = Gateways(method, [50, 5], sigma=method.sigma, max_ballots=5)
    for _ in range(40):
        fleet.tick([np.where(np.arange(size) % 2 * constant, 5.0, rng.normal(size=size)) for size in (50, 5)])
    assert [dict(core.refused.senders) for core in fleet.cores] == [{}, {}]
    if not constant and method == colme.Census(sigma=1.0):
        assert fleet.cores[0].inner.ballots == pytest.approx(5.0, rel=0.05)
        assert all(ballots_in(core.inner.codes, core.inner.masses) <= 5.01 for core in fleet.cores)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e16, 1e29, 1e308])
def test_a_local_agent_with_absurd_readings_does_not_silence_its_gateway(scale: float) -> None:
    rng = np.random.default_rng(0)
    fleet = Gateways(UNKNOWN, [40, 40], max_ballots=40)
    for core in fleet.cores:
        core.readings = LocalReadings()
    for _ in range(40):
        rows = [rng.normal(size=40) for _ in range(2)]
        rows[0][0] = scale * (1.0 if rows[0][0] > 0.0 else -1.0)
        fleet.tick(rows)
    assert [dict(core.refused.senders) for core in fleet.cores] == [{}, {}]
    assert all(np.isfinite(core.estimate[1:]).all() for core in fleet.cores)


@pytest.mark.parametrize("scale", [1e3, 1e10])
def test_one_noisy_local_agent_does_little_harm_to_the_others(scale: float) -> None:
    """Its samples decide the common variance and the common lambda. What the others see themselves limits theirs to
    three standard errors beyond their own mean: squared errors of up to 1 + 3^2 of those alone (with the common lambda
    alone: 18, and 10^15)."""
    rng = np.random.default_rng(0)
    truth = [3.0 * rng.integers(0, 2, 40) for _ in range(2)]
    fleet = Gateways(UNKNOWN, [40, 40], max_ballots=40)
    for _ in range(80):
        rows = [mean + rng.normal(size=40) for mean in truth]
        rows[0][0] = scale * rng.normal()
        fleet.tick(rows)
    core = fleet.cores[0]
    error, own = (np.square(each - truth[0])[1:].mean() for each in (core.estimate, core.mean))
    assert error < 10.0 * own
    reports = reports_of(fleet.devices[0])
    assert [each["trust"] for each in reports] == core.weights.tolist()
    assert max(core.weights) == core.trust > np.median(core.weights)


def test_agents_appear_and_disappear_without_a_restart() -> None:
    rng = np.random.default_rng(1)
    core, device = lone_gateway(max_ballots=100, most_agents=60, forget_after=50.0)
    first, second = ([f"{letter}-{i}" for i in range(50)] for letter in "ab")
    for t in range(100):
        names = first if t < 40 else second
        device.feed(float(t), [(name, 5.0 * (i % 2) + rng.normal()) for i, name in enumerate(names)])
    assert core.names == [*first, *second[:10]] and core.refused["agents"] == 40 * 60
    before = dict(zip(core.names, core.agent.count[1:].tolist(), strict=True))
    assert before["a-0"] == 40 and before["b-9"] == 60
    for t in range(100, 100 + REVIEW + 1):
        device.feed(float(t), [(name, 5.0 * (i % 2) + rng.normal()) for i, name in enumerate(second)])
    assert core.names == second
    count = dict(zip(core.names, core.agent.count[1:].tolist(), strict=True))
    assert count["b-9"] == 60 + REVIEW + 1 and 1 <= count["b-49"] <= REVIEW + 1
    truth = 5.0 * (np.arange(50) % 2)
    assert np.square(core.estimate - truth).mean() < 0.5 * np.square(core.mean - truth).mean()


def test_a_new_local_agent_knows_what_the_others_learned() -> None:
    """Its first sample, of a variance that nobody was told, is drawn to the class that it probably belongs to."""
    rng = np.random.default_rng(2)
    core, device = lone_gateway(max_ballots=400)
    for t in range(50):
        device.feed(float(t), [(str(i), 5.0 * (i % 2) + rng.normal()) for i in range(200)])
    newcomers = [(f"new-{i}", 5.0 * (i % 2) + rng.normal()) for i in range(200)]
    device.feed(50.0, newcomers)
    truth = 5.0 * (np.arange(200) % 2)
    error, own = (np.square(each[200:] - truth).mean() for each in (core.estimate, core.mean))
    assert error < 0.5 * own


def test_a_gateway_resumes_where_it_was(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    samples = [[(f"meter {i}", float(i % 3) + rng.normal()) for i in range(30)] for _ in range(REVIEW + 5)]
    for row in samples[30:]:
        del row[-1]  # silent since the restart, which is not long ago: not forgotten
    samples[29] += [("meter 0", 0.0)] * (MOST_PER_TICK + 10)  # more than a tick takes: they wait, and are saved
    results = []
    for stop in (None, 30):
        store = AgentStore(tmp_path / f"{stop}.sqlite")
        core, device = lone_gateway(store=store, max_ballots=30, forget_after=1e8 if stop else 1e10)
        for t, row in enumerate(samples):
            if t == stop:
                store.close()
                store = AgentStore(tmp_path / f"{stop}.sqlite")
                core, device = lone_gateway(store=store, max_ballots=30, forget_after=1e8)
                assert len(core.waiting) == 11  # with the sample that was there already
            device.feed(float(t) if t < 30 else 1e9 + t, row)  # clocks of machines that were started begin anywhere
        store.close()
        results.append((core.names, core.agent.count.tolist(), core.mean))
    assert results[0][:2] == results[1][:2]
    np.testing.assert_array_equal(results[0][2], results[1][2])
    store = AgentStore(tmp_path / "None.sqlite")
    with pytest.raises(CheckpointError, match=r"is that of a gateway, and 'g' is a node with one agent\."):
        lone_device(Core(UNKNOWN, "g", [], n_agents=2), store)
    store.close()
    with pytest.raises(CheckpointError, match=r"is that of a node with one agent, and 'g' is a gateway\."):
        Gateway(UNKNOWN, "g", [], n_agents=1).restore(Core(UNKNOWN, "g", [], n_agents=2).state())


def test_a_gateway_that_starts_again_admits_and_forgets_as_before(tmp_path: Path) -> None:
    """On a machine that was up for longer than `forget`, whose monotonic clock is beyond it. New names come at once."""
    path, up = tmp_path / "g.sqlite", 1e6
    for life in range(3):
        store = AgentStore(path)
        core, device = lone_gateway(store=store, max_ballots=30, forget_after=500.0)
        for t in range(4 * REVIEW if life == 0 else REVIEW + 2):
            quiet = [] if life else [("quiet", float(t % 3))]
            device.feed(up + t, [(f"new {life}", float(t % 5)), *quiet])
        store.close()
        assert core.names == ["new 0", "quiet", "new 1", "new 2"][: 2 + life]
    for t in range(500 + REVIEW):
        device.feed(up + 1000.0 + t, [("new 2", 1.0)])
    assert core.names == ["new 2"]


def test_reports_are_of_the_agents_with_new_samples() -> None:
    _, device = lone_gateway(max_ballots=10)
    assert reports_of(device) == []
    device.feed(0.0, [("a", 1.0), ("b", 2.0), ("a", 3.0)])
    reports = reports_of(device)
    assert [(each["name"], each["gateway"], each["samples"], each["mean"]) for each in reports] == [
        ("a", "g", 2, 2.0), ("b", "g", 1, 2.0),
    ]  # fmt: skip
    assert reports[1]["lower"] is None and reports[0]["group"] == -1
    device.feed(1.0, [("b", 4.0)])
    assert [each["name"] for each in reports_of(device)] == ["b"]
    status = status_of(device, 1.0) | {"refused": {}}
    assert report_of(device)["agents"] == 2 and status["samples"] == 4
    assert 'colme_agents{agent="g"} 2\n' in metrics(status) and "colme_estimate" not in metrics(status)


def test_tables_show_the_agents_of_gateways_and_the_estimates_of_single_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    _, gateway = lone_gateway(max_ballots=9)
    gateway.feed(0.0, [("a", 1.0), ("b", 2.0), ("a", 3.0)])
    single = lone_device(Core(UNKNOWN, "s", [], n_agents=1))
    found = {"g": status_of(gateway, 0.0), "s": status_of(single, 0.0)}
    monkeypatch.setattr("colme.cli.node_command._ask", lambda configs: [found[each] for each in configs])

    def lines(*arguments: str) -> list[str]:
        return CliRunner().invoke(command, ["status", *arguments], catch_exceptions=False).output.splitlines()

    for names, columns in (("g", "name agents samples fresh cut"), ("s", "name samples estimate lower upper fresh cut"),
                           ("gs", "name agents samples estimate lower upper fresh cut")):  # fmt: skip
        shown = lines(*(part for name in names for part in ("-c", name)))
        assert shown[1].split() == columns.split() and max(map(len, shown)) <= 80
    assert lines("-c", "g")[3].split() == ["g", "2", "3", "0", "0"]
    assert lines("-c", "g", "--format", "csv")[0].startswith("name,agents,tick,samples,mean,")
    found["s"]["cut_names"] = ["b", "c"]
    cut = CliRunner().invoke(command, ["neighbors", "-c", "s"]).output
    assert "s has no neighbors: the edges to b, c are cut." in cut


def test_a_node_without_max_ballots_says_why_it_hears_no_gateway() -> None:
    network, said, rng = MemoryNetwork(), list[str](), np.random.default_rng(0)
    known: dict[str, Any] = {"n_agents": 2, "sigma": 1.0}
    cores = [Gateway(colme.Census(sigma=1.0), "g", ["a"], max_ballots=9, **known),
             Core(colme.Census(sigma=1.0), "a", ["g"], **known)]  # fmt: skip
    gateway, node = (Device(core, network.join(core.name, core.neighbors)) for core in cores)
    journal = Journal(said.append)
    for t in range(20):
        network.run_until(float(t))
        gateway.feed(float(t), [(str(i), rng.normal()) for i in range(9)])
        node.feed(float(t), [rng.normal()])
        journal.look(node, float(t))
    assert cores[1].refused.senders["g"]["sense"] > 5 and cores[0].fresh(20.0) == ["a"]
    assert [each for each in said if "max_ballots" in each] == [said[-1]] and "g is silent: its records" in said[-1]
    [row] = status_of(node, 20.0)["neighbor_rows"]
    assert not row["fresh"] and "max_ballots" in row["why"]
    assert gateway.why_silent("a") is None


def test_lines_have_a_name_and_a_number() -> None:
    bad: list[bytes] = []
    parser = NamedLineParser(bad.append)
    lines = b"meter-17 21.4\n  boiler room 3\t-1e3 \n\nhall/7 2\n17 18\n"
    assert parser.feed(lines) == [("meter-17", 21.4), ("boiler room 3", -1000.0), ("hall/7", 2.0), ("17", 18.0)]
    wrong = [b"21.4", b"a nan", b"a 1_0", b"a inf", b"a b", b"\x1b[2J 3", b"a\xe2\x80\xaeb 3", b"x" * 129 + b" 3",
             b"K\xfcche 3"]  # fmt: skip
    assert parser.feed(b"\n".join(wrong) + b"\n") == [] and len(bad) == len(wrong)


def test_topics_have_names_and_different_names_have_different_topics() -> None:
    for pattern, topic, name in (
        ("plant/+/t", "plant/a/t", "a"), ("$share/g/plant/+/t", "plant/a/t", "a"), ("plant/#", "plant", ""),
        ("+/x/#", "a/x/b/c", "a/b/c"), ("plant/a", "plant/a", None),
    ):  # fmt: skip
        assert wild_part(pattern, topic) == name
    names = ["a", "/a", "a/", "a//b", "a/b", "/", "//", "a%2F", "%2Fa", "+", "#", "$SYS", "a b"]
    topics = [place_of("plant/+/estimate", name) for name in names]
    assert len(set(topics)) == len(names) and "plant/a/estimate" in topics and "plant/a/b/estimate" in topics
    for topic in topics:
        assert "" not in topic.split("/") and not set(topic) & set("+#$"), topic


def test_few_and_many_local_agents_have_the_same_posteriors() -> None:
    """Kernels up to KERNELS agents, NumPy beyond: the same to rounding, quantiles to the table of the normal
    distribution (1.2e-7 in probability; densities here are above .02 per deviation)."""
    rng = np.random.default_rng(6)
    core, device = lone_gateway(colme.Census(sigma=1.0), max_ballots=200, sigma=1.0)
    for t in range(30):
        device.feed(float(t), [(str(i), [0.0, 1.0, 9.0][i % 3] + rng.normal()) for i in range(100)])
    agent = core.inner
    agent._find_posteriors()
    many = agent.estimate.copy(), agent.variance.copy(), *agent.interval(0.9)
    rows = np.arange(KERNELS + 1)
    agent.rearrange(rows)
    agent._find_posteriors()
    few = agent.estimate.copy(), agent.variance.copy(), *agent.interval(0.9)
    for i, (one, other) in enumerate(zip(few, many, strict=True)):
        np.testing.assert_allclose(one, other[rows], rtol=1e-9, atol=1e-5 if i > 1 else 1e-12)


@settings(max_examples=60)
@given(data=st.data())
def test_local_readings_are_filtered_like_those_of_single_agents(data: st.DataObject) -> None:
    """Three agents with gaps, faults and jumps, one of which comes later: the same samples, counts and order."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n, rules = 150, {"least": -1e4, "most": 1e5}
    faults = st.sampled_from([0.0, -999.0, 999.0, 2e5, -2e4, 50.0])
    rows = np.round(rng.normal(size=(n, 3)), data.draw(st.integers(0, 6)))
    for t, a, fault in data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, 2), faults), max_size=12)):
        rows[t, a] = fault
    rows[rng.uniform(size=rows.shape) < 0.2] = np.nan
    rows[:40, 2] = np.nan
    many, single = LocalReadings(**rules), [ReadingFilter(**rules) for _ in range(3)]
    many.rearrange(np.array([0, 0, 0]))
    for t, row in enumerate(rows):
        if t == 40:
            many.rearrange(np.array([0, 2, 1, 0]))  # and the first two change places
        order = [0, 1] if t < 40 else [1, 0, 2]
        found = many.admit(np.array([np.nan, *row[order]]))
        for place, a in enumerate(order, 1):
            wanted = single[a].admit([row[a]] if row[a] == row[a] else [])
            assert [layer[place] for layer in found if layer[place] == layer[place]] == wanted
    assert many.outside == sum(each.outside for each in single)
    assert many.outliers == sum(each.outliers for each in single)


def test_readings_that_do_not_count_are_reported_with_a_name_at_1_2_4_8() -> None:
    said: list[str] = []
    core, device = lone_gateway(max_ballots=9)
    core.readings = LocalReadings(least=-40.0, most=85.0, say=said.append)
    for t in range(9):
        device.feed(float(t), [("hall 1", 20.0 + t), ("hall 2", -999.0)])
    assert [line.split()[0] for line in said] == ["1", "2", "4", "8"] and core.readings.outside == 9
    rest = "now of 'hall 2': 1 outside of the range, 0 wild. See [samples] in node.toml."
    assert said[0] == f"1 reading of local agents does not count as a sample, {rest}"
