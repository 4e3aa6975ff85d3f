"""`write_estimate_page`: one HTML page about an estimate: findings, figure, candidates, notes, and a table of agents.

The page is self-contained. Its only script sorts and searches the table of agents.
"""

from __future__ import annotations

import math
import os
import string
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from colme.data.report.output import ANSWERS
from colme.data.report.result import Result
from colme.data.report.sentences import (
    any_changed,
    as_sentence,
    group_name,
    headline,
    most_changed,
    number_format,
    sentences,
)
from colme.lab.runs.store import versions
from colme.support.arrays import Integers
from colme.support.files import write_text
from colme.support.tables import safe_name

MOST = 2000
"""Agents in the table, at most."""
COLUMNS = ("agent", "samples", "mean", "estimate", "lower", "upper", "group", "probability", "borrowed", "flags")
WORDS = ("agent", "group", "flags")
"""The columns that hold no numbers."""


def write_estimate_page(
    result: Result, path: str | os.PathLike[str], *, title: str = "", command: str = ""
) -> Path:  # fmt: skip
    """Write the page. `command`: the command line that made it, shown under "Do it again"."""
    target = Path(path)
    write_text(target, estimate_page(result, title=title, command=command))
    return target


def estimate_page(result: Result, *, title: str = "", command: str = "") -> str:
    """The page as HTML."""
    from colme.lab.plots.estimates import estimates_caption, plot_estimates
    from colme.lab.plots.output import figure_html, page_of

    names = result.names
    agent = " and ".join(map(str, names.agent)) if isinstance(names.agent, tuple) else names.agent
    title = title or safe_name(f"{names.value} by {agent}", 200)
    caption = estimates_caption(result)
    notes = [f"<li>{escape(as_sentence(each))}</li>" for each in result.summary.notes]
    parts = [
        f"<h1>{escape(str(title))}</h1>",
        f'<p class="headline">{escape(headline(result))}</p>',
        figure_html(plot_estimates(result), "estimates", 1, caption, caption),
        "<h2>Findings</h2>",
        '<dl class="found">',
        *(f"<dt>{escape(topic)}</dt><dd>{escape(words)}</dd>" for topic, words in sentences(result).items()),
        "</dl>",
        *_candidates(result),
        *(["<h2>Notes on the table</h2>", "<ul>", *notes, "</ul>"] if notes else []),
        "<h2>Agents</h2>",
        *_agents(result),
        *(["<h2>Do it again</h2>", f"<pre>{escape(command)}</pre>"] if command else []),
        f"<footer>Made with colme {escape(versions()['colme'])}.</footer>",
    ]
    return page_of(str(title), parts)


def _candidates(result: Result) -> list[str]:
    summary = result.summary
    if not summary.candidates:
        return []
    ranked = sorted(summary.candidates, key=lambda each: each.ratio)
    chosen = (summary.method, f"{summary.method} ({summary.variance} variance)")  # local has no kind of variance
    rows = [
        f"<tr><td>{escape(each.name)}</td>{_cell(each.ratio, ',.3f')}{_cell(each.se, ',.3f')}"
        f"<td>{'chosen' if each.name in chosen else ''}</td></tr>"
        for each in ranked
    ]
    head = '<th>method</th><th class="number">relative error</th><th class="number">standard error</th><th></th>'
    body = "\n".join(rows)
    return [
        "<h2>Candidates</h2>",
        '<p class="note">Cross-validated squared error relative to that of the local means: below 1, a method did '
        "better than they.</p>",
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>',
    ]


def _agents(result: Result) -> list[str]:
    shown, parts = chosen_agents(result), []
    if len(shown) < len(result.agent):
        rest = "those whose estimates differ most from their own means" if any_changed(result) else "the first others"
        first = "those with the highest ranks, " if "rank" in result.answers else ""
        parts.append(
            f'<p class="note">{len(shown):,} of {len(result.agent):,} agents: {first}those with rare flags, '
            f"then {rest}. To get all of them, write a file: colme estimate ... -o agents.csv</p>"
        )
    form, flags = number_format(result), result.flag_names()
    head = "".join(
        f'<th scope="col">{name}</th>' if name in WORDS else f'<th class="number" scope="col">{name}</th>'
        for name in (*COLUMNS, *map(escape, result.answers))
    )
    rows = [_row(result, int(a), str(flags[a]), form) for a in shown]
    body = "\n".join(rows)
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody id="rows">\n{body}\n</tbody></table></div>'
    fragment = string.Template(resources.files("colme.lab").joinpath("agents.html").read_text(encoding="utf-8"))
    return [*parts, fragment.substitute(table=table)]


def chosen_agents(result: Result) -> Integers:
    """All agents in order; if there are more than `MOST`, those with the highest ranks, if these were asked for, those
    with rare flags and those that changed most."""
    if len(result.agent) <= MOST:
        return np.arange(len(result.agent))
    counts = np.bincount(result.flags, minlength=256)
    rare = np.flatnonzero((result.flags > 0) & (counts[result.flags] <= MOST // 8))[: MOST // 2]
    ranks = result.answers.get("rank", np.empty(0))
    agents = [*np.argsort(ranks)[: MOST // 4].tolist(), *rare.tolist(), *most_changed(result, MOST)]
    return np.array(list(dict.fromkeys(agents))[:MOST], np.int64)


def _row(result: Result, a: int, flags: str, form: str) -> str:
    from colme.lab.plots.estimates import color_of

    group, name = int(result.group[a]), escape(safe_name(result.agent[a], 300))
    dot = "-"
    if group >= 0:
        dot = f'<span class="dot" style="background:{color_of(group)}"></span>{escape(group_name(result, group))}'
    cells: list[Any] = [
        f'<td class="name" title="{name}"><bdi>{name}</bdi></td>',
        _cell(float(result.n[a]), ",.0f"),
        *(_cell(float(getattr(result, each)[a]), form) for each in ("mean", "estimate", "lower", "upper")),
        f'<td data-v="{group}">{dot}</td>',
        _cell(float(result.probability[a]) if group >= 0 else math.nan, ".2f"),
        _cell(float(result.borrowed[a]), ".2f"),
        f'<td class="words">{escape(flags)}</td>',
        *(_cell(float(values[a]), ANSWERS.get(name, ".3f")) for name, values in result.answers.items()),
    ]
    return "<tr>" + "".join(cells) + "</tr>"


def _cell(value: float, form: str) -> str:
    known = math.isfinite(value)
    text = f"{value:{form}}" if known else "-"
    return f'<td class="number" data-v="{value if known else ""}">{text}</td>'
