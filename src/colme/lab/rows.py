"""The results of an experiment as rows: final errors, times, method by case, and measured beside expected."""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray

from colme.errors import ColmeError, one_of, shorten
from colme.lab.experiment import MEAN_COVERAGE, TIME_RATIO, WORST_RATIO, Expected
from colme.lab.planning import REFERENCE
from colme.metrics import METRICS, OF_METHOD
from colme.support.arrays import Floats, Integers
from colme.support.tables import Row

JUDGED, SETTLED = 3, 10
"""The first steps from which on errors and coverages are compared: before, no estimate can have been judged."""


def final_rows(data: xarray.Dataset) -> list[Row]:
    """The final errors of each method, medians over the seeds at the last step, and its time relative to that of the
    first line of CL-colME."""
    check(data, "mse", "t")
    times = time_table(data).set_index("line")
    rows = []
    told = [name for name in OF_METHOD if bool(data[name].notnull().any())]  # few methods have groups or intervals
    for line in _rows(data):
        one = data.isel(line.places).dropna("t", how="all", subset=["mse"])
        last, time = one.isel(t=-1), times.loc[line.label]
        row: Row = {"method": line.method} | _parameters(data, line)
        row |= {"seeds": int(one["mse"].notnull().any("t").sum()), "t": int(last["t"])}
        row |= {name: float(last[name].median("seed")) for name in (*told, "local_mse")}
        rows.append(row | {"seconds": float(time["median"]), "time_ratio": float(time["ratio"])})
    return rows


def case_rows(data: xarray.Dataset) -> list[Row]:
    """Method by case, from means over the seeds: the largest error relative to local (from step 3 on), the step from
    which on the error is within twice the oracle's, the coverage of the 90 % intervals (smallest and largest from step
    10 on), and the numbers sent to a neighbor per step. Empty if the experiment has no cases."""
    if "case" not in data.dims:
        return []
    rows = []
    means = data.mean("seed")
    for case in data["case"].values:
        for method in data["method"].values:
            one = means.sel({"case": case, "method": method}).squeeze().dropna("t", subset=["mse"])
            if one["mse"].ndim != 1 or one.sizes["t"] == 0:
                continue
            t, mse = one["t"].values, one["mse"].values
            away = np.flatnonzero(mse > 2.0 * one["oracle_mse"].values)
            reached = t[0] if not len(away) else t[away[-1] + 1] if away[-1] + 1 < len(t) else None
            covered = one["coverage"].values[t >= SETTLED]
            known = covered[~np.isnan(covered)]
            rows.append({
                "case": str(case), "method": str(method), "worst / local": over_all_steps(one, WORST_RATIO),
                "2 x oracle from t": None if reached is None else int(reached),
                "coverage": f"{known.min():.2f} .. {known.max():.2f}" if len(known) else None,
                "numbers": float(one["numbers"].values[-1]),
            })  # fmt: skip
    return rows


OVER_ALL_STEPS = (WORST_RATIO, MEAN_COVERAGE)
"""Numbers that are expected of means over the seeds, not of each seed."""


def over_all_steps(one: xarray.Dataset, metric: str) -> float:
    """The largest error relative to local of means over the seeds, from step JUDGED on; or their coverage, on average
    from step SETTLED on."""
    worst = metric == WORST_RATIO
    values = one["mse"] / one["local_mse"] if worst else one["coverage"]
    some = values.values[one["t"].values >= (JUDGED if worst else SETTLED)]
    if np.isnan(some).all():
        return np.nan
    return float(np.nanmax(some) if worst else np.nanmean(some))


def _rows(data: xarray.Dataset) -> list[Line]:
    """A line for every combination that differs in any metric: the tolerance moves the error rate alone."""
    metrics = [name for name in OF_METHOD if name in data] or ["cpu_seconds"]
    return lines_of(data[metrics].to_array("variable"), keep="variable")


def _parameters(data: xarray.Dataset, line: Line) -> Row:
    """Every swept parameter: its value, or None where the method does not depend on it."""
    return {
        name: data[name].values[line.chosen[name]].item() if name in line.chosen else None
        for name in parameters_of(data["mse"])
    }


def time_table(data: xarray.Dataset) -> pd.DataFrame:
    """CPU seconds per run: one row per line, fastest first, with columns line, method, low, median, high (quartiles
    over the seeds), and ratio, ratio_low, ratio_high: quartiles over the seeds of the time relative to the reference's.
    The reference is the first line of CL-colME that has times; `attrs["reference"]` names it. Without one, ratios are
    NaN."""
    seconds = check(data, "cpu_seconds", unknown=True)  # if all runs were resumed
    found = _rows(data)  # the same lines as in the other tables
    timed = [line for line in found if bool(seconds.isel(line.places).notnull().any())]
    base = next((line for line in timed if line.method == REFERENCE), None)
    rows = []
    for line in found:
        low, ratio, high = (np.nan,) * 3 if base is None else quartiles(_relative_times(data, line, base))
        rows.append((line.label, line.method, *quartiles(seconds.isel(line.places)), ratio, low, high))
    columns = ["line", "method", "low", "median", "high", "ratio", "ratio_low", "ratio_high"]
    table = pd.DataFrame(rows, columns=columns).sort_values("median", kind="stable", ignore_index=True)
    table.attrs["reference"] = REFERENCE if base is None else base.label
    return table


