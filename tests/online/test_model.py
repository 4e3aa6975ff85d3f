"""CollaborativeMean: the loop, compiled or not; against a slow reference; agents that come, leave and are merged."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import colme
from colme import CColME, Census, CLColME, CollaborativeMean, Local
from colme.consensus import CLOCKS
from colme.errors import ColmeError, ColumnError, DataError, MethodError, RunError, SampleError, UnknownAgent
from colme.graphs import random_regular_graph
from tests.reference.online import online

METHODS = (
    Local(), Census(), Census(sigma=1.0), CLColME(level="agent"), CLColME(level="agent", clock="global", sigma=1.0),
    CLColME(clock="own", bound="fourth-moment", level="population"), CLColME(clock="constant", alpha=0.9, sigma=1.0),
    CColME(level="agent", sigma=1.0), CLColME(cut="difference", sigma=1.0),
    CColME(cut="difference", level="agent", sigma=1.0),
)  # fmt: skip
GUARDED = (
    Census(sigma=3.0), CLColME(guard=True, level="agent", sigma=3.0), CColME(guard=True),
    CLColME(guard=True, cut="difference", sigma=1.0),
)  # fmt: skip


def two_classes(
    n_agents: int, n_events: int, seed: int = 0, gap: float = 2.0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Agents at random, each with its sample: odd ones have mean `gap`, even ones 0; sigma 1."""
    rng = np.random.default_rng(seed)
    agent = rng.integers(0, n_agents, n_events)
    return agent, gap * (agent % 2) + rng.standard_normal(n_events)


def assert_same(one: CollaborativeMean, other: CollaborativeMean) -> None:
    """Every bit of what they know."""
    ours, theirs = one.to_columns(), other.to_columns()
    assert ours.pop("agent") == theirs.pop("agent")
    for name, values in ours.items():
        assert values.tobytes() == theirs[name].tobytes(), name
    assert [one.neighbors(a) for a in one.mean_] == [other.neighbors(a) for a in other.mean_]


@pytest.mark.parametrize("method", METHODS + GUARDED, ids=repr)
@pytest.mark.parametrize("extra", [{}, {"half_life": 30.0}, {"max_agents": 20, "level": 0.5}], ids=str)
def test_many_is_the_loop_and_files_keep_all(
    method: colme.methods.Method, extra: dict[str, Any], tmp_path: Path
) -> None:
    agent, value = two_classes(40, 1500)
    time = np.cumsum(np.random.default_rng(1).exponential(size=len(agent)))
    labels = [f"s{a}" if a % 3 else a for a in agent.tolist()]
    looped, at_once = (CollaborativeMean(method, degree=4, seed=2**63, **extra) for _ in range(2))
    for i, (a, x, t) in enumerate(zip(labels, value.tolist(), time.tolist(), strict=True)):
        looped.learn_one(a, x, t)
        if i % 100 == 7:
            looped.to_columns()  # asking changes nothing
        if i == 1100:
            looped.forget(a)
    for part in (slice(0, 1), slice(1, 300), slice(300, 1101), slice(1101, 1300), slice(1300, None)):
        at_once.learn_many(agent=labels[part], value=value[part], time=time[part])
        if part.stop == 1101:
            at_once.forget(labels[1100])
        at_once.save(tmp_path / "model.npz")
        at_once = CollaborativeMean.load(tmp_path / "model.npz")
    assert repr(looped) == repr(at_once)
    assert_same(looped, at_once)
    assert looped.trust_ == at_once.trust_


@given(st.lists(st.tuples(st.integers(-3, 12), st.floats(-5, 5), st.booleans()), max_size=60), st.integers(0, 5))
def test_any_sequence_in_any_pieces(events: list[tuple[int, float, bool]], seed: int) -> None:
    """Where the flag is set a batch ends; numbers as labels go another way through learn_many than text does."""
    looped, at_once = (CollaborativeMean(CLColME(gamma=0.4, sigma=0.5), degree=3, seed=seed) for _ in range(2))
    batch: list[tuple[int, float]] = []
    for i, (a, x, ends) in enumerate(events):
        looped.learn_one(a, x)
        batch.append((a, x))
        if ends or i == len(events) - 1:
            at_once.learn_many(agent=np.array([a for a, _ in batch]), value=[x for _, x in batch])
            batch = []
    assert_same(looped, at_once)


