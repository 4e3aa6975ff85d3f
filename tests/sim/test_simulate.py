"""What `colme.simulate` promises: what it returns, who sees what, what it records, tells and refuses."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from benchmarks.workloads import bytes_of
from colme.graphs import gnp_random_graph, random_regular_graph, ring_lattice_graph
from colme.methods import Method
from colme.metrics import METRICS
from colme.samples import draw
from colme.sim.run import Progress
from colme.sim.sampling import STRETCH
from colme.sim.spec import RunFields, Setup, recorded_steps
from colme.support.tables import parse_word
from tests.support.flags import sample_of
from tests.support.runs import run_of
from tests.support.same_bits import assert_same_bits

SCENARIO = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5)
GAPS = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5, skip_rate=0.1)
"""Where agents may miss a sample, steps are done one by one."""
METHODS: list[Method] = [
    colme.Local(), colme.Oracle(), colme.ColME(delta=0.1), colme.BColME(delta=0.1), colme.CColME(delta=0.1),
    colme.CLColME(delta=0.1),
]  # fmt: skip


def wrong_edges(graph: colme.Graph, class_: NDArray[Any]) -> int:
    low, high = graph.edges().T
    return int((class_[low] != class_[high]).sum())


# One method, one seed: a Trace


@pytest.fixture(scope="module")
def trace() -> colme.Trace:
    return colme.simulate(colme.CLColME(delta=0.1), SCENARIO, degree=10, steps=80, seed=0, tolerance=0.1)


def test_one_method_and_one_seed_give_a_trace_of_every_step(trace: colme.Trace) -> None:
    assert isinstance(trace, colme.Trace)
    assert trace.method == colme.CLColME(delta=0.1) and trace.seed == 0
    assert trace.t.tolist() == list(range(1, 81))
    assert all(getattr(trace, name).shape == (80,) for name in METRICS)
    assert trace.isolated.dtype.kind == "i"


def test_the_example_learns(trace: colme.Trace) -> None:
    assert trace.mse[-1] < 0.5 * trace.local_mse[-1] < 0.1 * trace.local_mse[0]
    assert trace.at(50)["error_rate"] == 0.0 < trace.at(50)["local_error_rate"]
    assert trace.wrong_edges[0] == 1.0 and trace.wrong_edges[-1] == 0.0
    assert trace.lost_edges[-1] == 0.0 and trace.isolated[-1] == 0


def test_local_and_oracle_columns_are_what_the_samples_say(trace: colme.Trace) -> None:
    class_ = SCENARIO.populate(0).class_
    truth = np.array([0.0, 1.25])[class_]
    means = np.cumsum(draw(SCENARIO, 0, 80), axis=0) / np.arange(1, 81)[:, None]
    pooled = np.stack([means[:, class_ == c].mean(axis=1) for c in (0, 1)], axis=1)[:, class_]
    np.testing.assert_allclose(trace.local_mse, ((means - truth) ** 2).mean(axis=1), rtol=1e-10)
    np.testing.assert_allclose(trace.oracle_mse, ((pooled - truth) ** 2).mean(axis=1), rtol=1e-9)
    np.testing.assert_allclose(trace.local_error_rate, (np.abs(means - truth) > 0.1).mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(trace.final.mean, means[-1], rtol=0, atol=1e-13)


def test_final_agrees_with_the_last_recorded_step(trace: colme.Trace) -> None:
    final = trace.final
    error = final.estimate - final.truth
    assert trace.mse[-1] == pytest.approx((error**2).mean(), rel=1e-10)
    assert trace.error_rate[-1] == pytest.approx((np.abs(error) > 0.1).mean())
    assert trace.isolated[-1] == (final.graph.degrees == 0).sum()
    assert np.array_equal(final.groups, final.graph.components())
    assert (final.count == 80).all()
    assert np.array_equal(final.class_, SCENARIO.populate(0).class_)


def test_edge_shares_count_the_edges_of_the_final_graph() -> None:
    """Stopped while edges are still being cut."""
    start = random_regular_graph(40, 10, rng=7)
    trace = colme.simulate(colme.CLColME(gamma=0.8), SCENARIO, graph=start, steps=4)
    class_, kept = trace.final.class_, trace.final.graph
    assert class_ is not None
    n_wrong, n_right = wrong_edges(start, class_), start.n_edges - wrong_edges(start, class_)
    n_kept_right = kept.n_edges - wrong_edges(kept, class_)
    assert 0 < wrong_edges(kept, class_) < n_wrong and n_kept_right < n_right, "nothing to tell apart"
    assert trace.wrong_edges[-1] == wrong_edges(kept, class_) / n_wrong
    assert trace.lost_edges[-1] == (n_right - n_kept_right) / n_right


@pytest.mark.parametrize("tolerance", [0.02, 0.3])
def test_tolerance_decides_the_error_rate_and_nothing_else(trace: colme.Trace, tolerance: float) -> None:
    other = colme.simulate(colme.CLColME(delta=0.1), SCENARIO, degree=10, steps=80, seed=0, tolerance=tolerance)
    assert other.error_rate[-1] == (np.abs(other.final.estimate - other.final.truth) > tolerance).mean()
    assert not np.array_equal(other.error_rate, trace.error_rate)
    assert np.array_equal(other.mse, trace.mse)


def test_repr_says_method_seed_steps_and_error(trace: colme.Trace) -> None:
    assert repr(trace) == f"Trace({trace.method!r}, seed=0, t=1..80, mse={trace.mse[-1]:.3g})"


def test_at_gives_the_last_recorded_step_that_is_not_later() -> None:
    trace = colme.simulate(colme.CLColME(delta=0.1), SCENARIO, steps=50, record=20)
    assert trace.t.tolist() == [20, 40, 50]
    for asked, found in ((20, 0), (39, 0), (40, 1), (49, 1), (50, 2), (10**6, 2)):
        there = trace.at(asked)
        assert there["t"] == trace.t[found]
        np.testing.assert_equal({name: there[name] for name in METRICS}, {m: getattr(trace, m)[found] for m in METRICS})
    with pytest.raises(colme.ColmeError, match="first recorded step is 20"):
        trace.at(19)


# Several methods or seeds: Traces


def test_traces_hold_all_seeds_of_the_first_method_then_of_the_next() -> None:
    methods = [colme.CLColME(delta=0.1), colme.Local(), colme.CColME(delta=0.1)]
    traces = colme.simulate(methods, SCENARIO, steps=5, seeds=[7, 3])
    assert isinstance(traces, colme.Traces) and len(traces) == 6
    assert [(each.method, each.seed) for each in traces] == [(m, s) for m in methods for s in (7, 3)]


@pytest.mark.parametrize(
    ("method", "seeds", "n"),
    [(colme.Local(), [4], 1), ([colme.Local()], None, 1), ((colme.Local(), colme.Oracle()), None, 2)],
    ids=["a list of one seed", "a list of one method", "a tuple of methods"],
)
def test_whatever_is_given_as_a_list_gives_traces(method: Any, seeds: list[int] | None, n: int) -> None:
    traces = colme.simulate(method, SCENARIO, steps=3, seeds=seeds)
    assert isinstance(traces, colme.Traces) and len(traces) == n


@pytest.mark.parametrize("scenario", [
    SCENARIO,
    colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5, skip_rate=0.3, late_share=0.3, late_step=15),
], ids=["complete", "gaps"])  # fmt: skip
def test_methods_run_together_give_the_bits_of_each_alone(scenario: colme.Scenario) -> None:
    together = colme.simulate(METHODS, scenario, degree=6, steps=60, seeds=[0, 5])
    for trace in together:
        same_seed = together.select(seed=trace.seed)
        assert all(np.array_equal(trace.local_mse, other.local_mse) for other in same_seed)
        alone = colme.simulate(trace.method, scenario, degree=6, steps=60, seed=trace.seed)
        assert_same_bits(trace, alone)
    assert not np.array_equal(together[0].local_mse, together[1].local_mse), "two seeds saw the same samples"


def test_methods_of_a_seed_begin_on_the_same_graph_and_seeds_on_different_ones() -> None:
    """With one class nobody parts, so the final graph is the first one."""
    one_class = colme.Scenario(n_agents=40, means=(1.0,), sigma=0.5)
    methods = [colme.CLColME(delta=1e-6), colme.CColME(delta=1e-6), colme.BColME(delta=1e-6)]
    traces = colme.simulate(methods, one_class, degree=4, steps=5, seeds=[0, 1])
    for seed in (0, 1):
        first, *others = (trace.final.graph for trace in traces.select(seed=seed))
        assert (first.degrees == 4).all() and all(other == first for other in others)
    assert traces[0].final.graph != traces[1].final.graph


def test_traces_select_by_method_and_seed_and_slice() -> None:
    methods = [colme.CLColME(delta=0.1), colme.CLColME(delta=0.2)]
    traces = colme.simulate(methods, SCENARIO, steps=3, seeds=range(3))
    assert [trace.seed for trace in traces.select(method=methods[1])] == [0, 1, 2]
    assert [trace.method for trace in traces.select(seed=2)] == methods
    (only,) = traces.select(method=methods[1], seed=2)
    assert only is traces[5]
    assert len(traces.select(seed=9)) == len(traces.select(method=colme.Local())) == 0
    assert isinstance(traces[1:3], colme.Traces) and [trace.seed for trace in traces[1:3]] == [1, 2]


def test_traces_repr_has_a_line_for_each() -> None:
    traces = colme.simulate([colme.Local(), colme.Oracle()], SCENARIO, steps=3)
    lines = repr(traces).splitlines()
    assert lines[0] == "Traces([" and lines[-1] == "])"
    assert lines[1:-1] == [f"    {trace!r}," for trace in traces]


# What is recorded


@pytest.mark.parametrize(("record", "wanted"), [
    ("all", [*range(1, 31)]),
    (7, [7, 14, 21, 28, 30]),
    (10, [10, 20, 30]),
    (100, [30]),
    ([9, 3, 3], [3, 9, 30]),
    (range(1, 31, 15), [1, 16, 30]),
    (np.array([5]), [5, 30]),
], ids=str)  # fmt: skip
def test_record_chooses_steps_and_adds_the_last(record: Any, wanted: list[int]) -> None:
    assert colme.simulate(colme.Local(), SCENARIO, steps=30, record=record).t.tolist() == wanted


@pytest.mark.parametrize("n_steps", [1, 2, 3, 9, 10, 11, 99, 100, 101, 999, 1000, 12_345, 10**5])
def test_the_log_grid_of_a_longer_run_is_a_superset(n_steps: int) -> None:
    longer = set(recorded_steps("log", 10**7).tolist())
    grid = recorded_steps("log", n_steps).tolist()
    assert grid[0] == 1 and grid[-1] == n_steps
    assert set(grid[:-1]) == {step for step in longer if step < n_steps}


def test_the_log_grid_has_forty_steps_a_decade_and_all_of_the_first_ones() -> None:
    grid = recorded_steps("log", 10**6)
    assert set(range(1, 16)) <= set(grid.tolist())
    assert ((grid > 10**4) & (grid <= 10**5)).sum() == 40


# Every field


@pytest.mark.parametrize("field", Setup.__struct_fields__)
def test_every_field_of_a_run_changes_what_is_recorded_or_found(field: str) -> None:
    """A field that is a flag, a key and part of a run's name must also do something."""
    given: dict[str, Any] = {"steps": 30, "graph": "small-world" if field == "rewire" else "regular"}

    def numbers(**changes: Any) -> list[bytes]:
        trace = colme.simulate(colme.CLColME(delta=0.1), SCENARIO, **given | changes)
        return [
            trace.t.tobytes(),
            trace.final.estimate.tobytes(),
            *(getattr(trace, name).tobytes() for name in METRICS),
        ]

    assert numbers(**{field: parse_word(sample_of(field))}) != numbers()


