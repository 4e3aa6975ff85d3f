"""Timings compare like with like: the same bits, everything compiled before, in turns. No test looks at a clock."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colme
from colme.errors import RunError
from colme.graphs import gnp_random_graph
from colme.lab import timing
from colme.lab.timing import END_TO_END, KERNEL, PARTS, SET_UP, Columns, measure, order, ratio_summary, ratios
from colme.methods import Method
from tests.support.compiling import FORBID
from tests.support.same_bits import assert_same_bits

TWO = colme.Scenario(n_agents=130, means=(0.0, 1.25), sigma=0.5)
GAPS = colme.Scenario(n_agents=130, means=(0.0, 1.25), sigma=0.5, skip_rate=0.3, late_share=0.3, late_step=25)
CL, CACHED = colme.CLColME(clock="global"), colme.CColME(clock="global")
NAIVE = colme.CColME(clock="global", rebuild=True)
METHODS: dict[str, Method] = {"CL-colME": CL, "cached": CACHED, "naive": NAIVE}


# Weights computed anew at every step


@pytest.mark.parametrize("precision", ["mixed", pytest.param("double", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scenario", [TWO, GAPS], ids=["complete", "gaps"])
@pytest.mark.parametrize("clock", ["global", "gossip"])
def test_rebuilt_weights_give_the_same_bits(scenario: colme.Scenario, clock: str, precision: str) -> None:
    """On a graph of unequal degrees, so that there are empty slots besides the cut ones."""
    cached, rebuilt = (
        colme.simulate(
            colme.CColME(clock=clock, rebuild=rebuild), scenario, steps=120, seed=3, precision=precision,
            graph=lambda rng: gnp_random_graph(130, 0.06, rng=rng),
        )
        for rebuild in (False, True)
    )  # fmt: skip
    assert len(np.unique(cached.wrong_edges)) > 5 and cached.wrong_edges[-1] < 0.5, "too little was cut"
    assert_same_bits(rebuilt, cached)


def test_a_run_with_rebuilt_weights_resumes_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    colme.simulate(NAIVE, TWO, steps=30, checkpoint=path)
    resumed = colme.simulate(NAIVE, TWO, steps=90, checkpoint=path)
    assert_same_bits(resumed, colme.simulate(NAIVE, TWO, steps=90))


def test_rebuild_is_a_field_like_any_other() -> None:
    assert repr(colme.CColME(rebuild=True)) == "CColME(rebuild=True)"
    with pytest.raises(colme.errors.MethodError, match=r"rebuild='yes': expected bool"):
        colme.CColME(rebuild="yes")  # type: ignore[arg-type]


# The measurement


@pytest.fixture(scope="module")
def table() -> Columns:
    return measure(METHODS, TWO, degree=6, steps=100, seed=1, chunk=9)


def test_every_chunk_has_every_method_and_part(table: Columns) -> None:
    assert list(table) == ["method", "part", "chunk", "steps", "seconds"]
    rows = Counter(zip(*(table[name].tolist() for name in ("method", "part", "chunk")), strict=True))
    turns = {(label, part, chunk): 1 for label in METHODS for part in (KERNEL, END_TO_END) for chunk in range(1, 12)}
    assert rows == turns | {(label, SET_UP, 0): 1 for label in METHODS}
    for label in METHODS:
        for part in (KERNEL, END_TO_END):
            steps = table["steps"][(table["method"] == label) & (table["part"] == part)]
            assert steps.sum() == 100 and steps.min() == 9 and steps.max() == 10
    assert (table["steps"][table["part"] == SET_UP] == 0).all()
    assert (table["seconds"] > 0).all()


def test_the_kernel_is_a_part_of_the_whole(table: Columns) -> None:
    kernel, whole = (table["seconds"][table["part"] == part] for part in (KERNEL, END_TO_END))
    assert (kernel < whole).all()


def test_rows_stand_in_the_order_in_which_the_methods_went(table: Columns) -> None:
    for chunk in range(1, 12):
        went = table["method"][(table["chunk"] == chunk) & (table["part"] == KERNEL)].tolist()
        assert went == order(list(METHODS), chunk)


def test_the_order_rotates() -> None:
    """Everybody goes first, second and last equally often, and after each of the others."""
    went = [order(["a", "b", "c"], chunk) for chunk in range(1, 7)]
    for place in range(3):
        assert Counter(turn[place] for turn in went) == {"a": 2, "b": 2, "c": 2}
    pairs = Counter(pair for turn in went for pair in itertools.pairwise(turn))
    assert len(pairs) == 6 and set(pairs.values()) == {2}


def test_runs_are_those_of_simulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples, graph, precision and every step: what is timed is what users run."""
    runs: list[Any] = []
    honest = timing._run

    def run(*arguments: Any) -> Any:
        runs.append(honest(*arguments))
        return runs[-1]

    monkeypatch.setattr(timing, "_run", run)
    methods = METHODS | {"local": colme.Local()}
    measure(methods, GAPS, degree=6, steps=60, seed=5, precision="double", chunk=20)
    assert len(runs) == 4
    for method, timed in zip(methods.values(), runs, strict=True):
        wanted = colme.simulate(method, GAPS, degree=6, steps=60, seed=5, precision="double")
        (trace,) = timed.go(None, threading.Event())
        assert_same_bits(trace, wanted)


