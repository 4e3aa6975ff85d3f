"""What the agents see: the right distributions, the same bits everywhere, and recordings that are checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from colme import samples
from colme.recording import Recording
from colme.samples import ScenarioStream, draw, observe_some
from colme.scenario import DISTRIBUTIONS, Scenario
from tests.support.sampled import local_means

Array = NDArray[Any]
NAN = math.nan
CONTINUOUS = ("gaussian", "uniform", "laplace", "student")


def scenario_of(distribution: str, **changes: Any) -> Scenario:
    """Two classes that are possible for every distribution."""
    options: dict[str, Any] = {"n_agents": 200, "means": (0.3, 0.9), "distribution": distribution, "df": 9.0}
    if distribution != "bernoulli":
        options["sigma"] = 2.0
    return Scenario(**options | changes)


def filled(stream: ScenarioStream, steps: int, *, t0: int = 1, first: int = 0, n: int | None = None) -> Array:
    out = np.empty((steps, stream.n_agents - first if n is None else n))
    stream.fill(out, t0, first)
    return out


def twin(stream: ScenarioStream, steps: int, *, t0: int = 1, first: int = 0) -> Array:
    """What the NumPy form gives for a stream without gaps."""
    out = np.empty((steps, stream.n_agents - first))
    scale = stream.sigma[first:] if isinstance(stream.sigma, np.ndarray) else stream.sigma
    kind, df = DISTRIBUTIONS.index(stream.scenario.distribution), stream.scenario.df
    location = stream.truth(t0)[first:]
    samples._fill_numpy(out, stream.first + first, t0, stream.seed, kind, df, location, scale)
    return out


def same_bits(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


# Bits


SCALES = tuple(np.linspace(0.5, 3.0, 200).tolist())
ANY_SAMPLES: list[dict[str, Any]] = [
    *({"distribution": name, "n_agents": n, "means": (0.3,)} for name in DISTRIBUTIONS for n in (1, 17, 64, 200)),
    *({"distribution": name, "sigma": SCALES} for name in CONTINUOUS),
    *({"distribution": "student", "df": df} for df in (2.1, 3.0, 30.0, 1e6)),
]


@pytest.mark.parametrize("options", ANY_SAMPLES, ids=str)
@pytest.mark.parametrize("seed", [0, 3, 2**40 + 5])
def test_kernel_and_numpy_draw_the_same_bits(options: dict[str, Any], seed: int) -> None:
    stream = ScenarioStream(scenario_of(**options), seed)
    for t0 in (1, 1000):
        assert same_bits(filled(stream, 50, t0=t0), twin(stream, 50, t0=t0))
    if stream.n_agents == 200:
        assert same_bits(filled(stream, 9, t0=5, first=64), twin(stream, 9, t0=5, first=64))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("gaps", [{}, {"skip_rate": 0.3, "late_share": 0.2, "late_step": 20}])
def test_any_block_of_steps_and_agents_has_the_same_bits(distribution: str, gaps: dict[str, Any]) -> None:
    scenario = scenario_of(distribution, **gaps)
    whole = filled(ScenarioStream(scenario, 6), 40)
    stream = ScenarioStream(scenario, 6)
    blocks = [(1, 1, 0, 200), (2, 9, 64, 200), (10, 40, 128, 192), (40, 40, 192, 200), (1, 40, 0, 65)]
    for t0, t1, first, last in blocks:
        part = filled(stream, t1 - t0 + 1, t0=t0, first=first, n=last - first)
        assert same_bits(part, whole[t0 - 1 : t1, first:last])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_shards_have_the_bits_of_the_whole(distribution: str) -> None:
    gaps = {"skip_rate": tuple(np.linspace(0.0, 0.5, 200).tolist()), "late_share": 0.2, "late_step": 20}
    scale = {} if distribution == "bernoulli" else {"sigma": SCALES}
    scenario = scenario_of(distribution, **gaps, **scale)
    whole = ScenarioStream(scenario, 6)
    shards = [ScenarioStream(scenario, 6, first=first, n=n) for first, n in ((0, 64), (64, 128), (192, None))]
    assert same_bits(np.hstack([filled(shard, 30) for shard in shards]), filled(whole, 30))
    np.testing.assert_array_equal(np.hstack([shard.class_ for shard in shards]), whole.class_)
    np.testing.assert_array_equal(np.hstack([shard.truth(1) for shard in shards]), whole.truth(1))
    second_half = filled(shards[1], 5, t0=7, first=64)  # a block within a shard
    assert same_bits(second_half, filled(whole, 5, t0=7, first=128, n=64))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_draw_equals_the_stream_moved_back_to_its_origin(distribution: str) -> None:
    scenario = scenario_of(distribution, skip_rate=0.1)
    stream = ScenarioStream(scenario, 8)
    assert same_bits(draw(scenario, 8, 20), filled(stream, 20) + stream.origin)
    assert same_bits(draw(scenario, 8, 20, first=64, n=50), (filled(stream, 20) + stream.origin)[:, 64:114])


def test_the_seed_decides_the_samples() -> None:
    blocks = scenario_of("gaussian", assignment="blocks")  # the same classes under every seed
    assert same_bits(draw(blocks, 8, 5), draw(blocks, 8, 5))
    assert not np.any(draw(blocks, 8, 5) == draw(blocks, 9, 5))


# Distributions


def law(distribution: str, mean: float, sigma: float, df: float) -> Any:
    """The same distribution in scipy."""
    root3 = math.sqrt(3.0)
    return {
        "gaussian": stats.norm(mean, sigma),
        "uniform": stats.uniform(mean - root3 * sigma, 2 * root3 * sigma),
        "laplace": stats.laplace(mean, sigma / math.sqrt(2.0)),
        "student": stats.t(df, mean, sigma * math.sqrt((df - 2.0) / df)),
    }[distribution]


@pytest.mark.parametrize(
    ("distribution", "df"), [*((name, 9.0) for name in CONTINUOUS), *(("student", df) for df in (2.1, 3.0, 5.0, 100.0))]
)
@pytest.mark.parametrize("seed", [0, 2**33])
def test_samples_follow_their_distribution(distribution: str, df: float, seed: int) -> None:
    scenario = scenario_of(distribution, df=df)
    values, class_ = draw(scenario, seed, 500), scenario.populate(seed).class_
    for c, mean in enumerate(scenario.means):
        expected = law(distribution, mean, 2.0, df)
        assert stats.kstest(values[:, class_ == c].ravel(), expected.cdf).pvalue > 1e-4


def test_uniform_samples_stay_within_the_width_that_is_promised() -> None:
    scenario = scenario_of("uniform", means=(0.0,))
    values = draw(scenario, 0, 2000)
    assert scenario.width == pytest.approx(4.0 * math.sqrt(3.0))
    assert 0.999 * scenario.width < np.ptp(values) < scenario.width


@pytest.mark.parametrize("mean", [0.05, 0.5, 0.9])
def test_bernoulli_samples_are_0_or_1_with_the_right_frequency(mean: float) -> None:
    values = draw(scenario_of("bernoulli", means=(mean,)), 3, 500)
    assert set(np.unique(values)) == {0.0, 1.0}
    n = values.size
    assert abs(values.mean() - mean) < 4.0 * math.sqrt(mean * (1 - mean) / n)


@pytest.mark.parametrize("distribution", CONTINUOUS)
def test_a_scale_per_agent_multiplies_the_noise_of_that_agent(distribution: str) -> None:
    sigma = np.linspace(0.25, 8.0, 200)
    noise = draw(scenario_of(distribution, means=(0.0,), sigma=1.0), 5, 20)
    scaled = draw(scenario_of(distribution, means=(0.0,), sigma=sigma), 5, 20)
    np.testing.assert_array_equal(scaled, sigma * noise)


@pytest.mark.parametrize("distribution", CONTINUOUS)
def test_a_scale_per_class_multiplies_the_noise_of_that_class(distribution: str) -> None:
    noise = draw(scenario_of(distribution, means=(0.0, 0.0), sigma=1.0), 5, 20)
    scenario = scenario_of(distribution, means=(0.0, 0.0), sigma=(0.5, 4.0))
    by_agent = np.array([0.5, 4.0])[scenario.populate(5).entry]
    np.testing.assert_array_equal(draw(scenario, 5, 20), by_agent * noise)
    np.testing.assert_array_equal(ScenarioStream(scenario, 5).sigma, by_agent)


# Who is there, and when


def test_agents_skip_as_often_as_asked() -> None:
    rate = 0.3
    gone = np.isnan(draw(scenario_of("gaussian", skip_rate=rate), 0, 1000))
    assert abs(gone.mean() - rate) < 4.0 * math.sqrt(rate * (1 - rate) / gone.size)
    per_agent = (gone.mean(axis=0) - rate) / math.sqrt(rate * (1 - rate) / 1000)
    per_step = (gone.mean(axis=1) - rate) / math.sqrt(rate * (1 - rate) / 200)
    assert np.abs(per_agent).max() < 5.0 and np.abs(per_step).max() < 5.0


def test_every_agent_can_have_its_own_skip_rate() -> None:
    rate = np.linspace(0.0, 0.9, 200)
    gone = np.isnan(draw(scenario_of("gaussian", skip_rate=rate), 0, 2000)).mean(axis=0)
    assert gone[0] == 0.0
    assert np.all(np.abs(gone - rate) <= 5.0 * np.sqrt(rate * (1 - rate) / 2000))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_gaps_do_not_change_the_samples_that_are_seen(distribution: str) -> None:
    full = draw(scenario_of(distribution), 4, 50)
    gappy = draw(scenario_of(distribution, skip_rate=0.5, late_share=0.3, late_step=25), 4, 50)
    there = ~np.isnan(gappy)
    np.testing.assert_array_equal(gappy[there], full[there])


def test_late_agents_see_nothing_before_they_join_and_everything_after() -> None:
    values = draw(scenario_of("gaussian", late_share=0.25, late_step=30), 4, 50)
    late = np.isnan(values[0])
    assert late.sum() == 50
    assert np.isnan(values[:29, late]).all()
    assert not np.isnan(values[29:]).any() and not np.isnan(values[:, ~late]).any()


# Shifts of the means


@pytest.mark.parametrize("distribution", CONTINUOUS)
def test_means_shift_at_the_step_that_is_asked_for(distribution: str) -> None:
    before = scenario_of(distribution)
    after = scenario_of(distribution, means=(-1.0, 0.9))
    shifted = scenario_of(distribution, shift_step=12, shift_means=(-1.0, 0.9))
    expected = np.vstack([draw(before, 7, 20)[:11], draw(after, 7, 20)[11:]])
    np.testing.assert_allclose(draw(shifted, 7, 20), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("gaps", [{}, {"skip_rate": 0.3}])
def test_a_shift_inside_a_block_gives_the_same_bits_as_between_blocks(distribution: str, gaps: dict[str, Any]) -> None:
    scenario = scenario_of(distribution, shift_step=12, shift_means=(0.7, 0.1), **gaps)
    at_once = filled(ScenarioStream(scenario, 7), 20)
    stream = ScenarioStream(scenario, 7)
    one_by_one = np.vstack([filled(stream, 1, t0=t) for t in range(1, 21)])
    assert same_bits(one_by_one, at_once)
    assert same_bits(filled(stream, 11, t0=1), at_once[:11])  # back to before the shift
    assert same_bits(filled(stream, 3, t0=12, first=64), at_once[11:14, 64:])


def test_the_truth_shifts_at_the_step_that_is_asked_for() -> None:
    scenario = scenario_of("gaussian", shift_step=12, shift_means=(5.3, 0.9))
    stream = ScenarioStream(scenario, 7)
    class_ = scenario.populate(7).class_
    for t, means in ((1, (0.3, 0.9)), (12, (5.3, 0.9)), (11, (0.3, 0.9)), (13, (5.3, 0.9))):
        np.testing.assert_allclose(stream.truth(t) + stream.origin, np.array(means)[class_], rtol=0, atol=1e-15)


def test_the_origin_is_in_the_middle_of_all_means_ever() -> None:
    assert ScenarioStream(scenario_of("gaussian"), 0).origin == pytest.approx(0.6)
    shifted = scenario_of("gaussian", shift_step=2, shift_means=(5.1, 0.9))
    assert ScenarioStream(shifted, 0).origin == pytest.approx(2.7)
    assert ScenarioStream(scenario_of("bernoulli"), 0).origin == 0.0


# Recordings


def test_a_recording_gives_back_its_samples_centered() -> None:
    values = 1e6 + np.random.default_rng(0).random((30, 7))
    recording = Recording(values)
    assert (recording.n_steps, recording.n_agents, recording.complete) == (30, 7, True)
    assert values.min() < recording.origin < values.max()
    out = np.empty((30, 7))
    recording.fill(out, 1)
    np.testing.assert_array_equal(out, values - recording.origin)
    np.testing.assert_allclose(out + recording.origin, values, rtol=1e-15)
    part = np.empty((4, 2))
    recording.fill(part, 11, 3)
    np.testing.assert_array_equal(part, out[10:14, 3:5])


def test_a_recording_keeps_nan_as_no_sample() -> None:
    recording = Recording([[1.0, NAN], [NAN, 3.0]])
    out = np.empty((2, 2))
    recording.fill(out, 1)
    assert not recording.complete
    np.testing.assert_array_equal(np.isnan(out), [[False, True], [True, False]])


def test_a_recording_is_centered_without_its_gaps() -> None:
    values = np.full((50, 3), NAN)
    values[7:, 1] = 1000.0
    assert Recording(values).origin == 1000.0


def test_true_means_of_a_recording_are_centered_with_it() -> None:
    recording = Recording([[9.0, 11.0, 10.0]], means=[9.5, 10.5, 9.5])
    truth = recording.truth(1)
    assert truth is not None and recording.origin == 10.0
    np.testing.assert_array_equal(truth, [-0.5, 0.5, -0.5])
    assert recording.truth(1) is recording.truth(99)


def test_classes_of_a_recording_are_those_given_or_the_agents_of_equal_means() -> None:
    values = [[1.0, 2.0, 3.0, 4.0]]
    assert Recording(values).class_ is None and Recording(values).truth(1) is None
    by_mean = Recording(values, means=[5.0, 2.0, 5.0, 2.0]).class_
    assert by_mean is not None and by_mean.tolist() == [1, 0, 1, 0]
    for names in (["north", "south", "south", "east"], [7, 9, 9, 1], np.array([1.5, 2.5, 2.5, 0.5])):
        class_ = Recording(values, means=[0.0, 1.0, 1.0, 2.0], classes=names).class_
        assert class_ is not None and len(set(class_.tolist())) == 3
        assert class_[1] == class_[2] and class_.max() == 2


def test_the_scale_of_a_recording_is_one_number_or_one_per_agent() -> None:
    assert Recording([[1.0, 2.0]]).sigma is None
    assert Recording([[1.0, 2.0]], sigma=3).sigma == 3.0
    np.testing.assert_array_equal(Recording([[1.0, 2.0]], sigma=[3.0, 4.0]).sigma, [3.0, 4.0])


# Local means


def test_agents_without_a_sample_wait() -> None:
    values = draw(scenario_of("gaussian", n_agents=70, skip_rate=0.6, late_share=0.5, late_step=50), 0, 300)
    values[:, 5] = NAN
    mean, count = np.full(70, NAN), np.zeros(70, np.int32)
    for row in values:
        observe_some(mean, count, row)
    there = ~np.isnan(values)
    np.testing.assert_array_equal(count, there.sum(axis=0))
    assert math.isnan(mean[5]) and count[5] == 0
    seen = np.where(there, values, 0.0).sum(axis=0)[count > 0] / count[count > 0]
    np.testing.assert_allclose(mean[count > 0], seen, rtol=0, atol=1e-13)


def test_observing_all_and_some_has_the_same_bits_without_gaps() -> None:
    values = draw(scenario_of("gaussian", n_agents=70), 0, 50)
    some, count = np.full(70, NAN), np.zeros(70, np.int32)
    for all_, row in zip(local_means(values), values, strict=True):
        observe_some(some, count, row)
        assert same_bits(all_, some)
