"""Cuts that are reconsidered: a fault that isolates an agent is made good by its later samples, at both ends, also
after crashes and with neighbors that never answer; wrong edges do not return."""

from __future__ import annotations

import contextlib
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import colme
from colme.errors import NodeError
from colme.graphs import complete_graph, random_regular_graph
from colme.node.assemble import forgive
from colme.node.config.node_toml import NodeConfig
from colme.node.core import Core
from colme.node.cuts import MORE
from colme.node.io.status import StatusServer, status_of
from colme.node.loop import Loop
from colme.node.messages import wire
from colme.node.messages.wire import AGREE, ASK, CUT, FORGIVE, KEEP, EdgeMessage, pack_edge, unpack_edge
from colme.node.net.memory import MemoryNetwork
from colme.node.store import AgentStore
from colme.testing import SIGMA
from tests.support.nodes import PERIOD, Fleet, Meeting, lone_core, lone_device, notice, samples_of

METHODS = [colme.CLColME(), colme.CLColME(consensus="flow"), colme.CColME(), colme.CLColME(cut="difference"),
           colme.CLColME(cut="difference", guard=True)]  # fmt: skip
LOSSY: dict[str, Any] = {"loss": 0.2, "delay": (0.0, 3 * PERIOD), "duplication": 0.1}


def kinds(messages: list[tuple[str, bytes]]) -> list[int]:
    """The kinds of the edge messages among these."""
    return [unpack_edge(raw).kind for _, raw in messages if raw[:4] == wire.EDGE]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("network", [pytest.param({}, marks=pytest.mark.slow), LOSSY], ids=["perfect", "lossy"])
def test_after_a_reading_of_minus_999_an_agent_is_back_with_its_class(method: Any, network: Any) -> None:
    """It is cut within a few ticks of the 30th, and asks at four times the samples of the cut."""
    fleet = Fleet(method, complete_graph(6), MemoryNetwork(seed=1, **network), sigma=SIGMA)
    samples = 20.0 + SIGMA * np.random.default_rng(3).standard_normal((300, 6))
    samples[30, 0] = -999.0
    alone = []
    for row in samples:
        fleet.tick(row)
        alone.append(not fleet.cores[0].neighbors)
    first = fleet.cores[0]
    assert alone.index(True) < 60 and not any(alone[-100:])
    assert sorted(first.neighbors) == sorted(fleet.neighbors[first.name]) and fleet.one_sided == 0
    assert first.cuts.forgotten == 1 and all(core.cuts.forgotten == 0 for core in fleet.cores[1:])
    assert not any(core.cuts.edges for core in fleet.cores)
    assert abs(first.mean - 20.0) < 5.0 * SIGMA / math.sqrt(first.agent.count)
    assert len(first.cuts.revived) == 5


def test_wrong_edges_return_hardly_ever() -> None:
    """Two classes. An edge returns if the means are within half the distance tau at which it would be cut, in standard
    errors of a difference. A gap of z of them, 2 z at the next question, returns with probability Phi(tau / 2 - z).
    With z < tau / 2 it was hardly cut before; one question falls between tau / 2 and tau, where a cut before it was a
    matter of luck, Phi(-tau / 2), as is a return between tau and 2 tau. So there are 1.5 Phi(-tau / 2) or fewer per
    edge, .027 at tau = 4.2, that of alpha = .1 / (2 72)."""
    returned = n_cut = 0
    for seed in range(2):
        samples, _ = samples_of(2, 24, 400, seed)
        fleet = Fleet(colme.CLColME(cut="difference"), random_regular_graph(24, 6, rng=seed), MemoryNetwork(),
                      sigma=SIGMA)  # fmt: skip
        for row in samples:
            fleet.tick(row)
        n_cut += sum(len(core.cuts.edges) for core in fleet.cores)
        wrong = [(core, b) for core in fleet.cores for b in (*core.neighbors, *core.cuts.revived)
                 if (int(core.name[-3:]) - int(b[-3:])) % 2]  # fmt: skip
        returned += len(wrong)
        assert all(cut_edge.count > 100 for core in fleet.cores for cut_edge in core.cuts.edges.values())  # asked, kept
        assert all(core.cuts.forgotten == 0 for core in fleet.cores) and fleet.one_sided == 0
    assert n_cut > 100 and returned <= 0.027 * n_cut


def agents(
    method: Any = None, counts: tuple[int, int] = (40, 40), means: tuple[float, float] = (0.0, 0.0)
) -> list[Core]:
    """Two agents whose edge was cut after four samples, at both ends."""
    method = method or colme.CLColME()
    cores = [lone_core(method, a, [b]) for a, b in (("a", "b"), ("b", "a"))]
    for core, other, count, mean in zip(cores, ("b", "a"), counts, means, strict=True):
        for _ in range(4):
            core.tick(0.0, mean, {})
        core.tick(0.0, math.nan, {}, [(other, notice(CUT, 4))])
        assert core.neighbors == [] and core.cuts.edges[other].count == 4
        assert core.inner.restart == 5  # the step of the cut: who hears of one cuts, too
        for _ in range(count - 4):
            core.observe(mean)
    return cores


