"""The look of all figures: one style file, colors that color-blind readers can tell apart, dashes for gray printing."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from colme.errors import ColmeError, shorten
from colme.lab.planning import BENCHMARKS
from colme.lab.rows import number
from colme.methods import METHODS

STYLE = Path(__file__).with_name("colme.mplstyle")
ASPECT = 0.62
"""Least height of a row of plots, relative to the width of one plot: a narrow figure keeps room for its lines."""
NARROW = 2.4
"""Inches below which plots are not drawn side by side."""


class Paper(NamedTuple):
    """What figures are drawn for; None stands for their own width in inches, size of letters, and font."""

    width: float | None = None
    font_size: float | None = None
    font: str | None = None
    title: bool = True


_NORMAL = Paper()
_paper = ContextVar("paper", default=_NORMAL)


@contextmanager
def drawn_for(paper: Paper) -> Iterator[None]:
    """Figures that are made in the block have the width, the letters and the titles of this paper."""
    if paper.font is not None:
        try:
            font_manager.findfont(paper.font, fallback_to_default=False)
        except ValueError:
            known = shorten(", ".join(sorted(font_manager.get_font_names())))
            raise ColmeError(f"font={paper.font!r} is not installed: it must be one of {known}.") from None
    token = _paper.set(paper)
    try:
        yield
    finally:
        _paper.reset(token)


@contextmanager
def our_style() -> Iterator[None]:
    """Matplotlib's settings are ours within the block."""
    own = {"font.size": _paper.get().font_size, "font.family": _paper.get().font}
    with matplotlib.style.context([STYLE, {key: value for key, value in own.items() if value}], after_reset=True):
        yield


# Okabe & Ito 2008, without the yellow, which is hard to see on white.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#777777"
WARNING = VERMILION
COLORS = {method.label: method.color for method in METHODS if method.color is not None}
FREE_COLORS = (BLUE, PURPLE, ORANGE, SKY, VERMILION, BLACK)
"""Colors for other methods; rarely used ones first, so that a method has the same color in all panels."""

Dashes = tuple[float, tuple[float, ...]]
SOLID: Dashes = (0, ())
DASHES: tuple[Dashes, ...] = (
    SOLID, (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.4, 1.2, 1.4)), (0, (8, 2)),
    (0, (3, 1.2, 1, 1.2, 1, 1.2)), (0, (2, 2)), (0, (9, 1.5, 3, 1.5)),
)  # fmt: skip
OF_REFERENCE: dict[str, Dashes] = {"local": (0, (1, 1)), "oracle": (0, (5, 2))}


class Look(NamedTuple):
    """How a line is drawn."""

    color: str
    dashes: Dashes
    width: float


def looks(methods: Sequence[str]) -> list[Look]:
    """The look of each line, given the method of each: a method keeps its color in all figures; lines of the same
    method differ in shade and dashes, or, if there is only one method, in color."""
    own = [method for method in methods if method not in BENCHMARKS]
    free = [color for color in FREE_COLORS if color not in {COLORS.get(method) for method in own}]
    others = [method for method in dict.fromkeys(own) if method not in COLORS]
    colors = COLORS | {method: free[k % len(free)] for k, method in enumerate(others)}
    found: list[Look] = []
    number = 0
    for k, method in enumerate(methods):
        twin, color = methods[:k].count(method), colors[method]
        if method in BENCHMARKS:
            found.append(Look(shade(color, 0.3 * twin), OF_REFERENCE.get(method, (0, (2, 1))), 1.1))
            continue
        if len(set(own)) == 1 and twin:
            color = [each for each in FREE_COLORS if each != color][(twin - 1) % (len(FREE_COLORS) - 1)]
        else:
            color = shade(color, (0.0, 0.4, -0.35, 0.6)[twin % 4])
        found.append(Look(color, DASHES[number % len(DASHES)], 1.5))
        number += 1
    return found


def shade(color: str, toward_white: float) -> str:
    """The color mixed with white, or with black where the share is negative."""
    share, end = abs(toward_white), float(toward_white > 0)
    red, green, blue = ((1 - share) * part + share * end for part in to_rgb(color))
    return to_hex((red, green, blue))


LETTERS, NAME = 16, 26
"""Characters of a title to the inch of axes; characters after which the name of a line breaks."""
MARKS: tuple[Dashes, ...] = ((0, (1, 1.5)), (0, (5, 2)), (0, (3, 1, 1, 1)))
"""Dashes of vertical lines."""


@contextmanager
def canvas(ax: Axes | None, *, size: tuple[float, float] | None = None) -> Iterator[Axes]:
    """The axes to draw on: given ones, or new ones in our style."""
    with contextlib.nullcontext([ax]) if ax is not None else panels(1, 1, size) as axes, our_style():
        yield axes[0]


@contextmanager
def panels(rows: int, columns: int, size: tuple[float, float] | None = None) -> Iterator[list[Axes]]:
    """The axes of a new figure, in our style; the user's style is restored afterwards.

    The figure is not registered with pyplot, so it needs no closing. It is laid out before the style is restored:
    matplotlib creates ticks when it first needs them, and would create them in the user's style."""
    paper = _paper.get()
    with our_style():
        own_width, own_height = size or matplotlib.rcParams["figure.figsize"]
        width = paper.width or own_width
        panel, row = own_width / columns, own_height / rows
        if paper.width is not None and columns > 1 and width / columns < NARROW:
            rows, columns = rows * columns, 1
        height = max(row * width / columns / panel, min(row, ASPECT * width / columns))
        figure = Figure(figsize=(width, height * rows))
        axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        yield axes
        if not paper.title:
            for ax in axes if len(axes) == 1 else ():
                ax.set_title("", loc="left")
        figure.draw_without_rendering()


def title_of(ax: Axes, data: Any) -> None:
    """Set the title of the dataset, if it has one."""
    title = data.attrs.get("title")
    if isinstance(title, str) and title:
        letters = int(LETTERS * ax.bbox.width / ax.figure.dpi * 8.5 / matplotlib.rcParams["font.size"])
        ax.set_title("\n".join(textwrap.wrap(title, letters)), parse_math=False)  # a user's text: $ is a dollar


def legend(ax: Axes, *, formulas: bool = False) -> None:
    """Every name once, right of the frame. Without `formulas` names are a user's words: $ is a dollar."""
    once = {wrap(name): handle for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    made = ax.legend(list(once.values()), list(once), loc="upper left", bbox_to_anchor=(1.01, 1.02),
                     labelspacing=0.6, handlelength=2.4, borderaxespad=0.0)  # fmt: skip
    for text in made.get_texts():
        text.set_parse_math(formulas)


def wrap(name: str) -> str:
    """The name of a line, broken between words."""
    return "\n".join(textwrap.wrap(name, NAME, break_long_words=False, break_on_hyphens=False))


def vertical_marks(ax: Axes, marks: Mapping[str, float]) -> None:
    """A thin vertical line at each x, for the legend."""
    for place, (name, x) in enumerate(marks.items()):
        ax.axvline(x, color=GREY, linewidth=0.9, linestyle=MARKS[place % len(MARKS)], zorder=1, label=name)


def step_axis(ax: Axes, first: float, last: float, *, log: bool) -> None:
    """Set up the x axis for steps."""
    if log:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(numticks=15))  # all powers of ten, however narrow the figure
    ax.xaxis.set_major_formatter(number)
    low = first if log else 0
    ax.set_xlim(low, last if last > low else low + 1)
    ax.set_xlabel("step t")
