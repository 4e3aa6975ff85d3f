"""`plot_estimates`: from each agent's own mean to its estimate, with intervals, colored by group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import MaxNLocator

from colme.data.report.result import Result
from colme.data.report.sentences import group_name
from colme.errors import ColmeError, shorten
from colme.lab.plots._style import BLUE, FREE_COLORS, GREY, canvas, legend, shade
from colme.lab.rows import number
from colme.support.arrays import Floats, Integers
from colme.support.tables import safe_name

LISTED = 40
"""Up to this many agents, each one has a line with its name."""
ARROWS = 32
"""Agents with an arrow and an interval in a scatter plot, at most."""
RASTER = 2000
"""From this many dots on, they are an image inside the vector file."""
TAILS = 0.005
"""Share of own means at either end that may lie outside the frame."""
LETTERS = 24
"""Width of a name, in characters."""
LINE_LETTERS = 48
"""Letters that fit below an x axis."""
TOLD = 12
"""Groups that the legend names, at most."""


def estimates_table(result: Result) -> pd.DataFrame:
    """The agents whose arrows and intervals are drawn: all, or some with evenly spaced own means."""
    if not isinstance(result, Result):
        raise ColmeError(
            f"result={shorten(result)}: it must be a result of colme.estimate. Try plot_estimates(colme.estimate(...))."
        )
    frame = pd.DataFrame({name: values for name, values in result.to_columns().items() if name != "flags"})
    frame = frame[np.isfinite(frame["mean"]) & np.isfinite(frame["estimate"])]
    if len(frame) <= LISTED:
        return frame.sort_values("estimate", kind="stable", ignore_index=True)
    frame = frame.sort_values("mean", kind="stable", ignore_index=True)
    mean = frame["mean"].to_numpy()
    low, high = np.quantile(mean, [TAILS, 1 - TAILS])
    wanted = np.linspace(low, high, ARROWS)
    after = np.clip(np.searchsorted(mean, wanted), 1, len(mean) - 1)
    chosen = np.where(wanted - mean[after - 1] < mean[after] - wanted, after - 1, after)  # the nearest
    return frame.iloc[np.unique(chosen)].reset_index(drop=True)


def plot_estimates(result: Result, ax: Axes | None = None) -> Axes:
    """One line per agent with its name; or, for many agents, a scatter plot of estimates against own means.

    result  what `estimate` returns
    ax      the axes to draw on (default: new ones)

    >>> import colme
    >>> from colme import lab
    >>> stores = {"store": list("aaabbbccc"), "sales": [9.0, 10.0, 11.0, 9.5, 10.0, 10.5, 14.0, 15.0, 16.0]}
    >>> result = colme.estimate(stores, agent="store", value="sales", method="shrinkage")
    >>> [label.get_text() for label in lab.plots.plot_estimates(result).get_yticklabels()]
    ['b (3)', 'a (3)', 'c (3)']

    See also: estimate, Result, save
    """
    table = estimates_table(result)
    few = len(result.agent) <= LISTED
    longest = max((len(_name(each)) for each in table["agent"]), default=0) if few else 0
    size = (6.0 + 0.07 * max(longest - 12, 0), 0.9 + 0.17 * max(len(table), 3)) if few else (6.6, 4.6)
    with canvas(ax, size=size) as ax:
        if few:
            _draw_list(ax, result, table)
        else:
            _draw_scatter(ax, result, table)
    return ax


def estimates_caption(result: Result) -> str:
    """What the figure of this result shows, in sentences."""
    table, level = estimates_table(result), f"{100 * result.summary.level:g}% interval"
    if len(result.agent) <= LISTED:
        parts = [
            "One line per agent, in order of the estimates.",
            f"An arrow goes from the own mean (open circle) to the estimate (dot); the bar is the {level}.",
        ]
    else:
        known = np.isfinite(result.mean) & np.isfinite(result.estimate)
        mean = result.mean[known]
        low, high = _frame(mean, result.estimate[known])
        parts = [
            f"The estimate of each of {len(mean):,} agents against the mean of its own samples.",
            "On the dotted line, both are equal.",
            f"For {len(table)} agents, evenly spaced, an arrow goes from the own mean to the estimate, and a bar shows "
            f"the {level}.",
        ]
        if outside := int(np.count_nonzero((mean < low) | (mean > high))):
            parts.append(f"{outside:,} own mean{'s lie' if outside > 1 else ' lies'} outside the frame.")
    if not np.isfinite(table[["lower", "upper"]]).all(axis=None):
        parts.append("Unbounded intervals are not drawn.")
    return " ".join(parts)


def _draw_list(ax: Axes, result: Result, table: pd.DataFrame) -> None:
    colors, rows = _colors(table["group"].to_numpy()), np.arange(len(table))
    ax.hlines(rows, *_within(table), colors=[shade(color, 0.55) for color in colors], linewidth=4.5, capstyle="butt")
    for row, color in enumerate(colors):
        _arrow(ax, (table["mean"][row], row), (table["estimate"][row], row), color)
    ax.scatter(table["mean"], rows, s=13, facecolor="white", edgecolor=colors, linewidth=0.9, zorder=3)
    ax.scatter(table["estimate"], rows, s=17, color=colors, linewidth=0, zorder=4)
    ax.set_yticks(rows, [_name(who) + f" ({n:,})" for who, n in zip(table["agent"], table["n"], strict=True)])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-0.8, len(table) - 0.2)
    ax.grid(False, axis="y")
    _space_ticks(ax)
    ax.set_xlabel(f"{_name(result.names.value)} (in parentheses: number of samples)")
    _key(ax, result, table["group"].to_numpy())


def _draw_scatter(ax: Axes, result: Result, table: pd.DataFrame) -> None:
    known = np.isfinite(result.mean) & np.isfinite(result.estimate)
    mean, estimate, group = result.mean[known], result.estimate[known], result.group[known]
    low, high = _frame(mean, estimate)
    opacity = np.clip(600.0 / len(mean), 0.06, 0.8)
    order = np.random.default_rng(0).permutation(len(mean))  # so that no group hides the others
    dots = ax.scatter(mean[order], estimate[order], s=9 if len(mean) < RASTER else 4, c=_colors(group[order]),
                      alpha=opacity, linewidth=0, zorder=2)  # fmt: skip
    dots.set_rasterized(len(mean) >= RASTER)
    ax.plot([low, high], [low, high], color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    colors = [shade(color, -0.35) for color in _colors(table["group"].to_numpy())]
    ax.vlines(table["mean"], *_within(table), colors=colors, linewidth=2.2, alpha=0.3, zorder=3)
    for x, y, color in zip(table["mean"], table["estimate"], colors, strict=True):
        _arrow(ax, (x, x), (x, y), color)
    ax.scatter(table["mean"], table["estimate"], s=8, color=colors, linewidth=0, zorder=5)
    ax.set(xlim=(low, high), ylim=(low, high))
    _space_ticks(ax)
    ax.yaxis.set_major_formatter(number)
    ax.set_xlabel(f"{_name(result.names.value)}: mean of the agent's own samples")
    ax.set_ylabel("estimate")
    ax.set_title(f"Dots: all {len(mean):,} agents. Arrows and intervals: {len(table)} of them.", color="#555555")
    _key(ax, result, group)
    if group.max() >= TOLD:
        ax.set_ylabel(f"estimate ({group.max() + 1} groups; colors repeat)")


def _frame(mean: Floats, estimate: Floats) -> tuple[float, float]:
    """The same limits on both axes, so that a flat cloud of dots shows shrinkage."""
    low, high = np.quantile(mean, [TAILS, 1 - TAILS])
    bottom, top = np.quantile(estimate, [TAILS, 1 - TAILS])
    low, high = min(low, bottom), max(high, top)
    room = 0.04 * (high - low) or max(abs(low), 1.0) * 0.1
    return float(low - room), float(high + room)


def _space_ticks(ax: Axes) -> None:
    """Ticks of the x axis at round numbers, as many as have room for their labels."""
    ax.xaxis.set_major_formatter(number)
    longest = max(len(number(each)) for each in ax.get_xticks())
    bins = int(np.clip(LINE_LETTERS // (longest + 1), 2, 9))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=bins, steps=[1, 2, 2.5, 5, 10]))


def _within(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The intervals; unbounded ones get length zero."""
    good = np.isfinite(table["lower"]) & np.isfinite(table["upper"])
    return table["lower"].where(good, table["estimate"]), table["upper"].where(good, table["estimate"])


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    ax.annotate("", end, start, arrowprops={
        "arrowstyle": "-|>,head_length=0.28,head_width=0.14", "color": color, "linewidth": 0.7, "shrinkA": 1.5,
        "shrinkB": 2.5,
    }, annotation_clip=True, zorder=4)  # fmt: skip


