"""Shared by the examples with real tables: score methods on held-out samples, and draw the scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from colme.data.read.table import Table
from colme.data.report.output import save_result
from colme.data.report.result import Result
from colme.data.report.sentences import headline, sentences
from colme.lab import plots
from colme.lab.estimate_page import write_estimate_page

sys.path.append(str(Path(__file__).parents[1]))
from benchmarks.held_out import adjusted_rand_index, score

__all__ = ["adjusted_rand_index", "compare", "dataset", "plot_held_out", "show"]
LOOKS = {
    "auto": ("#BBBBBB", "o-"), "shrinkage": ("#0072B2", "s-"), "census": ("#CC79A7", "D-"),
    "one-hop": ("#009E73", "^-"), "cl-colme": ("#D55E00", "v:"), "pooled": ("#E69F00", "x:"),
}  # fmt: skip
"""Color and line of each method: `auto` is broad and pale, below the method that it chose."""
ORDERS = ("shuffled", "time order")
TOP = 3.0
"""Upper limit of the plot: methods that are worse than this are listed in words."""


def dataset(package: str) -> Any:
    """The package that contains the data; exits with a hint if it is not installed."""
    try:
        return import_module(package)
    except ImportError:
        sys.exit(f"{package} is not installed: this example needs its data. Try: pip install {package}")


def show(result: Result, folder: Path, title: str) -> None:
    """Print the findings; write all agents, the figure and the page."""
    print(headline(result))
    for topic, sentence in sentences(result).items():
        print(f"  {topic}: {sentence}")
    save_result(result, folder / "agents.csv")
    plots.save(plots.plot_estimates(result), plots.estimates_table(result), folder / "estimates")
    write_estimate_page(result, folder / "report.html", title=title)


def compare(
    table: Table, counts: Sequence[int], seeds: int, truth: NDArray[Any] | None = None
) -> pd.DataFrame:  # fmt: skip
    """Scores after learning from n samples of every agent: random ones for each seed, and the first ones."""
    rows = []
    for method in LOOKS:
        for n in counts:
            for order, each in zip(ORDERS, (range(seeds), None), strict=True):
                found = score(table, n, seeds=each, truth=truth, method=method)
                rows.append({"method": method, "order": order, **found._asdict()})
    return pd.DataFrame(rows).drop(columns="methods")


def plot_held_out(frame: pd.DataFrame, title: str) -> Figure:
    """The error relative to the local mean against the number of samples, one line per method."""
    counts = sorted(frame["n"].unique())
    with style.context(plots.STYLE, after_reset=True):
        figure = Figure(figsize=(7.2, 3.7))
        axes = figure.subplots(1, 2, sharey=True)
        for ax, order in zip(axes, ORDERS, strict=True):
            ax.axhline(1.0, color="#777777", linewidth=1.0, zorder=1)
            for method, (color, line) in LOOKS.items():
                part = frame[(frame["order"] == order) & (frame["method"] == method)]
                width, size = (7.0, 9) if method == "auto" else (1.3, 4)
                ax.errorbar(part["n"], part["ratio"], part["ratio_se"].fillna(0.0), fmt=line, color=color,
                            linewidth=width, elinewidth=1.2, markersize=size, label=method)  # fmt: skip
            ax.set(xscale="log", yscale="log", xlabel="samples of each agent", title=order)
            here = frame[frame["order"] == order].groupby("method", sort=False)["ratio"]
            far = here.max()[here.max() > TOP].index
            listed = "\n".join(f"{each}: {here.min()[each]:,.0f} to {here.max()[each]:,.0f}" for each in far)
            ax.annotate(
                listed and f"beyond the plot:\n{listed}", (0.02, 0.98), xycoords="axes fraction", va="top", fontsize=8
            )
            ax.set_xticks(counts, [str(n) for n in counts])
            ax.xaxis.set_minor_locator(NullLocator())
            ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.yaxis.set_minor_formatter(NullFormatter())
        axes[0].set_ylim(top=min(1.3 * max(frame["ratio"].max(), 1.0), TOP))
        axes[0].set_ylabel("error / error of the local mean")
        axes[1].annotate("agents' own means", (1.0, 1.0), (0, 5), xycoords=("axes fraction", "data"),
                         textcoords="offset points", ha="right", fontsize=8, color="#555555")  # fmt: skip
        legend = figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=len(LOOKS),
                               fontsize=8.5, title=title, title_fontsize=9.5)  # fmt: skip
        legend.set_alignment("left")
        figure.draw_without_rendering()
    return figure
