"""`write_report`: one HTML page about an experiment, with figures, tables, configuration, versions and citation.

The page is self-contained: it embeds the figures, the numbers behind them, and a run that can be played. Only the last
has a script, in a frame of its own.
"""

from __future__ import annotations

import base64
import json
import math
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import colme
from colme.data.report.sentences import enumerated
from colme.lab.experiment import Experiment
from colme.lab.figures import Drawing, Subject, draw, run_shown
from colme.lab.plots.output import csv_of, figure_html, page_of
from colme.lab.rows import case_rows, expected_rows, final_rows, time_table, with_statistic
from colme.lab.runs.runner import kept_files, with_kept_files
from colme.lab.runs.store import toml_of, versions
from colme.lab.watch import feed_of, fitting_messages
from colme.live.page import page
from colme.methods import Method
from colme.metrics import METRICS
from colme.support.files import write_text
from colme.support.tables import Row, page_table, text_of

NAMES = {"mse": "MSE", "local_mse": "local MSE"}
MOST_PLAYED = 200_000_000
"""Agents times steps of a run that is done again, at most, so that a report can play it."""
HELPS = 1.005
"""A smaller ratio of errors, which would be printed as 1.00 times, is no gain."""
SOFTWARE = """@software{{colme,
  title   = {{colme: collaborative mean estimation}},
  author  = {{{{The colme developers}}}},
  version = {{{version}}},
  year    = {{2026}},
}}"""


def write_report(subject: Subject, path: Path | None = None, *, live: bool = True) -> tuple[Path, list[Drawing]]:
    """Write the page (default: report.html in the experiment's folder); also returns the figures that it shows. `live`:
    with a run that can be played."""
    drawings, failed = draw(subject)
    target = path or subject.store.folder / "report.html"
    write_text(target, html_of(subject, drawings, failed, live=live_view(subject) if live else ""))
    return target, drawings


def html_of(subject: Subject, drawings: Sequence[Drawing], failed: dict[str, str], *, live: str = "") -> str:
    """The HTML; `live` is what `live_view` returns."""
    experiment = subject.experiment
    parts = [f"<h1>{escape(experiment.title)}</h1>"]
    if experiment.head.reference:
        parts.append(f'<p class="reference">{escape(experiment.head.reference)}</p>')
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in experiment.head.about.strip().split("\n\n") if paragraph]
    if missing := subject.data.attrs["missing"]:
        parts.append(f'<p class="warning">{missing} of {len(experiment.planned)} runs are missing. Run it again.</p>')
    for reason in json.loads(subject.data.attrs["skipped"]):
        parts.append(f'<p class="note">Skipped: {escape(reason)}</p>')
    if headline := _headline(subject):
        parts.append(f'<p class="headline">{escape(headline)}</p>')
    parts += [live] if live else []
    parts += [_figure(each, i + 1) for i, each in enumerate(drawings)]
    parts += [f'<p class="note">The figure "{name}" is left out: {escape(why)}</p>' for name, why in failed.items()]
    parts += _sections(subject)
    return page_of(experiment.title, [*parts, *_making_of(subject)])


def live_view(subject: Subject) -> str:
    """A run that can be played, in a frame of its own: the one that other pictures show."""
    shown = subject.picked
    if shown.spec.method.baseline:
        return ""
    if shown.size > MOST_PLAYED:
        return (
            f'<p class="note">No run is played: with {shown.size:,} agents times steps it takes long to run again '
            f"(at most {MOST_PLAYED:,} are). A smaller one can be: colme simulate ... --live page.html</p>"
        )
    played = page(fitting_messages(feed_of([shown])), title=subject.experiment.title, theme="light")
    caption = f"<figcaption>{escape(run_shown(subject))} Play it, or point at an agent.</figcaption>"
    frame = f'<iframe title="A run that can be played" sandbox="allow-scripts" srcdoc="{escape(played)}"></iframe>'
    return f'<figure id="live" class="live">\n{frame}\n{caption}\n</figure>'


