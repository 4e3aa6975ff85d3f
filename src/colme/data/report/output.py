"""A result as rows of a table, as HTML, and as a file: Parquet, CSV or JSON, written completely or not at all."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from colme.data.report.result import Result
from colme.data.report.sentences import any_changed, group_name, headline, most_changed, number_format, sentences
from colme.errors import DataError
from colme.support import tables
from colme.support.files import check_writable, write_whole

ENDINGS = (".parquet", ".csv", ".json")
LISTED = 10
"""Agents in a small table."""
NAME_WIDTH, GROUP_WIDTH = 60, 20
"""Characters of the names of agents and of known groups in the rows of a table, at most."""
ANSWERS = {"rank": ",.1f", "rank_lower": ",.0f", "rank_upper": ",.0f"}
"""The formats of answers that are no probabilities."""
N_FINDINGS = 3
FINDINGS = ("Table", "Faulty-looking", "Drift", "n_half", "Autocorrelation", "Covariates", "Counts", "Method")
"""Topics of sentences in HTML, in the order in which they are chosen."""


def check_ending(path: Path, endings: tuple[str, ...] = ENDINGS) -> None:
    """Refuse a file that could not be written, before the work begins."""
    if path.suffix.lower() not in endings:
        raise DataError(f"{path.name} has an unknown ending: it must be one of {' '.join(endings)}. Rename it.")
    check_writable(path)


def save_result(result: Result, path: str | os.PathLike[str], *, escape_formulas: bool = False) -> Path:
    """Write all agents to a Parquet, CSV or JSON file, by its ending. Parquet and JSON also hold the summary.

    escape_formulas  in CSV, for spreadsheets: see `colme.support.tables.csv_of`"""
    target = Path(path)
    check_ending(target)
    ending = target.suffix.lower()
    if ending == ".csv":
        content = tables.csv_of(result.to_columns(), escape_formulas=escape_formulas)
    else:
        content = json_of(result) if ending == ".json" else parquet_of(result)
    write_whole(target, content)
    return target


def json_of(result: Result) -> bytes:
    """{"summary": ..., "agents": [...]}; NaN and infinity, which JSON does not have, are null."""
    columns = {name: values.tolist() for name, values in result.to_columns().items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return tables.json_of({"summary": msgspec.to_builtins(result.summary), "agents": rows})


def parquet_of(result: Result) -> bytes:
    """One row per agent, and the summary as JSON under the key "colme" of the metadata."""
    return tables.parquet_of(result.to_columns(), msgspec.to_builtins(result.summary))


def agent_rows(result: Result, agents: Sequence[int]) -> list[tables.Row]:
    """These agents as texts, with the columns that have something to show."""
    style, flags = number_format(result), result.flag_names()
    grouped, flagged = bool((result.group >= 0).any()), any(flags[a] for a in agents)

    def text(value: float, form: str) -> str:
        return "-" if math.isnan(value) else f"{value:{form}}"

    rows = []
    for a in agents:
        row = {"agent": tables.safe_name(result.agent[a], NAME_WIDTH), "n": f"{result.n[a]:,}"}
        row |= {name: text(getattr(result, name)[a], style) for name in ("mean", "estimate", "lower", "upper")}
        row |= {name: text(values[a], ANSWERS.get(name, ".3f")) for name, values in result.answers.items()}
        if grouped:
            row["group"] = group_name(result, int(result.group[a]), GROUP_WIDTH) if result.group[a] >= 0 else "-"
            row["probability"] = text(result.probability[a], ".2f")
        rows.append(row | {"borrowed": text(result.borrowed[a], ".2f")} | ({"flags": flags[a]} if flagged else {}))
    return rows


def result_html(result: Result) -> str:
    """The headline, what else was found, and the agents whose estimates differ most from their own means."""
    found, rows = sentences(result), agent_rows(result, most_changed(result, LISTED))
    n_agents, note = len(result.agent), ""
    if n_agents > len(rows):
        which = ", those whose estimates differ most from their own means" if any_changed(result) else ""
        note = f"{len(rows)} of {n_agents:,} agents{which}; to_frame() returns all."
    findings = [found[topic] for topic in FINDINGS if topic in found][:N_FINDINGS]
    table = tables.html_table(rows, words=("agent", "group", "flags"))
    return tables.html_fragment(headline(result), findings, table, note)
