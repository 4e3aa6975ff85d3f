"""The numbers of an experiment as rows: how each method ended, and measured beside published."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from colme.lab.experiment import TIME_RATIO, Published
from colme.metrics import OF_METHOD

Row = dict[str, Any]

REFERENCE = "CL-colME"
"""Times are told as ratios to this method, where it is there."""


def parameters_of(data: Any) -> list[str]:
    """The dimensions that are swept parameters."""
    return [str(dim) for dim in data["mse"].dims if dim not in ("method", "seed", "t")]


def lines(data: Any) -> Iterator[tuple[Row, Any]]:
    """(method and parameters, the dataset of that combination) wherever there is a run; a method that does not depend
    on a parameter comes once."""
    swept = parameters_of(data)
    for label in data["method"].values:
        mine = data.sel({"method": label})
        depends = [name for name in swept if _depends(mine, name)]
        fixed = mine.isel({name: 0 for name in swept if name not in depends})
        for values in itertools.product(*(data[name].values for name in depends)):
            where = dict(zip(depends, values, strict=True))
            one = fixed.sel(where)
            if bool(one["mse"].notnull().any()):
                everything: Row = {"method": str(label)} | {name: _plain(where.get(name)) for name in swept}
                yield everything, one


def _depends(mine: Any, name: str) -> bool:
    """Whether some run of a method differs along a parameter (all equal, NaN included: it was broadcast)."""
    first, *others = np.moveaxis(mine["mse"].values, mine["mse"].dims.index(name), 0)
    return any(not np.array_equal(first, other, equal_nan=True) for other in others)


def final_rows(data: Any) -> list[Row]:
    """How each method ended: medians over the seeds at the last step, and its time as a ratio to CL-colME."""
    ratios = time_ratios(data)
    rows = []
    for key, one in lines(data):
        last = one.dropna("t", how="all", subset=["mse"]).isel(t=-1)
        row: Row = key | {"seeds": int(one["mse"].notnull().any("t").sum()), "t": int(last["t"])}
        row |= {name: float(last[name].median("seed")) for name in OF_METHOD}
        row |= {"local_mse": float(last["local_mse"].median("seed")), "seconds": float(one["cpu_seconds"].median())}
        rows.append(row | {"time_ratio": ratios.get(tuple(key.values()), {}).get("median", np.nan)})
    return rows


def time_ratios(data: Any) -> dict[tuple[Any, ...], Row]:
    """(method, parameters) -> median and quartiles over the seeds of its CPU time divided by that of CL-colME with the
    same parameters (with any, where a parameter is not shared); empty without CL-colME."""
    every = list(lines(data))
    reference = [(key, one) for key, one in every if key["method"] == REFERENCE]
    found: dict[tuple[Any, ...], Row] = {}
    for key, one in every:
        partners = [other for theirs, other in reference if _same(key, theirs)]
        if not partners:
            continue
        ratios = np.concatenate([np.ravel((one["cpu_seconds"] / other["cpu_seconds"]).values) for other in partners])
        ratios = ratios[np.isfinite(ratios)]
        if len(ratios):
            low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
            found[tuple(key.values())] = {"median": float(middle), "low": float(low), "high": float(high)}
    return found


def time_rows(data: Any) -> list[Row]:
    """The time ratios as rows."""
    names = ["method", *parameters_of(data)]
    ratios = time_ratios(data)
    seconds = {tuple(key.values()): float(one["cpu_seconds"].median()) for key, one in lines(data)}
    return [
        dict(zip(names, key, strict=True))
        | {"seconds": seconds[key]}
        | {f"ratio_{name}": found[name] for name in found}
        for key, found in ratios.items()
    ]


def _same(key: Row, other: Row) -> bool:
    return all(
        value is None or other[name] is None or value == other[name] for name, value in key.items() if name != "method"
    )


def published_rows(data: Any, published: tuple[Published, ...]) -> list[Row]:
    """Measured (median and quartiles over the seeds) beside published."""
    rows = []
    for each in published:
        measured = np.atleast_1d(_measure(data, each))
        measured = measured[np.isfinite(measured)]
        low, middle, high = np.quantile(measured, [0.25, 0.5, 0.75]) if len(measured) else (np.nan,) * 3
        rows.append({
            "method": _called(each), "quantity": _quantity(each), "measured": float(middle), "low": float(low),
            "high": float(high), "published": each.value, "ratio": float(middle) / each.value, "source": each.source,
        })  # fmt: skip
    return rows


def _measure(data: Any, each: Published) -> Any:
    """The measured values, one per seed."""
    if each.metric == TIME_RATIO:
        found = [
            ratio["median"]
            for key, ratio in time_ratios(data).items()
            if key[0] == each.method and _matches(dict(zip(["method", *parameters_of(data)], key, strict=True)), each)
        ]
        return np.array(found)
    for key, one in lines(data):
        if key["method"] == each.method and _matches(key, each):
            values = one[each.metric]
            if each.t is not None:
                return values.sel(t=each.t).values if each.t in values["t"] else np.array([])
            steps = []
            for series in values.transpose("seed", "t").values:
                hits = np.flatnonzero(series < each.below)
                steps.append(float(values["t"].values[hits[0]]) if len(hits) else np.nan)
            return np.array(steps)
    return np.array([])


def _matches(key: Row, each: Published) -> bool:
    return all(key.get(name) is None or key[name] == value for name, value in each.where.items())


def _called(each: Published) -> str:
    return ", ".join([each.method, *map(str, each.where.values())])


def _quantity(each: Published) -> str:
    words = each.metric.replace("_", " ").replace("mse", "MSE")
    if each.metric == TIME_RATIO:
        return "time / CL-colME's"
    return f"{words} at t={each.t}" if each.t is not None else f"first t with {words} < {each.below:g}"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def text_of(value: Any) -> str:
    """A value in a cell."""
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        return f"{value:.0f}"
    if isinstance(value, float):
        return f"{value:.3g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.2e}"
    return ", ".join(map(text_of, value)) if isinstance(value, list | tuple) else str(value)
