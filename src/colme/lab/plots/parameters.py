"""`plot_parameter`: a metric at given steps against the values of a parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from colme.errors import ColmeError, one_of, shorten
from colme.lab import lines
from colme.lab.experiments.planning import BENCHMARKS
from colme.lab.plots._style import canvas, legend, looks, plain, title_of, vertical_marks
from colme.lab.plots.over_time import SHARED, draw_line
from colme.metrics import METRICS


def parameter_table(
    data: xarray.Dataset, parameter: str, metric: str = "mse", at: Sequence[int] | None = None
) -> pd.DataFrame:
    """The metric at the last recorded steps that are not after those asked for (default: the last of all).

    Columns line, method, t, value (of the parameter; missing for a method that does not have it), low, median, high."""
    array = lines.check(data, metric, "t")
    one_of(parameter, [str(dim) for dim in array.dims if dim not in lines.NOT_PARAMETERS], "parameter")
    steps = array["t"].values
    asked = [int(steps[-1])] if at is None else list(at)
    if not asked or min(asked) < steps[0]:
        raise ColmeError(
            f"at={shorten(at)}: steps must not be before the first recorded, {steps[0]}. Try at=[{steps[-1]}]."
        )
    found = lines.lines_of(array, keep=parameter)
    for name, shared in SHARED.get(metric, {}).items() if len(asked) == 1 else ():  # at several steps they would crowd
        if name not in data["method"].values and shared in data and data[shared].notnull().any():
            found += lines.reference_of(data[shared], name, keep=parameter)
    rows: list[tuple[Any, ...]] = []
    for line in found:
        constant = line.values.sizes[parameter] > 1 and lines.is_broadcast(line.values, parameter)
        for step in asked:
            moment = line.values.isel(t=int(np.searchsorted(steps, step, side="right")) - 1)
            tried = moment[parameter].values
            for k, quartiles in enumerate(lines.quartiles(moment).T):
                if not np.isnan(quartiles[0]) and (k == 0 or not constant):
                    value = None if constant else tried[k]
                    rows.append((line.label, line.method, int(moment["t"]), value, *quartiles))
    if not rows:
        raise ColmeError(f"{metric} is NaN at steps {asked}: there is nothing to draw. Choose other steps.")
    return pd.DataFrame(rows, columns=["line", "method", "t", "value", "low", "median", "high"])


def plot_parameter(
    data: xarray.Dataset,
    parameter: str,
    metric: str = "mse",
    at: Sequence[int] | None = None,
    *,
    marks: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A metric at given steps against a parameter; `marks` are vertical lines named in the legend. Methods without the
    parameter are horizontal lines.

    data       an xarray.Dataset: what `lab.run` or `to_xarray` returns
    parameter  the name of a dimension
    metric     the name of a metric
    at         steps (default: the last one)
    marks      name -> value of the parameter
    ax         the axes to draw on (default: new ones)

    >>> import tempfile
    >>> from colme import lab
    >>> table = {
    ...     "seeds": 2, "steps": 50, "record": "log", "scenario": {"n_agents": 50, "means": [0.0, 1.0]},
    ...     "methods": [{"method": "cl-colme", "delta": [0.01, 0.1]}],
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = lab.run(table, results=folder, jobs=1)
    >>> lab.plots.plot_parameter(data, "delta").get_xlabel()
    'delta'

    See also: plot_over_time, run
    """
    table = parameter_table(data, parameter, metric, at)
    tried = data[parameter].values
    numeric = tried.dtype.kind in "iuf"
    with canvas(ax) as ax:
        x_of = {value: value if numeric else place for place, value in enumerate(tried)}
        ends = (tried.min(), tried.max()) if numeric else (-0.3, len(tried) - 0.7)
        several = table["t"].nunique() > 1
        groups = [(line, t, rows) for (line, t), rows in table.groupby(["line", "t"], sort=False)]
        for (line, t, rows), look in zip(groups, looks([rows["method"].iloc[0] for *_, rows in groups]), strict=True):
            low, median, high = (rows[column].to_numpy() for column in ("low", "median", "high"))
            name = f"{line}, t = {plain(t)}" if several else str(line)
            if rows["value"].isna().all():
                x: Any = np.array(ends)
                median = np.repeat(median, 2)
                ax.plot(x, median, color=look.color, linestyle=look.dashes, linewidth=1.1, label=name)
            else:
                x = np.array([x_of[value] for value in rows["value"]])
                marker = None if rows["method"].iloc[0] in BENCHMARKS else "o"
                draw_line(ax, look, x, median, low, high, name, marker=marker)
        _scales(ax, table, tried if numeric else None, ends)
        if not numeric:
            ax.set_xticks(range(len(tried)), [str(value) for value in tried])
        vertical_marks(ax, marks or {})
        ax.set_xlabel(parameter.replace("_", " "))
        ax.set_ylabel(
            (METRICS[metric].axis if metric in METRICS else metric)
            + ("" if several else f" at t = {plain(table['t'].iloc[0])}")
        )
        legend(ax)
        title_of(ax, data)
    return ax


def _scales(ax: Axes, table: pd.DataFrame, tried: Any, ends: tuple[float, float]) -> None:
    """Logarithmic where the numbers span more than a factor of ten."""
    if tried is not None and tried.min() > 0 and tried.max() > 12 * tried.min():
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(plain)
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xlim(ends[0] / 1.1, ends[1] * 1.1)
    elif tried is not None:
        air = 0.03 * (ends[1] - ends[0]) or 0.5
        ax.set_xlim(ends[0] - air, ends[1] + air)
    if table["median"].min() > 0 and table["median"].max() > 10 * table["median"].min():
        ax.set_yscale("log")
    elif table["low"].min() >= 0:
        ax.set_ylim(bottom=0)
