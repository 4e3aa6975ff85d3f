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
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from colme.errors import ColmeError, one_of, shorten
from colme.lab.plots._style import STYLE
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
    numbers = csv_of(table).encode()
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


def csv_of(table: pd.DataFrame | xarray.DataArray | xarray.Dataset) -> str:
    """The numbers behind a figure as CSV."""
    return _frame(table).to_csv(index=False, lineterminator="\n")


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
