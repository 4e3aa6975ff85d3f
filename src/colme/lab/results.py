"""The results of an experiment: from stored runs to an xarray.Dataset, its summary, and CSV or Parquet files."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from colme.errors import ColmeError, RunError, missing_extra
from colme.lab.experiment import Experiment
from colme.lab.planning import Planned
from colme.lab.runs.store import RunStore
from colme.metrics import METRICS
from colme.support.files import write_whole
from colme.support.tables import csv_of, parquet_of

ExperimentSource = str | os.PathLike[str] | dict[str, Any] | Experiment
TIMES = ("seconds", "cpu_seconds")
"""Times of a run, without the warm-up; NaN for a run that was interrupted and resumed."""
SHOWN_IN_T = {"steps", "record"}
"""Parameters that are no dimension because t shows them."""


def experiment_of(source: ExperimentSource, changes: dict[str, Any] | None = None) -> Experiment:
    """An experiment from a file, a shipped name, a folder of results, or a table."""
    if isinstance(source, Experiment):
        return source
    if isinstance(source, dict):
        return Experiment.parse(source, changes=changes)
    if not is_results(source):
        return Experiment.read(Path(source), changes)
    path = Path(source)
    return Experiment.parse(RunStore(path).load_experiment(), name=path.resolve().name, folder=path, changes=changes)


def is_results(source: ExperimentSource) -> bool:
    """Whether this is a folder of results."""
    return isinstance(source, str | os.PathLike) and Path(source).is_dir()


def opened(source: ExperimentSource, results: str | os.PathLike[str]) -> tuple[Experiment, RunStore]:
    """An experiment and the folder in which it keeps its runs."""
    experiment = experiment_of(source)
    return experiment, RunStore(Path(source) if is_results(source) else Path(results) / experiment.name)  # type: ignore[arg-type]


def load(source: ExperimentSource, *, results: str | os.PathLike[str] = "results") -> Any:
    """The finished runs of an experiment as an xarray.Dataset.

    source    a folder of results, or what `run` takes

    Dimensions: method (labels), then every parameter that is swept, seed, t. Missing runs are NaN; `attrs["missing"]`
    counts them, except those that cannot run (see `Experiment.check`), which `attrs["skipped"]` lists. A method that
    does not have a parameter has the same numbers for all its values.

    >>> import tempfile
    >>> from colme import lab
    >>> table = {
    ...     "seeds": 2, "steps": 50, "record": "log", "scenario": {"n_agents": 50, "means": [0.0, 1.0]},
    ...     "methods": [{"method": "cl-colme"}, {"method": "local"}],
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = lab.run(table, results=folder, jobs=1)
    ...     again = lab.load(table, results=folder)
    >>> again.mse.equals(data.mse)
    True

    See also: run, summary, to_frame
    """
    return dataset(*opened(source, results))


def dataset(experiment: Experiment, store: RunStore) -> Any:
    """What `load` returns."""
    try:
        import xarray
    except ImportError:
        raise missing_extra("xarray", "lab", "results as a dataset") from None
    planned = experiment.planned
    heads = {each.name: store.read_json(each.name) for each in planned}
    found = [(each, head) for each in planned if (head := heads[each.name]) is not None]
    if not found:
        raise RunError(f"{store.folder} has no finished run of {experiment.name}. Try: colme run {experiment.name}.")
    refused = experiment.cannot_run() if len(found) < len(planned) else {}
    skipped = {name: reason for name, reason in refused.items() if heads[name] is None}
    tables = {each.name: store.read_trace(each.name) for each, _ in found}
    steps = np.unique(np.concatenate([table["t"].to_numpy() for table in tables.values()]))
    axes = axes_of(planned)
    labels = list(dict.fromkeys(each.label for each in planned))
    seeds = sorted({each.spec.seed for each in planned})
    dims, shape = ("method", *axes, "seed"), (len(labels), *map(len, axes.values()), len(seeds))
    data = {name: np.full((*shape, len(steps)), np.nan) for name in METRICS}
    sizes = {name: np.full(shape, np.nan) for name in (*TIMES, "agent_steps")}
    for each, head in found:
        place = _place(each, labels, axes, seeds)
        columns = np.searchsorted(steps, tables[each.name]["t"].to_numpy())
        for name in METRICS:
            data[name][place][..., columns] = tables[each.name][name].to_numpy()
        sizes["agent_steps"][place] = each.size
        for name in TIMES if head["timings"]["steps"] == each.spec.steps else ():
            sizes[name][place] = head["timings"][name]
    attributes: dict[str, Any] = {
        "name": experiment.name, "title": experiment.title, "missing": len(planned) - len(found) - len(skipped),
        "skipped": json.dumps(sorted(set(skipped.values()))), "experiment": json.dumps(experiment.table),
        "fixed": json.dumps(_fixed(planned, axes)),
    }  # fmt: skip
    tolerances = {each.spec.tolerance for each in planned}
    return xarray.Dataset(
        {name: ((*dims, "t"), values) for name, values in data.items()}
        | {name: (dims, values) for name, values in sizes.items()},
        coords={"method": labels, "seed": seeds, "t": steps}
        | {name: each if _are_numbers(each) else list(map(str, each)) for name, each in axes.items()},
        attrs=attributes | ({"tolerance": tolerances.pop()} if len(tolerances) == 1 else {}),
    )


def axes_of(planned: Sequence[Planned]) -> dict[str, list[Any]]:
    """The parameters that vary, with all their values. Parameters of the scenario and the set-up are compared over all
    runs, those of a method over the runs of one label: different deltas of CL-colME and C-colME are not a sweep."""
    values: dict[str, list[Any]] = {}
    per_label: dict[tuple[str, str], list[Any]] = {}
    for each in planned:
        own = each.spec.method.__struct_fields__
        for name, value in each.spec.parameters().items():
            owner = each.label if name.removeprefix("method_") in own else ""
            for seen in (values.setdefault(name, []), per_label.setdefault((owner, name), [])):
                if value not in seen:
                    seen.append(value)
    swept = {name for (_, name), seen in per_label.items() if len(seen) > 1} - SHOWN_IN_T
    axes = {name: sorted(seen) if _are_numbers(seen) else seen for name, seen in values.items() if name in swept}
    for name in reversed(list(axes)):  # drop what the others imply, such as the alpha of a constant clock
        if _n_combinations(planned, axes.keys() - {name}) == _n_combinations(planned, axes.keys()):
            del axes[name]
    return axes


def _n_combinations(planned: Sequence[Planned], names: Set[str]) -> int:
    found = [(each.label, each.spec.seed, each.spec.parameters()) for each in planned]
    return len({(label, seed, *(parameters.get(name) for name in names)) for label, seed, parameters in found})


def _fixed(planned: Sequence[Planned], axes: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """label -> the parameters that are the same in all its runs and not a dimension."""
    fixed: dict[str, dict[str, Any]] = {}
    for each in planned:
        own = {name: value for name, value in each.spec.parameters().items() if name not in axes}
        seen = fixed.setdefault(each.label, own)
        fixed[each.label] = {name: value for name, value in seen.items() if own.get(name) == value}
    return fixed


def _place(each: Planned, labels: list[str], axes: dict[str, list[Any]], seeds: list[int]) -> tuple[Any, ...]:
    parameters = each.spec.parameters()
    where = [axes[name].index(parameters[name]) if name in parameters else slice(None) for name in axes]
    return (labels.index(each.label), *where, seeds.index(each.spec.seed))


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int | float) for value in values)


def summary(data: Any, band: tuple[float, float] = (0.25, 0.75)) -> Any:
    """Median and band over the seeds: the same dataset with a dimension `quantile` (low, 0.5, high) instead of seed.

    data  what `run` or `load` returns
    band  the lower and the upper quantile

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> lab.summary(data).mse.dims
    ('quantile', 'method', 't')

    See also: run, load, plot_over_time
    """
    if "seed" not in data.dims:
        raise ColmeError("the dataset has no seeds to summarize: it must have a dimension `seed`. Try lab.load(...).")
    low, high = band
    if not 0 <= low < 0.5 < high <= 1:
        raise ColmeError(f"band={band}: it must hold the median, 0 <= low < 0.5 < high <= 1. Try band=(0.25, 0.75).")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)  # combinations that were never run
        return data.quantile([low, 0.5, high], "seed", skipna=True, keep_attrs=True)


def to_frame(data: Any) -> Any:
    """A long table with a row per method, parameters, seed and t; combinations that were not run are left out.

    data  what `run` or `load` returns

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> frame = lab.to_frame(data)
    >>> len(frame), frame.columns[:4].tolist()
    (200, ['method', 'seed', 't', 'mse'])

    See also: to_csv, to_parquet, load
    """
    metrics = [name for name in METRICS if name in data]
    frame = data[metrics].to_dataframe(dim_order=list(data[metrics[0]].dims))
    return frame.dropna(how="all").reset_index()


def to_csv(data: Any, path: str | os.PathLike[str]) -> None:
    """Write `to_frame` as CSV.

    data  what `run` or `load` returns
    path  the file to write

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lab.to_csv(data, pathlib.Path(folder, "errors.csv"))
    ...     pathlib.Path(folder, "errors.csv").read_text().splitlines()[0][:18]
    '"method","seed","t'

    See also: to_frame, to_parquet
    """
    write_whole(Path(path), csv_of(_columns(data)))


def to_parquet(data: Any, path: str | os.PathLike[str]) -> None:
    """Write `to_frame` as Parquet.

    data  what `run` or `load` returns
    path  the file to write

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lab.to_parquet(data, pathlib.Path(folder, "errors.parquet"))
    ...     [path.name for path in pathlib.Path(folder).iterdir()]
    ['errors.parquet']

    See also: to_frame, to_csv
    """
    write_whole(Path(path), parquet_of(_columns(data)))


def _columns(data: Any) -> dict[str, Any]:
    return {name: values.to_numpy() for name, values in to_frame(data).items()}
