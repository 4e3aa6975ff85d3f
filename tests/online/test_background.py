"""Votes in the background: learning does not wait for them, and the results are those of a model that does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colme
from colme import CColME, Census, CLColME, CollaborativeMean
from colme.online.rules import CensusRule, Rule
from tests.online.test_model import assert_same, two_classes

METHODS = (Census(), Census(guard=False), CLColME(guard=True, level="agent"), CColME(guard=True, sigma=1.0))


def models(method: colme.methods.Method, **options: Any) -> tuple[CollaborativeMean, CollaborativeMean]:
    return CollaborativeMean(method, **options), CollaborativeMean(method, **options, background=True)


def saved(model: CollaborativeMean, folder: Path) -> dict[str, bytes]:
    """Every array of its file."""
    model.save(folder / "model.npz")
    with np.load(folder / "model.npz", allow_pickle=False) as arrays:
        return {name: arrays[name].tobytes() for name in arrays}


@pytest.mark.parametrize(
    "options", [{"half_life": 300.0, "max_agents": 45},
                *(pytest.param(each, marks=pytest.mark.slow) for each in ({}, {"sigma": 3.0}))], ids=str,
)  # fmt: skip
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_the_same_bits_as_without(method: colme.methods.Method, options: dict[str, Any], tmp_path: Path) -> None:
    blocking, background = models(method, **options)
    agent, value = two_classes(60, 4000)
    rng = np.random.default_rng(0)
    done = 0
    for size in rng.geometric(0.01, 30):  # new agents come all along, since batches are small at first
        rows = slice(done, min(done + int(size), 4000))
        for model in (blocking, background):
            model.learn_many(agent=agent[rows], value=value[rows], time=np.arange(4000)[rows])
        done = rows.stop
        if rng.random() < 0.3:
            background.wait()
            assert_same(blocking, background)
        if rng.random() < 0.2:
            leaver = next(iter(blocking.mean_))
            blocking.forget(leaver)
            background.forget(leaver)
    background.wait()
    assert_same(blocking, background)
    assert saved(blocking, tmp_path) == saved(background, tmp_path)


class Held:
    """Votes that do not end before they are released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.released, self.begun = threading.Event(), threading.Event()
        judge = Rule.judge

        def held(rule: Rule, *sums: float) -> None:
            self.begun.set()
            assert self.released.wait(60.0)
            judge(rule, *sums)

        monkeypatch.setattr(Rule, "judge", held)


def test_learning_and_asking_do_not_wait_for_a_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, value = two_classes(50, 3000)
    blocking, background = models(Census())
    for model in (blocking, background):
        model.learn_many(agent=agent[:1000], value=value[:1000])
        model.wait()
    before = background._rule
    stop = int(before.stops[0])  # the next vote is at this event
    blocking.learn_many(agent=agent[1000:stop], value=value[1000:stop])
    held = Held(monkeypatch)
    for row in range(1000, stop + 5):  # past the vote, which cannot end
        background.learn_one(int(agent[row]), float(value[row]))
    assert held.begun.wait(60.0)
    now = background.to_columns()
    assert background._rule is before and sum(now["n"].tolist()) == stop + 5
    assert background.estimate_[0] == now["estimate"][now["agent"].index(0)]
    held.released.set()
    background.wait()
    blocking.learn_many(agent=agent[stop : stop + 5], value=value[stop : stop + 5])
    assert_same(blocking, background)


def test_a_vote_that_fails_is_told_to_whoever_waits_and_learning_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, value = two_classes(50, 2000)
    model = CollaborativeMean(Census(), background=True)
    model.learn_many(agent=agent[:1000], value=value[:1000])
    model.wait()

    def broken(*_: Any) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(CensusRule, "learn", broken)
        stop = int(model._rule.stops[0])
        model.learn_many(agent=agent[1000:stop], value=value[1000:stop])
        with pytest.raises(MemoryError, match="no room"):
            model.wait()
    model.learn_many(agent=agent[stop:], value=value[stop:])
    model.wait()
    assert sum(model.count_.values()) == 2000 and np.isfinite(list(model.estimate_.values())).all()
