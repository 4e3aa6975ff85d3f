"""`CollaborativeMean` against a dict of lists: whatever is learned, forgotten, merged, saved and loaded."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import colme
from colme.errors import ColmeError, SampleError

labels = st.one_of(st.integers(-3, 6), st.sampled_from(["a", "b", "é ☃"]), st.just(3_000_000_000))
samples = st.floats(-1e3, 1e3, allow_subnormal=False).map(lambda x: round(x, 3))
batches = st.lists(st.tuples(labels, samples), max_size=12)
METHODS = (
    colme.Census(), colme.CLColME(), colme.CColME(), colme.Local(), colme.Census(guard=True),
    colme.CLColME(guard=True),
)  # fmt: skip
FORMS = ("arrays", "dict", "pandas", "polars")


def learn(model: Any, rows: list[tuple[Any, float]], form: str) -> None:
    agent, value = [a for a, _ in rows], [x for _, x in rows]
    if form == "arrays":
        model.learn_many(agent=agent, value=value)
        return
    if form == "polars" and len({type(a) for a in agent}) > 1:
        form = "pandas"  # a column of polars has one type
    columns = {"who": agent, "x": value}
    frame = {"dict": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame}[form](columns)
    model.learn_many(frame, agent="who", value="x")


class Crowds(RuleBasedStateMachine):
    """One model, and what it should know."""

    @initialize(
        method=st.sampled_from(METHODS), most=st.sampled_from([None, 3]), degree=st.integers(1, 4),
        background=st.booleans(),
    )  # fmt: skip
    def begin(self, method: Any, most: int | None, degree: int, background: bool) -> None:
        self.options: dict[str, Any] = {
            "method": method, "max_agents": most, "degree": degree, "background": background
        }  # fmt: skip
        self.model = colme.CollaborativeMean(**self.options)
        self.seen: dict[Any, list[float]] = {}  # in the order of their last samples
        self.low, self.high = math.inf, -math.inf

    def hear(self, agent: Any, x: float) -> None:
        self.low, self.high = min(self.low, x), max(self.high, x)
        most = self.options["max_agents"]
        before = self.seen.pop(agent, [])
        if not before and most is not None and len(self.seen) == most:
            del self.seen[next(iter(self.seen))]
        self.seen[agent] = [*before, x]

    @rule(agent=labels, x=samples)
    def learn_one(self, agent: Any, x: float) -> None:
        self.model.learn_one(agent, x)
        self.hear(agent, x)

    @rule(rows=batches, form=st.sampled_from(FORMS))
    def learn_many(self, rows: list[tuple[Any, float]], form: str) -> None:
        learn(self.model, rows, form)
        for agent, x in rows:
            self.hear(agent, x)

    @rule(rows=batches, bad=st.sampled_from([math.inf, 1e200, "hot"]))
    def learn_nothing(self, rows: list[tuple[Any, float]], bad: Any) -> None:
        with pytest.raises(SampleError):
            learn(self.model, [*rows, ("bad", bad)], "dict")

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def forget(self, data: Any) -> None:
        agent = data.draw(st.sampled_from(list(self.seen)))
        self.model.forget(agent)
        del self.seen[agent]

    @rule(rows=batches)
    def merge(self, rows: list[tuple[Any, float]]) -> None:
        other = colme.CollaborativeMean(**self.options | {"max_agents": None})
        learn(other, rows, "arrays")
        together = {*self.seen, *(agent for agent, _ in rows)}
        if self.options["max_agents"] is not None:  # who was heard last is not told of two models
            if len(together) > self.options["max_agents"]:
                with pytest.raises(ColmeError, match="max_agents"):
                    self.model.merge(other)
            return
        self.model.merge(other)
        for agent, x in rows:
            self.hear(agent, x)

    @rule()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.npz"
            self.model.save(path)
            self.model = colme.CollaborativeMean.load(path)
            assert [each.name for each in Path(folder).iterdir()] == ["model.npz"]

    @invariant()
    def knows_what_it_was_told(self) -> None:
        if not hasattr(self, "model"):
            return
        model = self.model
        assert dict(model.count_.items()) == {agent: len(x) for agent, x in self.seen.items()}
        assert model.n_agents == len(self.seen)
        for agent, x in self.seen.items():
            assert model.mean_[agent] == pytest.approx(np.mean(x), rel=1e-9, abs=1e-9)

    @invariant()
    def answers_make_sense(self) -> None:
        if not hasattr(self, "model"):
            return
        known = self.model.to_columns()
        assert set(known["agent"]) == set(self.seen)
        assert np.isfinite(known["estimate"]).all() and (known["group"] >= 0).all()
        assert not np.isnan(known["lower"]).any() and (known["lower"] <= known["upper"]).all()
        # an average remembers also those who left
        assert ((known["estimate"] >= self.low - 1e-6) & (known["estimate"] <= self.high + 1e-6)).all()
        group = self.model.groups_
        for agent in self.seen:
            for other in self.model.neighbors(agent):
                assert other != agent and agent in self.model.neighbors(other) and group[agent] == group[other]


Crowds.TestCase.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
TestCrowds = Crowds.TestCase


def test_large_labels_that_are_close_cost_no_memory() -> None:
    model = colme.CollaborativeMean()
    model.learn_many(agent=np.arange(10**15, 10**15 + 5), value=np.arange(5.0))
    model.learn_many(agent=np.arange(5, dtype=np.uint64) + np.uint64(2**63 + 5), value=np.arange(5.0))
    assert model.mean_[10**15 + 3] == 3.0 and model.mean_[2**63 + 7] == 2.0 and model.n_agents == 10


def test_times_of_every_kind_are_the_same() -> None:
    import datetime

    day = datetime.date(2024, 3, 30)
    days = [day + datetime.timedelta(k) for k in range(3)]
    moments = [datetime.datetime(each.year, each.month, each.day) for each in days]
    forms: list[Any] = [days, moments, np.array(moments, "M8[ns]"), pd.Series(moments).dt.tz_localize("UTC"),
                        pl.Series(days), [each - moments[0] for each in moments],
                        np.array([each - moments[0] for each in moments], "m8[s]")]  # fmt: skip
    means: set[float] = set()
    for times in forms:
        model = colme.CollaborativeMean(half_life=86400.0)
        model.learn_many(agent=["a"] * 3, value=[1.0, 2.0, 4.0], time=times)
        means.add(model.mean_["a"])
    for convert in (lambda each: each, lambda each: datetime.datetime(each.year, each.month, each.day)):
        model = colme.CollaborativeMean(half_life=86400.0)
        for x, each in zip([1.0, 2.0, 4.0], days, strict=True):
            model.learn_one("a", x, convert(each))
        means.add(model.mean_["a"])
    assert means == {3.0}  # (1 / 4 + 2 / 2 + 4) / (7 / 4)