def _headline(subject: Subject) -> str:
    """The result in one sentence: how the final error of every method compares with that of the local means, the best
    first. Over a sweep, the range."""
    if cases := case_rows(subject.data):
        return _headline_of_cases(cases)
    alone = {each.label for each in subject.experiment.planned if each.spec.method.baseline}
    rows = [row for row in final_rows(subject.data) if row["method"] not in alone and row["mse"] > 0]
    if not rows:
        return ""
    gains: dict[str, list[float]] = {}
    for row in rows:
        gains.setdefault(row["method"], []).append(row["local_mse"] / row["mse"])
    ranked = sorted(gains, key=lambda name: -max(gains[name]))
    steps = {row["t"] for row in rows}
    when = f"at t = {max(steps):,}" if len(steps) == 1 else "at the last step"
    if max(gains[ranked[0]]) < HELPS:
        return (
            f"Collaboration does not help here: {when} no method has a mean squared error that is more than 0.5 % "
            "smaller than that of the agents' local means."
        )
    said = [f"{_span(gains[name])} with {name}" for name in ranked]
    start = f"A{when[1:]} the mean squared error, compared with that of the agents' local means, is"
    return f"{start} {enumerated(said)}{_over(rows)}."


def _span(gains: list[float]) -> str:
    low, high = min(gains), max(gains)
    if low < 1 <= high:
        return f"between {_factor(low)} and {_factor(high)}"
    smaller, larger = _factor(high), _factor(low)
    if smaller == larger:
        return smaller
    return f"{_round(low)} to {smaller}" if low >= 1 else f"{_round(1 / high)} to {larger}"


def _over(rows: list[Row]) -> str:
    """The parameters that are swept, in words."""
    keys = list(rows[0])[1 : list(rows[0]).index("seeds")]
    varied = {key: {str(row[key]) for row in rows if row[key] is not None} for key in keys}
    words = [f"{len(values)} values of {key.replace('_', ' ')}" for key, values in varied.items() if len(values) > 1]
    return f", over {' and '.join(words)}" if words else ""


def _factor(gain: float) -> str:
    return f"{_round(gain)} times smaller" if gain >= 1 else f"{_round(1 / gain)} times larger"


def _headline_of_cases(rows: list[Row]) -> str:
    """How much collaboration can hurt: the largest relative error of every method that collaborates, over all cases and
    steps."""
    worst: dict[str, float] = {}
    for row in rows:
        if row["numbers"] > 0:
            worst[row["method"]] = max(worst.get(row["method"], 0.0), row["worst / local"])
    start = "The largest mean squared error in any case at any step, relative to that of the local means"
    words = [f"{_round(worst[method])} for {method}" for method in sorted(worst, key=worst.__getitem__)]
    return f"{start}: {', '.join(words)}." if words else ""


def _round(number: float) -> str:
    """Two significant digits, in words for millions."""
    if number < 100:
        return f"{number:.2f}" if number < 2 else f"{number:.2g}"
    digits = 10 ** (math.floor(math.log10(number)) - 1)
    return f"{number / 1e6:.2g} million" if number >= 1e6 else f"{round(number / digits) * digits:,}"


def _figure(each: Drawing, number: int) -> str:
    rows = csv_of(each.table)
    link = f" (Numbers: figures/{each.name}.csv)"
    if len(rows) < 1_000_000:
        data = base64.b64encode(rows).decode()
        link = f' <a class="download" download="{each.name}.csv" href="data:text/csv;base64,{data}">numbers (CSV)</a>'
    return figure_html(each.figure, each.name, number, each.caption, f"{each.name}: {each.caption}", link)