@pytest.mark.parametrize("cut", ["intervals", "difference"])
@pytest.mark.parametrize("clock", sorted(CLOCKS.keys() - {"constant"}))
def test_against_the_slow_reference(clock: str, cut: str) -> None:
    agent, value = two_classes(12, 600)
    graph = random_regular_graph(12, 5, rng=1)
    model = CollaborativeMean(
        CLColME(cut=cut, gamma=0.2, sigma=1.0, step=0.1, clock=clock), graph=graph, independent=True
    )
    model.learn_many(agent=agent, value=value)
    events = list(zip(agent.tolist(), value.tolist(), strict=True))
    *_, (estimate, kept) = online(events, graph.adjacency(), sigma=1.0, gamma=0.2, step=0.1, clock=clock, cut=cut)
    np.testing.assert_allclose([model.estimate_[a] for a in range(12)], estimate, rtol=1e-12)
    for a in range(12):
        assert sorted(model.neighbors(a)) == np.flatnonzero(kept[a]).tolist()
    assert 0 < kept.sum() < graph.adjacency().sum()  # the test would prove little where all or nothing is cut


@pytest.mark.parametrize("method", [Census(), CLColME(level="agent"), CColME(level="agent")], ids=repr)
@pytest.mark.parametrize("sigma", [1.0, None])
def test_comes_close_to_an_oracle(method: colme.methods.Method, sigma: float | None) -> None:
    """A class has 60 agents of 400 samples: an oracle's variance is 1 / 24 000. Clocked averages end at two to four
    times the oracle's error (docs/methods.md), and the two class means are two draws of it: their mean square is more
    than six times the variance once in 400."""
    agent, value = two_classes(120, 120 * 400)
    model = CollaborativeMean(method, sigma=sigma)
    model.learn_many(agent=agent, value=value)
    known = model.to_columns()
    truth = 2.0 * (np.array(known["agent"]) % 2)
    assert np.mean((known["estimate"] - truth) ** 2) < 4 * 6 / 24_000
    assert np.mean((known["mean"] - truth) ** 2) > 1 / 800
    groups = model.groups_
    assert len({groups[a] for a in range(0, 120, 2)} & {groups[a] for a in range(1, 120, 2)}) == 0
    assert len(set(groups.values())) == 2  # nobody ends alone: who is cut off asks others


def test_census_is_as_good_as_the_simulated_one() -> None:
    """At equal counts both fit the same means; the simulator's census is up to a fifth older, so the two differ by the
    luck of an oracle, 4 / (200 t)."""
    scenario = colme.Scenario(n_agents=400, means=(0.0, 1.0), sigma=2.0)
    for steps in (5, 40, 150):
        trace = colme.simulate(Census(), scenario, degree=10, steps=steps, seed=1)
        final = trace.final
        model = CollaborativeMean(Census(sigma=2.0))
        # a mean and its count are all that an agent's samples leave behind
        for _ in range(steps):
            model.learn_many(agent=np.arange(400), value=final.mean)
        estimate = np.array([model.estimate_[a] for a in range(400)])
        ours, theirs = np.mean((estimate - final.truth) ** 2), np.mean((final.estimate - final.truth) ** 2)
        assert ours < 1.1 * theirs + 4.0 / (200 * steps), steps


def test_intervals_hold() -> None:
    """90 % intervals: of 300 agents at least 90 % minus four standard deviations (7 %) are right. With so few samples
    that classes overlap; later all agents of a class share one error, and are right or wrong together."""
    agent, value = two_classes(300, 300 * 3, gap=1.0)
    for method in (Census(), Local(), CLColME()):
        model = CollaborativeMean(method)
        model.learn_many(agent=agent, value=value)
        known = model.to_columns()
        truth = np.array(known["agent"]) % 2
        assert np.mean((known["lower"] <= truth) & (truth <= known["upper"])) > 0.83
        assert model.interval_[7] == (known["lower"][known["agent"].index(7)], known["upper"][known["agent"].index(7)])


