"""`plot_timing`: times of methods measured side by side, relative to CL-colME."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullFormatter

from colme.errors import ColmeError
from colme.lab.experiments.planning import REFERENCE
from colme.lab.plots._labels import vertical_marks
from colme.lab.plots._style import canvas, ink, looks, plain
from colme.lab.plots.times import relative

PARTS = ("kernel", "end to end")
CLAIM = 871 / 722
"""Published: seconds of C-colME over those of CL-colME in the CL-colME paper."""
DOTS = 200
"""Most single measurements drawn per row."""


def timing_table(table: pd.DataFrame) -> pd.DataFrame:
    """Quartiles of the ratios: one row per n_agents (and degree, if it is a column), method and part, in the order of
    the figure."""
    if not isinstance(table, pd.DataFrame) or not {"method", "n_agents", "part", "ratio"} <= set(table.columns):
        got = list(table.columns) if isinstance(table, pd.DataFrame) else type(table).__name__
        raise ColmeError(f"table has {got}: it must have columns method, n_agents, part and ratio. Rename them.")
    strange = sorted(set(table["part"]) - set(PARTS))
    if strange:
        raise ColmeError(f"part={strange[0]!r}: it must be one of {', '.join(map(repr, PARTS))}. Rename it.")
    numbers = table[np.isfinite(table["ratio"]) & (table["ratio"] > 0)]
    if numbers.empty:
        raise ColmeError(
            f"none of {len(table)} ratios is positive and finite: there is nothing to draw. Measure again."
        )
    sizes = ["n_agents", *(["degree"] if "degree" in numbers else [])]
    groups = numbers.groupby([*sizes, "method", "part"], sort=False)["ratio"]
    found = groups.quantile([0.25, 0.5, 0.75]).unstack()
    found.columns = ["low", "median", "high"]
    found = found.assign(count=groups.size()).reset_index()
    order = list(dict.fromkeys(numbers["method"]))
    return found.sort_values(
        [*sizes, "method", "part"], ignore_index=True,
        key=lambda column: column.map({**{m: k for k, m in enumerate(order)}, **{p: k for k, p in enumerate(PARTS)}})
        if column.name not in sizes else column,
    )  # fmt: skip


def plot_timing(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Times relative to CL-colME, measured side by side: every measurement, quartiles and median; kernel and end to end
    next to each other."""
    summary = timing_table(table)
    rows = summary[summary["method"] != REFERENCE] if (summary["method"] != REFERENCE).any() else summary
    places: list[float] = []
    headings: list[tuple[str, float]] = []
    y = 0.0
    rows = rows.assign(size=[f"{row.n_agents:,} agents" + (f", degree {row.degree}" if "degree" in rows else "")
                             for row in rows.itertuples()])  # fmt: skip
    for (size, _), group in rows.groupby(["size", "method"], sort=False):
        if not headings or headings[-1][0] != size:
            y += 0.3 if headings else 0.0
            headings.append((size, y))
            y += 0.85
        places += [y + k * 0.8 for k in range(len(group))]
        y += 0.8 * len(group) + 0.35
    with canvas(ax, size=(5.2, 0.85 + 0.21 * y)) as ax:
        methods = list(dict.fromkeys(rows["method"]))
        colors = dict(zip(methods, (look.color for look in looks(methods)), strict=True))
        for place, row in zip(places, rows.itertuples(), strict=True):
            color, solid = colors[row.method], row.part == PARTS[0]
            same = (table["method"] == row.method) & (table["n_agents"] == row.n_agents) & (table["part"] == row.part)
            if "degree" in rows:
                same &= table["degree"] == row.degree
            dots = np.sort(table["ratio"][same].to_numpy())
            dots = dots[:: max(1, len(dots) // DOTS)]
            ax.plot(dots, place + _scatter(len(dots)), ".", color=color, markersize=2, alpha=0.35, zorder=2)
            ax.barh(place, row.high - row.low, left=row.low, height=0.5, zorder=3, linewidth=1,
                    edgecolor=color, facecolor=color if solid else "white", alpha=0.75)  # fmt: skip
            ax.plot([row.median] * 2, [place - 0.33, place + 0.33], color=ink(color), linewidth=1.8, zorder=4)
            ax.annotate(relative(row.median), (1, place), (4, 0), xycoords=("axes fraction", "data"),
                        textcoords="offset points", va="center", fontsize=8, annotation_clip=False)  # fmt: skip
        ax.set_yticks(places, [f"{row.method}, {row.part}" for row in rows.itertuples()], parse_math=False)
        for size, place in headings:
            ax.annotate(size, (0, place), (6, 0), xycoords=("axes fraction", "data"), color="#222222",
                        textcoords="offset points", va="center", fontsize=8, fontweight="bold",
                        path_effects=[withStroke(linewidth=2.5, foreground="white")])  # fmt: skip
        ax.set_ylim(y - 0.2, -1.9)
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
        ax.spines["left"].set_visible(False)
        span = np.append(rows[["low", "high"]].to_numpy().ravel(), [1.0, CLAIM])
        if span.max() > 4 * span.min():
            ax.set_xscale("log")
            ax.set_xticks([t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if span.min() / 2 < t < 2 * span.max()])
            ax.xaxis.set_major_formatter(plain)
            ax.xaxis.set_minor_formatter(NullFormatter())
        vertical_marks(ax, {f"{REFERENCE}": 1.0, "published: 871 s / 722 s": CLAIM})
        ax.set_xlabel(f"time relative to {REFERENCE}, measured side by side")
    return ax


def _scatter(n: int) -> Any:
    """Heights within a row, evenly spread and the same every time (the golden ratio's multiples)."""
    return (np.arange(n) * 0.6180339887 % 1.0 - 0.5) * 0.55