def _sections(subject: Subject) -> list[str]:
    parts = []
    expected = expected_rows(subject.data, subject.experiment.head.expected)
    if expected:
        parts.append("<h2>Measured beside expected</h2>")
        note = (
            "Measured: the median or the mean over the seeds, whichever the expected number is; quartiles over the "
            "seeds; ratio: measured / expected. Expected numbers come from theory, from an independent computation or "
            "from a paper (published), as the source says."
        )
        parts.append(table_html([_with_range(row) for row in expected], note, words=("quantity", "source")))
    if cases := case_rows(subject.data):
        parts.append("<h2>Every method in every case</h2>")
        note = (
            "Means over the seeds. Worst: the largest error relative to that of the local means, over all recorded "
            "steps from the third on. Coverage: that of the 90 % intervals, smallest and largest from step 10 on. "
            "Numbers: how many are sent to each neighbor per step."
        )
        parts.append(table_html(cases, note))
    parts.append("<h2>Final errors</h2>")
    ended = [{key: row[key] for key in row if key not in ("seconds", "time_ratio")} for row in final_rows(subject.data)]
    columns = "; ".join(
        f"{NAMES.get(name, name.replace('_', ' '))}: {METRICS[name].words}" for name in ended[0] if name in METRICS
    )
    parts.append(table_html(ended, f"Medians over the seeds at the last step, t. {columns}."))
    times = time_table(subject.data)
    if times["ratio"].notna().any() and len(times) > 1:
        parts.append(f"<h2>Times relative to {escape(times.attrs['reference'])}</h2>")
        note = (
            "CPU seconds per run (median over the seeds), without compilation; median and quartiles of the ratio for "
            "the same seed (per agent and step where sizes differ)."
        )
        rows = times.drop(columns=["method", "low", "high"]).rename(columns={"line": "method", "median": "seconds"})
        parts.append(table_html(rows.to_dict("records"), note))
    return parts


def _with_range(row: Row) -> Row:
    """With the quartiles in one column."""
    told = {"low": ("quartiles", f"{text_of(row['low'])} .. {text_of(row['high'])}")}
    return dict(told.get(key, (key, value)) for key, value in with_statistic(row).items() if key != "high")


def _making_of(subject: Subject) -> list[str]:
    experiment, store = subject.experiment, subject.store
    found = list(filter(None, map(store.read_json, dict.fromkeys(each.name for each in experiment.planned))))
    seen, done = found[0]["versions"], len(found)
    file, folder = f"{experiment.name}.toml", f"results/{experiment.name}"
    rows = [{"package": name, "runs": seen.get(name, "-"), "this page": now} for name, now in versions().items()]
    return [
        "<h2>Reproduce it</h2>",
        f"<p>Save the file below as {escape(file)}{escape(_copies(experiment, folder))}, then run:</p>",
        f"<pre>colme run {escape(shlex.quote(file))}\ncolme report {escape(shlex.quote(folder))}</pre>",
        f"<details><summary>{escape(file)}</summary>\n<pre>{escape(toml_of(with_kept_files(experiment)))}</pre></details>",
        "<h2>Versions</h2>",
        table_html(rows, "The versions that made the runs, and those that made this page."),
        "<h2>How to cite</h2>",
        f"<pre>{escape(bibliography(experiment.methods))}</pre>",
        f"<footer>{done} {'run' if done == 1 else 'runs'}. Made with colme {escape(versions()['colme'])}.</footer>",
    ]


def _copies(experiment: Experiment, folder: str) -> str:
    """What to copy beside the file: the results keep the files to which it refers, in folders."""
    names: dict[str, list[str]] = {}
    for copy in map(Path, kept_files(experiment).values()):
        names.setdefault(f"{folder}/{copy.parent}", []).append(copy.name)
    held = [f"{place} (it holds {', '.join(files)})" for place, files in names.items()]
    return f", copy the folder{'s' * (len(held) > 1)} {' and '.join(held)} beside it" if held else ""


def table_html(rows: Sequence[Row], caption: str = "", words: tuple[str, ...] = ()) -> str:
    """A table of rows under a caption; the columns of `words` are broken into lines."""
    note = f'<p class="note">{escape(caption)}</p>\n' if caption and rows else ""
    return note + page_table(
        rows, words, names=NAMES, meanings={name: metric.words for name, metric in METRICS.items()}
    )


def bibliography(methods: Iterable[Method]) -> str:
    """BibTeX of the software and of the papers whose methods were used."""
    used = dict.fromkeys(citation for method in methods for citation in method.citations)
    return "\n\n".join([SOFTWARE.format(version=colme.__version__), *used])
