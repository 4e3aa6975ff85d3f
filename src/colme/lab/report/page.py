"""One page about an experiment: figures, measured beside published, configuration, versions, how to cite.

The page needs nothing but itself: figures are inside it, so are the numbers behind them, and there are no scripts.
"""

from __future__ import annotations

import base64
import math
import string
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from colme._core.files import write_text
from colme.lab.experiments.experiment import Experiment
from colme.lab.experiments.planning import REFERENCE
from colme.lab.lines import describe
from colme.lab.plots.figures import Drawing, Subject, draw, subject_of
from colme.lab.provenance import bibliography, versions
from colme.lab.runs.store import Store, toml_of
from colme.lab.tables import case_rows, final_rows, published_rows, time_table
from colme.lab.text import Row, text_of
from colme.lab.timing_runs import ratio_rows

NAMES = {"mse": "MSE", "t": "t", "local_mse": "local MSE", "time_ratio": f"time / {REFERENCE}'s",
         "ns_per_agent_step": "ns per agent and step"}  # fmt: skip


def write_report(experiment: Experiment, store: Store, path: Path | None = None) -> tuple[Path, list[Drawing]]:
    """Write the page (default: report.html in the experiment's folder); also returns the figures that it shows."""
    subject = subject_of(experiment, store)
    drawings, failed = draw(subject)
    target = path or store.folder / "report.html"
    write_text(target, html_of(subject, drawings, failed))
    return target, drawings


def html_of(subject: Subject, drawings: Sequence[Drawing], failed: dict[str, str]) -> str:
    """The HTML."""
    experiment = subject.experiment
    parts = [f"<h1>{escape(experiment.title)}</h1>"]
    if experiment.head.reference:
        parts.append(f'<p class="reference">{escape(experiment.head.reference)}</p>')
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in experiment.head.about.strip().split("\n\n") if paragraph]
    missing = int(subject.data.attrs.get("missing", 0))
    if missing:
        parts.append(f'<p class="warning">{missing} of {len(experiment.planned)} runs are missing: run it again.</p>')
    if headline := _headline(subject):
        parts.append(f'<p class="headline">{escape(headline)}</p>')
    parts += [_figure(each, i + 1) for i, each in enumerate(drawings)]
    parts += [f'<p class="note">The figure "{name}" is left out: {escape(why)}</p>' for name, why in failed.items()]
    parts += _timing_section(subject) if experiment.head.timing is not None else _sections(subject)
    parts += _making_of(subject)
    template = string.Template(resources.files("colme.lab.report").joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(experiment.title), body="\n".join(parts))


def _headline(subject: Subject) -> str:
    """The result in one sentence: how much better than alone the best collaborating method ended."""
    if subject.experiment.head.timing is not None:
        return _timing_headline(subject)
    if cases := case_rows(subject.data):
        return _headline_of_cases(cases)
    rows = [row for row in final_rows(subject.data) if row["method"] not in ("local", "oracle") and row["mse"] > 0]
    if not rows:
        return ""
    ranked = sorted(rows, key=lambda row: row["mse"] / row["local_mse"])
    ours = [row for row in ranked if row["method"] == REFERENCE and row["mse"] < row["local_mse"]]
    best = (ours or ranked)[0]
    gain = best["local_mse"] / best["mse"]
    swept = list(best)[1 : list(best).index("seeds")]
    words = ", ".join(describe(key, best[key]) for key in swept if best[key] is not None)
    name = best["method"] + (f" ({words})" if words else "")
    if not gain > 1:
        return f"At t = {best['t']:,} no method is better than every agent alone."
    every = [each.setting.scenario for each in subject.experiment.planned]
    steady = all(each.skip_rate == 0 and each.late_share == 0 and each.shift_step is None for each in every)
    samples = f": as if each had seen {_round(gain * best['t'])} samples instead of {best['t']:,}" if steady else ""
    return (
        f"At t = {best['t']:,} the mean squared error of {name} is {_round(gain)} times smaller than that of agents "
        f"who learn alone{samples}."
    )


def _headline_of_cases(rows: list[Row]) -> str:
    """How bad collaboration can be: the worst of every method that collaborates, over all cases and steps."""
    worst: dict[str, float] = {}
    for row in rows:
        if row["numbers"] > 0:
            worst[row["method"]] = max(worst.get(row["method"], 0.0), row["worst / local"])
    words = ", ".join(
        f"{_round(value)} for {method}" for method, value in sorted(worst.items(), key=lambda one: one[1])
    )
    return f"The largest error in any case at any step, relative to agents who learn alone: {words}." if words else ""


def _round(number: float) -> str:
    """Two digits that matter, as people say them."""
    if number < 100:
        return f"{number:.2f}" if number < 2 else f"{number:.2g}"
    digits = 10 ** (math.floor(math.log10(number)) - 1)
    return f"{number / 1e6:.2g} million" if number >= 1e6 else f"{round(number / digits) * digits:,}"


def _timing_headline(subject: Subject) -> str:
    rows = [row for row in ratio_rows(subject.experiment, subject.store) if row["part"] == "end to end"]
    words = [
        f"{row['method']} takes {row['ratio']:.2f} times as long as {REFERENCE} ({row['agents']:,} agents)"
        for row in rows
        if row["method"] != REFERENCE and row["agents"] == min(each["agents"] for each in rows)
    ]
    return "Over whole runs, " + "; ".join(words) + "." if words else ""


