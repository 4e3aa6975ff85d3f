"""A scenario is checked when it is made, says what it is, and becomes the same population under the same seed."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import colme
from colme.errors import MethodError
from colme.method import arrived
from colme.scenario import ASSIGNMENTS, Scenario, check_seed
from tests.support.examples import examples

EVERYTHING = Scenario(
    n_agents=6, means=(0.1, 0.2, 0.3), sigma=(1.0, 2.0, 3.0), sizes=(1, 2, 3), assignment="blocks",
    distribution="student", df=3.5, skip_rate=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5), late_share=0.5, late_step=7,
    shift_step=20, shift_means=(0.3, 0.2, 0.1),
)  # fmt: skip
SOME = [
    Scenario(n_agents=5000, means=(1.2, 2.0), sigma=2.0),
    Scenario(n_agents=1, means=(-1e-300,)),
    Scenario(n_agents=10, means=(0.0, 1.0), assignment="random", sizes=(3, 1)),
    Scenario(n_agents=10, means=(0.25, 0.75), distribution="bernoulli"),
    EVERYTHING,
]


# Who is in which class


@examples(30)
@given(n_agents=st.integers(1, 500), n_classes=st.integers(1, 20), seed=st.integers(0, 2**64 - 1))
def test_equal_classes_differ_by_at_most_one_agent(n_agents: int, n_classes: int, seed: int) -> None:
    n_classes = min(n_classes, n_agents)
    for assignment in ("equal", "blocks"):
        scenario = Scenario(n_agents=n_agents, means=tuple(map(float, range(n_classes))), assignment=assignment)
        sizes = np.bincount(scenario.populate(seed).class_, minlength=n_classes)
        assert sizes.sum() == n_agents and len(sizes) == n_classes
        assert np.ptp(sizes) <= 1


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize(
    "more",
    [{}, {"sigma": (1.0, 2.0, 3.0)}, {"late_share": 0.3, "late_step": 5}, {"spread": 0.5},
     {"spread": 0.5, "spread_shape": "uniform"}, {"sizes": (500, 0, 200)},
     {"sigma": tuple(1.0 + a for a in range(700))}],
)  # fmt: skip
def test_a_shard_of_the_population_is_a_part_of_the_whole(assignment: str, more: dict[str, Any]) -> None:
    scenario = Scenario(n_agents=700, means=(0.0, 1.0, 0.0), assignment=assignment, **more)
    whole = scenario.populate(4)
    for first, n in ((0, 64), (64, 512), (576, None), (640, 1000), (640, 0)):
        part, agents = scenario.populate(4, first=first, n=n), slice(first, None if n is None else first + n)
        for name in ("class_", "sigma", "joins", "entry", "offset"):
            one, all_ = getattr(part, name), getattr(whole, name)
            expected = all_[agents] if isinstance(all_, np.ndarray) else all_
            np.testing.assert_array_equal(one, expected, strict=isinstance(all_, np.ndarray))


def test_sizes_are_kept() -> None:
    for assignment in ("equal", "blocks"):
        scenario = Scenario(n_agents=100, means=(0.0, 1.0, 2.0), sizes=(70, 0, 30), assignment=assignment)
        assert np.bincount(scenario.populate(3).class_).tolist() == [70, 0, 30]


def test_blocks_are_in_order_and_equal_classes_are_mixed() -> None:
    blocks = Scenario(n_agents=1000, means=(0.0, 1.0), assignment="blocks").populate(0).class_
    np.testing.assert_array_equal(blocks, np.repeat([0, 1], 500))
    mixed = Scenario(n_agents=1000, means=(0.0, 1.0)).populate(0).class_
    # hypergeometric: the first half holds 250 +- 7.9 agents of class 0
    assert abs(np.count_nonzero(mixed[:500] == 0) - 250) < 4 * 7.9
    assert np.count_nonzero(np.diff(mixed.astype(int))) > 400


def test_random_classes_are_drawn_in_proportion_to_the_sizes() -> None:
    n, sizes = 20_000, (5, 3, 0, 2)
    scenario = Scenario(n_agents=n, means=(0.0, 1.0, 2.0, 3.0), sizes=sizes, assignment="random")
    counts = np.bincount(scenario.populate(1).class_, minlength=4)
    assert counts[2] == 0
    assert stats.chisquare(counts[[0, 1, 3]], n * np.array([5, 3, 2]) / 10).pvalue > 1e-4
    without = Scenario(n_agents=n, means=(0.0, 1.0, 2.0, 3.0), assignment="random").populate(1).class_
    assert stats.chisquare(np.bincount(without, minlength=4)).pvalue > 1e-4


def test_a_random_class_does_not_depend_on_how_many_agents_there_are() -> None:
    few = Scenario(n_agents=100, means=(0.0, 1.0), assignment="random").populate(9).class_
    many = Scenario(n_agents=1000, means=(0.0, 1.0), assignment="random").populate(9).class_
    np.testing.assert_array_equal(many[:100], few)


def test_random_classes_may_be_more_than_agents() -> None:
    class_ = Scenario(n_agents=2, means=(0.0, 1.0, 2.0), assignment="random").populate(0).class_
    assert len(class_) == 2 and class_.max() < 3


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_the_seed_decides_the_population(assignment: str) -> None:
    scenario = Scenario(n_agents=300, means=(0.0, 1.0), assignment=assignment, late_share=0.4, late_step=9)
    one, again, other = scenario.populate(2**40), scenario.populate(2**40), scenario.populate(1)
    assert one.joins is not None and again.joins is not None and other.joins is not None
    np.testing.assert_array_equal(one.class_, again.class_)
    np.testing.assert_array_equal(one.joins, again.joins)
    assert not np.array_equal(one.joins, other.joins)
    assert np.array_equal(one.class_, other.class_) == (assignment == "blocks")


def test_the_late_are_as_many_as_asked_and_chosen_without_regard_to_class() -> None:
    population = Scenario(n_agents=1000, means=(0.0, 1.0), late_share=0.3, late_step=50).populate(0)
    assert population.joins is not None
    assert sorted(set(population.joins.tolist())) == [1, 50]
    late = population.joins == 50
    assert late.sum() == 300
    assert abs(np.count_nonzero(late & (population.class_ == 0)) - 150) < 4 * 7.3  # hypergeometric deviation


@pytest.mark.parametrize("nobody", [{}, {"late_share": 0.5}, {"late_step": 50}])
def test_nobody_is_late_unless_both_share_and_step_say_so(nobody: dict[str, Any]) -> None:
    assert Scenario(n_agents=10, means=(0.0,), **nobody).populate(0).joins is None


def test_the_known_scale_is_one_number_one_per_class_or_one_per_agent() -> None:
    two: dict[str, Any] = {"n_agents": 6, "means": (0.0, 1.0), "assignment": "blocks"}
    assert Scenario(**two).populate(0).sigma == 1.0
    assert Scenario(**two, sigma=3).populate(0).sigma == 3.0
    assert np.asarray(Scenario(**two, sigma=(2.0, 5.0)).populate(0).sigma).tolist() == [2.0] * 3 + [5.0] * 3
    per_agent = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert np.asarray(Scenario(**two, sigma=per_agent).populate(0).sigma).tolist() == list(per_agent)


def test_bounded_samples_have_a_width_and_bernoulli_samples_a_known_scale() -> None:
    bernoulli = Scenario(n_agents=4, means=(0.5,), distribution="bernoulli")
    assert (bernoulli.width, bernoulli.known_scale, bernoulli.populate(0).sigma) == (1.0, 0.5, 0.5)
    uniform = Scenario(n_agents=4, means=(0.5, 0.6), sigma=(1.0, 2.0), distribution="uniform")
    assert uniform.width == pytest.approx(4.0 * math.sqrt(3.0))
    for distribution in ("gaussian", "laplace", "student"):
        assert Scenario(n_agents=4, means=(0.5,), distribution=distribution).width is None


# How it is written


@pytest.mark.parametrize("scenario", SOME, ids=repr)
def test_json_and_back_is_the_same_scenario(scenario: Scenario) -> None:
    back = msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario)
    assert back == scenario
    assert eval(repr(back), {"Scenario": Scenario}) == scenario
    assert msgspec.convert(msgspec.to_builtins(scenario), Scenario) == scenario


def test_json_is_checked_like_everything_else() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"sigma=-1\.0: it must be positive"):
        msgspec.json.decode(b'{"n_agents": 5, "means": [1.0], "sigma": -1.0}', type=Scenario)
    with pytest.raises(msgspec.ValidationError, match="unknown field `variance`"):
        msgspec.json.decode(b'{"n_agents": 5, "means": [1.0], "variance": 1.0}', type=Scenario)
    with pytest.raises(msgspec.ValidationError, match=r"\$\.n_agents"):
        msgspec.json.decode(b'{"n_agents": "5", "means": [1.0]}', type=Scenario)


def test_lists_and_arrays_are_taken_as_tuples() -> None:
    names = ("means", "sigma", "sizes", "skip_rate", "shift_means")
    for wrap in (list, np.array):
        changed = {name: wrap(getattr(EVERYTHING, name)) for name in names}
        scenario = msgspec.structs.replace(EVERYTHING, **changed)
        assert scenario == EVERYTHING
        assert repr(scenario) == repr(EVERYTHING)
        assert msgspec.json.encode(scenario) == msgspec.json.encode(EVERYTHING)


def test_a_scenario_cannot_be_changed_and_takes_names_only() -> None:
    with pytest.raises(AttributeError):
        SOME[0].n_agents = 6  # type: ignore[misc]
    with pytest.raises(TypeError):
        Scenario(5000, (1.2, 2.0))  # type: ignore[call-arg, misc]


# Seeds


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1, np.int64(7), np.uint64(2**64 - 1), np.int8(3)])
def test_a_whole_number_of_64_bits_is_a_seed(seed: Any) -> None:
    checked = check_seed(seed)
    assert checked == seed and type(checked) is int


@pytest.mark.parametrize("shape", ["gaussian", "uniform"])
def test_spread_moves_everybody_from_the_mean_of_its_class(shape: str) -> None:
    n = 20_000
    scenario = Scenario(n_agents=n, means=(1.0, 5.0), sigma=1.0, spread=0.4, spread_shape=shape)
    population = scenario.populate(3)
    assert population.offset is not None and (np.bincount(population.class_) == 1).all()
    x = population.offset / 0.4
    kurtosis = 3.0 if shape == "gaussian" else 1.8
    # standard errors of the moments of n draws
    assert abs(x.mean()) < 4.0 / np.sqrt(n)
    assert x.var() == pytest.approx(1.0, abs=4.0 * np.sqrt((kurtosis - 1.0) / n))
    assert (x**4).mean() == pytest.approx(kurtosis, abs=4.0 * np.sqrt((105.0 if shape == "gaussian" else 9.0) / n))
    assert abs(np.corrcoef(x, population.entry)[0, 1]) < 4.0 / np.sqrt(n)
    if shape == "uniform":
        assert np.abs(x).max() <= np.sqrt(3.0)
    truth = colme.simulate(colme.Local(), scenario, degree=4, steps=1, seed=3).final.truth
    np.testing.assert_allclose(truth, np.array([1.0, 5.0])[population.entry] + population.offset, rtol=0, atol=1e-14)
    assert not np.array_equal(population.offset, scenario.populate(4).offset)


@pytest.mark.parametrize("method", [colme.CLColME(), colme.CColME(), colme.BColME(), colme.ColME()], ids=repr)
def test_methods_that_do_not_tolerate_loss_refuse_it(method: Any) -> None:
    scenario = Scenario(n_agents=10, means=(0.0,), loss=0.2)
    with pytest.raises(MethodError, match=r"loss=0\.2: .* Try loss=0, or a method that tolerates loss: Census\(\)"):
        colme.simulate(method, scenario, degree=4, steps=2)
    with pytest.raises(MethodError, match="loss"):
        colme.simulate(method, scenario, degree=4, steps=2, seeds=range(3))


def test_lost_messages_are_as_many_as_they_should_and_another_lot_every_step() -> None:
    first, second = (arrived(1, t, 100_000, 0.2) for t in (1, 2))
    for heard in (first, second):
        assert heard.mean() == pytest.approx(0.8, abs=4.0 * np.sqrt(0.16 / 1e5))
    assert (first & second).mean() == pytest.approx(0.64, abs=4.0 * np.sqrt(0.23 / 1e5))
    np.testing.assert_array_equal(first, arrived(1, 1, 100_000, 0.2))
    np.testing.assert_array_equal(first[:999], arrived(1, 1, 999, 0.2))
    assert not np.array_equal(first, arrived(2, 1, 100_000, 0.2))