def asked_and_answered(a: Core, b: Core) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
    """What a asks at its next tick, and what b answers."""
    _, asked = a.tick(1.0, math.nan, {})
    _, answers = b.tick(1.1, math.nan, {}, [("a", raw) for _, raw in asked])
    return asked, answers


def test_the_handshake() -> None:
    a, b = agents()
    asked, answers = asked_and_answered(a, b)
    assert kinds(asked) == [ASK] and a.cuts.due() == ["b"] and not a.urgent
    assert b.neighbors == ["a"] and b.urgent and b.cuts.returned == ["a"] and kinds(answers) == [AGREE]
    _, after = a.tick(1.2, math.nan, {}, [("b", answers[0][1])])
    assert a.neighbors == ["b"] and a.urgent and not a.cuts.edges and kinds(after) == []
    old, new = (notice(CUT, epoch) for epoch in (4, 50))
    b.tick(1.3, math.nan, {}, [("a", old)])
    assert b.neighbors == ["a"] and b.refused["old"] == 1  # a copy of the first notice, on a long way
    b.tick(1.4, math.nan, {}, [("a", new)])
    assert b.neighbors == [] and b.cuts.edges["a"].times == 2


def test_an_end_with_little_evidence_does_not_answer() -> None:
    a, b = agents(counts=(40, 4 * MORE - 1))
    asked, answers = asked_and_answered(a, b)
    assert answers == [] and b.neighbors == [] and b.cuts.due() == []
    _, asked = b.tick(1.2, 0.0, {})
    assert kinds(asked) == [ASK]  # now it has four times the samples


def test_agents_that_differ_stay_apart_and_count_anew() -> None:
    a, b = agents(means=(0.0, 50.0))
    _, answers = asked_and_answered(a, b)
    assert [kind for kind in kinds(answers) if kind != ASK] == [KEEP] and b.cuts.edges["a"].count == 40
    a.tick(1.2, math.nan, {}, [("b", answers[0][1])])
    assert a.neighbors == [] and a.cuts.due() == [] and a.cuts.edges["b"].count == 40
    for _ in range(3 * 40):
        a.observe(0.0)
    assert a.cuts.due() == ["b"]


def test_a_lost_answer_is_repeated_and_a_crash_loses_nothing() -> None:
    a, b = agents()
    asked, answers = asked_and_answered(a, b)
    saved = [core.state() for core in (a, b)]
    a, b = (lone_core(a.method, name, [other], incarnation=2) for name, other in (("a", "b"), ("b", "a")))
    a.restore(saved[0])
    b.restore(saved[1])
    assert a.cuts.edges["b"].count == 4 and b.neighbors == ["a"] and b.cuts.revived["a"] == (1, 6, 1)
    asked, answers = asked_and_answered(a, b)
    assert kinds(asked) == [ASK] and kinds(answers) == [AGREE] and not b.urgent
    a.tick(2.2, math.nan, {}, [("b", answers[-1][1])])  # after the word that it has been started
    assert a.neighbors == ["b"]


def test_an_end_that_kept_the_cut_tells_the_other_again() -> None:
    """The one agreed while the other, asked at the same time, did not."""
    a, _ = agents()
    _, asked = a.tick(1.0, math.nan, {})
    intervals = unpack_edge(asked[0][1]).intervals
    far = ((50.0, intervals[0][1]),)
    a.tick(1.1, math.nan, {}, [("b", pack_edge(EdgeMessage(KEEP, 1, 9, far)))])
    _, messages = a.tick(1.2, math.nan, {}, [("b", pack_edge(EdgeMessage(AGREE, 1, 9, intervals)))])
    assert a.neighbors == [] and [wire.unpack_control(raw).kind for _, raw in messages] == [CUT]


def test_a_neighbor_that_never_answers_is_asked_less_and_less() -> None:
    a, _ = agents()
    asked = [k for k in range(3000) if kinds(a.tick(1.0 + k * PERIOD, math.nan, {})[1])]
    assert asked[:5] == [0, 1, 3, 7, 15] and len(asked) <= math.log2(3000) + 1 and a.neighbors == []


def test_nothing_can_be_asked_by_strangers_or_too_often() -> None:
    a, b = agents()
    question = pack_edge(EdgeMessage(ASK, 1, 9, a.inner.intervals))
    b.tick(1.0, math.nan, {}, [("x", question), ("a", question[:-1]), ("a", pack_edge(EdgeMessage(ASK, 1, 9, ())))])
    assert b.refused == {"stranger": 1, "size": 1, "sense": 1} and b.neighbors == []
    forgive = pack_edge(EdgeMessage(FORGIVE, 1, 9, a.inner.intervals))
    early, _ = agents(counts=(4, 4))
    early.tick(1.0, math.nan, {}, [("b", forgive)])
    assert early.neighbors == []  # it has not a tenth more samples than at the cut


