"""What an experiment found: the numbers of `simulate`, nothing lost, nothing invented, and tables that say the same."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray

import colme
from colme import lab
from colme.errors import ColmeError, RunError
from colme.lab.experiment import Experiment
from colme.lab.rows import expected_rows, final_rows, time_table
from colme.lab.runs.store import RunStore
from colme.methods import Method
from colme.metrics import METRICS, OF_METHOD

TOLD_OF_METHOD = [name for name in OF_METHOD if name not in ("n_groups", "coverage", "trust")]
"""CL-colME and local know of no groups and intervals."""
TOLD = [name for name in METRICS if name not in ("n_groups", "coverage", "trust")]
SCENARIO = {"n_agents": 24, "means": [0.0, 3.0], "sigma": 0.5}
METHODS = [{"method": "cl-colme", "level": ["agent", "edge"]}, {"method": "local"}]
SWEEP: dict[str, Any] = {
    "title": "a sweep", "seeds": [2, 5, 9], "steps": 30, "degree": [4, 6], "scenario": SCENARIO, "methods": METHODS,
}  # fmt: skip


def small(**more: Any) -> dict[str, Any]:
    return {"seeds": 2, "steps": 20, "degree": 4, "scenario": SCENARIO, "methods": METHODS} | more


def run(folder: Path, table: dict[str, Any], name: str = "small") -> xarray.Dataset:
    return lab.run(Experiment.parse(table, name=name), results=folder, jobs=1)


def at(data: xarray.Dataset, method: str, **where: Any) -> xarray.Dataset:
    """`sel` has an argument `method` of its own."""
    return data.sel({"method": method} | where)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def sweep(folder: Path) -> xarray.Dataset:
    return run(folder, SWEEP, "sweep")


# Datasets


def test_dimensions_are_method_swept_parameters_seed_and_t(sweep: xarray.Dataset) -> None:
    assert sweep["mse"].dims == ("method", "degree", "level", "seed", "t")
    assert sweep["method"].values.tolist() == ["CL-colME", "local"]
    assert sweep["degree"].values.tolist() == [4, 6] and sweep["level"].values.tolist() == ["agent", "edge"]
    assert sweep["seed"].values.tolist() == [2, 5, 9] and sweep["t"].values.tolist() == list(range(1, 31))
    assert set(sweep.data_vars) == {*METRICS, "seconds", "cpu_seconds", "agent_steps"}
    assert sweep["cpu_seconds"].dims == ("method", "degree", "level", "seed")
    assert bool((sweep["seconds"] > 0).all())
    assert sweep.attrs["missing"] == 0 and sweep.attrs["title"] == "a sweep" and sweep.attrs["name"] == "sweep"
    assert json.loads(sweep.attrs["experiment"]) == SWEEP


@pytest.mark.parametrize("seed", [2, 9])
@pytest.mark.parametrize("degree", [4, 6])
@pytest.mark.parametrize("method", [colme.CLColME(level="agent"), colme.CLColME(level="edge"), colme.Local()])
def test_numbers_are_those_of_simulate_bit_for_bit(
    sweep: xarray.Dataset, method: Method, degree: int, seed: int
) -> None:
    trace = colme.simulate(method, colme.Scenario(**SCENARIO), degree=degree, steps=30, seed=seed)
    where = {"level": method.level} if isinstance(method, colme.CLColME) else {}
    mine = at(sweep, method.label, degree=degree, seed=seed, **where)
    for name in METRICS:
        theirs = getattr(trace, name).astype(float)
        for values in mine[name].values.reshape(-1, 30):
            assert values.tobytes() == theirs.tobytes(), name


SETUPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "double": ({"precision": "double", "tolerance": 0.3}, {"degree": 4, "precision": "double", "tolerance": 0.3}),
    "listed": ({"record": [3, 7]}, {"degree": 4, "record": [3, 7]}),
    "small-world": (
        {"graph": "small-world", "rewire": 0.3},
        {"graph": lambda rng: colme.graphs.watts_strogatz_graph(24, 4, 0.3, rng=rng)},
    ),
}


@pytest.mark.parametrize("case", SETUPS)
def test_a_set_up_is_what_simulate_takes(case: str, tmp_path: Path) -> None:
    keys, options = SETUPS[case]
    data = run(tmp_path, small(seeds=[3], methods=[{"method": "cl-colme"}]) | keys)
    trace = colme.simulate(colme.CLColME(), colme.Scenario(**SCENARIO), steps=20, seed=3, **options)
    assert data["t"].values.tolist() == trace.t.tolist()
    for name in METRICS:
        assert data[name].values.tobytes() == getattr(trace, name).astype(float).tobytes(), name


def test_a_method_without_the_parameter_has_the_same_numbers_for_all_its_values(sweep: xarray.Dataset) -> None:
    local, mine = at(sweep, "local"), at(sweep, "CL-colME")
    for name in (*METRICS, "seconds", "cpu_seconds"):
        assert np.array_equal(local[name].sel(level="agent"), local[name].sel(level="edge"), equal_nan=True), name
    assert not np.array_equal(mine["mse"].sel(level="agent"), mine["mse"].sel(level="edge"))


def test_a_method_may_have_steps_seeds_and_agents_of_its_own(tmp_path: Path) -> None:
    own = {"method": "local", "steps": 12, "seeds": [1], "scenario": {"n_agents": 10}}
    data = run(tmp_path, small(methods=[{"method": "cl-colme"}, own]))
    assert dict(data.sizes) == {"method": 2, "seed": 2, "t": 20}, "agents that the label implies are no dimension"
    local = at(data, "local")["mse"]
    assert np.isnan(local.sel(seed=0)).all() and np.isnan(local.sel(seed=1)[12:]).all()
    trace = colme.simulate(colme.Local(), colme.Scenario(**SCENARIO | {"n_agents": 10}), degree=4, steps=12, seed=1)
    assert local.sel(seed=1)[:12].values.tobytes() == trace.mse.tobytes()
    assert not np.isnan(at(data, "CL-colME")["mse"]).any()
    assert data.attrs["missing"] == 0, "what was not asked for is not missing"
    assert [(row["method"], row["t"], row["seeds"]) for row in final_rows(data)] == [
        ("CL-colME", 20, 2), ("local", 12, 1),
    ]  # fmt: skip


def test_a_parameter_that_another_implies_spans_no_dimension(tmp_path: Path) -> None:
    methods = [{"method": "cl-colme", "clock": ["own", "global"]},
               {"method": "cl-colme", "clock": "constant", "alpha": 0.9}]  # fmt: skip
    data = run(tmp_path, small(methods=methods))
    assert data["mse"].dims == ("method", "clock", "seed", "t") and not np.isnan(data["mse"]).any()
    assert data["clock"].values.tolist() == ["own", "global", "constant"]


def test_two_sweeps_of_one_label_fill_one_dimension(tmp_path: Path) -> None:
    methods = [{"method": "cl-colme", "delta": [0.3, 0.1]}, {"method": "cl-colme", "delta": 0.2}]
    data = run(tmp_path, small(methods=methods))
    assert data["delta"].values.tolist() == [0.1, 0.2, 0.3] and not np.isnan(data["mse"]).any()


def test_values_that_are_neither_numbers_nor_words_are_written_as_one_would_type_them(tmp_path: Path) -> None:
    methods = [{"method": "cl-colme", "step": ["auto", 0.05]}, {"method": "colme", "restricted": [True, False]}]
    data = run(tmp_path, small(scenario=SCENARIO | {"means": [[0.0, 3.0], [1.0]]}, methods=methods, seeds=1))
    assert data["means"].values.tolist() == ["(0.0, 3.0)", "(1.0,)"]
    assert data["step"].values.tolist() == ["auto", "0.05"]
    assert data["restricted"].values.tolist() == [False, True]
    assert not np.isnan(data["mse"]).any()


@pytest.mark.parametrize(
    "keys", [{"steps": [20, 10]}, {"steps": [10, 20]}, {"record": ["all", 5]}, {"record": [5, "all"]}]
)
def test_a_sweep_of_what_t_shows_loses_no_step(keys: dict[str, Any], tmp_path: Path) -> None:
    data = run(tmp_path, small(methods=[{"method": "local"}]) | keys)
    assert data["t"].values.tolist() == list(range(1, 21)) and not np.isnan(data["mse"]).any()


# Results that are not all there


def test_runs_that_are_not_there_are_nan_and_counted(sweep: xarray.Dataset, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "sweep", tmp_path / "sweep")
    planned = Experiment.parse(SWEEP, name="sweep").planned
    gone = [each for each in planned if each.spec.degree == 6 and each.spec.seed == 5]
    for each in gone:
        shutil.rmtree(tmp_path / "sweep" / "runs" / each.name)
    data = lab.load(tmp_path / "sweep")
    assert data.attrs["missing"] == len(gone) == 3
    lost = {"degree": 6, "seed": 5}
    for name in (*TOLD, "seconds"):
        assert np.isnan(data[name].sel(lost)).all(), name
        kept = data[name].where((data["degree"] != 6) | (data["seed"] != 5))
        assert np.isnan(kept).sum() == np.isnan(data[name]).sum() == data[name].sel(lost).size, name
    assert {row["seeds"] for row in final_rows(data) if row["degree"] == 6} == {2}
    frame = lab.to_frame(data)
    assert len(frame) == len(lab.to_frame(sweep)) - data["mse"].sel(lost).size
    assert not ((frame["degree"] == 6) & (frame["seed"] == 5)).any()


def test_a_combination_without_any_run_is_left_out_of_summary_and_tables(
    sweep: xarray.Dataset, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "sweep", tmp_path / "sweep")
    for each in Experiment.parse(SWEEP, name="sweep").planned:
        if each.spec.degree == 6 and each.spec.parameters().get("level") == "edge":
            shutil.rmtree(tmp_path / "sweep" / "runs" / each.name)
    data = lab.load(tmp_path / "sweep")
    middle = lab.summary(data)["mse"].sel(quantile=0.5)
    assert np.isnan(at(middle, "CL-colME", degree=6, level="edge")).all()
    assert not np.isnan(at(middle, "CL-colME", degree=4)).any() and not np.isnan(at(middle, "local")).any()
    found = [(row["degree"], row["level"]) for row in final_rows(data) if row["method"] == "CL-colME"]
    assert found == [(4, "agent"), (4, "edge"), (6, "agent")]


def test_nothing_finished_is_said_with_the_command_that_helps(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no finished run of small\. Try: colme run small"):
        lab.load(Experiment.parse(small(), name="small"), results=tmp_path)
    with pytest.raises(RunError, match=r"holds no experiment\. Run one first: colme run"):
        lab.load(tmp_path)


def test_an_interrupted_run_has_no_time(folder: Path, sweep: xarray.Dataset, tmp_path: Path) -> None:
    """Its seconds would be those of the last part only."""
    shutil.copytree(folder / "sweep", tmp_path / "sweep")
    store, planned = RunStore(tmp_path / "sweep"), Experiment.parse(SWEEP, name="sweep").planned[0]
    head = store.read_json(planned.name)
    assert head is not None and head["timings"]["steps"] == 30
    head["timings"]["steps"] = 10
    (store.runs / planned.name / "run.json").write_text(json.dumps(head))
    data = lab.load(tmp_path / "sweep")
    assert data.attrs["missing"] == 0 and int(np.isnan(data["seconds"]).sum()) == 1


# Where results are found


def test_load_takes_a_folder_a_file_a_table_or_an_experiment(tmp_path: Path) -> None:
    text = "steps = 20\n[scenario]\nn_agents = 24\nmeans = [0.0, 3.0]\n[[methods]]\nmethod = 'local'\n"
    (tmp_path / "mine.toml").write_text(text)
    results = tmp_path / "results"
    data = lab.run(tmp_path / "mine.toml", results=results, jobs=1)
    for source in (
        results / "mine", str(results / "mine"), tmp_path / "mine.toml", str(tmp_path / "mine.toml"),
        Experiment.read(tmp_path / "mine.toml"),
    ):  # fmt: skip
        again = lab.load(source, results=results)
        assert again.equals(data) and again.attrs["name"] == "mine"
    table = {"steps": 20, "scenario": {"n_agents": 24, "means": [0.0, 3.0]}, "methods": [{"method": "local"}]}
    ran = lab.run(table, results=results, jobs=1)
    assert lab.load(table, results=results).equals(ran) and ran["mse"].equals(data["mse"])
    assert {path.name for path in results.iterdir()} == {"mine", "experiment"}


# Summary and tables to take home


def test_summary_is_what_numpy_says(sweep: xarray.Dataset) -> None:
    for band in ((0.25, 0.75), (0.1, 0.9), (0.0, 1.0)):
        found = lab.summary(sweep, band)
        assert found["quantile"].values.tolist() == [band[0], 0.5, band[1]]
        assert "seed" not in found.dims and found.attrs == sweep.attrs
        for name in ("mse", "error_rate", "seconds"):
            axis = sweep[name].dims.index("seed")
            expected = np.quantile(sweep[name].values, [band[0], 0.5, band[1]], axis=axis)
            values = found[name].transpose("quantile", ...).values
            np.testing.assert_allclose(values, expected, rtol=1e-14)


def test_summary_leaves_out_seeds_that_are_not_there(sweep: xarray.Dataset) -> None:
    partial = sweep.where(sweep["seed"] != 5)
    found = lab.summary(partial)["mse"].sel(quantile=0.5)
    np.testing.assert_allclose(found, sweep["mse"].sel(seed=[2, 9]).mean("seed"), rtol=1e-14)


@pytest.mark.parametrize("band", [(0.5, 0.75), (0.25, 0.5), (-0.1, 0.9), (0.25, 1.1), (0.75, 0.25), (math.nan, 0.9)])
def test_a_band_must_hold_the_median(sweep: xarray.Dataset, band: tuple[float, float]) -> None:
    with pytest.raises(ColmeError, match=r"band=\(.*must hold the median.*Try band=\(0\.25, 0\.75\)"):
        lab.summary(sweep, band)


def test_a_summary_has_no_summary(sweep: xarray.Dataset) -> None:
    with pytest.raises(ColmeError, match="no seeds to summarize"):
        lab.summary(lab.summary(sweep))


def test_a_frame_has_a_row_for_every_number(sweep: xarray.Dataset) -> None:
    frame = lab.to_frame(sweep)
    assert list(frame.columns) == ["method", "degree", "level", "seed", "t", *METRICS]
    assert len(frame) == sweep["mse"].size and not frame.duplicated(["method", "degree", "level", "seed", "t"]).any()
    row = frame[(frame.method == "CL-colME") & (frame.degree == 6) & (frame.level == "edge") & (frame.seed == 5)
                & (frame.t == 17)]  # fmt: skip
    assert row["mse"].item() == at(sweep, "CL-colME", degree=6, level="edge", seed=5, t=17)["mse"].item()


def test_csv_and_parquet_bring_every_bit_back(sweep: xarray.Dataset, tmp_path: Path) -> None:
    frame = lab.to_frame(sweep)
    lab.to_csv(sweep, tmp_path / "deep" / "numbers.csv")
    lab.to_parquet(sweep, tmp_path / "deeper" / "numbers.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "deeper" / "numbers.parquet"), frame)
    again = pd.read_csv(tmp_path / "deep" / "numbers.csv", dtype=str)
    assert list(again.columns) == list(frame.columns) and again["method"].tolist() == frame["method"].tolist()
    for name in METRICS:
        assert np.array_equal([float(text) for text in again[name]], frame[name], equal_nan=True), name
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"numbers.csv", "numbers.parquet"}, "no half-written files"


# How each method ended


def test_final_rows_are_medians_over_the_seeds_at_the_last_step(sweep: xarray.Dataset) -> None:
    rows = final_rows(sweep)
    assert [(row["method"], row["degree"], row["level"]) for row in rows] == [
        ("CL-colME", 4, "agent"), ("CL-colME", 4, "edge"), ("CL-colME", 6, "agent"), ("CL-colME", 6, "edge"),
        ("local", None, None),
    ]  # fmt: skip
    for row in rows:
        where = {key: row[key] for key in ("degree", "level") if row[key] is not None}
        last = at(sweep, row["method"], t=30, **where)
        assert row["t"] == 30 and row["seeds"] == 3
        for name in (*TOLD_OF_METHOD, "local_mse"):
            values = last[name].values.reshape(-1, 3)
            assert row[name] == np.median(values[0]) and np.array_equal(values, values[:1].repeat(len(values), 0))


def test_final_rows_know_every_time(sweep: xarray.Dataset) -> None:
    """Also that of a method whose errors do not depend on a parameter that is swept: local, and the degree."""
    for row in final_rows(sweep):
        assert row["seconds"] > 0 and row["time_ratio"] > 0, row
        where = {key: row[key] for key in ("degree", "level") if row[key] is not None}
        seconds = at(sweep, row["method"], **where)["cpu_seconds"].values
        assert seconds.min() <= row["seconds"] <= seconds.max()
    assert final_rows(sweep)[0]["time_ratio"] == 1.0, "the reference is the first line of CL-colME"


def test_a_parameter_that_moves_only_another_metric_has_rows_of_its_own(tmp_path: Path) -> None:
    data = run(tmp_path, small(tolerance=[0.01, 1.0], methods=[{"method": "cl-colme"}, {"method": "local"}]))
    found = {(row["method"], row["tolerance"]): row["error_rate"] for row in final_rows(data)}
    assert set(found) == {(method, tolerance) for method in ("CL-colME", "local") for tolerance in (0.01, 1.0)}
    assert found["local", 0.01] > 0.8 and found["local", 1.0] == 0.0


def test_time_ratios_are_relative_to_the_first_line_of_the_reference(tmp_path: Path) -> None:
    both = [{"method": "cl-colme", "level": ["agent", "edge"]}, {"method": "c-colme", "level": ["agent", "edge"]}]
    data = run(tmp_path, small(seeds=3, steps=30, degree=[4, 6], methods=both))
    seconds = np.random.default_rng(0).uniform(1.0, 2.0, size=(2, 2, 2, 3))  # method, degree, level, seed
    data["cpu_seconds"] = (data["cpu_seconds"].dims, seconds)
    table = time_table(data)
    assert len(table) == 8 and (table["median"].diff().dropna() >= 0).all(), "fastest first"
    assert table.attrs["reference"] == "CL-colME, degree 4, agent"
    for k, i, j in np.ndindex(2, 2, 2):
        name = f"{('CL-colME', 'C-colME')[k]}, degree {(4, 6)[i]}, {('agent', 'edge')[j]}"
        (row,) = table[table["line"] == name].to_dict("records")
        for columns, values in (
            (("low", "median", "high"), seconds[k, i, j]),
            (("ratio_low", "ratio", "ratio_high"), seconds[k, i, j] / seconds[0, 0, 0]),
        ):
            assert [row[column] for column in columns] == np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    ended = {(row["method"], row["degree"], row["level"]): row["time_ratio"] for row in final_rows(data)}
    assert ended["C-colME", 6, "edge"] == np.median(seconds[1, 1, 1] / seconds[0, 0, 0])


def test_without_the_reference_there_are_times_and_no_ratios(tmp_path: Path) -> None:
    rows = final_rows(run(tmp_path, small(methods=[{"method": "local"}, {"method": "oracle"}])))
    assert all(row["seconds"] > 0 and math.isnan(row["time_ratio"]) for row in rows) and len(rows) == 2


# Measured beside expected


def measured(folder: Path, expected: dict[str, Any], **more: Any) -> tuple[dict[str, Any], xarray.Dataset]:
    given = {"method": "CL-colME", "value": 2.0, "source": "a paper"} | expected
    experiment = Experiment.parse(small(expected=[given], **more), name="small")
    data = lab.run(experiment, results=folder, jobs=1)
    (row,) = expected_rows(data, experiment.head.expected)
    return row, data


def test_expected_at_a_step(tmp_path: Path) -> None:
    row, data = measured(tmp_path, {"where": {"level": "edge"}, "t": 15}, seeds=3)
    values = at(data, "CL-colME", level="edge", t=15)["mse"].values
    assert (row["low"], row["measured"], row["high"]) == tuple(np.quantile(values, [0.25, 0.5, 0.75]))
    assert row["expected"] == 2.0 and row["ratio"] == row["measured"] / 2.0 and row["source"] == "a paper"
    assert row["method"] == "CL-colME, edge" and row["quantity"] == "MSE at t=15"


def test_expected_first_step_below(tmp_path: Path) -> None:
    row, data = measured(
        tmp_path, {"where": {"level": "agent"}, "metric": "error_rate", "below": 0.2}, seeds=3, steps=60
    )
    series = at(data, "CL-colME", level="agent")["error_rate"].values
    steps = [int(np.flatnonzero(each < 0.2)[0]) + 1 for each in series]
    assert row["measured"] == np.median(steps) > 1
    assert row["quantity"] == "first t with error rate < 0.2"


def test_a_mean_is_compared_with_a_mean(tmp_path: Path) -> None:
    where = {"where": {"level": "agent"}, "t": 10}
    mean, data = measured(tmp_path, where | {"statistic": "mean"})
    median, _ = measured(tmp_path, where)
    values = data["mse"].sel({"method": "CL-colME", "level": "agent", "t": 10}).values
    assert mean["measured"] == pytest.approx(values.mean()) and median["measured"] == pytest.approx(np.median(values))
    assert (mean["statistic"], median["statistic"]) == ("mean", "median")
    assert (mean["low"], mean["high"]) == (median["low"], median["high"])


def test_an_expected_time_ratio_is_that_to_the_reference_with_the_same_parameters(tmp_path: Path) -> None:
    both = [{"method": "cl-colme", "level": ["agent", "edge"]}, {"method": "c-colme", "level": ["agent", "edge"]}]
    expected = {"method": "C-colME", "metric": "time_ratio", "where": {"level": "edge"}}
    row, data = measured(tmp_path, expected, methods=both)
    seconds = data["cpu_seconds"].sel(level="edge")
    ratios = at(seconds, "C-colME").values / at(seconds, "CL-colME").values
    assert row["measured"] == pytest.approx(np.median(ratios)) and row["quantity"] == "time / CL-colME's"


@pytest.mark.parametrize(
    ("where", "more"),
    [
        ({"degree": 6, "level": "agent"}, {"degree": [4, 6]}),
        ({"step": 0.05}, {"methods": [{"method": "cl-colme", "step": ["auto", 0.05]}]}),
        ({"means": [0.0, 2.0], "level": "agent"}, {"scenario": SCENARIO | {"means": [[0.0, 3.0], [0.0, 2.0]]}}),
        ({"n_agents": 20, "level": "edge"}, {"scenario": SCENARIO | {"n_agents": [20, 24]}}),
    ],
    ids=["number", "number among words", "list", "two"],
)
def test_expected_selects_by_any_parameter(where: dict[str, Any], more: dict[str, Any], tmp_path: Path) -> None:
    row, data = measured(tmp_path, {"where": where, "t": 15}, **{"methods": METHODS} | more)
    mine = at(data, "CL-colME", t=15)["mse"]
    for name, value in where.items():
        mine = mine.isel({name: [str(each) for each in data[name].values].index(
            str(tuple(value) if isinstance(value, list) else value)
        )})  # fmt: skip
    assert row["measured"] == np.median(mine.values)


@pytest.mark.parametrize(("expected", "found"), [
    ({"where": {"level": "edge", "n_agents": 24}, "t": 999}, math.nan),
    ({"where": {"level": "agent"}, "t": 15}, math.nan),
    ({"where": {"n_agents": 5000}, "t": 15}, math.nan),
    ({"metric": "error_rate", "below": -1.0}, math.inf),
])  # fmt: skip
def test_what_was_not_measured_is_nan_and_what_never_happened_infinite(
    expected: dict[str, Any], found: float, tmp_path: Path
) -> None:
    """As after `colme run cl_colme --level edge`: a number for level "agent" says nothing about it."""
    row, _ = measured(tmp_path, expected, methods=[{"method": "cl-colme", "level": "edge"}])
    np.testing.assert_equal([row[name] for name in ("measured", "low", "high", "ratio")], [found] * 4)


def test_zero_can_be_expected(tmp_path: Path) -> None:
    expected = {"where": {"level": "agent"}, "metric": "lost_edges", "t": 20, "value": 0.0}
    row, _ = measured(tmp_path, expected)
    assert row["expected"] == 0.0 and row["measured"] >= 0 and not math.isfinite(row["ratio"])


def test_if_all_runs_were_resumed_only_the_times_are_missing(sweep: xarray.Dataset) -> None:
    resumed = sweep.assign(cpu_seconds=sweep["cpu_seconds"] * np.nan)
    for row, timed in zip(final_rows(resumed), final_rows(sweep), strict=True):
        assert np.isnan(row["seconds"]) and np.isnan(row["time_ratio"])
        assert {**row, "seconds": 0, "time_ratio": 0} == {**timed, "seconds": 0, "time_ratio": 0}