def test_type_checkers_know_the_fields_of_a_run() -> None:
    assert set(RunFields.__annotations__) == {"seed", *Setup.__struct_fields__}


# Progress


def test_progress_is_told_every_seeds_steps_in_order_up_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colme.sim.run.TELL_EVERY", -1.0)  # at every opportunity
    news: list[Progress] = []
    colme.simulate(colme.Local(), GAPS, steps=40, seeds=[2, 1], progress=news.append)
    for seed in (1, 2):
        assert [each.step for each in news if each.seed == seed] == list(range(1, 41))
    assert all(each.steps == 40 for each in news)


def test_progress_of_steps_done_in_stretches_is_told_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colme.sim.run.TELL_EVERY", -1.0)
    news: list[Progress] = []
    colme.simulate(colme.Local(), SCENARIO, steps=100, progress=news.append)
    steps = [0, *(each.step for each in news)]
    assert all(0 < later - sooner <= STRETCH for sooner, later in itertools.pairwise(steps)) and steps[-1] == 100


def test_progress_of_a_quick_run_is_told_its_end() -> None:
    news: list[Progress] = []
    colme.simulate(colme.Local(), SCENARIO, steps=40, progress=news.append)
    steps = [each.step for each in news]
    assert steps == sorted(set(steps)) and steps[-1] == 40 and len(steps) < 40