def _relative_times(data: xarray.Dataset, line: Line, base: Line) -> xarray.DataArray:
    """The time of a line divided by that of another on the same seed, per agent and step if their numbers differ."""
    mine, theirs = data.isel(line.places), data.isel(base.places)
    work = theirs["agent_steps"] / mine["agent_steps"] if "agent_steps" in data else 1.0
    return mine["cpu_seconds"] / theirs["cpu_seconds"] * work


def expected_rows(data: xarray.Dataset, expected: tuple[Expected, ...]) -> list[Row]:
    """Measured beside expected: the median or the mean over the seeds, as the expected value is, and the quartiles."""
    rows = []
    for each in expected:
        measured, low, high = _measure(data, each)
        name = ", ".join([each.method, *(describe(*pair) for pair in each.where.items())])
        promise = {}
        if each.bound and not np.isnan(measured):
            kept = measured <= each.value if each.bound == "at most" else measured >= each.value
            promise = {"promise": f"{each.bound}: {'holds' if kept else 'missed'}"}
        rows.append({
            "method": name, "quantity": _quantity(each),
            "statistic": None if each.metric in OVER_ALL_STEPS else each.statistic,
            "measured": measured, "low": low, "high": high, "expected": each.value,
            "ratio": measured / each.value if each.value else np.nan,
            **promise, "source": each.source,
        })  # fmt: skip
    return rows


def with_statistic(row: Row) -> Row:
    """A row of `expected_rows` for a table: the quantity names the statistic, as in "MSE at t=2000 (mean)"; a promise
    says that it holds or not."""
    quantity = row["quantity"] if row["statistic"] is None else f"{row['quantity']} ({row['statistic']})"
    return {key: quantity if key == "quantity" else value for key, value in row.items() if key != "statistic"}


def _measure(data: xarray.Dataset, each: Expected) -> tuple[float, float, float]:
    """The statistic over the seeds that is comparable with the expected number, and the quartiles."""
    metric = each.metric if each.metric in METRICS else "mse"
    lines = [
        line
        for line in lines_of(check(data, metric))
        if line.method == each.method and all(_is(data, line, *pair) for pair in each.where.items())
    ]
    if len(lines) != 1:  # none, or `where` does not determine one
        return (np.nan,) * 3
    one = data.isel(lines[0].places)
    if each.metric in OVER_ALL_STEPS:
        every = [over_all_steps(one.isel(seed=k), each.metric) for k in range(one.sizes["seed"])]
        return over_all_steps(one.mean("seed"), each.metric), float(np.nanmin(every)), float(np.nanmax(every))
    measured = _of_seeds(data, lines[0], each)
    measured = measured[~np.isnan(measured)]
    if not len(measured):
        return (np.nan,) * 3
    # with infinite values, quartiles of the values themselves: there is nothing halfway to infinity
    method: Any = "higher" if np.isinf(measured).any() else "linear"
    low, middle, high = np.quantile(measured, QUARTILES, method=method)
    return float(measured.mean() if each.statistic == "mean" else middle), float(low), float(high)


def _of_seeds(data: xarray.Dataset, line: Line, each: Expected) -> Floats:
    """What is compared with the expected number, for each seed."""
    if each.metric == TIME_RATIO:
        for base in _rows(data):
            if base.method == REFERENCE and all(line.chosen.get(k, v) == v for k, v in base.chosen.items()):
                return _relative_times(data, line, base).values
        return np.array([])
    values = data[each.metric].isel(line.places).transpose("seed", "t")
    if each.t is not None:
        return values.values[:, values["t"].values == each.t].ravel()
    return _first_below(values, float(each.below or 0.0))


def _is(data: xarray.Dataset, line: Line, name: str, value: Any) -> bool:
    """Whether a line is for this value of a parameter, or does not depend on it."""
    if name in data["mse"].dims:
        return _parameters(data, line)[name] in (None, value, str(value))
    found = json.loads(data.attrs["fixed"])[line.method].get(name, value)
    return bool((tuple(found) if isinstance(found, list) else found) == value)


def _first_below(values: xarray.DataArray, level: float) -> Floats:
    """For each seed that was run the first step at which a metric is below a level; infinity if it never is."""
    run = values.notnull().any("t").values
    below = values.values[run] < level
    return np.where(below.any(axis=1), values["t"].values[below.argmax(axis=1)], np.inf)


def _quantity(each: Expected) -> str:
    own = {TIME_RATIO: f"time / {REFERENCE}'s", WORST_RATIO: f"largest MSE / local, t >= {JUDGED}",
           MEAN_COVERAGE: f"coverage of 90 % intervals, t >= {SETTLED}"}  # fmt: skip
    if each.metric in own:
        return own[each.metric]
    words = each.metric.replace("_", " ").replace("mse", "MSE")
    return f"{words} at t={each.t:,}" if each.t is not None else f"first t with {words} < {each.below:g}"


