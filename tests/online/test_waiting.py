"""Samples of learn_one wait to be learned together: nobody can tell, whatever is asked, and whenever."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colme import CColME, Census, CLColME, CollaborativeMean, Local
from colme.errors import ColmeError, SampleError, UnknownAgent
from colme.graphs import random_regular_graph
from colme.online import model as module
from colme.online.rules import Rule
from tests.online.test_background import saved
from tests.online.test_model import assert_same, two_classes

METHODS = (
    Census(), Census(guard=False, sigma=1.0), Local(), CLColME(level="agent", gamma=0.4, sigma=0.5), CColME(guard=True),
)  # fmt: skip
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"max_agents": 4}, {"half_life": 20.0}, {"half_life": 20.0, "max_agents": 4}, {"background": True},
)  # fmt: skip
AGENTS = (0, 1, 2, 3, "a", "b", "0")
READS: dict[str, Callable[[CollaborativeMean], Any]] = {
    "n_agents": lambda model: model.n_agents,
    "len": lambda model: len(model.mean_),
    "in": lambda model: [agent in model.count_ for agent in AGENTS],
    "iteration": lambda model: list(model.groups_),
    "mean_": lambda model: [model.mean_.get(agent) for agent in AGENTS],
    "count_": lambda model: list(model.count_.values()),
    "estimate_": lambda model: dict(model.estimate_.items()),
    "one estimate": lambda model: [model.estimate_.get(agent) for agent in AGENTS],
    "interval_": lambda model: repr(model.interval_),
    "groups_": lambda model: repr(model.groups_),
    "trust_": lambda model: model.trust_,
    "neighbors": lambda model: [model.neighbors(agent) for agent in model.mean_],
    "to_columns": lambda model: {name: np.asarray(each).tolist() for name, each in model.to_columns().items()},
}


def told(call: Callable[[], Any]) -> str | None:
    """The sentence with which a call is refused."""
    try:
        call()
    except ColmeError as error:
        return f"{type(error).__name__}: {error}"
    return None


class Twins:
    """A model that learns one by one, and one that learns the same rows as batches of one, which never wait."""

    def __init__(self, method: Any, options: dict[str, Any]):
        self.waiting, self.prompt = (CollaborativeMean(method, degree=2, **options) for _ in range(2))
        self.clock = 0.0

    @property
    def both(self) -> tuple[CollaborativeMean, CollaborativeMean]:
        return self.waiting, self.prompt

    def learn(self, agent: Any, x: float, passed: float) -> None:
        """A sample; the time goes backwards for all if `passed` is negative, which may be too early for its agent."""
        time = self.clock + passed
        one = told(lambda: self.waiting.learn_one(agent, x, time))
        many = told(lambda: self.prompt.learn_many(agent=[agent], value=[x], time=[time]))
        assert one == many
        self.prompt.wait()
        if one is None:
            self.clock = time

    def burst(self, seed: int, n: int) -> None:
        rng = np.random.default_rng(seed)
        for agent, x in zip(rng.integers(len(AGENTS), size=n).tolist(), rng.standard_normal(n).tolist(), strict=True):
            self.learn(AGENTS[agent], x, 0.25)

    def refuse(self, bad: tuple[Any, ...]) -> None:
        sentences = [told(lambda each=model: each.learn_one(*bad)) for model in self.both]
        assert sentences[0] is not None and sentences[0] == sentences[1]

    def ask(self, what: str) -> None:
        if self.waiting.background:
            self.waiting.wait()
        np.testing.assert_equal(*(READS[what](model) for model in self.both))

    def forget(self, agent: Any) -> None:
        sentences = [told(lambda each=model: each.forget(agent)) for model in self.both]
        assert sentences[0] == sentences[1]

    def replace(self, way: str) -> None:
        self.waiting, self.prompt = map(WAYS[way], self.both)

    def merge(self, rows: list[tuple[Any, float]]) -> None:
        """A model whose own samples wait is merged into both."""
        others = [CollaborativeMean(model.method, degree=2, half_life=model.half_life) for model in self.both]
        for agent, x in rows:
            others[0].learn_one(agent, x, self.clock)
            others[1].learn_many(agent=[agent], value=[x], time=[self.clock])
        sentences = [told(lambda a=a, b=b: a.merge(b)) for a, b in zip(self.both, others, strict=True)]
        assert sentences[0] == sentences[1]


BAD = (("a", math.nan, 0.0), ("a", -math.inf, 0.0), ("a", 1e200, 0.0), ("new", "1", 0.0), ("a", None, 0.0),
       ([1], 1.0, 0.0), (None, 1.0, 0.0), (True, 1.0, 0.0), (1.5, 1.0, 0.0))  # fmt: skip
WAYS: dict[str, Callable[[CollaborativeMean], CollaborativeMean]] = {
    "copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}  # fmt: skip
samples = st.floats(-5, 5).map(lambda x: round(x, 2))
actions = st.one_of(
    st.tuples(st.just("learn"), st.sampled_from(AGENTS), samples, st.sampled_from([0.0, 0.5, 3.0, -1.0])),
    st.tuples(st.just("burst"), st.integers(0, 99), st.sampled_from([2, 30, 300])),
    st.tuples(st.just("refuse"), st.sampled_from(BAD)),
    st.tuples(st.just("ask"), st.sampled_from(sorted(READS))),
    st.tuples(st.just("forget"), st.sampled_from(AGENTS)),
    st.tuples(st.just("replace"), st.sampled_from(sorted(WAYS))),
    st.tuples(st.just("merge"), st.lists(st.tuples(st.sampled_from(AGENTS), samples), max_size=4)),
)  # fmt: skip


@settings(max_examples=60)
@given(st.sampled_from(METHODS), st.sampled_from(OPTIONS), st.lists(actions, max_size=25))
def test_any_interleaving_of_calls(
    tmp_path_factory: Any, method: Any, options: dict[str, Any], todo: list[Any]
) -> None:
    twins = Twins(method, options)
    for name, *rest in todo:
        getattr(twins, name)(*rest)
    folder = tmp_path_factory.mktemp("models")
    assert saved(twins.waiting, folder) == saved(twins.prompt, folder)


def test_a_view_from_before_sees_what_comes_later() -> None:
    model = CollaborativeMean(Local())
    mean, count = model.mean_, model.count_
    for k in range(5):
        model.learn_one("a", float(k))
        assert len(mean) == 1 and "a" in count and list(mean) == ["a"]
        assert mean == {"a": k / 2} and count["a"] == k + 1


def test_votes_are_held_in_the_call_that_makes_them_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are due because agents came. So learning waits for a vote in the same calls as ever."""
    calls: list[int] = []
    vote, row = Rule.vote, 0

    def noted(rule: Rule) -> None:
        calls.append(row)
        vote(rule)

    monkeypatch.setattr(Rule, "vote", noted)
    agent, value = two_classes(300, 2000)
    one, many = CollaborativeMean(), CollaborativeMean()
    for row in range(2000):
        one.learn_one(int(agent[row]), float(value[row]))
    found, calls = calls, []
    for row in range(2000):
        many.learn_many(agent=agent[row : row + 1], value=value[row : row + 1])
    assert found == calls and len(calls) > 20


