"""`save` and `as_svg`: figures as files and inside pages, with the same bytes every time, and the numbers behind."""

from __future__ import annotations

import hashlib
import html
import io
import os
import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import pandas as pd
import xarray
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.gridspec import GridSpec
from matplotlib.text import Text

from colme.errors import ColmeError, one_of, positive, shorten
from colme.lab.plots._style import STYLE, STYLE_SIZE
from colme.support import tables
from colme.support.files import write_whole

ENDINGS = (".svg", ".pdf", ".csv")
PICTURES = (".svg", ".pdf", ".png")


def save(
    ax_or_figure: Axes | FigureBase,
    table: pd.DataFrame | xarray.DataArray | xarray.Dataset,
    path: str | os.PathLike[str],
) -> list[Path]:
    """Write path.svg, path.pdf and path.csv (the numbers behind the figure) and return the three paths.

    ax_or_figure  what to write
    table         the numbers behind it
    path          the file, without an ending

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    >>> data = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=50, seeds=[0, 1]).to_xarray()
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = lab.plots.save(lab.plots.plot_over_time(data), lab.plots.curves(data, "mse"), f"{folder}/mse")
    >>> [path.name for path in paths]
    ['mse.svg', 'mse.pdf', 'mse.csv']

    See also: plot_over_time, to_frame
    """
    figure = figure_of(ax_or_figure)
    stem = Path(path)
    if stem.suffix in ENDINGS:
        stem = stem.with_suffix("")
    numbers = csv_of(table)
    content = {".svg": _svg(figure, stem.name).encode(), ".pdf": _binary(figure, ".pdf"), ".csv": numbers}
    written = []
    for ending in ENDINGS:
        target = stem.with_name(stem.name + ending)  # not with_suffix: a name may have dots
        write_whole(target, content[ending])
        written.append(target)
    return written


def write_figure(ax_or_figure: Axes | FigureBase, path: str | os.PathLike[str]) -> Path:
    """Write one file: SVG, PDF or PNG, by its ending."""
    figure, target = figure_of(ax_or_figure), Path(path)
    ending = target.suffix.lower()
    one_of(ending, PICTURES, "ending of a figure")
    content = _svg(figure, target.stem).encode() if ending == ".svg" else _binary(figure, ending)
    write_whole(target, content)
    return target


def csv_of(table: pd.DataFrame | xarray.DataArray | xarray.Dataset) -> bytes:
    """The numbers behind a figure as CSV."""
    return tables.csv_of(dict(_frame(table).items()))


def as_svg(ax_or_figure: Axes | FigureBase, label: str) -> str:
    """The <svg> element for a page: no prolog, letters as paths, ids that no other figure of the page has, and a label
    for screen readers."""
    text = _svg(figure_of(ax_or_figure), label)
    text = text[text.index("<svg") :].strip()
    prefix = "f" + hashlib.sha256((label + text).encode()).hexdigest()[:8]
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    text = text.replace("url(#", f"url(#{prefix}-")
    # matplotlib's only style rule applies to everything; restrict it to this figure
    text = text.replace("*{stroke-linejoin", f"#{prefix} *{{stroke-linejoin")
    head, rest = text.split(">", 1)
    width = re.search(r' width="([^"]*)"', head)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    size = f"width:100%;height:auto;max-width:{width.group(1)}" if width else "width:100%"
    name = html.escape(label, quote=True)
    return f'{head} id="{prefix}" role="img" aria-label="{name}" style="{size}">{rest}'


def figure_of(thing: Any) -> Figure:
    """The figure of axes, or the figure itself."""
    if isinstance(thing, Axes):
        thing = thing.get_figure(root=True)
    if not isinstance(thing, Figure):
        raise ColmeError(
            f"{shorten(thing)} is no figure: it must be matplotlib Axes or a Figure. Try plot_over_time(data)."
        )
    return thing


def _frame(table: Any) -> pd.DataFrame:
    if isinstance(table, pd.DataFrame):
        return table if isinstance(table.index, pd.RangeIndex) else table.reset_index()
    if isinstance(table, xarray.DataArray):
        return table.to_dataframe(name=table.name or "value").reset_index()
    if isinstance(table, xarray.Dataset):
        return table.to_dataframe().reset_index()
    raise ColmeError(f"table={shorten(table)}: it must be a DataFrame, DataArray or Dataset. Try curves(data, 'mse').")


def _svg(figure: Figure, salt: str) -> str:
    """SVG without date, creator and document type, so that the bytes are always the same."""
    buffer = io.StringIO()
    with matplotlib.style.context([STYLE, {"svg.hashsalt": salt}], after_reset=True):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return re.sub(r"<!DOCTYPE[^>]*>\n?", "", buffer.getvalue())


def _binary(figure: Figure, ending: str) -> bytes:
    buffer = io.BytesIO()
    dates = {".pdf": {"CreationDate": None}, ".png": {"Software": None}}  # what changes, or differs between versions
    with matplotlib.style.context(STYLE, after_reset=True):
        figure.savefig(buffer, format=ending[1:], metadata=dates[ending])
    return buffer.getvalue()


