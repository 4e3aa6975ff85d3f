"""A table of samples, read from anywhere: rows in any order become each agent's samples in order of time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.errors import ColumnError, shorten

MEMORY = 1 << 30
"""Bytes of rows that are kept in memory; more go to a temporary file."""
NAMED = 5
"""Agents that a note names."""

Progress = Callable[[int, int | None], object]
"""Called with the rows done and their number as far as it is known."""


class Names(NamedTuple):
    """The names of the columns."""

    agent: str | tuple[str, ...]
    value: str
    time: str | None = None
    weight: str | None = None
    label: str | None = None
    covariates: tuple[str, ...] = ()


class Table(NamedTuple):
    """Samples agent by agent; within an agent in order of time, or of the rows if no time was given.

    labels      whose they are, one per agent, in order of first appearance
    start       samples of agent a are value[start[a]:start[a + 1]]
    value       finite; may be a memmap
    time        seconds since the first row's, or plain numbers; None if no time was given
    weight      a sample of weight w counts as w samples; None: each is one
    label       known group of each agent, -1 if not known; None if not given
    covariates  (n_agents, n_covariates): each agent's means
    notes       what reading did, a sentence each
    """

    labels: NDArray[Any]
    start: NDArray[np.int64]
    value: NDArray[np.float64]
    time: NDArray[np.float64] | None
    weight: NDArray[np.float64] | None
    label: NDArray[np.int64] | None
    covariates: NDArray[np.float64] | None
    notes: tuple[str, ...]
    names: Names

    @property
    def n_agents(self) -> int:
        return len(self.labels)


def read_table(
    source: Any,
    *,
    agent: str | Sequence[str],
    value: str,
    time: str | None = None,
    weight: str | None = None,
    label: str | None = None,
    covariates: str | Sequence[str] = (),
    progress: Progress | None = None,
    memory: int = MEMORY,
) -> Table:
    """The samples of a table, agent by agent.

    source      a file (CSV, TSV, Parquet, Arrow; text may be packed), a folder of Parquet files, "-" (CSV from stdin),
                a frame of pandas, polars, pyarrow or another library, a dict of arrays, or an iterator of such batches
    agent       the column that says whose sample it is; several make labels like "DM / 3"
    value       the column of samples
    time        the column by which an agent's samples are put in order: dates or numbers
    weight      the column that says for how many samples one counts
    label       the column of known groups, one per agent
    covariates  columns of numbers that may tell something about an agent's mean
    memory      bytes; rows beyond go to a temporary file

    Rows without agent, value, time or weight are left out, and `notes` says how many. Infinite values, negative
    weights, text where a number must be and agents with two labels are refused. Rows are counted from 1.
    """
    agents = agent if isinstance(agent, list | tuple) and agent else (agent,)
    columns = covariates if isinstance(covariates, list | tuple) else (covariates,)
    names = Names(
        agent=tuple(_name(each, "agent") for each in agents) if len(agents) > 1 else _name(agents[0], "agent"),
        value=_name(value, "value"),
        time=None if time is None else _name(time, "time"),
        weight=None if weight is None else _name(weight, "weight"),
        label=None if label is None else _name(label, "label"),
        covariates=tuple(_name(each, "covariates") for each in columns),
    )
    from colme.data.read.reading import Reading  # pyarrow is imported when something is read

    with contextlib.closing(Reading(source, names, memory)) as reading:
        for _ in reading:
            if progress is not None:
                progress(reading.n_rows, reading.total)
        return reading.table()


def _name(name: Any, what: str) -> Any:
    """The name of a column, or a refusal."""
    if not isinstance(name, Hashable) or name in (None, "", ()):
        raise ColumnError(f"{what}={shorten(name)}: it must name a column. Try one of the table's names.")
    return name