def test_progress_is_told_and_may_stop_it() -> None:
    told: list[tuple[int, int]] = []
    measure(METHODS, TWO, steps=30, chunk=10, tell=lambda *news: told.append(news))
    assert told == [(10, 30), (20, 30), (30, 30)]

    def ctrl_c(step: int, steps: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(METHODS, TWO, steps=30, chunk=10, tell=ctrl_c)


def test_chunks_have_a_length_of_their_own_and_may_be_longer_than_the_run() -> None:
    for chunk in (None, 1000):
        table = measure(METHODS, TWO, steps=3, chunk=chunk)
        assert table["steps"][table["part"] == KERNEL].sum() == 3 * 3


def test_the_kernel_of_a_method_that_does_not_average_is_its_whole_step() -> None:
    table = measure({"local": colme.Local(), "B": colme.BColME(), "oracle": colme.Oracle()}, TWO, steps=10, chunk=5)
    kernel, whole = (table["seconds"][table["part"] == part] for part in (KERNEL, END_TO_END))
    assert (kernel > 0).all() and (kernel < whole).all()


def test_a_handful_of_agents_can_be_timed() -> None:
    for n_agents in (1, 2, 7):
        scenario = colme.Scenario(n_agents=n_agents, means=(0.0,))
        assert len(measure(METHODS, scenario, steps=2, chunk=1)["method"]) == 3 + 3 * 2 * 2


# Nothing is compiled while the clock runs. In a fresh process, where nothing is compiled yet.

MEASURED = (
    FORBID
    + """
import colme
from colme.lab import timing

honest_graph = timing.first_graph

def first_graph(*arguments):  # the first thing that is timed
    forbid()
    return honest_graph(*arguments)

timing.first_graph = first_graph
two = {"means": (0.0, 0.6), "sigma": 0.5}
cases = (
    (colme.Scenario(n_agents=1000, means=(0.0, 0.6), sigma=0.35), "mixed", "own"),
    (colme.Scenario(n_agents=130, **two), "mixed", "global"),
    (colme.Scenario(n_agents=20000, **two), "double", "gossip"),
    (colme.Scenario(n_agents=20000, distribution="student", skip_rate=0.1, **two), "mixed", "gossip"),
    (colme.Scenario(n_agents=300, means=(0.0, 0.6), sigma=(0.5, 0.6), shift_step=50, shift_means=(0.6, 0.0)),
     "double", "own"),
)
for scenario, precision, clock in cases[: int(sys.argv[1])]:
    forbid(False)
    methods = {
        "CL-colME": colme.CLColME(clock=clock), "C-colME": colme.CColME(clock=clock),
        "naive": colme.CColME(clock=clock, rebuild=True), "B": colme.BColME(), "local": colme.Local(),
        "oracle": colme.Oracle(), "flow": colme.CLColME(consensus="flow"),
    }
    timing.measure(methods, scenario, degree=4, steps=60, precision=precision)
    forbid(False)
    cut = colme.simulate(methods["CL-colME"], scenario, degree=4, steps=60, precision=precision).wrong_edges
    assert cut[11] == 1.0 and cut[-1] < 1.0, "nothing must be cut in the steps of the warm-up, and something later"
print("compiled" if compiled_before else "nothing")
"""
)


@pytest.mark.parametrize("cases", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_nothing_is_compiled_during_the_measurement(cases: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", MEASURED, str(cases)], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "compiled\n", "a warm-up that compiles nothing proves nothing"


# Ratios

MADE_UP: Columns = {
    "method": np.array(["CL-colME", "C", "C", "CL-colME", "C", "CL-colME", "C", "CL-colME"]),
    "part": np.array([KERNEL] * 6 + [SET_UP] * 2),
    "chunk": np.array([1, 1, 2, 2, 3, 3, 0, 0]),
    "steps": np.array([10, 10, 20, 20, 20, 20, 0, 0]),
    "seconds": np.array([1.0, 1.5, 4.0, 2.0, 6.0, 5.0, 0.5, 2.0]),
}


def test_ratios_compare_within_a_chunk() -> None:
    got = ratios(MADE_UP)
    assert list(got) == ["method", "part", "chunk", "ratio"]
    assert got["ratio"].tolist() == pytest.approx([1.0, 1.5, 2.0, 1.0, 1.2, 1.0, 0.25, 1.0], rel=1e-15)
    inverse = ratios(MADE_UP, to="C")["ratio"]
    np.testing.assert_allclose(inverse[got["method"] == "CL-colME"], [1 / 1.5, 0.5, 1 / 1.2, 4.0])


def test_the_summary_divides_totals_and_shows_the_spread() -> None:
    got = ratio_summary(MADE_UP)
    rows = [dict(zip(got, row, strict=True)) for row in zip(*(column.tolist() for column in got.values()), strict=True)]
    assert [(row["method"], row["part"]) for row in rows] == [
        (label, part) for label in ("CL-colME", "C") for part in PARTS if part != END_TO_END
    ]
    assert rows[0] == {
        "method": "CL-colME", "part": KERNEL, "ratio": 1.0, "median": 1.0, "lower_quartile": 1.0,
        "upper_quartile": 1.0, "seconds": 8.0, "steps": 50,
    }  # fmt: skip
    assert rows[2] == {
        "method": "C", "part": KERNEL, "ratio": 11.5 / 8.0, "median": pytest.approx(1.5),
        "lower_quartile": pytest.approx(1.35), "upper_quartile": pytest.approx(1.75), "seconds": 11.5, "steps": 50,
    }  # fmt: skip
    assert rows[3]["ratio"] == 0.25 and rows[3]["steps"] == 0


def test_a_measurement_has_ratios_to_each_of_its_methods(table: Columns) -> None:
    for to in METHODS:
        got, short = ratios(table, to), ratio_summary(table, to)
        assert (got["ratio"][got["method"] == to] == 1.0).all() and np.isfinite(got["ratio"]).all()
        assert len(short["method"]) == 9 and short["method"][0] == to
        assert (short["lower_quartile"] <= short["median"]).all() and (short["median"] <= short["upper_quartile"]).all()


def test_a_table_becomes_parquet_as_it_is(table: Columns, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(table), tmp_path / "timing.parquet")
    back = parquet.read_table(tmp_path / "timing.parquet")
    assert {name: back[name].to_pylist() for name in back.column_names} == {k: v.tolist() for k, v in table.items()}


# Refusals


def test_one_method_is_nothing_to_compare() -> None:
    for methods in ({}, {"CL-colME": CL}, {"CL-colME": CL, "C-colME": "c-colme"}):
        with pytest.raises(RunError, match=r"there must be at least two methods, by label, to compare\. Try \{"):
            measure(methods, TWO, steps=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "message"), [
    ({"steps": 0}, r"steps=0: it must be a whole number of at least 1\. Try steps=2000\."),
    ({"chunk": 0}, r"chunk=0: it must be a whole number of at least 1\. Try chunk=50\."),
    ({"seed": -1}, r"seed=-1: a seed is a whole number"),
    ({"precision": "single"}, r"unknown precision 'single': .* Try 'mixed'\."),
])  # fmt: skip
def test_what_cannot_be_measured_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        measure(METHODS, TWO, **({"steps": 5} | wrong))


def test_a_reference_that_was_not_measured_is_refused(table: Columns) -> None:
    for summary in (ratios, ratio_summary):
        with pytest.raises(RunError, match=r"unknown method of the table 'cachd': .* Did you mean 'cached'\?"):
            summary(table, to="cachd")


def test_a_chunk_without_the_reference_is_refused() -> None:
    torn = {name: column[:-3] for name, column in MADE_UP.items()}
    with pytest.raises(RunError, match=r"'CL-colME' has no 'kernel' in chunk 3: every chunk needs it\. Measure"):
        ratios(torn)