def test_progress_is_never_told_twice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colme.sim.run.TELL_EVERY", -1.0)
    inside, seen = threading.Lock(), 0

    def tell(news: Progress) -> None:
        nonlocal seen
        assert inside.acquire(blocking=False), "two threads are in the callback"
        seen += 1
        inside.release()

    colme.simulate(colme.Local(), GAPS, steps=50, seeds=range(4), n_jobs=4, progress=tell)
    assert seen == 200


def test_progress_bar_goes_to_stderr_and_stdout_stays_clean() -> None:
    code = (
        "import colme\n"
        "s = colme.Scenario(n_agents=10, means=(0.0,))\n"
        "colme.simulate(colme.Local(), s, steps=60, seeds=[0, 1], progress=True)\n"
        "print('data')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1200, check=True)
    assert done.stdout == "data\n"
    assert "simulating" in done.stderr and "120/120" in done.stderr and "steps" in done.stderr


def test_no_progress_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for progress in (None, False):
        colme.simulate(colme.Local(), SCENARIO, steps=5, progress=progress)
    assert capfd.readouterr() == ("", "")


# Graphs


def test_a_given_graph_serves_every_seed() -> None:
    graph = ring_lattice_graph(40, 4)
    one_class = colme.Scenario(n_agents=40, means=(1.0,), sigma=0.5)
    for trace in colme.simulate(colme.CLColME(delta=1e-6), one_class, graph=graph, steps=5, seeds=[0, 1]):
        assert trace.final.graph == graph


def test_a_function_of_rng_makes_one_graph_for_each_seed_and_always_the_same() -> None:
    one_class = colme.Scenario(n_agents=40, means=(1.0,), sigma=0.5)
    made: list[colme.Graph] = []

    def graph(rng: np.random.Generator) -> colme.Graph:
        assert isinstance(rng, np.random.Generator)
        made.append(gnp_random_graph(40, 0.2, rng=rng))
        return made[-1]

    def run() -> colme.Traces:
        method = colme.CLColME(delta=1e-6)
        return colme.simulate(method, one_class, graph=graph, steps=5, seeds=[0, 1], n_jobs=1)

    first, second = run()
    assert first.final.graph == made[0] and second.final.graph == made[1] and made[0] != made[1]
    again = run()
    assert again[0].final.graph == made[0] and again[1].final.graph == made[1]


@pytest.mark.parametrize(("n_agents", "degree"), [(1, 0), (2, 1), (5, 4), (10, 9), (11, 10), (13, 10), (40, 10)])
def test_default_degree_is_ten_or_what_so_few_agents_allow(n_agents: int, degree: int) -> None:
    scenario = colme.Scenario(n_agents=n_agents, means=(1.0,))
    trace = colme.simulate(colme.CLColME(delta=1e-6), scenario, steps=3)
    assert (trace.final.graph.degrees == degree).all()


# Samples


def test_a_plain_array_is_a_recording_without_truth() -> None:
    values = np.arange(12.0).reshape(4, 3) ** 2
    trace = colme.simulate(colme.Local(), values)
    assert trace.t.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(trace.final.estimate, values.mean(axis=0), rtol=1e-13)
    assert trace.final.truth is None and trace.final.class_ is None
    for name in ("mse", "error_rate", "local_mse", "local_error_rate", "oracle_mse"):
        assert np.isnan(getattr(trace, name)).all(), name
    assert_same_bits(trace, colme.simulate(colme.Local(), colme.Recording(values)))


def test_a_recording_of_a_scenario_gives_what_the_scenario_gives() -> None:
    samples, population = draw(SCENARIO, 3, 60), SCENARIO.populate(3)
    truth = np.array([0.0, 1.25])[population.class_]
    graph = random_regular_graph(40, 6, rng=1)
    recording = colme.Recording(samples, means=truth, sigma=0.5)
    for method in METHODS:
        recorded = colme.simulate(method, recording, graph=graph)
        drawn = colme.simulate(method, SCENARIO, graph=graph, steps=60, seed=3)
        np.testing.assert_allclose(recorded.final.estimate, drawn.final.estimate, rtol=0, atol=2e-6)
        np.testing.assert_allclose(recorded.local_mse, drawn.local_mse, rtol=1e-9)
        np.testing.assert_allclose(recorded.oracle_mse, drawn.oracle_mse, rtol=1e-8)
        assert np.array_equal(recorded.wrong_edges, drawn.wrong_edges)
        np.testing.assert_allclose(recorded.final.truth, truth, rtol=0, atol=1e-15)


def test_a_recording_can_be_run_in_part() -> None:
    values = np.random.default_rng(0).normal(size=(20, 6))
    trace = colme.simulate(colme.Local(), values, steps=7)
    np.testing.assert_allclose(trace.final.mean, values[:7].mean(axis=0), rtol=0, atol=1e-14)


def test_a_scenario_runs_a_thousand_steps_by_default() -> None:
    assert colme.simulate(colme.Local(), colme.Scenario(n_agents=4, means=(0.0,)), record="log").t[-1] == 1000


def test_neighbors_hear_float32_in_mixed_and_float64_in_double_precision() -> None:
    method = colme.CLColME(delta=0.1)
    mixed, double = (
        colme.simulate(method, SCENARIO, steps=60, precision=precision) for precision in ("mixed", "double")
    )
    difference = np.abs(mixed.final.estimate - double.final.estimate)
    assert 0 < difference.max() < 1e-6
    assert np.array_equal(mixed.local_mse, double.local_mse)


def test_skipped_steps_are_not_counted() -> None:
    scenario = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5, skip_rate=0.6)
    trace = colme.simulate(colme.CLColME(delta=0.1), scenario, steps=150)
    samples = draw(scenario, 0, 150)
    assert np.array_equal(trace.final.count, (~np.isnan(samples)).sum(axis=0))
    np.testing.assert_allclose(trace.final.mean, np.nanmean(samples, axis=0), rtol=0, atol=1e-13)
    assert 0.35 * 150 < trace.final.count.mean() < 0.45 * 150
    assert trace.mse[-1] < trace.local_mse[-1]


