"""A method can be written at three depths: per-agent form only, NumPy, kernel. (The kernel: docs/write_a_method.md.)"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import colme
from colme.errors import NodeError
from colme.graphs import random_regular_graph
from colme.methods import Agent, IntervalMethod, Method, Place, Round
from colme.methods.skeleton import OneHop, OneHopAgent
from colme.node.core import Core
from colme.node.messages.wire import MOST_BYTES, AnyBody, Record, pack
from colme.node.net.memory import MemoryNetwork
from colme.testing import SIGMA, Case, agent_form_equals_array_form, check_method
from tests.support.nodes import Fleet, samples_of


class AgentsOnly(IntervalMethod, frozen=True, kw_only=True, tag="agents-only"):
    """The skeleton without its array form."""

    label: ClassVar[str] = "agents only"
    tolerates_loss: ClassVar[bool] = True

    def agent(self, place: Place) -> Agent:
        return OneHopAgent(self, place)  # type: ignore[arg-type]


def test_the_per_agent_form_alone_keeps_the_promises() -> None:
    check_method(AgentsOnly(delta=0.1, level="agent"))


def test_numpy_gives_the_bits_of_the_per_agent_form() -> None:
    scenario = colme.Scenario(n_agents=60, means=(0.0, 0.9), sigma=0.5, skip_rate=0.2, late_share=0.1, late_step=9)
    alone, array = colme.simulate([AgentsOnly(), OneHop()], scenario, degree=6, steps=60)
    np.testing.assert_array_equal(alone.final.estimate, array.final.estimate)
    for metric in ("mse", "wrong_edges", "lost_edges", "isolated"):
        np.testing.assert_array_equal(getattr(alone, metric), getattr(array, metric))
    assert alone.final.graph == array.final.graph and array.wrong_edges[0] == 1.0 > array.wrong_edges[-1]


def test_a_method_that_never_mentions_its_guard_is_guarded() -> None:
    """In every form: as an array, as agents in lockstep, and as an array made of agents."""
    scenario = colme.Scenario(n_agents=60, means=(0.0, 0.9), sigma=0.5)
    bare, array, alone = colme.simulate([OneHop(), OneHop(guard=True), AgentsOnly(guard=True)], scenario, steps=40)
    assert np.isnan(bare.trust).all() and np.isfinite(array.trust).all() and array.trust.min() < 1.0
    np.testing.assert_array_equal(array.trust, alone.trust)
    np.testing.assert_array_equal(array.final.estimate, alone.final.estimate)
    agent_form_equals_array_form(Case(OneHop(guard=True)))


def test_a_world_offers_the_newest_samples() -> None:
    seen = []

    class Watching(colme.methods.baselines.LocalState):  # type: ignore[name-defined]
        def step(self, world: Any) -> None:
            super().step(world)
            seen.append(world.newest)

    class Watch(colme.Local, frozen=True, tag="watch"):  # type: ignore[call-arg]
        def start(self, world: Any, graph: Any) -> Any:
            return Watching(self, world)

    samples = np.arange(12.0).reshape(4, 3)
    samples[1, 2] = np.nan
    recording = colme.Recording(samples)
    colme.simulate(Watch(), recording)
    np.testing.assert_array_equal(np.array(seen) + recording.origin, samples)


# On a node


def test_any_method_runs_on_devices_without_a_common_tick() -> None:
    n, graph = 40, random_regular_graph(40, 6, rng=2)
    samples, truth = samples_of(2, n, 200)
    fleet = Fleet(OneHop(), graph, MemoryNetwork(seed=1, loss=0.2, delay=(0.0, 0.1)), sigma=SIGMA)
    estimates = fleet.run(samples)[-1]
    together, local = ((each - truth) ** 2 for each in (estimates, samples.mean(axis=0)))
    assert together.mean() < 0.5 * local.mean() and fleet.one_sided == 0
    assert {(int(core.name[-3:]) - int(b[-3:])) % 2 for core in fleet.cores for b in core.neighbors} == {0}


def _core(method: Method = OneHop()) -> Core:  # noqa: B008
    core = Core(method, "a", ["b"], n_agents=2, sigma=1.0)
    core.tick(0.0, 1.0, {})
    return core


def _record(message: Any, epoch: int = 1) -> bytes:
    return pack(Record(1, epoch, 1, 0.5, 1, AnyBody([(message, {})])))


@pytest.mark.parametrize(
    "message",
    [None, "text", 1.0, [], [1.0], [1.0, 1, [[1.0]]], [1.0, 1, [["x", 1.0]]], [1e300, 1, [[1.0, 1.0]]],
     {"mean": 1.0}, [1.0, True, [[1.0, 1.0]]], [1.0, 1, [[1.0, 1.0], [1.0, 1.0]]]],
    ids=str,
)  # fmt: skip
def test_a_message_of_another_structure_is_not_heard(message: Any) -> None:
    core = _core()
    core.tick(1.0, 1.0, {"b": _record(message)})
    assert core.neighbors == ["b"] and core.estimate == 1.0
    core.tick(2.0, 1.0, {"b": _record([0.5, 3, [[0.5, 3.0]]], epoch=2)})
    assert core.estimate == 0.75  # one of its own structure is


@pytest.mark.parametrize("tail", [b"", b"\xc1", b"\x91" * 5000, b"\x91\xc0", b"\x90" * 2], ids=repr)
def test_bytes_that_are_no_messages_are_refused(tail: bytes) -> None:
    core = _core()
    head = pack(Record(1, 1, 1, 0.5, 1, AnyBody([])))[:-1]
    core.tick(1.0, 1.0, {"b": head + tail})
    assert core.estimate == 1.0 and sum(core.refused.values()) == 1


def test_a_message_that_fits_no_record_is_refused() -> None:
    with pytest.raises(NodeError, match=r"a message of \d+ bytes: a record holds at most \d+\. Send less per step\."):
        pack(Record(1, 1, 1, 0.5, 1, AnyBody([("x" * MOST_BYTES, {})])))


class Deaf(Method, frozen=True, kw_only=True, tag="deaf"):
    """Its agents keep no list of neighbors."""

    def agent(self, place: Place) -> Agent:
        return DeafAgent(place)


class DeafAgent(Agent):
    def step(self, sample: float) -> Round:
        self.observe(sample)
        self.estimate = self.mean
        yield {}


def test_an_agent_without_a_list_of_neighbors_is_refused() -> None:
    with pytest.raises(NodeError, match=r"DeafAgent keeps no list of its neighbors.* Set self\.neighbors"):
        _core(Deaf())