def test_status_says_when_and_why() -> None:
    core, other = lone_core(colme.CLColME(), "a", ["b", "c"]), lone_core(colme.CLColME(), "b", ["a"])
    device = lone_device(core)
    for k in range(9):
        record, _ = other.tick(k * PERIOD, 50.0, {})
        core.tick(k * PERIOD, 1.0, {"b": record}, [("c", notice(CUT))] if k == 8 else [])
    rows = status_of(device, 1.0)["cut_rows"]
    assert [row["name"] for row in rows] == ["b", "c"]
    assert rows[0]["why"].startswith("means differ: 1 of ") and "50 of" in rows[0]["why"]
    assert rows[1]["why"] == "told by the other end" and rows[1]["tick"] == 9
    assert rows[1]["reconsidered_at_samples"] == MORE * 9


def test_forgiving_asks_at_once_and_evidence_decides() -> None:
    a, b = agents(counts=(8, 8))
    assert a.cuts.due() == [] and a.cuts.forgive("b") and a.cuts.due() == ["b"] and not a.cuts.forgive("x")
    asked, answers = asked_and_answered(a, b)
    a.tick(1.2, math.nan, {}, [("b", answers[0][1])])
    assert kinds(asked) == [FORGIVE] and a.neighbors == ["b"] and b.neighbors == ["a"]
    a, b = agents(counts=(8, 8), means=(0.0, 50.0))
    a.cuts.forgive("b")
    asked, answers = asked_and_answered(a, b)
    assert kinds(answers) == [KEEP] and b.neighbors == []


def test_a_device_opens_links_that_it_had_dropped(tmp_path: Path) -> None:
    """Without a guard, links to agents of cut edges are dropped; both ends open them again when they are due."""
    fleet = Fleet(colme.CLColME(), complete_graph(3), MemoryNetwork(seed=1), sigma=SIGMA, stale_after=3 * PERIOD)
    samples = SIGMA * np.random.default_rng(3).standard_normal((200, 3))
    samples[10, 0] = -999.0
    dropped = False
    for row in samples:
        fleet.tick(row)
        dropped |= not fleet.devices[fleet.names[0]].transport.neighbors  # type: ignore[attr-defined]
    assert dropped and fleet.cores[0].fresh(fleet.network.now) == fleet.names[1:] and fleet.one_sided == 0


def test_the_command_asks_a_running_node(tmp_path: Path) -> None:
    config = NodeConfig(name="a", method=colme.CLColME(sigma=1.0), store=str(tmp_path / "a.sqlite"))
    a, _ = agents(counts=(8, 8))
    device = lone_device(a, AgentStore(config.store))
    server = StatusServer(path=config.socket, requests=config.request_socket)
    loop = Loop(device, SimpleNamespace(bad=0, ended=False), server, period=1.0)  # type: ignore[arg-type]
    assert loop.answer("praise b") == "unknown request 'praise b': there is forgive NAME."
    answers = []
    with ThreadPoolExecutor(1) as client, contextlib.closing(server):
        for name in ("x", "b"):
            asked = client.submit(forgive, config, name)
            while not asked.done():
                server.wait(0.05, dict)
            answers.append(asked.result())
    assert answers[0] == "a has no cut edge to 'x'; it has: b."
    assert answers[1].startswith("a asks b to reconsider the cut. The edge returns if b answers and the intervals")
    assert a.cuts.due() == ["b"] and not Path(config.request_socket).exists()


def test_the_command_changes_the_store_of_a_node_that_does_not_run(tmp_path: Path) -> None:
    method = colme.CLColME(sigma=1.0)
    config = NodeConfig(name="a", method=method, store=str(tmp_path / "a.sqlite"))
    with pytest.raises(NodeError, match=r"a does not run and has no store at .*\. Start it: colme node run\."):
        forgive(config, "b")
    a, _ = agents(method, counts=(8, 8))
    store = AgentStore(config.store)
    lone_device(a, store).save()
    store.close()
    assert forgive(config, "x") == "a does not run, and its store has no cut edge to 'x'."
    assert forgive(config, "b") == "a does not run: it will ask b to reconsider the cut when it starts."
    store = AgentStore(config.store)
    again = lone_core(method)
    lone_device(again, store)
    store.close()
    _, messages = again.tick(1.0, math.nan, {})
    assert kinds(messages) == [FORGIVE]


def test_an_agent_with_introductions_finds_neighbors_again() -> None:
    """It forgets the fault, no longer avoids the peers that were far from it, and has as many neighbors as it wants."""
    fleet = Meeting(colme.CLColME(), complete_graph(8), MemoryNetwork(seed=1), degree=3, seeds=[1], sigma=SIGMA)
    samples = SIGMA * np.random.default_rng(3).standard_normal((400, 8))
    samples[40, 0] = -999.0
    alone = []
    for row in samples:
        fleet.tick(row)
        alone.append(not fleet.cores[0].neighbors)
    first = fleet.cores[0]
    assert any(alone[40:100]) and not any(alone[-50:]) and first.cuts.forgotten == 1
    assert len(first.neighbors) >= 3 and all(first.name in fleet.devices[b].core.neighbors for b in first.neighbors)
