"""Figures over time, one per metric: a row of `OVER_TIME` says what its axes look like."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from colme.errors import ColmeError, one_of, shorten
from colme.lab.planning import BENCHMARKS
from colme.lab.plots._style import GREY, Look, canvas, legend, looks, step_axis, title_of, vertical_marks, wrap
from colme.lab.rows import (
    Line,
    check,
    is_broadcast,
    lines_of,
    number,
    parameters_of,
    quartiles,
    reference_of,
    time_table,
)
from colme.metrics import METRICS
from colme.support.arrays import Array, Integers

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
        ax.set_ylabel(kind.words.format(tolerance=tolerance_of(data)))
        draw_lines(ax, table)
        title_of(ax, data)
    return ax


def curves(data: xarray.Dataset, metric: str) -> pd.DataFrame:
    """Quartiles over the seeds: one row per line and step, with columns line, method, t, low, median, high.

    A line is a method, with the values of its parameters where they vary and make a difference. At most about `POINTS`
    steps per line are kept, evenly on the axis of steps; nothing is averaged over time."""
    kind = OVER_TIME.get(metric, OverTime("", _log_axis))
    tables = []
    for line in _lines(shown(data, metric), metric, references=kind.references):
        table = _quartile_rows(line, line.values, t=line.values["t"].values)
        tables.append(table.iloc[_thin(table["t"].to_numpy(), log=kind.log)])
    return pd.concat(tables, ignore_index=True)


def _quartile_rows(line: Line, values: xarray.DataArray, **columns: Any) -> pd.DataFrame:
    """Quartiles over the seeds, where there are any, beside other columns."""
    low, median, high = quartiles(values)
    numbers = columns | {"low": low, "median": median, "high": high}
    return pd.DataFrame({"line": line.label, "method": line.method} | numbers).dropna(subset=["median"])


def _lines(data: xarray.Dataset, metric: str, keep: str | None = None, *, references: bool) -> list[Line]:
    """The lines of a metric, with those of `SHARED` for methods that were not run."""
    found = lines_of(check(data, metric, "t"), keep=keep)
    for name, shared in SHARED.get(metric, {}).items() if references else ():
        if name not in data["method"].values and shared in data and data[shared].notnull().any():
            found += reference_of(data[shared], name, keep=keep)
    return found


def shown(data: xarray.Dataset, metric: str) -> xarray.Dataset:
    """The dataset with this metric, of the methods that have it: local means relative to themselves and the edges of
    baselines are nothing to see."""
    check(data, "mse" if metric == RELATIVE else metric, "t")
    methods = list(data["method"].values)
    kept = methods
    if metric == RELATIVE:
        data = data.assign({RELATIVE: data["mse"] / data["local_mse"]})
        kept = [name for name in methods if name != "local"]
    elif metric == "wrong_edges":
        kept = [name for name in methods if name not in BENCHMARKS]
    return data.sel({"method": kept or methods})


def _thin(t: Array, *, log: bool) -> Integers:
    """Places of at most `POINTS` of the steps, the first and last among them."""
    if len(t) <= POINTS:
        return np.arange(len(t))
    scale = np.log(t) if log and t[0] > 0 else t.astype(float)
    nearest = np.searchsorted(scale, np.linspace(scale[0], scale[-1], POINTS) - 1e-12)
    return np.unique(np.minimum(nearest, len(t) - 1))


def _looked(table: pd.DataFrame, *keys: str) -> Iterator[tuple[Any, pd.DataFrame, Look]]:
    """(name, rows, look) of every line. Looks are given before equal lines are merged: a line keeps its own in all
    figures of an experiment."""
    groups = list(table.groupby(list(keys), sort=False))
    for (name, rows), look in zip(groups, looks([rows["method"].iloc[0] for _, rows in groups]), strict=True):
        yield name, rows, look


def draw_lines(ax: Axes, table: pd.DataFrame) -> None:
    """Median lines in quartile bands; equal lines are drawn once, under all their names."""
    merged: list[tuple[list[str], pd.DataFrame, Look]] = []
    for (name,), rows, look in _looked(table, "line"):
        numbers = rows[["t", "low", "median", "high"]].reset_index(drop=True)
        same = next((other for other in merged if other[1].equals(numbers)), None)
        if same is None:
            merged.append(([str(name)], numbers, look))
        else:
            same[0].append(str(name))
    for names, rows, look in merged:
        draw_line(ax, look, rows["t"].to_numpy(), rows, join(names))
    legend(ax)


def draw_line(ax: Axes, look: Look, x: Any, rows: pd.DataFrame, name: str, marker: str | None = None) -> None:
    """One median line in its band, which ends where the median is zero: there it would show single agents only."""
    low, median, high = (rows[column].to_numpy() for column in ("low", "median", "high"))
    ax.fill_between(x, low, high, where=median > 0, color=look.color, alpha=0.16, linewidth=0)
    marker = "o" if len(x) == 1 else marker  # a line of one point is nothing to see
    ax.plot(x, median, color=look.color, linestyle=look.dashes, linewidth=look.width, marker=marker, label=name)


def join(names: list[str]) -> str:
    """a, b and c; a common ending after the method is written once."""
    heads, tails = zip(*(name.partition(", ")[::2] for name in names), strict=True)
    if len(names) > 1 and len(set(tails)) == 1 and tails[0]:
        return f"{join(list(heads))}, {tails[0]}"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def tolerance_of(data: xarray.Dataset) -> str:
    """What `simulate` wrote into the attributes, if it is there."""
    try:
        if "tolerance" in data.attrs:
            return f"{float(data.attrs['tolerance']):g}"
        return f"{float(json.loads(data.attrs['configuration'])['tolerance']):g}"
    except (KeyError, TypeError, ValueError):
        return "the tolerance"


def parameter_table(
    data: xarray.Dataset, parameter: str, metric: str = "mse", at: Sequence[int] | None = None
) -> pd.DataFrame:
    """The metric at the last recorded steps that are not after those asked for (default: the last of all).

    Columns line, method, t, value (of the parameter; missing for a method that does not have it), low, median, high."""
    array = check(data, metric, "t")
    one_of(parameter, parameters_of(array), "parameter")
    steps = array["t"].values
    asked = [int(steps[-1])] if at is None else list(at)
    if not asked or min(asked) < steps[0]:
        raise ColmeError(
            f"at={shorten(at)}: steps must not be before the first recorded, {steps[0]}. Try at=[{steps[-1]}]."
        )
    tables = []
    for line in _lines(data, metric, parameter, references=len(asked) == 1):  # at several steps they would crowd
        constant = line.values.sizes[parameter] > 1 and is_broadcast(line.values, parameter)
        for step in asked:
            moment = line.values.isel(t=int(np.searchsorted(steps, step, side="right")) - 1)
            tried = None if constant else moment[parameter].values
            rows = _quartile_rows(line, moment.transpose("seed", parameter), t=int(moment["t"]), value=tried)
            tables.append(rows[:1] if constant else rows)
    table = pd.concat([each for each in tables if len(each)] or tables[:1], ignore_index=True)
    if table.empty:
        raise ColmeError(f"{metric} is NaN at steps {asked}: there is nothing to draw. Choose other steps.")
    return table


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
        for (line, t), rows, look in _looked(table, "line", "t"):
            name = f"{line}, t = {number(t)}" if several else str(line)
            if rows["value"].isna().all():
                height = np.repeat(rows["median"], 2)
                ax.plot(ends, height, color=look.color, linestyle=look.dashes, linewidth=1.1, label=name)
            else:
                marker = None if rows["method"].iloc[0] in BENCHMARKS else "o"
                draw_line(ax, look, [x_of[value] for value in rows["value"]], rows, name, marker=marker)
        _scales(ax, table, tried if numeric else None)
        if not numeric:
            ax.set_xticks(range(len(tried)), [str(value) for value in tried])
        vertical_marks(ax, marks or {})
        ax.set_xlabel(parameter.replace("_", " "))
        ax.set_ylabel(
            (METRICS[metric].axis if metric in METRICS else metric)
            + ("" if several else f" at t = {number(table['t'].iloc[0])}")
        )
        legend(ax)
        title_of(ax, data)
    return ax


def _scales(ax: Axes, table: pd.DataFrame, tried: Any) -> None:
    """Logarithmic where the numbers span more than a factor of ten."""
    if tried is not None:
        low, high = tried.min(), tried.max()
        if low > 0 and high > 12 * low:
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.set_xlim(low / 1.1, high * 1.1)
        else:
            air = 0.03 * (high - low) or 0.5
            ax.set_xlim(low - air, high + air)
        ax.xaxis.set_major_formatter(number)
    if table["median"].min() > 0 and table["median"].max() > 10 * table["median"].min():
        ax.set_yscale("log")
    elif table["low"].min() >= 0:
        ax.set_ylim(bottom=0)


TIMES = "\N{MULTIPLICATION SIGN}"


def plot_time(data: xarray.Dataset, ax: Axes | None = None) -> Axes:
    """CPU time per run as bars, quartiles over the seeds as whiskers, and the ratio to the first line of CL-colME."""
    check(data, "cpu_seconds")
    table = time_table(data)
    unit, name = (1e3, "milliseconds") if table["median"].max() < 0.5 else (1.0, "seconds")
    with canvas(ax, size=(5.2, 0.75 + 0.3 * len(table))) as ax:
        low, median, high = unit * table[["low", "median", "high"]].to_numpy().T
        methods = list(dict.fromkeys(table["method"]))
        colors = {method: look.color for method, look in zip(methods, looks(methods), strict=True)}
        bars = ax.barh(
            range(len(table)), median, xerr=[median - low, high - median], height=0.62, alpha=0.85, ecolor="#222222",
            color=[colors[method] for method in table["method"]], error_kw={"elinewidth": 0.9, "capsize": 2.2},
        )  # fmt: skip
        ax.bar_label(bars, ["" if np.isnan(each) else f"{each:.2f}{TIMES}" for each in table["ratio"]], padding=5)
        ax.set_yticks(range(len(table)), [wrap(line) for line in table["line"]], parse_math=False)
        ax.invert_yaxis()
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
        ax.spines["left"].set_visible(False)
        ax.set_xlim(0, 1.13 * high.max())
        meaning = f"\n({TIMES}: relative to {table.attrs['reference']})" if table["ratio"].notna().any() else ""
        ax.set_xlabel(f"CPU {name} per run{meaning}")
        title_of(ax, data)
    return ax


def scaling_table(data: xarray.Dataset) -> pd.DataFrame:
    """CPU nanoseconds per agent and step against n_agents: columns line, method, n_agents, low, median, high."""
    seconds = check(data, "cpu_seconds", "n_agents")
    last = data["t"].where(check(data, "mse", "t").notnull()).max("t")
    cost = (1e9 * seconds / (data["n_agents"] * last)).transpose(*seconds.dims)
    found = lines_of(cost, keep="n_agents")
    tables = [_quartile_rows(line, line.values, n_agents=line.values["n_agents"].values) for line in found]
    return pd.concat(tables, ignore_index=True)


def plot_scaling(data: xarray.Dataset, ax: Axes | None = None) -> Axes:
    """Nanoseconds per agent and step against the number of agents: flat where cost is proportional to size."""
    table = scaling_table(data)
    with canvas(ax) as ax:
        for (line,), rows, look in _looked(table, "line"):
            draw_line(ax, look, rows["n_agents"].to_numpy(), rows, str(line), marker="o")
        _scales(ax, table, table["n_agents"])
        ax.set_xlabel("agents")
        ax.set_ylabel("CPU nanoseconds per agent and step")
        legend(ax)
        title_of(ax, data)
    return ax
