"""What a run recorded survives the disk and becomes a labelled dataset."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colme
from colme.errors import CheckpointError, MissingExtra
from colme.methods import Method
from colme.metrics import METRICS
from colme.sim.trace import FORMAT
from colme.support.files import read_arrays, write_arrays

SCENARIO = colme.Scenario(n_agents=20, means=(0.0, 1.25), sigma=0.5)
GAPS = colme.Scenario(n_agents=20, means=(0.0, 1.25), sigma=0.5, skip_rate=0.3, late_share=0.2, late_step=90)
CL = colme.CLColME(delta=0.1)


def assert_same(one: Any, other: Any, what: str) -> None:
    """Equal types, shapes and bits, field by field."""
    assert type(one) is type(other), what
    if dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name), f"{what}.{field.name}")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes(), what
    elif isinstance(one, colme.Graph):
        assert_same(one.indptr, other.indptr, f"{what}.indptr")
        assert_same(one.indices, other.indices, f"{what}.indices")
    else:
        assert one == other, what


# Save and load


@pytest.mark.parametrize("method", [
    colme.Local(), colme.Oracle(), colme.ColME(delta=0.2, weights="soft"), colme.BColME(delta=0.1, depth=2),
    colme.CColME(delta=0.1, clock="constant", alpha=0.8), CL,
    colme.CLColME(gamma=0.01, step=0.1, bound="hoeffding", width=2.0),
], ids=repr)  # fmt: skip
@pytest.mark.parametrize("scenario", [SCENARIO, GAPS], ids=["complete", "gaps"])
def test_every_field_comes_back_from_a_file(tmp_path: Path, method: Method, scenario: colme.Scenario) -> None:
    trace = colme.simulate(method, scenario, degree=4, steps=40, seed=2**64 - 1, record="log")
    trace.save(tmp_path / "trace.npz")
    loaded = colme.Trace.load(tmp_path / "trace.npz")
    assert_same(loaded, trace, "trace")


def test_a_trace_without_truth_comes_back_without(tmp_path: Path) -> None:
    trace = colme.simulate(colme.Local(), np.random.default_rng(0).normal(size=(9, 4)))
    trace.save(tmp_path / "trace.npz")
    loaded = colme.Trace.load(tmp_path / "trace.npz")
    assert loaded.final.truth is None and loaded.final.class_ is None
    assert_same(loaded, trace, "trace")


def test_the_name_of_the_file_is_yours(tmp_path: Path) -> None:
    trace = colme.simulate(CL, SCENARIO, steps=5)
    trace.save(str(tmp_path / "run.trace"))
    assert [each.name for each in tmp_path.iterdir()] == ["run.trace"]
    trace.save(tmp_path / "run.trace")  # over the old one
    assert_same(colme.Trace.load(str(tmp_path / "run.trace")), trace, "trace")


class Foreign(colme.Local, frozen=True, tag="foreign"):  # type: ignore[call-arg]
    """A method that another program may not know."""

    strength: float = 0.5


def test_a_foreign_method_comes_back_as_plain_data(tmp_path: Path) -> None:
    trace = colme.simulate(Foreign(strength=0.25), SCENARIO, steps=5)
    trace.save(tmp_path / "one.npz")
    loaded = colme.Trace.load(tmp_path / "one.npz")
    assert loaded.method == {"method": "foreign", "strength": 0.25}
    assert_same(loaded.final, trace.final, "final")
    loaded.save(tmp_path / "two.npz")  # and can be passed on
    assert_same(colme.Trace.load(tmp_path / "two.npz"), loaded, "trace")
    assert loaded.to_xarray()["method"].item() == "foreign"


@pytest.mark.parametrize("missing", sorted(METRICS.keys() - {"mse"}))
def test_a_file_of_a_version_with_fewer_metrics_is_read(tmp_path: Path, missing: str) -> None:
    trace = colme.simulate(CL, SCENARIO, steps=5)
    trace.save(tmp_path / "trace.npz")
    head, arrays = read_arrays(tmp_path / "trace.npz", FORMAT)
    del arrays[missing]
    write_arrays(tmp_path / "trace.npz", FORMAT, head, arrays)
    loaded = colme.Trace.load(tmp_path / "trace.npz")
    assert np.isnan(getattr(loaded, missing)).all() and np.array_equal(loaded.mse, trace.mse)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    with pytest.raises(CheckpointError, match="there is no file"):
        colme.Trace.load(path)
    colme.simulate(CL, SCENARIO, steps=5, checkpoint=path)
    with pytest.raises(CheckpointError, match="holds 'colme checkpoint 1' where 'colme trace 1' is needed"):
        colme.Trace.load(path)


def test_saving_where_nothing_can_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"^cannot write .*\. Choose a folder with room that is writable\.$"):
        colme.simulate(CL, SCENARIO, steps=5).save(tmp_path / "file" / "trace.npz")


# To xarray


def test_a_trace_becomes_a_dataset_over_t() -> None:
    trace = colme.simulate(CL, SCENARIO, steps=30, seed=4, record=7)
    data = trace.to_xarray()
    assert dict(data.sizes) == {"t": 5} and data["t"].values.tolist() == [7, 14, 21, 28, 30]
    assert set(data.data_vars) == set(METRICS)
    for name in METRICS:
        assert data[name].dims == ("t",) and np.array_equal(data[name].values, getattr(trace, name), equal_nan=True), (
            name
        )
    assert data["method"].item() == "CL-colME" and data["seed"].item() == 4
    assert json.loads(data.attrs["configuration"])["seed"] == 4


def test_traces_become_a_dataset_over_method_seed_and_t() -> None:
    methods = [CL, colme.Local(), colme.CColME(delta=0.1)]
    traces = colme.simulate(methods, SCENARIO, steps=12, seeds=[5, 2])
    data = traces.to_xarray()
    assert dict(data.sizes) == {"method": 3, "seed": 2, "t": 12}
    assert data["method"].values.tolist() == ["CL-colME", "local", "C-colME"]
    assert set(data["seed"].values.tolist()) == {2, 5}
    for trace in traces:
        one = data.sel({"method": trace.method.label, "seed": trace.seed})
        for name in METRICS:
            assert np.array_equal(one[name].values, getattr(trace, name), equal_nan=True), name


def test_methods_with_one_label_are_told_apart_by_their_repr() -> None:
    methods = [CL, colme.CLColME(delta=0.2), colme.Local()]
    data = colme.simulate(methods, SCENARIO, steps=5).to_xarray()
    assert data["method"].values.tolist() == [repr(methods[0]), repr(methods[1]), "local"]
    assert "delta=0.2" in repr(methods[1])


def test_foreign_methods_with_one_name_are_told_apart(tmp_path: Path) -> None:
    for number, strength in enumerate((0.1, 0.2)):
        colme.simulate(Foreign(strength=strength), SCENARIO, steps=5).save(tmp_path / f"{number}.npz")
    loaded = colme.Traces([colme.Trace.load(tmp_path / f"{number}.npz") for number in (0, 1)])
    labels = loaded.to_xarray()["method"].values.tolist()
    assert len(set(labels)) == 2 and all("foreign" in label for label in labels)


def test_runs_of_several_calls_can_be_put_together() -> None:
    traces = colme.Traces([colme.simulate(CL, SCENARIO, steps=5, seed=seed) for seed in (3, 1)])
    assert traces.to_xarray().sel(seed=3)["mse"].values.ravel().tolist() == traces[0].mse.tolist()


def test_what_has_no_common_axes_makes_no_dataset() -> None:
    """Steps 1..10 against 1..12, and against 1..9 and 12: a common axis t would be a lie."""
    grid = colme.simulate([CL, colme.Local()], SCENARIO, steps=10, seeds=[0, 1])
    longer, gappy = (colme.simulate(CL, SCENARIO, steps=12, seed=2, record=steps) for steps in ("all", range(1, 10)))
    for traces, words in (
        (grid[:3], "some method lacks some seed"),
        ([grid[0], longer], "different steps"),
        ([grid[0], gappy], "different steps"),
        ([], "0 traces"),
    ):
        with pytest.raises(colme.ColmeError, match=words):
            colme.Traces(traces).to_xarray()


def test_without_xarray_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = colme.simulate(CL, SCENARIO, steps=5)
    monkeypatch.setitem(sys.modules, "xarray", None)
    for thing in (trace, colme.Traces([trace])):
        with pytest.raises(MissingExtra, match=r"pip install '\.\[lab\]'"):
            thing.to_xarray()
    with pytest.raises(ImportError):  # so that `except ImportError` works too
        trace.to_xarray()
