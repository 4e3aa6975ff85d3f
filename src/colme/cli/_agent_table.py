"""The table of agents that `colme estimate` prints: as many columns as fit into the terminal, or all of them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from colme.data.report.result import Result

SHOWN = 10
"""Agents that are printed."""
NAME_WIDTH = 60
"""Characters of an agent's name at most."""
GROUP_WIDTH = 20
"""Characters of a known group's name at most."""
OPTIONAL = (
    (("lower", "upper"), 12), (("group",), 12), (("flags",), 28), (("borrowed",), 28), (("probability",), 28),
)  # fmt: skip
"""Columns that are only shown if they fit, the most useful first, each with the characters of names that it leaves."""


def print_agents(result: Result, *, wide: bool, top: int | None = None) -> list[str]:
    """Print the agents that changed most, or the first if none changed, to stdout; returns the columns that did not
    fit.

    wide  all columns, however long the lines become
    top   print those that are most probably among the first so many, if the result has their ranks
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    columns = _columns(result, top)
    room = shutil.get_terminal_size((160, 24)).columns
    width = {name: max(map(cell_len, [name, *cells])) for name, cells in columns.items()}

    def name_room(names: Sequence[str]) -> int:
        """What the other columns leave for the agent's name."""
        return room - sum(width[name] for name in names if name != "agent") - 3 * len(names) - 1

    bounds = ("rank_lower", "rank_upper")
    asked = [((name,), 12) for name in result.answers if name not in bounds]
    shown = ["agent", "estimate"] if asked else ["agent", "n", "mean", "estimate"]
    for names, least in (*asked, (("n",), 12), (("mean",), 12), (bounds, 12), *OPTIONAL) if asked else OPTIONAL:
        if names[0] in columns and (wide or name_room([*shown, *names]) >= min(width["agent"], least)):
            shown += names
    shown, left_out = [name for name in columns if name in shown], [name for name in columns if name not in shown]
    table = Table(title=_title(result, top), box=box.SIMPLE_HEAVY, padding=(0, 1), title_justify="left")
    for name in shown:
        text = name in ("agent", "flags")
        table.add_column(name, justify="left" if text else "right", no_wrap=True, overflow="ellipsis",
                         max_width=max(name_room(shown), 8) if name == "agent" and not wide else None)  # fmt: skip
    for row in zip(*(columns[name] for name in shown), strict=True):
        table.add_row(*row)
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.measure(table, options=console.options.update(width=10_000)).maximum, 1)
    console.print(table)
    return left_out


def _title(result: Result, top: int | None) -> str | None:
    """Which agents are shown; None if all of them are."""
    from colme.data.report.sentences import any_changed

    n = len(result.agent)
    if top is not None:
        return None if top >= n else f"The {top:,} of {n:,} agents that most probably have the {top:,} largest means"
    if n <= SHOWN:
        return None
    if not any_changed(result):
        return f"The first {SHOWN} of {n:,} agents"
    return f"The {SHOWN} of {n:,} agents that changed most"


def _columns(result: Result, top: int | None) -> dict[str, list[str]]:
    """The cells of all columns that have something to show."""
    from colme.data.report.sentences import group_name, most_changed, number_format
    from colme.support.tables import safe_name

    agents = most_changed(result, SHOWN) if top is None else _first(result, top)
    style, flags = number_format(result), result.flag_names()

    def numbers(name: str, form: str) -> list[str]:
        return [_number(float(value), form) for value in getattr(result, name)[agents]]

    found: dict[str, Any] = {
        "agent": [safe_name(result.agent[a], NAME_WIDTH) for a in agents],
        "n": [f"{result.n[a]:,}" for a in agents],
        **{name: numbers(name, style) for name in ("mean", "estimate", "lower", "upper")},
    }
    if (result.group >= 0).any():
        found["group"] = [
            group_name(result, int(result.group[a]), GROUP_WIDTH) if result.group[a] >= 0 else "-" for a in agents
        ]
        found["probability"] = numbers("probability", ".2f")
    found["borrowed"] = numbers("borrowed", ".2f")
    if any(flags[a] for a in agents):
        found["flags"] = [str(flags[a]) for a in agents]
    for name, values in result.answers.items():
        form = ",.1f" if name == "rank" else ",d" if name in ("rank_lower", "rank_upper") else ".3f"
        found[name] = ["-" if values[a] != values[a] else f"{values[a]:{form}}" for a in agents]
    order = ("agent", "n", "mean", "estimate", "lower", "upper", *result.answers, "group", "probability", "borrowed",
             "flags")  # fmt: skip
    return {name: found[name] for name in order if name in found}


def _first(result: Result, top: int) -> list[int]:
    """The agents that are most probably among the first so many."""
    ranks = result.answers
    return [int(a) for a in np.lexsort((ranks["rank"], -ranks[f"top_{top}"]))[:top]]


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"