def _figure(each: Drawing, number: int) -> str:
    from colme.lab import plots

    svg = plots.as_svg(each.figure, f"{each.name}: {each.caption}")
    rows = plots.csv_of(each.table).encode()
    link = f" (Numbers: figures/{each.name}.csv)"
    if len(rows) < 2_000_000:
        data = base64.b64encode(rows).decode()
        link = f' <a class="download" download="{each.name}.csv" href="data:text/csv;base64,{data}">numbers (CSV)</a>'
    caption = f"<figcaption><b>Figure {number}.</b> {escape(each.caption)}{link}</figcaption>"
    return f'<figure id="{each.name}">\n{svg}\n{caption}\n</figure>'


def _sections(subject: Subject) -> list[str]:
    parts = []
    published = published_rows(subject.data, subject.experiment.head.published)
    if published:
        parts.append("<h2>Measured beside published</h2>")
        note = (
            "Median and quartiles over the seeds; ratio: measured / published. Where a paper has only curves, the "
            "number is from theory or from an independent computation, as the source says."
        )
        parts.append(table_html([_with_range(row) for row in published], note, words=("source",)))
    if cases := case_rows(subject.data):
        parts.append("<h2>Every method in every case</h2>")
        note = (
            "Means over the seeds. Worst: the largest error relative to agents who learn alone, over all recorded "
            "steps. Coverage: of the 90 % intervals, smallest and largest from step 10 on. Numbers: sent to each "
            "neighbor per step."
        )
        parts.append(table_html(cases, note))
    parts.append("<h2>How the methods ended</h2>")
    ended = [{key: row[key] for key in row if key not in ("seconds", "time_ratio")} for row in final_rows(subject.data)]
    parts.append(table_html(ended, "Medians over the seeds at the last step."))
    times = time_table(subject.data)
    if times["ratio"].notna().any() and times["method"].nunique() > 1:
        parts.append(f"<h2>How long each method took, {REFERENCE} being 1</h2>")
        note = (
            "CPU time, compilation excluded, paired by seed: median and quartiles of the ratio (per agent and step "
            "where sizes differ)."
        )
        rows = times.drop(columns=["method", "low", "high"]).rename(columns={"line": "method", "median": "seconds"})
        parts.append(table_html(rows.to_dict("records"), note))
    return parts


def _with_range(row: Row) -> Row:
    return {
        "method": row["method"], "quantity": row["quantity"], "measured": row["measured"],
        "quartiles": f"{text_of(row['low'])} .. {text_of(row['high'])}", "published": row["published"],
        "ratio": row["ratio"], "source": row["source"],
    }  # fmt: skip


def _timing_section(subject: Subject) -> list[str]:
    note = "Ratio: over whole runs. Median and quartiles: of the ratios of single turns."
    return [
        f"<h2>Times, {REFERENCE} being 1</h2>",
        table_html(ratio_rows(subject.experiment, subject.store), note),
    ]


def _making_of(subject: Subject) -> list[str]:
    experiment, store = subject.experiment, subject.store
    seen: dict[str, Any] = {}
    for each in experiment.planned:
        head = store.read_json(each.name)
        if head is not None:
            seen = head["versions"]
            break
    shown = {key: value for key, value in experiment.table.items() if key != "published"}  # the table above has them
    rows = [{"package": name, "runs": seen.get(name, "-"), "this page": now} for name, now in versions().items()]
    return [
        "<h2>Do it again</h2>",
        f"<pre>colme run {escape(experiment.name)}.toml\ncolme report results/{escape(experiment.name)}</pre>",
        f"<p>with {escape(experiment.name)}.toml:</p>",
        f"<pre>{escape(toml_of(shown))}</pre>",
        "<h2>Versions</h2>",
        table_html(rows, "What the runs were made with, and this page."),
        "<h2>How to cite</h2>",
        f"<pre>{escape(bibliography(experiment.methods))}</pre>",
        f"<footer>{len(experiment.planned)} runs. Made with colme {escape(versions()['colme'])}.</footer>",
    ]


def table_html(rows: Sequence[Row], caption: str = "", words: tuple[str, ...] = ()) -> str:
    """A table of rows; columns of numbers are set to the right."""
    if not rows:
        return ""
    names = list(rows[0])
    numeric = {name for name in names if any(isinstance(row[name], int | float) for row in rows)}

    def cell(tag: str, name: str, text: str) -> str:
        kind = "number" if name in numeric else "words" if name in words and tag == "td" else ""
        return f'<{tag} class="{kind}">{escape(text)}</{tag}>' if kind else f"<{tag}>{escape(text)}</{tag}>"

    head = "".join(cell("th", name, NAMES.get(name, name.replace("_", " "))) for name in names)
    body = "\n".join("<tr>" + "".join(cell("td", name, text_of(row[name])) for name in names) + "</tr>" for row in rows)
    note = f'<p class="note">{escape(caption)}</p>\n' if caption else ""
    return f'{note}<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
