"""Figures over time, one per metric: a row of `OVER_TIME` says what its axes look like."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from colme.errors import one_of, whole
from colme.lab import lines
from colme.lab.experiments.planning import BENCHMARKS
from colme.lab.plots._style import GREY, Look, canvas, legend, looks, step_axis, title_of

RELATIVE = "relative_mse"
POINTS = 400
"""Points per line: as many as a figure can show, in small files."""
SHARED = {"mse": {"local": "local_mse", "oracle": "oracle_mse"}, "error_rate": {"local": "local_error_rate"}}
"""Metrics that replace the methods `local` and `oracle` where these were not run."""


class OverTime(NamedTuple):
    """How a metric is drawn over time."""

    words: str
    """The label of the y axis; {tolerance} stands for the tolerance of the runs."""
    y_axis: Callable[[Axes, pd.DataFrame], None]
    log: bool = True
    """Whether the axis of steps is logarithmic."""
    references: bool = False
    """Whether local and oracle are drawn even where they were not run."""


def _log_axis(ax: Axes, table: pd.DataFrame) -> None:
    ax.set_yscale("log")


def _ratio_axis(ax: Axes, table: pd.DataFrame) -> None:
    ax.set_yscale("log")
    ax.axhline(1.0, color=GREY, linewidth=0.8, zorder=1)


def _weight_axis(ax: Axes, table: pd.DataFrame) -> None:
    ax.set_ylim(-0.03, 1.03)


def _percent_axis(ax: Axes, table: pd.DataFrame) -> None:
    """Shares from 0 to 100 %, up to the step after which there is nothing to see."""
    last = np.fmin(1.2 * table["t"][table["median"] > 0.002].max(), table["t"].max())
    ax.set_xlim(0, last if last > 0 else 1)
    ax.set_ylim(0, 1.03)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def _share_axis(ax: Axes, table: pd.DataFrame) -> None:
    """A logarithmic axis for shares that has room for zero at the bottom: linear below the smallest share."""
    values = table["median"].to_numpy()
    positive = values[values > 0]
    smallest = 10.0 ** np.floor(np.log10(positive.min())) if len(positive) else 0.1
    if (values == 0).any():
        ax.set_yscale("symlog", linthresh=smallest, linscale=0.45)
        ax.axhspan(0, smallest, color="#F4F4F4", linewidth=0, zorder=0)
        ax.set_ylim(0, 1.3)
        decades = np.arange(np.log10(smallest), 0.5)
        ax.set_yticks([0, *10.0**decades], ["0", *(f"$10^{{{decade:.0f}}}$" if decade else "1" for decade in decades)])
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.set_yscale("log")
        ax.set_ylim(smallest, 1.3)


OVER_TIME = {
    "mse": OverTime("mean squared error", _log_axis, references=True),
    RELATIVE: OverTime("MSE / MSE of the local means", _ratio_axis),
    "trust": OverTime("weight of the collaborative estimate", _weight_axis),
    "error_rate": OverTime("share of agents with error > {tolerance}", _share_axis, log=False, references=True),
    "wrong_edges": OverTime("remaining edges between classes", _percent_axis, log=False),
}


def plot_over_time(data: xarray.Dataset, metric: str = "mse", ax: Axes | None = None) -> Axes:
    """A metric over time, median and quartiles over the seeds.

    data    an xarray.Dataset: what `lab.run` or `to_xarray` returns
    metric  "mse" (default), "relative_mse" (relative to that of the local means), "error_rate" (share of agents beyond
            the tolerance), "wrong_edges" (share of the edges between classes that remain) or "trust" (weight of the
            collaborative estimate, of methods with a guard)
    ax      the axes to draw on (default: new ones)

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> lab.plots.plot_over_time(data).get_ylabel()
    'mean squared error'
    >>> lab.plots.plot_over_time(data, "error_rate").get_ylabel()
    'share of agents with error > 0.1'

    See also: plot_parameter, plot_graph, save, summary
    """
    one_of(metric, OVER_TIME, "metric over time")
    kind, table = OVER_TIME[metric], curves(data, metric)
    with canvas(ax) as ax:
        step_axis(ax, table["t"].min(), table["t"].max(), log=kind.log)
        kind.y_axis(ax, table)
        ax.set_ylabel(kind.words.format(tolerance=_tolerance(data)))
        draw_lines(ax, table)
        title_of(ax, data)
    return ax


def curves(data: xarray.Dataset, metric: str, *, points: int = POINTS) -> pd.DataFrame:
    """Quartiles over the seeds: one row per line and step, with columns line, method, t, low, median, high.

    A line is a method, with the values of its parameters where they vary and make a difference. At most about `points`
    steps per line are kept, evenly on the axis of steps; nothing is averaged over time."""
    whole(points, "points", "points=400", low=2)
    kind = OVER_TIME.get(metric)
    data = shown(data, metric)
    found = lines.lines_of(lines.check(data, metric, "t"))
    for name, shared in SHARED.get(metric, {}).items() if kind is not None and kind.references else ():
        if name not in data["method"].values and shared in data and data[shared].notnull().any():
            found += lines.reference_of(data[shared], name)
    tables = []
    for line in found:
        low, median, high = lines.quartiles(line.values)
        t = line.values["t"].values
        kept = _thin(t, ~np.isnan(median), points, log=kind is None or kind.log)
        columns = {"t": t[kept], "low": low[kept], "median": median[kept], "high": high[kept]}
        tables.append(pd.DataFrame({"line": line.label, "method": line.method} | columns))
    return pd.concat(tables, ignore_index=True)


def shown(data: xarray.Dataset, metric: str) -> xarray.Dataset:
    """The dataset with this metric, of the methods that have it: local means relative to themselves, the edges of
    baselines and the trust of methods without a guard are nothing to see."""
    lines.check(data, "mse" if metric == RELATIVE else metric, "t")
    methods = list(data["method"].values)
    kept = methods
    if metric == RELATIVE:
        data = data.assign({RELATIVE: data["mse"] / data["local_mse"]})
        kept = [name for name in methods if name != "local"]
    elif metric == "wrong_edges":
        kept = [name for name in methods if name not in BENCHMARKS]
    elif metric == "trust":
        guarded = data["trust"].notnull().any([dim for dim in data["trust"].dims if dim != "method"])
        kept = [name for name, has in zip(methods, guarded.values, strict=True) if has]
    return data.sel({"method": kept or methods})


def _thin(t: NDArray[Any], there: NDArray[np.bool_], points: int, *, log: bool) -> NDArray[np.int64]:
    """Places of at most `points` of the steps that are there, the first and last among them."""
    places = np.flatnonzero(there)
    if len(places) <= points:
        return places
    scale = np.log(t[places]) if log and t[places[0]] > 0 else t[places].astype(float)
    nearest = np.searchsorted(scale, np.linspace(scale[0], scale[-1], points) - 1e-12)
    return places[np.unique(np.minimum(nearest, len(places) - 1))]


def draw_lines(ax: Axes, table: pd.DataFrame) -> None:
    """Median lines in quartile bands; equal lines are drawn once, under all their names."""
    merged: list[tuple[list[str], Look, pd.DataFrame]] = []
    groups = [(str(name), rows) for name, rows in table.groupby("line", sort=False)]
    # looks are given before equal lines are merged: a line keeps its own in all figures of an experiment
    for (name, rows), look in zip(groups, looks([rows["method"].iloc[0] for _, rows in groups]), strict=True):
        numbers = rows[["t", "low", "median", "high"]].reset_index(drop=True)
        same = next((other for other in merged if other[2].equals(numbers)), None)
        if same is None:
            merged.append(([name], look, numbers))
        else:
            same[0].append(name)
    for names, look, rows in merged:
        t, low, median, high = (rows[column].to_numpy() for column in ("t", "low", "median", "high"))
        draw_line(ax, look, t, median, low, high, join(names))
    legend(ax)


def draw_line(
    ax: Axes, look: Look, x: Any, median: Any, low: Any, high: Any, name: str, marker: str | None = None
) -> None:
    """One median line in its band, which ends where the median is zero: there it would show single agents only."""
    ax.fill_between(x, low, high, where=np.asarray(median) > 0, color=look.color, alpha=0.16, linewidth=0)
    marker = "o" if len(x) == 1 else marker  # a line of one point is nothing to see
    ax.plot(x, median, color=look.color, linestyle=look.dashes, linewidth=look.width, marker=marker, label=name)


def join(names: list[str]) -> str:
    """a, b and c; a common ending after the method is written once."""
    heads, tails = zip(*(name.partition(", ")[::2] for name in names), strict=True)
    if len(names) > 1 and len(set(tails)) == 1 and tails[0]:
        return f"{join(list(heads))}, {tails[0]}"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _tolerance(data: xarray.Dataset) -> str:
    """What `simulate` wrote into the attributes, if it is there."""
    try:
        if "tolerance" in data.attrs:
            return f"{float(data.attrs['tolerance']):g}"
        return f"{float(json.loads(data.attrs['configuration'])['tolerance']):g}"
    except (KeyError, TypeError, ValueError):
        return "the tolerance"
