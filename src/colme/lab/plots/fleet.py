"""Plot of `colme node demo`: the mean and the estimate of every agent over time."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from colme.lab.plots._style import FREE_COLORS, GREY, canvas, legend, shade, vertical_marks
from colme.node.demo import DemoView

_QUIET = ("all run", "")


def fleet_table(views: Sequence[DemoView]) -> pd.DataFrame:
    """A row per agent and view: seconds, agent, running, truth, samples, mean, estimate, neighbors, cut, event."""
    rows = [{"seconds": view.seconds, **report, "event": view.event} for view in views for report in view.reports]
    return pd.DataFrame(rows)


def plot_fleet(views: Sequence[DemoView], ax: Axes | None = None) -> Axes:
    """Plot the estimate of every agent over time, in the color of its class, its mean in grey; events are marked."""
    table = fleet_table([view for view in views if view.seconds > 0])
    classes = sorted(table["truth"].unique())
    with canvas(ax, size=(6.4, 3.4)) as ax:
        for (_, truth), rows in table.groupby(["agent", "truth"], sort=False):
            k = classes.index(truth)
            alive = rows[["mean", "estimate"]].where(rows["running"])
            ax.plot(rows["seconds"], alive["mean"], color=shade(GREY, 0.5), linewidth=0.7, label="each alone")
            color = FREE_COLORS[k % len(FREE_COLORS)]
            ax.plot(rows["seconds"], alive["estimate"], color=color, linewidth=1.2, label=f"together, class {k + 1}")
        for truth in classes:
            ax.axhline(truth, color="black", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1, label="truth")
        began = table.drop_duplicates("event")
        vertical_marks(ax, {str(row.event): row.seconds for row in began.itertuples() if row.event not in _QUIET})
        ax.set_xlim(0.0, table["seconds"].max())
        means = table["mean"].dropna()  # without the first extreme ones
        low = min(table["estimate"].min(), means.quantile(0.01))
        high = max(table["estimate"].max(), means.quantile(0.99))
        ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        ax.set_xlabel("seconds")
        ax.set_ylabel("mean and estimate")
        legend(ax)
    return ax