def test_late_joiners_have_no_estimate_before_they_join() -> None:
    scenario = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5, late_share=0.25, late_step=21)
    before, after = (colme.simulate(colme.CLColME(delta=0.1), scenario, steps=steps) for steps in (20, 60))
    late = np.isnan(before.final.estimate)
    assert late.sum() == 10
    assert (before.final.count == np.where(late, 0, 20)).all()
    assert (after.final.count == np.where(late, 40, 60)).all()
    assert np.isfinite(after.final.estimate).all()
    error = (before.final.estimate - before.final.truth)[~late]
    assert before.mse[-1] == pytest.approx((error**2).mean(), rel=1e-10), "who is not there yet is left out"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.label)
def test_the_error_jumps_where_the_means_shift(method: Method) -> None:
    scenario = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.2, shift_step=61, shift_means=(3.0, -2.0))
    trace = colme.simulate(method, scenario, steps=80)
    assert trace.at(61)["mse"] > 50 * trace.at(60)["mse"]
    assert trace.at(61)["local_mse"] > 50 * trace.at(60)["local_mse"]
    assert np.array_equal(trace.final.truth, np.array([3.0, -2.0])[trace.final.class_])
    before = colme.simulate(method, colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.2), steps=60)
    np.testing.assert_allclose(trace.mse[:60], before.mse, rtol=1e-3)


