"""`save` and `as_image`: figures as files and inside pages, with the same bytes every time, and the numbers behind."""

from __future__ import annotations

import base64
import html
import io
import os
import re
import string
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import pandas as pd
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from colme.errors import ColmeError, one_of, shorten
from colme.lab.plots._style import STYLE
from colme.support import tables
from colme.support.files import write_whole

ENDINGS = (".svg", ".pdf", ".csv")
LEFT_OUT = {
    ".svg": ("Date", "Creator", "Format", "Type"), ".pdf": ("CreationDate",), ".png": ("Software",),
}  # fmt: skip
"""What a picture does not say about itself."""
PICTURES = tuple(LEFT_OUT)


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
    written = []
    for ending in ENDINGS:
        target = stem.with_name(stem.name + ending)  # not with_suffix: a name may have dots
        write_whole(target, numbers if ending == ".csv" else _picture(figure, ending, stem.name))
        written.append(target)
    return written


def write_figure(ax_or_figure: Axes | FigureBase, path: str | os.PathLike[str]) -> Path:
    """Write one file: SVG, PDF or PNG, by its ending."""
    figure, target = figure_of(ax_or_figure), Path(path)
    ending = target.suffix.lower()
    one_of(ending, PICTURES, "ending of a figure")
    write_whole(target, _picture(figure, ending, target.stem))
    return target


def csv_of(table: pd.DataFrame | xarray.DataArray | xarray.Dataset) -> bytes:
    """The numbers behind a figure as CSV."""
    return tables.csv_of(dict(_frame(table).items()))


def as_image(ax_or_figure: Axes | FigureBase, label: str) -> str:
    """The <img> element for a page, with a label for screen readers."""
    content = base64.b64encode(_picture(figure_of(ax_or_figure), ".svg", label)).decode()
    return f'<img alt="{html.escape(label)}" src="data:image/svg+xml;base64,{content}">'


def figure_html(figure: Axes | FigureBase, name: str, number: int, caption: str, label: str, more: str = "") -> str:
    """The <figure> element of a page; `more` is HTML after the caption."""
    words = f"<figcaption><b>Figure {number}.</b> {html.escape(caption)}{more}</figcaption>"
    return f'<figure id="{name}">\n{as_image(figure, label)}\n{words}\n</figure>'


def page_of(title: str, parts: Iterable[str]) -> str:
    """The page of a report, of the HTML of its parts."""
    template = string.Template(resources.files("colme.lab").joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(title=html.escape(title), body="\n".join(parts))


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
        return table
    if isinstance(table, xarray.DataArray | xarray.Dataset):
        return table.to_dataframe().reset_index()
    raise ColmeError(f"table={shorten(table)}: it must be a DataFrame, DataArray or Dataset. Try curves(data, 'mse').")


def _picture(figure: Figure, ending: str, salt: str) -> bytes:
    """A file without what changes or differs between versions, so that the bytes are always the same."""
    buffer = io.BytesIO()
    with matplotlib.style.context([STYLE, {"svg.hashsalt": salt}], after_reset=True):
        figure.savefig(buffer, format=ending[1:], metadata=dict.fromkeys(LEFT_OUT[ending]))
    return re.sub(rb"<!DOCTYPE[^>]*>\n?", b"", buffer.getvalue()) if ending == ".svg" else buffer.getvalue()


UNITS = {"mm": 1 / 25.4, "cm": 1 / 2.54, "in": 1.0, "pt": 1 / 72.27}
"""Inches per unit; a point is TeX's."""
WIDTHS = (1.0, 20.0)
"""Smallest and largest width of a figure, in inches."""


def parse_width(text: str) -> float:
    """A width such as 84mm, 8.4cm, 3.3in or 240pt in inches; a number alone is in millimeters."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(mm|cm|in|pt)?\s*", text)
    inches = float(found[1]) * UNITS[found[2] or "mm"] if found else 0.0
    if not WIDTHS[0] <= inches <= WIDTHS[1]:
        raise ColmeError(f"width={text!r}: it must be a length between 1in and 20in. Try 84mm or 3.3in.")
    return inches