def test_moments_are_those_of_the_samples() -> None:
    model = CollaborativeMean(Local())
    values = 1e6 + np.random.default_rng(0).standard_normal(1000)
    model.learn_many({"agent": ["a"] * 1000, "value": values})
    assert model.mean_["a"] == pytest.approx(values.mean(), rel=1e-14)
    low, high = model.interval_["a"]
    s, n = values.std(ddof=1), 1000  # moderated by everybody's variance, which is its own
    s = np.sqrt((4 * s**2 + s**2 * (n - 1)) / (n + 3))
    assert (high - low) / 2 == pytest.approx(colme.confidence.laplace_radius(n, s, 0.05), rel=1e-6)


def test_forgetting_follows_a_change() -> None:
    """After ten half-lives the old mean counts for a thousandth."""
    rng = np.random.default_rng(0)
    for method in (Local(), Census(), CLColME(level="agent")):
        model = CollaborativeMean(method, half_life=50.0, sigma=1.0)
        for t in range(1500):
            value = rng.standard_normal(20) + (0.0 if t < 1000 else 5.0)
            model.learn_many(agent=np.arange(20), value=value, time=np.full(20, t))
        effective = 2 * 50 / np.log(2)
        assert np.abs(np.array(list(model.estimate_.values())) - 5.0).max() < 5 / np.sqrt(effective) + 0.01
    assert model.count_[0] == 1500


def test_agents_come_and_leave() -> None:
    agent, value = two_classes(30, 3000)
    model = CollaborativeMean(CLColME(level="agent"), degree=4)
    model.learn_many(agent=agent, value=value)
    for leaver in (3, 4, 29):
        friends = model.neighbors(leaver)
        assert friends and all(leaver in model.neighbors(friend) for friend in friends)
        model.forget(leaver)
        assert leaver not in model.mean_ and all(leaver not in model.neighbors(a) for a in model.mean_)
    assert len(model.estimate_) == model.n_agents == 27
    model.learn_one("late", 2.0)
    model.learn_one(3, 2.0)
    assert model.count_[3] == 1 and 1 <= len(model.neighbors("late")) <= 2
    assert all(len(model.neighbors(a)) <= 6 for a in model.mean_)  # 1.5 degree


def test_the_one_not_heard_for_longest_is_forgotten() -> None:
    model = CollaborativeMean(Local(), max_agents=3)
    for agent in ("a", "b", "c", "a", "d", "e"):
        model.learn_one(agent, 1.0)
    assert set(model.mean_) == {"a", "d", "e"}
    model.learn_many(agent=["f", "a", "b"], value=[1.0, 5.0, 1.0])
    assert dict(model.count_) == {"f": 1, "a": 1, "b": 1}


def test_memory_is_bounded() -> None:
    model = CollaborativeMean(CLColME(), max_agents=100)
    for first in range(0, 5000, 500):
        model.learn_many(agent=np.arange(first, first + 500), value=np.zeros(500))
    assert model.n_agents == 100 and len(model._table.labels) == 100 and len(model._table.agents) <= 200


@pytest.mark.parametrize("method", [Census(), Local(), CLColME(level="agent"), CColME()], ids=repr)
@pytest.mark.parametrize("half_life", [None, 200.0])
def test_merge_is_learning_everything(method: colme.methods.Method, half_life: float | None) -> None:
    agent, value = two_classes(30, 2000)
    time = np.arange(2000.0)
    whole, here, there = (CollaborativeMean(method, half_life=half_life) for _ in range(3))
    whole.learn_many(agent=agent, value=value, time=time)
    mine = (agent < 10) | ((agent < 20) & (np.arange(2000) % 3 == 0))  # 0..9 only here, 20..29 only there, others both
    here.learn_many(agent=agent[mine], value=value[mine], time=time[mine])
    there.learn_many(agent=agent[~mine], value=value[~mine], time=time[~mine])
    here.merge(there)
    for name in ("mean_", "count_"):
        ours, all_of_it = (dict(getattr(model, name)) for model in (here, whole))
        assert ours.keys() == all_of_it.keys()
        np.testing.assert_allclose([ours[a] for a in all_of_it], list(all_of_it.values()), rtol=1e-9, atol=1e-12)
    for a, (low, high) in here.interval_.items():
        np.testing.assert_allclose((low, high), whole.interval_[a], atol=0.15)
    np.testing.assert_allclose(here._table.pool, whole._table.pool, rtol=1e-9)
    for a, b in itertools.permutations(here.mean_, 2):
        assert (a in here.neighbors(b)) == (b in here.neighbors(a))
    here.learn_many(agent=agent, value=value, time=time + 2000)  # and it goes on
    assert np.isfinite(here.to_columns()["estimate"]).all()