def _key(ax: Axes, result: Result, group: Integers) -> None:
    """The legend: what is drawn, and the groups, unless there are too many."""
    few = len(result.agent) <= LISTED
    dark: Any = {"color": "#333333", "marker": "o", "linewidth": 0}
    if few:
        ax.plot([], [], markersize=3.6, markerfacecolor="white", label="own mean", **dark)
    else:
        ax.plot([], [], color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), label="estimate = own mean")
    ax.plot([], [], markersize=4, label="estimate", **dark)
    ax.plot([], [], color="#AAAAAA", linewidth=4 if few else 2.2, label=f"{100 * result.summary.level:g}% interval")
    found, count = np.unique(group[group >= 0], return_counts=True)
    for k, n in zip(found.tolist(), count.tolist(), strict=True) if 1 < len(found) <= TOLD else ():
        name = _drawable(group_name(result, k, 16)) if result.group_names else f"group {k}"
        label = f"{name}: {n:,} agent" + "s" * (n != 1)
        ax.plot([], [], marker="s", markersize=6, linewidth=0, color=color_of(k), label=label)
    legend(ax)


COLORS = (BLUE, *(color for color in FREE_COLORS if color != BLUE))


def color_of(group: int) -> str:
    if group < 0:
        return GREY
    return shade(COLORS[group % len(COLORS)], (0.0, 0.35, -0.35)[group // len(COLORS) % 3])


def _colors(group: Integers) -> Any:
    """The color of each agent's group; one color without groups."""
    if not len(group) or group.max() < 0:
        return [BLUE] * len(group)
    known = {k: color_of(k) for k in np.unique(group).tolist()}
    return [known[k] for k in group.tolist()]


def _name(name: object) -> str:
    """A name from the user's data where matplotlib would parse it: $ is a dollar sign and not TeX."""
    return _drawable(name).replace("$", r"\$")


def _drawable(name: object) -> str:
    """A name, shortened; characters that the font lacks become replacement characters."""
    font = get_font(findfont(FontProperties()))
    return "".join(
        each if font.get_char_index(ord(each)) else "\N{REPLACEMENT CHARACTER}" for each in safe_name(name, LETTERS)
    )