def test_few_samples_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def noted(slots: Any, *rest: Any) -> int:
        sizes.append(len(slots))
        return int(learn_events(slots, *rest))

    learn_events = module.learn_events
    monkeypatch.setattr(module, "learn_events", noted)
    model = CollaborativeMean(Local())
    for k in range(10_000):
        model.learn_one(k % 50, 1.0)
        assert k + 1 - 256 < sum(sizes) <= k + 1
    assert sum(model.count_.values()) == 10_000 and max(sizes) <= 256


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("half_life", [None, 50.0])
def test_an_interrupt_loses_nothing(late: bool, half_life: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before or after samples that waited are learned: none is lost, none counts twice."""
    model, untouched = (CollaborativeMean(Local(), half_life=half_life) for _ in range(2))
    learn_events = module.learn_events

    def interrupted(*arguments: Any) -> int:
        if late:
            learn_events(*arguments)
        raise KeyboardInterrupt

    for k in range(100):
        for each in (model, untouched):
            each.learn_one(k % 7, 0.1 * k, k)
        if k % 10 == 9:
            with monkeypatch.context() as patch:
                patch.setattr(module, "learn_events", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    model.mean_[0]
            if half_life is not None:
                with pytest.raises(SampleError, match=f"time {k - 1} of agent {k % 7} is before"):
                    model.learn_one(k % 7, 1.0, k - 1)
    assert_same(model, untouched)


def test_a_vote_that_fails_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, value = two_classes(50, 1000)
    model = CollaborativeMean()
    raised = 0
    with monkeypatch.context() as patch:
        patch.setattr(Rule, "vote", lambda rule: 1 / 0)
        for a, x in zip(agent.tolist(), value.tolist(), strict=True):
            try:
                model.learn_one(a, x)
            except ZeroDivisionError:
                raised += 1
    assert raised > 0 and [model.count_[a] for a in range(50)] == np.bincount(agent, minlength=50).tolist()
    model.learn_one(0, 1.0)
    assert np.isfinite(list(model.estimate_.values())).all()


def test_samples_that_are_refused_leave_those_that_wait() -> None:
    graph = random_regular_graph(6, 3, rng=0)
    model, untouched = (CollaborativeMean(CLColME(sigma=1.0), graph=graph, half_life=9.0) for _ in range(2))
    for each in (model, untouched):
        for k in range(6):
            each.learn_one(k, 1.0, 5.0)
    with pytest.raises(SampleError, match="half_life=9 and no time"):
        model.learn_one(0, 1.0)
    with pytest.raises(SampleError, match="time 4 of agent 3 is before that of its last sample"):
        model.learn_one(3, 1.0, 4)
    with pytest.raises(SampleError, match="sample nan"):
        model.learn_one(3, math.nan, 7.0)
    with pytest.raises(UnknownAgent, match="unknown agent 'c': 6 other agents are known"):
        model.learn_one("c", 1.0, 6.0)
    model.learn_one(3, 1.0, 5)  # the same time again is none that goes backwards
    untouched.learn_one(3, 1.0, 5)
    assert_same(model, untouched)


def test_an_agent_that_returns_begins_anew_with_its_time() -> None:
    model = CollaborativeMean(Local(), half_life=9.0, max_agents=2)
    for agent, time in (("a", 8.0), ("b", 9.0), ("c", 1.0), ("c", 2.0), ("a", 3.0), ("a", 3.0)):
        model.learn_one(agent, 1.0, time)
    assert dict(model.count_) == {"c": 2, "a": 2}
    model.forget("a")
    model.learn_one("d", 1.0, 0.0)
    model.learn_one("d", 1.0, 0.5)
    assert model.count_["d"] == 2


@pytest.mark.parametrize("method", [Local(), Census(), CLColME(level="agent")], ids=repr)
def test_threads_learn_one_by_one(method: Any) -> None:
    """Each thread has agents of its own, so that the order of their samples is known; others ask meanwhile."""
    model = CollaborativeMean(method, sigma=1.0)
    agent, value = two_classes(40, 12_000)
    learning = True

    def learn(part: int) -> None:
        mine = agent % 4 == part
        for a, x in zip(agent[mine].tolist(), value[mine].tolist(), strict=True):
            model.learn_one(a, x)

    def ask() -> None:
        while learning:
            known = model.to_columns()
            assert np.isfinite(known["estimate"]).all()
            assert all(model.count_[a] >= n for a, n in zip(known["agent"], known["n"].tolist(), strict=True))

    with ThreadPoolExecutor(5) as pool:
        asking = pool.submit(ask)
        try:
            for each in [pool.submit(learn, part) for part in range(4)]:
                each.result()
        finally:
            learning = False
        asking.result()
    alone = CollaborativeMean(Local())
    alone.learn_many(agent=agent, value=value)
    assert dict(model.count_) == dict(alone.count_) and dict(model.mean_) == dict(alone.mean_)
