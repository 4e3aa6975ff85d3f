"""The two figures of docs/peers.md, in the look of the lab's."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from benchmarks.peers.results import Cell, PeerResults
from benchmarks.peers.scaling import Cost
from benchmarks.peers.tables import REAL, SHUFFLED
from colme.lab.plots import STYLE, save
from colme.lab.plots._style import (
    BLACK,
    BLUE,
    DASHES,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    SOLID,
    VERMILION,
    Look,
    canvas,
    legend,
)  # fmt: skip
from colme.lab.rows import number
from colme.support.files import write_whole

LOOKS: dict[str, Look] = {
    "colme": Look(VERMILION, SOLID, 2.0),
    "lme4": Look(BLUE, DASHES[1], 1.6),
    "gpboost": Look(SKY, DASHES[3], 1.4),
    "MixedLM": Look(BLUE, DASHES[2], 1.4),
    "sklearn Target": Look(GREEN, DASHES[4], 1.3),
    "ce JamesStein": Look(PURPLE, DASHES[5], 1.3),
    "ce MEstimate": Look(ORANGE, DASHES[6], 1.3),
    "ce Target": Look(BLACK, DASHES[7], 1.1),
    "grand mean": Look(GREY, DASHES[2], 1.3),
}
DRAWN = ("grand mean", "ce Target", "ce MEstimate", "ce JamesStein", "sklearn Target", "lme4", "gpboost", "colme")
"""In the first figure, the last on top. MixedLM would lie on lme4."""
BOTTOM, TOP = 0.035, 3.0
"""Limits of the first figure; what is worse leaves it."""
SCALED = ("colme", "lme4", "gpboost", "MixedLM", "sklearn Target", "ce JamesStein")


def error_table(cells: list[Cell]) -> pd.DataFrame:
    """The numbers behind the first figure: table, peer, n, ratio, se."""
    rows = [
        (cell.table, peer, cell.n, cell.peers[peer].ratio, cell.peers[peer].ratio_se)
        for cell in cells
        for peer in DRAWN
        if cell.table in REAL and cell.order == SHUFFLED and peer in cell.peers and cell.peers[peer].ratio is not None
    ]
    return pd.DataFrame(rows, columns=["table", "peer", "n", "ratio", "se"])


def plot_errors(cells: list[Cell]) -> Figure:
    """A panel per real table: error relative to local means over n, shuffled."""
    table = error_table(cells)
    names = list(dict.fromkeys(table["table"]))
    with style.context(STYLE, after_reset=True):
        figure = Figure(figsize=(7.4, 6.6))
        grid = figure.subplots(-(-len(names) // 3), 3, sharex=True, sharey=True, squeeze=False)
        for ax in grid.flat[len(names) :]:
            ax.set_axis_off()
        for ax, name in zip(grid.flat, names, strict=False):
            ax.axhline(1.0, color=GREY, linewidth=0.8, zorder=1)
            for peer in DRAWN:
                rows = table[(table["table"] == name) & (table["peer"] == peer)].sort_values("n")
                look = LOOKS[peer]
                ax.errorbar(rows["n"], rows["ratio"], rows["se"], color=look.color, linestyle=look.dashes,
                            linewidth=look.width, marker="o", markersize=2.5, elinewidth=0.8, label=peer)  # fmt: skip
            ax.set(xscale="log", yscale="log", ylim=(BOTTOM, TOP), title=name)
            _ticks(ax)
        for ax in grid[:, 0]:
            ax.set_ylabel("error / local")
        for ax in grid[-1]:
            ax.set_xlabel("samples of each agent")
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside upper left", ncols=4, fontsize=8,
                      handlelength=1.8, columnspacing=1.2)  # fmt: skip
        figure.draw_without_rendering()
    return figure


def _ticks(ax: Any) -> None:
    ax.xaxis.set_major_locator(FixedLocator((3, 5, 10, 20, 50)))
    ax.xaxis.set_major_formatter(number)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(FixedLocator((0.05, 0.1, 0.2, 0.5, 1.0, 2.0)))
    ax.yaxis.set_major_formatter(number)
    ax.yaxis.set_minor_formatter(NullFormatter())


def cost_table(costs: list[Cost]) -> pd.DataFrame:
    """The numbers behind the second figure: peer, n_agents, seconds; without fits too short for the clock."""
    rows = [(cost.peer, cost.n_agents, cost.cpu) for cost in costs if cost.peer in SCALED and cost.cpu]
    return pd.DataFrame(rows, columns=["peer", "n_agents", "seconds"])


def plot_costs(costs: list[Cost]) -> Any:
    """CPU seconds of a fit over the number of agents."""
    table = cost_table(costs)
    with canvas(None, size=(6.0, 3.6)) as ax:
        for peer in SCALED:
            rows = table[table["peer"] == peer].sort_values("n_agents")
            if len(rows):
                x, y, look = rows["n_agents"].to_numpy(), rows["seconds"].to_numpy(), LOOKS[peer]
                ax.plot(x, y, color=look.color, linestyle=look.dashes, linewidth=look.width, marker="o", markersize=3.5,
                        label=peer)  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="agents, with five samples each", ylabel="CPU seconds of a fit")
        ax.yaxis.set_major_locator(LogLocator(numticks=15))
        ax.yaxis.set_major_formatter(number)
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_xlim(table["n_agents"].min() / 1.25, table["n_agents"].max() * 1.25)
        legend(ax)
    return ax


def write_figures(results: PeerResults, folder: Path) -> list[Path]:
    """peers_error.svg and peers_scaling.svg."""
    drawn = {"peers_error": (plot_errors(results.cells), error_table(results.cells))}
    if results.costs:
        drawn["peers_scaling"] = (plot_costs(results.costs), cost_table(results.costs))
    written = []
    for name, (figure, table) in drawn.items():
        with tempfile.TemporaryDirectory() as scratch:
            image = save(figure, table, Path(scratch) / name)[0].read_bytes()
        write_whole(folder / f"{name}.svg", image)
        written.append(folder / f"{name}.svg")
    return written