QUARTILES = (0.25, 0.5, 0.75)


class Line(NamedTuple):
    """A method at one combination of the parameters that it has."""

    label: str
    method: str
    values: xarray.DataArray
    chosen: dict[str, int]
    """Parameter -> place along its dimension, for those that make a difference to this method."""
    places: dict[str, int]
    """Dimension -> place for all that were fixed, the method among them: `data.isel(line.places)`."""


def check(data: Any, variable: str, *needed: str, unknown: bool = False) -> xarray.DataArray:
    """The variable of the dataset, or a refusal; with `unknown`, it may be NaN everywhere."""
    if not isinstance(data, xarray.Dataset):
        raise ColmeError(f"data={shorten(data)}: it must be an xarray.Dataset. Try traces.to_xarray().")
    one_of(variable, map(str, data.data_vars), "metric")
    array = data[variable]
    for name in ("method", "seed", *needed):
        if not array.sizes.get(name):
            sizes = ", ".join(f"{name}: {size}" for name, size in array.sizes.items())
            raise ColmeError(
                f"{variable} has dimensions ({sizes}): {name!r} must be one of them and not empty. "
                + (f"Try data.expand_dims({name}=[0])." if name == "seed" else f"Choose data with {name!r}.")
            )
    if not unknown and not array.notnull().any():
        raise ColmeError(
            f"{variable} is NaN everywhere: there is nothing to draw. Errors need known true means, shares of edges "
            "need known classes."
        )
    return array


def parameters_of(array: xarray.DataArray) -> list[str]:
    """The dimensions that are swept."""
    return [str(dim) for dim in array.dims if dim not in ("method", "seed", "t")]


def lines_of(array: xarray.DataArray, keep: str | None = None) -> list[Line]:
    """Every method at every combination of its parameters that has numbers; dimension `keep` is left as it is."""
    found = []
    for place, method in enumerate(map(str, array["method"].values)):
        found += _split(array.isel({"method": place}, drop=True), method, keep, {"method": place})
    return found


def reference_of(array: xarray.DataArray, name: str, keep: str | None = None) -> list[Line]:
    """Lines of a metric that all methods share, such as local_mse, under another name."""
    shared = array.isel({"method": 0}, drop=True)
    for place in range(1, array.sizes["method"]):
        shared = shared.fillna(array.isel({"method": place}, drop=True))
    return _split(shared, name, keep, {})


def _split(values: xarray.DataArray, method: str, keep: str | None, fixed: dict[str, int]) -> list[Line]:
    if not values.notnull().any():
        return []
    vary: list[str] = []
    for name in parameters_of(values):
        if name == keep:
            continue
        if values.sizes[name] > 1 and not is_broadcast(values, name):
            vary.append(name)
        else:
            fixed = fixed | {name: int(_present(values, name)[0])}
            values = values.isel({name: fixed[name]}, drop=True)
    found = []
    for places in itertools.product(*(range(values.sizes[name]) for name in vary)):
        chosen = dict(zip(vary, places, strict=True))
        part = values.isel(chosen)
        if part.notnull().any():
            words = [describe(name, values[name].values[place]) for name, place in chosen.items()]
            found.append(Line(", ".join([method, *words]), method, part, chosen, fixed | chosen))
    return found


def is_broadcast(values: xarray.DataArray, name: str) -> bool:
    """Whether the numbers are the same at every value of a parameter (where there are numbers, and there are at two
    values at least): the method does not have this parameter, or it makes no difference here."""
    present = _present(values, name)
    first = values.isel({name: int(present[0])}, drop=True)
    return len(present) > 1 and all(first.equals(values.isel({name: int(k)}, drop=True)) for k in present[1:])


def _present(values: xarray.DataArray, name: str) -> Integers:
    others = [dim for dim in values.dims if dim != name]
    return np.flatnonzero(values.notnull().any(others).values)


def describe(name: str, value: Any) -> str:
    """A value of a parameter in a label: words speak for themselves, numbers and switches need the name."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return name.replace("_", " ") if value else f"not {name.replace('_', ' ')}"
    return f"{name.replace('_', ' ')} {number(value)}"


def number(value: Any, _: object = None) -> str:
    """A number as people write it, also on an axis: 1,000, 0.1."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return str(value)
    x = float(value)
    return f"{x:,.0f}" if x.is_integer() and abs(x) < 1e16 else f"{x:,g}"


def quartiles(values: xarray.DataArray) -> Floats:
    """(3, ...): quartiles over the seeds that are there; NaN where none is."""
    numbers = values.where(np.isfinite(values))
    quantile = np.nanquantile if numbers.isnull().any() else np.quantile  # the former takes them one by one
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        return quantile(numbers.values, QUARTILES, axis=values.dims.index("seed"))
