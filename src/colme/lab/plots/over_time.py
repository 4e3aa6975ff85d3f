"""Figures over time: mean squared error, trust, error rate, wrong edges."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import xarray
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from colme.errors import whole
from colme.lab import lines
from colme.lab.experiments.planning import BENCHMARKS
from colme.lab.plots._labels import BesideLabels, EndLabels, Label
from colme.lab.plots._style import GREY, Look, canvas, looks, step_axis, title_of

RELATIVE = "relative_mse"
POINTS = 400
"""Points per line: as many as a figure can show, in small files."""
SHARED = {"mse": {"local": "local_mse", "oracle": "oracle_mse"}, "error_rate": {"local": "local_error_rate"}}
"""Metrics that replace the methods `local` and `oracle` where these were not run."""


def curves(
    data: xarray.Dataset, metric: str, *, points: int = POINTS, spacing: str = "log", references: bool = False
) -> pd.DataFrame:
    """Quartiles over the seeds: one row per line and step, with columns line, method, t, low, median, high.

    A line is a method, with the values of its parameters where they vary and make a difference. At most about `points`
    steps per line are kept, evenly on a "log" or "linear" axis; nothing is averaged over time. `references` adds
    local and oracle from what every run records, where they are not among the methods."""
    whole(points, "points", "points=400", low=2)
    found = lines.lines_of(lines.check(data, metric, "t"))
    if references:
        for name, shared in SHARED.get(metric, {}).items():
            if name not in data["method"].values and shared in data and data[shared].notnull().any():
                found += lines.reference_of(data[shared], name)
    tables = []
    for line in found:
        low, median, high = lines.quartiles(line.values)
        t = line.values["t"].values
        kept = thin(t, ~np.isnan(median), points, spacing)
        columns = {"t": t[kept], "low": low[kept], "median": median[kept], "high": high[kept]}
        tables.append(pd.DataFrame({"line": line.label, "method": line.method} | columns))
    return pd.concat(tables, ignore_index=True)


def thin(t: NDArray[Any], there: NDArray[np.bool_], points: int, spacing: str) -> NDArray[np.int64]:
    """Places of at most `points` of the steps that are there, the first and last among them."""
    places = np.flatnonzero(there)
    if len(places) <= points:
        return places
    scale = np.log(t[places]) if spacing == "log" and t[places[0]] > 0 else t[places].astype(float)
    nearest = np.searchsorted(scale, np.linspace(scale[0], scale[-1], points) - 1e-12)
    return places[np.unique(np.minimum(nearest, len(places) - 1))]


def plot_mse(data: xarray.Dataset, ax: Axes | None = None) -> Axes:
    """Mean squared error over time, median and quartiles over the seeds, between local and oracle.

    data  an xarray.Dataset: what `lab.run` or `to_xarray` returns
    ax    the axes to draw on (default: new ones)

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> axes = lab.plots.plot_mse(data)
    >>> axes.get_ylabel()
    'mean squared error'

    See also: plot_relative, plot_error_rate, save, summary
    """
    table = curves(data, "mse", references=True)
    with canvas(ax) as ax:
        step_axis(ax, table["t"].min(), table["t"].max(), log=True)
        ax.set_yscale("log")
        ax.set_ylabel("mean squared error")
        draw_lines(ax, table)
        title_of(ax, data)
    return ax


def relative_to_local(data: xarray.Dataset) -> xarray.Dataset:
    """The dataset with the error relative to that of the local means, as RELATIVE, and without the method `local`."""
    ratio = lines.check(data, "mse", "t") / data["local_mse"]
    return data.assign({RELATIVE: ratio}).sel({"method": [name for name in data["method"].values if name != "local"]})


def plot_relative(data: xarray.Dataset, ax: Axes | None = None) -> Axes:
    """Mean squared error relative to that of the local means over time, from `relative_to_local`.

    data  what `relative_to_local` returns
    ax    the axes to draw on (default: new ones)

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> axes = lab.plots.plot_relative(lab.plots.relative_to_local(data))
    >>> axes.get_ylabel()
    'MSE / MSE of the local means'

    See also: plot_mse, plot_trust
    """
    table = curves(data, RELATIVE)
    with canvas(ax) as ax:
        step_axis(ax, table["t"].min(), table["t"].max(), log=True)
        ax.set_yscale("log")
        ax.axhline(1.0, color=GREY, linewidth=0.8, zorder=1)
        ax.set_ylabel("MSE / MSE of the local means")
        draw_lines(ax, table)
        title_of(ax, data)
    return ax


def plot_trust(data: xarray.Dataset, ax: Axes | None = None) -> Axes:
    """The weight of the collaborative estimates, on average over agents, over time: of methods with a guard.

    data  an xarray.Dataset: what `lab.run` or `to_xarray` returns
    ax    the axes to draw on (default: new ones)

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(guard=True)], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> axes = lab.plots.plot_trust(data)
    >>> axes.get_ylabel()
    'weight of the collaborative estimate'

    See also: plot_relative, Census
    """
    guarded = data["trust"].notnull().any([dim for dim in data["trust"].dims if dim != "method"])
    table = curves(data.isel({"method": np.flatnonzero(guarded.values)}), "trust")
    with canvas(ax) as ax:
        step_axis(ax, table["t"].min(), table["t"].max(), log=True)
        ax.set_ylim(-0.03, 1.03)
        ax.set_ylabel("weight of the collaborative estimate")
        draw_lines(ax, table)
        title_of(ax, data)
    return ax


def plot_error_rate(data: xarray.Dataset, ax: Axes | None = None) -> Axes:
    """Share of agents whose error exceeds the tolerance, over time.

    data  an xarray.Dataset: what `lab.run` or `to_xarray` returns
    ax    the axes to draw on (default: new ones)

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> axes = lab.plots.plot_error_rate(data)
    >>> axes.get_ylabel()
    'share of agents with error > 0.1'

    See also: plot_mse, plot_wrong_edges
    """
    table = curves(data, "error_rate", spacing="linear", references=True)
    with canvas(ax) as ax:
        step_axis(ax, table["t"].min(), table["t"].max(), log=False)
        share_axis(ax, table)
        tolerance = _tolerance(data)
        by = "the tolerance" if tolerance is None else f"{tolerance:g}"
        ax.set_ylabel(f"share of agents with error > {by}")
        draw_lines(ax, table, beside=True)
        title_of(ax, data)
    return ax


def plot_wrong_edges(data: xarray.Dataset, ax: Axes | None = None) -> Axes:
    """Share of the edges between classes that remain, over time.

    data  an xarray.Dataset: what `lab.run` or `to_xarray` returns
    ax    the axes to draw on (default: new ones)

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> axes = lab.plots.plot_wrong_edges(data)
    >>> axes.get_ylabel()
    'remaining edges between classes'

    See also: plot_error_rate, plot_graph
    """
    table = curves(data, "wrong_edges", spacing="linear")
    others = ~table["method"].isin(BENCHMARKS)  # local and oracle have no edges
    table = table[others] if others.any() else table
    last = 1.2 * table["t"][table["median"] > 0.002].max()  # after that there is nothing to see
    with canvas(ax) as ax:
        step_axis(ax, table["t"].min(), np.fmin(last, table["t"].max()), log=False)
        ax.set_ylim(0, 1.03)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.set_ylabel("remaining edges between classes")
        draw_lines(ax, table, beside=True)
        title_of(ax, data)
    return ax


def draw_lines(ax: Axes, table: pd.DataFrame, *, beside: bool = False) -> None:
    """Median lines in quartile bands, each with its name at its end, or beside it where lines end together; equal lines
    are drawn once, with all names."""
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
    labels = []
    for names, look, rows in merged:
        t, median = rows["t"].to_numpy(), rows["median"].to_numpy()
        draw_line(ax, look, t, median, rows["low"].to_numpy(), rows["high"].to_numpy(), names)
        labels.append(Label(join(names), t[-1], median[-1], *look))
    if beside:
        BesideLabels(ax, labels, [rows[["t", "median"]].to_numpy() for _, _, rows in merged])
    else:
        EndLabels(ax, labels)


def draw_line(
    ax: Axes, look: Look, x: Any, median: Any, low: Any, high: Any, names: list[str], marker: str | None = None
) -> None:
    """One median line in its band, which ends where the median is zero: there it would show single agents only."""
    ax.fill_between(x, low, high, where=np.asarray(median) > 0, color=look.color, alpha=0.16, linewidth=0)
    marker = "o" if len(x) == 1 else marker  # a line of one point is nothing to see
    ax.plot(
        x, median, color=look.color, linestyle=look.dashes, linewidth=look.width, marker=marker, label=join(names)
    )  # fmt: skip


def join(names: list[str]) -> str:
    """a, b and c; a common ending after the method is written once."""
    heads, tails = zip(*(name.partition(", ")[::2] for name in names), strict=True)
    if len(names) > 1 and len(set(tails)) == 1 and tails[0]:
        return f"{join(list(heads))}, {tails[0]}"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def share_axis(ax: Axes, table: pd.DataFrame) -> None:
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


def _tolerance(data: xarray.Dataset) -> float | None:
    """What `simulate` wrote into the attributes, if it is there."""
    try:
        if "tolerance" in data.attrs:
            return float(data.attrs["tolerance"])
        return float(json.loads(data.attrs["configuration"])["tolerance"])
    except (KeyError, TypeError, ValueError):
        return None
