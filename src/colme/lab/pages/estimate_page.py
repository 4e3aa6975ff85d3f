"""One page about a table: the finding in words, the figure, the candidates, the diagnosis, every agent.

The page needs nothing but itself. Its only script sorts and searches the table of agents.
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
from numpy.typing import NDArray

from colme._core.files import write_text
from colme.data.report.result import Result, Summary
from colme.data.report.sentences import decimals, headline, most_changed, said, sentences
from colme.lab.pages.experiment_page import table_html
from colme.lab.provenance import versions

MOST = 2000
"""Agents in the table."""
COLUMNS = ("agent", "samples", "mean", "estimate", "lower", "upper", "group", "probability", "borrowed", "flags")


def write_estimate_page(
    result: Result, path: str | os.PathLike[str], *, title: str = "", command: str = ""
) -> Path:  # fmt: skip
    """Write the page. `command`: what was typed, for whoever wants to do it again."""
    target = Path(path)
    write_text(target, estimate_page(result, title=title, command=command))
    return target


def estimate_page(result: Result, *, title: str = "", command: str = "") -> str:
    """The HTML."""
    from colme.lab import plots

    names = result.names
    agent = " and ".join(map(str, names.agent)) if isinstance(names.agent, tuple) else names.agent
    title = title or f"{names.value} by {agent}"
    caption = _caption(result)
    picture = plots.as_svg(plots.plot_estimates(result), caption)
    parts = [
        f"<h1>{escape(str(title))}</h1>",
        f'<p class="headline">{escape(headline(result))}</p>',
        f'<figure id="estimates">\n{picture}\n<figcaption><b>Figure 1.</b> {escape(caption)}</figcaption>\n</figure>',
        "<h2>What was found</h2>",
        _definitions(sentences(result)),
        *_candidates(result),
        *_notes(result),
        "<h2>Every agent</h2>" if len(result.agent) <= MOST else "<h2>Agents</h2>",
        *_agents(result),
        *(["<h2>Do it again</h2>", f"<pre>{escape(command)}</pre>"] if command else []),
        f"<footer>Made with colme {escape(versions()['colme'])}.</footer>",
    ]
    page = string.Template(resources.files("colme.lab.pages").joinpath("report.html").read_text(encoding="utf-8"))
    return page.substitute(title=escape(str(title)), body="\n".join(parts))


def _caption(result: Result) -> str:
    from colme.lab.plots.estimates import LISTED

    many = len(result.agent) > LISTED
    how = "Arrows go from an agent's own mean" + (", on the dotted line," if many else "")
    color = " Colors are groups." if result.group.max(initial=-1) > 0 else ""
    return f"{how} to its estimate; bars are {100 * result.summary.level:g} % intervals.{color}"


def _definitions(found: dict[str, str]) -> str:
    rows = [f"<dt>{escape(topic)}</dt><dd>{escape(words)}</dd>" for topic, words in found.items()]
    return '<dl class="found">\n' + "\n".join(rows) + "\n</dl>"


def _candidates(result: Result) -> list[str]:
    summary = result.summary
    if not summary.candidates:
        return []
    ranked = sorted(summary.candidates, key=lambda each: each.ratio)
    rows = [
        {"method": each.name, "error / local": each.ratio, "standard error": each.se, "": _chosen(each.name, summary)}
        for each in ranked
    ]
    note = "Cross-validated squared error relative to that of local means: below 1, collaboration helps."
    return ["<h2>Candidates</h2>", table_html(rows, note)]


def _chosen(name: str, summary: Summary) -> str:
    """A candidate's name may say whose variances it believes."""
    return "chosen" if name in (summary.method, f"{summary.method} ({summary.variance} variance)") else ""


def _notes(result: Result) -> list[str]:
    notes = [f"<li>{escape(said(each))}</li>" for each in result.summary.notes]
    return ["<h2>Notes on the table</h2>", "<ul>", *notes, "</ul>"] if notes else []


def _agents(result: Result) -> list[str]:
    shown, parts = chosen_agents(result), []
    if len(shown) < len(result.agent):
        parts.append(
            f'<p class="note">{len(shown):,} of {len(result.agent):,}: those with rare flags, then those whose '
            "estimates differ most from their own means. All of them: colme estimate ... -o agents.csv</p>"
        )
    digits = decimals(result)
    words = result.flag_words()
    head = "".join(f'<th{_number(name)} scope="col">{name}</th>' for name in COLUMNS)
    rows = [_row(result, int(a), str(words[a]), digits) for a in shown]
    body = "\n".join(rows)
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody id="rows">\n{body}\n</tbody></table></div>'
    fragment = string.Template(resources.files("colme.lab.pages").joinpath("agents.html").read_text(encoding="utf-8"))
    return [*parts, fragment.substitute(table=table)]


def chosen_agents(result: Result) -> NDArray[np.int64]:
    """All agents in their order; of more than MOST, those with rare flags and those that changed most."""
    if len(result.agent) <= MOST:
        return np.arange(len(result.agent))
    counts = np.bincount(result.flags, minlength=256)
    rare = np.flatnonzero((result.flags > 0) & (counts[result.flags] <= MOST // 8))[: MOST // 2]
    rest = [a for a in most_changed(result, MOST) if a not in set(rare.tolist())]
    return np.array([*rare.tolist(), *rest][:MOST], np.int64)


def _row(result: Result, a: int, flags: str, digits: int) -> str:
    from colme.lab.plots.estimates import color_of

    def number(value: float, places: int) -> str:
        known = math.isfinite(value)
        text = f"{value:,.{places}f}" if known else "-"
        return f'<td class="number" data-v="{value if known else ""}">{text}</td>'

    group = int(result.group[a])
    dot = f'<span class="dot" style="background:{color_of(group)}"></span>{group}' if group >= 0 else "-"
    cells: list[Any] = [
        f"<td>{escape(str(result.agent[a]))}</td>",
        number(float(result.n[a]), 0),
        *(number(float(getattr(result, name)[a]), digits) for name in ("mean", "estimate", "lower", "upper")),
        f'<td data-v="{group}">{dot}</td>',
        number(float(result.probability[a]) if group >= 0 else math.nan, 2),
        number(float(result.borrowed[a]), 2),
        f'<td class="words">{escape(flags)}</td>',
    ]
    return "<tr>" + "".join(cells) + "</tr>"


def _number(name: str) -> str:
    return "" if name in ("agent", "group", "flags") else ' class="number"'