UNITS = {"mm": 1 / 25.4, "cm": 1 / 2.54, "in": 1.0, "pt": 1 / 72.27}
"""Inches per unit; a point is TeX's."""
WIDTHS = (1.0, 20.0)
"""Smallest and largest width of a figure, in inches."""
ASPECT = 0.62
"""Least height of a row of plots, relative to the width of one plot: a narrow figure keeps room for its lines."""
NARROW = 2.4
"""Inches below which plots are not drawn side by side."""


def parse_width(text: str) -> float:
    """A width such as 84mm, 8.4cm, 3.3in or 240pt in inches; a number alone is in millimeters."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(mm|cm|in|pt)?\s*", text)
    inches = float(found[1]) * UNITS[found[2] or "mm"] if found else 0.0
    if not WIDTHS[0] <= inches <= WIDTHS[1]:
        raise ColmeError(f"width={text!r}: it must be a length between 1in and 20in. Try 84mm or 3.3in.")
    return inches


def fit_to_paper(
    ax_or_figure: Axes | FigureBase,
    *,
    width: float | None = None,
    font_size: float | None = None,
    font: str | None = None,
    title: bool = True,
) -> None:
    """Change a figure in place.

    width       in inches; the height changes in proportion, but not below what lines need
    font_size   in points, of labels; other texts keep their proportion to it
    font        a font family, such as "Times New Roman" or "serif"
    title       whether to keep the title
    """
    figure = figure_of(ax_or_figure)
    if not title:
        for axes in figure.axes:
            for text in (axes.title, axes._left_title, axes._right_title) if len(figure.axes) == 1 else ():  # type: ignore[attr-defined]
                text.set_text("")
    if font_size is not None:
        _scale(figure, positive(font_size, "font_size", "font_size=8", ColmeError) / STYLE_SIZE)
    if font is not None:
        _set_font(figure, font)
    if width is not None:
        _resize(figure, width)


def _resize(figure: Figure, width: float) -> None:
    """Set the width. Letters do not shrink with the figure, so a narrower one may become relatively higher, its plots
    stand below each other where they would be too narrow side by side, and long labels are wrapped."""
    old_width, old_height = figure.get_size_inches()
    rows, columns = _grid(figure)
    panel, row = old_width / columns, old_height / rows
    if columns > 1 and width / columns < NARROW:
        rows, columns = len(figure.axes), 1
        below_each_other = GridSpec(rows, 1, figure=figure)
        for number, axes in enumerate(figure.axes):
            axes.set_subplotspec(below_each_other[number])
    share = width / columns / panel
    height = row * share if share >= 1 else max(row * share, min(row, ASPECT * width / columns))
    figure.set_size_inches(width, height * rows)
    figure.draw_without_rendering()
    for axes in figure.axes:  # labels are centered on their axis, and may extend to the nearer edge of the figure
        box, whole = axes.bbox, figure.bbox
        x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        wide, high = 2 * min(x, whole.width / columns - x % (whole.width / columns)), whole.height / rows
        high = min(high, 2 * min(y, whole.height - y))
        _wrap_label(axes.yaxis.label, axes.yaxis.label.get_window_extent().height, high)
        _wrap_label(axes.xaxis.label, axes.xaxis.label.get_window_extent().width, wide)
        _wrap_label(axes.title, axes.title.get_window_extent().width, wide)
        left: Any = axes._left_title  # type: ignore[attr-defined]
        column = whole.width / columns
        _wrap_label(left, left.get_window_extent().width, 0.95 * (column - left.get_window_extent().x0 % column))


def _wrap_label(label: Text, length: float, room: float) -> None:
    """Break a label into lines that fit, between words; what stands between dollars is one word."""
    if length <= 0.95 * room:
        return
    words = re.findall(r"(?:\$[^$]*\$|\S)+", label.get_text())
    longest = max(map(len, label.get_text().split("\n"))) * 0.9 * room / length
    lines = [""]
    for word in words:
        lines = [*lines, word] if len(lines[-1]) + len(word) > longest else [*lines[:-1], f"{lines[-1]} {word}".strip()]
    label.set_text("\n".join(line for line in lines if line))


def _grid(figure: Figure) -> tuple[int, int]:
    spec = figure.axes[0].get_subplotspec() if figure.axes else None
    rows, columns = spec.get_gridspec().get_geometry() if spec is not None else (1, 1)
    return rows, columns


def _texts(figure: Figure) -> list[Any]:
    figure.draw_without_rendering()  # makes the ticks
    return [text for text in figure.findobj(Text) if isinstance(text, Text)]


def _scale(figure: Figure, factor: float) -> None:
    for text in _texts(figure):
        text.set_fontsize(text.get_fontsize() * factor)
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for which in ("major", "minor"):
                ticks = axis.get_major_ticks() if which == "major" else axis.get_minor_ticks()
                if ticks:  # also for ticks that are made later
                    axis.set_tick_params(which=which, labelsize=ticks[0].label1.get_fontsize())


def _set_font(figure: Figure, font: str) -> None:
    try:
        font_manager.findfont(font, fallback_to_default=False)
    except ValueError:
        known = sorted({entry.name for entry in font_manager.fontManager.ttflist})
        raise ColmeError(f"font={font!r} is not installed: it must be one of {shorten(', '.join(known))}.") from None
    for text in _texts(figure):
        text.set_fontfamily(font)
    for axes in figure.axes:
        _keep_tick_font(axes, font)


def _keep_tick_font(axes: Axes, font: str) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_tick_params(which="both", labelfontfamily=font)
