"""`result_html`: a result in a notebook or a mail."""

from __future__ import annotations

from colme.data.report.result import Result
from colme.data.report.sentences import any_changed, group_name, headline, most_changed, number_format, sentences
from colme.support.tables import html_fragment, html_table, interval, number

LISTED = 10
"""Agents in the table."""
N_FINDINGS = 3
FINDINGS = ("Table", "Faulty-looking", "Drift", "n_half", "Autocorrelation", "Covariates", "Counts", "Method")
"""Topics of sentences, in the order in which they are chosen."""


def result_html(result: Result) -> str:
    """The headline, what else was found, and the agents whose estimates differ most from their own means."""
    found, style = sentences(result), number_format(result)
    level = f"{100 * result.summary.level:.3g}% interval"
    rows = [
        {
            "agent": str(result.agent[a]), "n": number(int(result.n[a])), "mean": number(float(result.mean[a]), style),
            "estimate": number(float(result.estimate[a]), style),
            level: interval(float(result.lower[a]), float(result.upper[a]), style),
            "group": group_name(result, int(result.group[a])) if result.group[a] >= 0 else "",
        }
        for a in most_changed(result, LISTED)
    ]  # fmt: skip
    n_agents, note = len(result.agent), ""
    if n_agents > len(rows):
        which = ", those whose estimates differ most from their own means" if any_changed(result) else ""
        note = f"{len(rows)} of {n_agents:,} agents{which}; to_frame() returns all."
    findings = [found[topic] for topic in FINDINGS if topic in found][:N_FINDINGS]
    return html_fragment(headline(result), findings, html_table(rows, words=("agent", "group")), note)
