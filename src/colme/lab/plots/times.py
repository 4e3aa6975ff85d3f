"""`plot_time` and `plot_scaling`: CPU time per run, and per agent and step."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from colme.errors import ColmeError
from colme.lab import lines
from colme.lab.plots._style import canvas, legend, looks, plain, title_of, wrap
from colme.lab.plots.over_time import draw_line
from colme.lab.tables import time_table
from colme.metrics import METRICS

TIMES = "\N{MULTIPLICATION SIGN}"


def plot_time(data: xarray.Dataset, ax: Axes | None = None) -> Axes:
    """CPU time per run as bars, quartiles over the seeds as whiskers, and the ratio to the first line of CL-colME."""
    lines.check(data, "cpu_seconds")
    table = time_table(data)
    unit, name = (1e3, "milliseconds") if table["median"].max() < 0.5 else (1.0, "seconds")
    with canvas(ax, size=(5.2, 0.75 + 0.3 * len(table))) as ax:
        place = np.arange(len(table))
        low, median, high = (unit * table[column].to_numpy() for column in ("low", "median", "high"))
        methods = list(dict.fromkeys(table["method"]))
        colors = dict(zip(methods, (look.color for look in looks(methods)), strict=True))
        ax.barh(place, median, height=0.62, color=[colors[method] for method in table["method"]], alpha=0.85)
        ax.errorbar(median, place, xerr=[median - low, high - median], fmt="none", ecolor="#222222", elinewidth=0.9,
                    capsize=2.2)  # fmt: skip
        for y, end, ratio in zip(place, high, table["ratio"], strict=True):
            words = "" if np.isnan(ratio) else relative(ratio)
            ax.annotate(words, (end, y), (5, 0), textcoords="offset points", va="center", fontsize=8)
        ax.set_yticks(place, [wrap(line) for line in table["line"]], parse_math=False)
        ax.invert_yaxis()
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
        ax.spines["left"].set_visible(False)
        ax.set_xlim(0, 1.13 * high.max())
        meaning = f"\n({TIMES}: relative to {table.attrs['reference']})" if table["ratio"].notna().any() else ""
        ax.set_xlabel(f"CPU {name} per run{meaning}")
        title_of(ax, data)
    return ax


def relative(ratio: float) -> str:
    """1.23 followed by a multiplication sign."""
    return f"{ratio:.2f}{TIMES}" if ratio < 9.995 else f"{ratio:.3g}{TIMES}"


def scaling_table(data: xarray.Dataset) -> pd.DataFrame:
    """CPU nanoseconds per agent and step against n_agents: columns line, method, n_agents, low, median, high."""
    seconds = lines.check(data, "cpu_seconds", "n_agents")
    recorded = [name for name in METRICS if name in data and "t" in data[name].dims]
    if not recorded:
        raise ColmeError(
            f"data has {', '.join(map(str, data.data_vars))}: some metric over t is needed to know the number of "
            "steps. Keep mse."
        )
    present = data[recorded[0]].notnull()
    for name in recorded[1:]:
        present = present | data[name].notnull()
    last = data["t"].where(present).max("t")
    cost = (1e9 * seconds / (data["n_agents"] * last)).transpose(*seconds.dims)
    rows = []
    for line in lines.lines_of(cost, keep="n_agents"):
        for agents, *values in zip(line.values["n_agents"].values, *lines.quartiles(line.values), strict=True):
            if not np.isnan(values[0]):
                rows.append((line.label, line.method, agents, *values))
    return pd.DataFrame(rows, columns=["line", "method", "n_agents", "low", "median", "high"])


def plot_scaling(data: xarray.Dataset, ax: Axes | None = None) -> Axes:
    """Nanoseconds per agent and step against the number of agents: flat where cost is proportional to size."""
    table = scaling_table(data)
    with canvas(ax) as ax:
        ax.set_xscale("log")
        groups = [(str(line), rows) for line, rows in table.groupby("line", sort=False)]
        for (line, rows), look in zip(groups, looks([rows["method"].iloc[0] for _, rows in groups]), strict=True):
            x, low, median, high = (rows[column].to_numpy() for column in ("n_agents", "low", "median", "high"))
            draw_line(ax, look, x, median, low, high, line, marker="o")
        sizes = np.unique(table["n_agents"])
        if len(sizes) <= 6:
            ax.set_xticks(sizes)
            ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(plain)
        ax.set_xlabel("agents")
        ax.set_ylabel("CPU nanoseconds per agent and step")
        if table["median"].max() > 10 * table["median"].min():
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ax.yaxis.set_major_formatter(plain)
            ax.yaxis.set_minor_formatter(NullFormatter())
        else:
            ax.set_ylim(0, 1.1 * table["high"].max())
        legend(ax)
        title_of(ax, data)
    return ax