# What goes wrong inside a run


class Stumbles(colme.Local, frozen=True, tag="stumbles"):  # type: ignore[call-arg]
    """Its state raises at a step."""

    at: int = 3

    def start(self, world: Any, graph: Any) -> Any:
        state = super().start(world, graph)
        honest = state.step

        def step(world: Any) -> None:
            if world.t == self.at:
                raise ZeroDivisionError(f"stumbled at step {world.t}")
            honest(world)

        state.step = step  # type: ignore[method-assign]
        return state


@pytest.mark.parametrize("options", [{}, {"seeds": range(5)}, {"seeds": range(5), "n_jobs": 1}], ids=str)
def test_an_error_inside_a_run_surfaces_as_it_is(options: dict[str, Any]) -> None:
    with pytest.raises(ZeroDivisionError, match="stumbled at step 3"):
        colme.simulate([colme.Local(), Stumbles()], SCENARIO, steps=20, **options)


def test_an_error_of_one_seed_stops_the_others() -> None:
    """Without waiting for their end: the second run alone would take minutes."""
    calls = 0

    def graph(rng: np.random.Generator) -> colme.Graph:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise LookupError("no graph for the second seed")
        return ring_lattice_graph(40, 4)

    with pytest.raises(LookupError, match="no graph for the second seed"):
        colme.simulate(colme.Local(), SCENARIO, graph=graph, steps=10**8, seeds=[0, 1], n_jobs=2, record=10**7)


def test_an_error_of_the_progress_callback_surfaces() -> None:
    def tell(news: Progress) -> None:
        raise BrokenPipeError("nobody listens")

    with pytest.raises(BrokenPipeError, match="nobody listens"):
        colme.simulate(colme.Local(), SCENARIO, steps=5, progress=tell)


# Size


def test_cl_colme_holds_at_most_a_hundred_bytes_an_agent() -> None:
    n = 200_000
    scenario = colme.Scenario(n_agents=n, means=(1.2, 2.0), sigma=2.0)
    run = run_of([colme.CLColME(delta=0.1)], scenario, steps=100, record="log")
    for t in (1, 2, 3):
        run.step(t)
    assert bytes_of(run) / n <= 100
    # the count is honest: edges, two means, estimates, what is heard and the classes cannot be smaller than this
    assert bytes_of(run) / n >= 10 * 4 + 3 * 8 + 2 * 4 + 2