def test_merge_of_given_graphs_keeps_what_both_kept() -> None:
    graph = [("a", "b"), ("b", "c"), ("c", "a")]
    here, there = (CollaborativeMean(CLColME(gamma=0.5, sigma=0.1), graph=graph) for _ in range(2))
    here.learn_many(agent=["a", "b"], value=[0.0, 9.0])
    there.learn_many(agent=["b", "c"], value=[9.0, 0.0])
    here.merge(there)
    assert here.neighbors("b") == () and here.neighbors("a") == ("c",)


def frame_of(kind: str) -> Any:
    table = {"sensor": ["a", "b", "a", "a"], "reading": [1.0, 2.0, None, 4.0]}
    if kind == "dict":
        return table
    pytest.importorskip("narwhals")
    if kind == "lazy":
        return pytest.importorskip("polars").DataFrame(table).lazy()
    package = pytest.importorskip(kind)
    return package.table(table) if kind == "pyarrow" else package.DataFrame(table)


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars", "lazy", "pyarrow"])
def test_frames(kind: str) -> None:
    model = CollaborativeMean(Local())
    frame = frame_of(kind)
    model.learn_many(frame, agent="sensor", value="reading")
    assert dict(model.mean_) == {"a": 2.5, "b": 2.0}
    with pytest.raises(ColumnError, match=r"the table has no column 'raeding': .* Did you mean 'reading'\?"):
        model.learn_many(frame, agent="sensor", value="raeding")
    with pytest.raises(ColumnError, match="the table has no column 'agent'"):
        model.learn_many(frame)


