"""The two figures of docs/speed.md, in the look of the lab's."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from benchmarks.methods import RunTime
from benchmarks.sizes import Cost
from colme.lab.plots import save
from colme.lab.plots._style import BLUE, DASHES, GREY, ORANGE, SOLID, VERMILION, Look, canvas, legend, looks
from colme.lab.rows import number
from colme.support.files import write_whole

SIZE = (6.0, 3.9)
LINES: dict[str, tuple[str, Look]] = {
    "scipy": ("SciPy CSR loop", Look(BLUE, DASHES[1], 1.5)),
    "naive": ("naive numba loops", Look(ORANGE, DASHES[3], 1.5)),
    "alone": ("colme, one run", Look(VERMILION, SOLID, 1.8)),
    "roofline": ("roofline: ten random reads", Look(GREY, DASHES[2], 1.3)),
}
"""Columns of the sizes, with their labels and looks."""


def size_table(sizes: list[Cost]) -> pd.DataFrame:
    """The numbers behind the first figure: line, n_agents, nanoseconds."""
    rows = [
        (label, cost.n_agents, getattr(cost, column))
        for column, (label, _) in LINES.items()
        for cost in sizes
        if getattr(cost, column) is not None
    ]
    return pd.DataFrame(rows, columns=["line", "n_agents", "nanoseconds"])


def plot_sizes(sizes: list[Cost], ax: Axes | None = None) -> Axes:
    """Nanoseconds per agent and step over the number of agents."""
    table = size_table(sizes)
    with canvas(ax, size=SIZE) as ax:
        for label, look in LINES.values():
            rows = table[table["line"] == label]
            x, y = rows["n_agents"].to_numpy(), rows["nanoseconds"].to_numpy()
            if len(x):
                _line(ax, look, x, y, label)
        _log_axes(ax)
        ax.set_xticks(sorted(set(table["n_agents"])), [_agents(n) for n in sorted(set(table["n_agents"]))])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlim(table["n_agents"].min() / 1.25, table["n_agents"].max() * 1.25)
        ax.set_xlabel("agents")
        ax.set_ylabel("CPU nanoseconds per agent and step")
        legend(ax)
    return ax


def method_table(runs: list[RunTime]) -> pd.DataFrame:
    """The numbers behind the second figure: line, work, seconds."""
    rows = [(run.label, run.work, run.seconds) for run in runs]
    return pd.DataFrame(rows, columns=["line", "work", "seconds"])


def plot_methods(runs: list[RunTime], ax: Axes | None = None) -> Axes:
    """CPU seconds of a run over N r T."""
    table = method_table(runs)
    with canvas(ax, size=SIZE) as ax:
        lines = list(dict.fromkeys(table["line"]))
        for line, look in zip(lines, looks([line.split(",")[0] for line in lines]), strict=True):
            rows = table[table["line"] == line].sort_values("work")
            _line(ax, look, rows["work"].to_numpy(), rows["seconds"].to_numpy(), line)
        _log_axes(ax)
        ax.xaxis.set_major_locator(LogLocator(numticks=15))
        ax.set_xlim(table["work"].min() / 1.25, table["work"].max() * 1.25)
        ax.set_xlabel("agents \N{MULTIPLICATION SIGN} degree \N{MULTIPLICATION SIGN} steps")
        ax.set_ylabel("CPU seconds per run")
        legend(ax)
    return ax


def write_figures(sizes: list[Cost], runs: list[RunTime], folder: Path) -> list[Path]:
    """speed_size.svg and speed_methods.svg."""
    drawn = {"speed_size": (plot_sizes(sizes), size_table(sizes)),
             "speed_methods": (plot_methods(runs), method_table(runs))}  # fmt: skip
    written = []
    for name, (ax, table) in drawn.items():
        with tempfile.TemporaryDirectory() as scratch:
            image = save(ax, table, Path(scratch) / name)[0].read_bytes()
        write_whole(folder / f"{name}.svg", image)
        written.append(folder / f"{name}.svg")
    return written


def _line(ax: Axes, look: Look, x: Any, y: Any, label: str) -> None:
    ax.plot(
        x, y, color=look.color, linestyle=look.dashes, linewidth=look.width, marker="o", markersize=3.5, label=label
    )


def _log_axes(ax: Axes) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if _decades(ax) < 2.5 else (1.0,), numticks=15))
    ax.yaxis.set_major_formatter(number)
    ax.yaxis.set_minor_formatter(NullFormatter())


def _decades(ax: Axes) -> float:
    from math import log10

    low, high = ax.get_ylim()
    return log10(high / low)


def _agents(n: int) -> str:
    """A number of agents: 5,000, 10\N{SUPERSCRIPT FIVE}."""
    power = len(str(n)) - 1
    return f"$10^{power}$" if n == 10**power else f"{n:,}"
