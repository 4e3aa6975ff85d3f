"""Copies and pickles that users make: both go on by themselves, with the same bits."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import colme
from colme import CColME, Census, CLColME, CollaborativeMean, Local
from colme.graphs import random_regular_graph
from colme.method import World
from tests.online.test_model import assert_same, two_classes
from tests.support.same_bits import assert_same_bits

COPIES = (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)))
copies = pytest.mark.parametrize("copied", COPIES, ids=["copy", "deepcopy", "pickle"])


@copies
@pytest.mark.parametrize(
    ("method", "background"), [(Census(), True), (CLColME(guard=True, level="agent"), False), (Local(), True)], ids=repr
)
def test_an_online_model_and_its_copy_go_on_alike_and_apart(
    method: colme.methods.Method, background: bool, copied: Callable[[Any], Any]
) -> None:
    model = CollaborativeMean(method, degree=4, max_agents=45, background=background)
    agent, value = two_classes(50, 1500)
    labels = [f"{a}" if a % 3 else int(a) for a in agent]
    model.learn_many(agent=labels, value=value)
    model.forget(labels[-1])
    again = copied(model)
    assert repr(again) == repr(model)
    model.wait()
    assert_same(model, again)
    kept = copied(model)
    later, more = two_classes(60, 1500, seed=7)
    model.learn_many(agent=later, value=more)
    model.wait()
    untouched = copied(again)
    assert_same(again, kept)
    again.learn_many(agent=later, value=more)
    again.learn_one("new", 1.0)
    model.learn_one("new", 1.0)
    for each in (model, again):
        each.wait()
    assert_same(model, again)
    assert_same(untouched, kept)


@copies
def test_a_model_on_a_given_graph(copied: Callable[[Any], Any]) -> None:
    graph = random_regular_graph(30, 4, rng=np.random.default_rng(0))
    model = CollaborativeMean(CLColME(sigma=1.0, level="agent"), graph=graph)
    agent, value = two_classes(30, 900)
    model.learn_many(agent=agent[:600], value=value[:600])
    again = copied(model)
    for each in (model, again):
        each.learn_many(agent=agent[600:], value=value[600:])
    assert_same(model, again)


@copies
@pytest.mark.parametrize("several", [False, True])
def test_the_result_of_estimate(several: bool, copied: Callable[[Any], Any]) -> None:
    agent, value = two_classes(40, 600)
    columns = {"a": agent // 5, "b": agent % 5, "x": value}
    result = colme.estimate(columns, agent=["a", "b"] if several else "a", value="x")
    again = copied(result)
    assert repr(again.summary) == repr(result.summary) and again.names == result.names and repr(again) == repr(result)
    for name, column in result.to_columns().items():
        assert again.to_columns()[name].tolist() == column.tolist(), name
    if copied is not copy.copy:
        assert not np.shares_memory(again.estimate, result.estimate)


@copies
@pytest.mark.parametrize("method", [method() for method in colme.methods.METHODS], ids=repr)
def test_methods(method: colme.methods.Method, copied: Callable[[Any], Any]) -> None:
    again = copied(method)
    assert again == method and hash(again) == hash(method) and type(again) is type(method)


@copies
def test_scenarios_graphs_recordings_and_traces(copied: Callable[[Any], Any]) -> None:
    scenario = colme.Scenario(n_agents=20, means=(0.0, 1.0), sigma=1.0)
    assert copied(scenario) == scenario
    graph = random_regular_graph(20, 4, rng=np.random.default_rng(0))
    assert copied(graph) == graph
    trace = colme.simulate(CLColME(), copied(scenario), graph=copied(graph), steps=20, seed=0)
    assert_same_bits(copied(trace), trace)
    samples = np.random.default_rng(0).standard_normal((20, 20))
    recording = colme.Recording(samples)
    one, other = (colme.simulate(Local(), each, steps=20, seed=0) for each in (recording, copied(recording)))
    assert_same_bits(one, other)


class Walk:
    """A method, step by step."""

    def __init__(self, method: colme.methods.Method):
        graph = random_regular_graph(30, 4, rng=np.random.default_rng(0))
        self.world = World(np.arange(30) % 2, 1.0, None, np.zeros(30), None)
        self.state = method.start(self.world, graph)

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.world.t += 1
            sample = np.arange(30) % 2 + np.random.default_rng(self.world.t).standard_normal(30)
            self.world.mean += (sample - self.world.mean) / self.world.t
            self.state.step(self.world)


METHODS = (CLColME(), CColME(), colme.ColME(), colme.BColME(depth=2), Census(guard=False), Local(), colme.Oracle())


@pytest.mark.parametrize(
    "copied", [pytest.param(COPIES[1], marks=pytest.mark.slow), COPIES[2]], ids=["deepcopy", "pickle"]
)
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_states_of_methods_go_on_alike_and_apart(method: colme.methods.Method, copied: Callable[[Any], Any]) -> None:
    walk = Walk(method)
    walk.steps(10)
    again = copied(walk)
    before = walk.state.estimate.tobytes()
    walk.steps(10)
    assert again.state.estimate.tobytes() == before != walk.state.estimate.tobytes()
    again.steps(10)
    assert again.state.estimate.tobytes() == walk.state.estimate.tobytes()