def test_frames_with_dates_categories_and_gaps() -> None:
    """The weight of b's first sample halves twice until its second."""
    pytest.importorskip("narwhals")
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({
        "agent": pd.Categorical(["a", "b", "a", "b"]),
        "value": pd.array([1, 2, None, 4], dtype="Int64"),
        "time": pd.date_range("2024-01-01", periods=4, freq="h", tz="Europe/Paris"),
    })  # fmt: skip
    model = CollaborativeMean(Local(), half_life=3600.0)
    model.learn_many(table, time="time")
    assert model.mean_ == {"a": 1.0, "b": pytest.approx((0.25 * 2 + 4) / 1.25)}


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"agent": ["a", "b"], "value": [1.0, np.inf]}, r"sample inf in row 2: it must be finite"),
        ({"agent": ["a", "b"], "value": [1.0, "x"]}, r"value 'x' in row 2: it must be a number"),
        ({"agent": ["a", "b"], "value": np.array(["1", "2"])}, r"value .*'1'.* in row 1: it must be a number"),
        ({"agent": ["a", [1]], "value": [1.0, 2.0]}, r"agent is not one column: .* Try a list of labels"),
        ({"agent": ["a", None], "value": [1.0, 2.0]}, r"agent None in row 2: it must be text or a whole number"),
        ({"agent": ["a", 1.5], "value": [1.0, 2.0]}, r"agent 1.5 in row 2: it must be text or a whole number"),
        ({"agent": ["a"], "value": [1.0, 2.0]}, r"columns differ in length: 'agent' has 1, 'value' has 2"),
        ({"agent": "a", "value": [1.0]}, r"agent='a': it must be a column of a table, or an array"),
        ({"agent": ["a"], "value": [[1.0]]}, r"value is not one column: .* Try a list of numbers"),
        ({"agent": ["a", "b", "a"], "value": [1.0, 1.0, 1.0], "time": [2, 1, 1]}, r"time 1 of agent 'a' is before"),
        ({"agent": ["a", "b"], "value": [1.0, 1.0], "time": [2, np.nan]}, r"the time in row 2 is missing"),
        ({"agent": ["a"], "value": [1.0]}, r"half_life=5 and no time: forgetting needs the time"),
        ({"agent": ["old"], "value": [1.0], "time": [0]}, r"time 0 of agent 'old' is before"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("extra", [{}, {"max_agents": 2}], ids=str)
def test_a_bad_batch_changes_nothing(bad: dict[str, Any], words: str, extra: dict[str, Any]) -> None:
    model, untouched = (CollaborativeMean(CLColME(), half_life=5.0, **extra) for _ in range(2))
    for each in (model, untouched):
        each.learn_one("old", 1.0, 1.0)
        each.learn_one("gone", 1.0, 1.0)
        each.forget("gone")
    bad = {"time": np.arange(len(bad["value"]))} | bad if "no time" not in words else bad
    with pytest.raises((SampleError, DataError), match=words):
        model.learn_many(**bad)
    assert_same(model, untouched)
    for each in (model, untouched):  # nor anything that shows later
        each.learn_many(agent=["x", "old", "y"], value=[1.0, 2.0, 3.0], time=[2, 2, 2])
    assert_same(model, untouched)


def known(**options: Any) -> CollaborativeMean:
    """A model that has one sample of two agents."""
    model = CollaborativeMean(**options)
    model.learn_many(agent=["sensor-7", 12], value=[1.0, 2.0], time=[0.0, 0.0])
    return model


def table_of(**columns: list[Any]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


Model = CollaborativeMean
EDGE = CLColME(sigma=1.0)
REFUSED: tuple[tuple[type[ColmeError], str, Callable[[], Any]], ...] = (
    (SampleError, "sample nan: it must be finite", lambda: Model().learn_one("a", np.nan)),
    (SampleError, "sample -inf: it must be finite", lambda: Model().learn_one("a", float("-inf"))),
    (SampleError, "sample '1.0': it must be a number", lambda: Model().learn_one("a", "1.0")),  # type: ignore[arg-type]
    (SampleError, r"sample 1e\+200: it must be finite, and below 1e\+150", lambda: Model().learn_one("a", 1e200)),
    (SampleError, "must be finite", lambda: Model().learn_one("a", 10**400)),
    (SampleError, r"agent \[1\]: it must be text or a whole number", lambda: Model().learn_one([1], 1.0)),
    (SampleError, "agent True: it must be text or a whole number", lambda: Model().learn_one(True, 1.0)),
    (SampleError, "must be a number or a date", lambda: known(half_life=1.0).learn_one("a", 1.0, "2024-01-01")),
    (SampleError, "time nan: it must be finite", lambda: known(half_life=1.0).learn_one("a", 1.0, np.nan)),
    (SampleError, "agent nan in row 2: it must be text", lambda: Model().learn_many(
        table_of(agent=["a", None], value=[1, 2]))),
    (SampleError, "3 is not a table: learn_many takes a data frame, a dict of arrays", lambda: Model().learn_many(3)),
    (SampleError, "complex", lambda: Model().learn_many(agent=["a"], value=[1j])),
    (SampleError, "time 'noon' in row 2", lambda: known(half_life=1.0).learn_many(
        agent=["a", "a"], value=[1, 2], time=[1, "noon"])),
    (UnknownAgent, r"^unknown agent 'a': no agent is known. Learn a sample of it first.$", lambda: Model().forget("a")),
    (UnknownAgent, r"unknown agent 'sensor-8': .* Did you mean 'sensor-7'\?", lambda: known().mean_["sensor-8"]),
    (UnknownAgent, r"unknown agent '12': .* Did you mean 12\?", lambda: known().neighbors("12")),
    (UnknownAgent, "unknown agent 'c'", lambda: Model(EDGE, graph=[("a", "b")]).learn_many(agent=["c"], value=[1.0])),
    (RunError, r"merge: sigma is 1.0 here and 2.0 there, it must be the same\.", lambda: Model(sigma=1.0).merge(
        Model(sigma=2.0))),
    (RunError, "it must be another CollaborativeMean", lambda: Model().merge(3)),  # type: ignore[arg-type]
    (RunError, "different agents", lambda: Model(EDGE, graph=[("a", "b")]).merge(Model(EDGE, graph=[("a", "c")]))),
    (RunError, "there would be 2 agents, and max_agents=1", lambda: Model(max_agents=1).merge(known())),
    (MethodError, r"Oracle\(\) cannot learn event by event", lambda: Model(colme.Oracle())),
    (MethodError, r"ColME\(\) cannot learn event by event: .* Try Census", lambda: Model(colme.ColME())),
    (MethodError, "method='census': it must be a method", lambda: Model("census")),  # type: ignore[arg-type]
    (MethodError, "restart=True: .* Try half_life=", lambda: Model(Census(restart=True, sigma=1.0))),
    (MethodError, r"CLColME\(consensus='flow'\) cannot learn event", lambda: Model(CLColME(consensus="flow"))),
    (MethodError, r"step=0.14 is not stable: agents may have 15 .* below 0.1333", lambda: Model(CLColME(step=0.14))),
    (MethodError, "graph=5: it must be a colme.Graph or pairs of agents", lambda: Model(EDGE, graph=5)),  # type: ignore[arg-type]
    (MethodError, r"Census with graph=: .* Leave graph out\.", lambda: Model(graph=[("a", "b")])),
    (MethodError, "max_agents= with graph=", lambda: Model(EDGE, graph=[("a", "b")], max_agents=5)),
    (MethodError, "Hoeffding's bound needs the width", lambda: Model(CLColME(bound="hoeffding"))),
    (MethodError, "degree=0: it must be a whole number of at least 1", lambda: Model(degree=0)),
    (MethodError, "half_life=-1.0: it must be positive", lambda: Model(half_life=-1.0)),
    (MethodError, "sigma=0.0: it must be positive", lambda: Model(sigma=0.0)),
    (MethodError, "level=1.0: it must be between 0 and 1", lambda: Model(level=1.0)),
    (MethodError, "max_agents=0: it must be a whole number", lambda: Model(max_agents=0)),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "words", "call"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_wrong_is_refused_in_a_sentence(kind: type[ColmeError], words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=words) as caught:
        call()
    assert str(caught.value).endswith((".", "?"))


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_edges_of_the_world(method: colme.methods.Method) -> None:
    """Nobody, one agent, one sample each, no variance at all, huge offsets."""
    model = CollaborativeMean(method)
    model.learn_many(agent=[], value=[])
    assert dict(model.estimate_) == {} and model.to_columns()["agent"] == []
    model.learn_one("a", 3.0)
    assert model.estimate_["a"] == 3.0 and model.neighbors("a") == ()
    model.learn_many(agent=list("bcd"), value=[3.0] * 3)
    assert all(abs(x - 3.0) < 1e-12 for x in model.estimate_.values())
    constant = CollaborativeMean(method)
    constant.learn_many(agent=list("abc") * 20, value=[1.0, 2.0, 2.0] * 20)
    assert constant.mean_["a"] == 1.0 and np.isfinite(constant.to_columns()["estimate"]).all()
    far = CollaborativeMean(method)
    agent, value = two_classes(50, 5000)
    far.learn_many(agent=agent, value=value + 1e9)
    near = CollaborativeMean(method)
    near.learn_many(agent=agent, value=value)
    assert np.abs(far.to_columns()["estimate"] - near.to_columns()["estimate"] - 1e9).max() < 1e-2


def test_views_read_and_print_like_mappings() -> None:
    model = CollaborativeMean(Local(), seed=5, sigma=2.0)
    model.learn_many(agent=["a", "b"], value=[1.0, 2.0])
    assert repr(model) == "CollaborativeMean(Local(), sigma=2.0, seed=5)"
    assert repr(model.mean_) == "{'a': 1.0, 'b': 2.0}" == repr(dict(model.mean_.items()))
    assert list(model.count_.values()) == [1, 1] and "a" in model.count_ and 3 not in model.count_
    assert model.mean_ == {"a": 1.0, "b": 2.0}
    with pytest.raises(TypeError):
        model.mean_["a"] = 3.0  # type: ignore[index]


def test_continua_have_no_groups() -> None:
    """Mixture components are none: of twelve continua at most one looks like two groups."""
    found = []
    for seed in range(12):
        rng, n = np.random.default_rng(seed), (30, 100)[seed % 2]
        truth = rng.uniform(0.0, 3.0, n)
        model = CollaborativeMean()
        model.learn_many(agent=np.tile(np.arange(n), 50), value=(truth + rng.normal(size=(50, n))).ravel())
        found.append(len(set(model.groups_.values())))
    assert sum(each > 1 for each in found) <= 1
