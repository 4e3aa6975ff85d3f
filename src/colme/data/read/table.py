"""`read_table`: from a table anywhere, with rows in any order, to the samples of each agent in order of time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from colme.data.moments import AgentMoments
from colme.data.read.format import TableFormat
from colme.errors import ColumnError, DataError, shorten
from colme.support.arrays import Array, Floats, Integers

if TYPE_CHECKING:
    from colme.data.read.reader import TableReader

MEMORY = 1 << 30
"""Bytes of rows that are kept in memory; the rest goes to a temporary file."""
NAMED = 5
"""Agents that a note lists by name."""

Progress = Callable[[int, int | None], object]
"""Called with (done, total); total is None while it is not known."""


class Names(NamedTuple):
    """The names of the columns that are read."""

    agent: str | tuple[str, ...]
    value: str
    time: str | None = None
    weight: str | None = None
    label: str | None = None
    covariates: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, agent: Any, value: Any, *, time: Any = None, weight: Any = None, label: Any = None, covariates: Any = ()
    ) -> Names:  # fmt: skip
        """The names as a user gives them, checked."""
        agents = agent if isinstance(agent, list | tuple) and agent else (agent,)
        columns = covariates if isinstance(covariates, list | tuple) else (covariates,)
        return cls(
            agent=tuple(_name(each, "agent") for each in agents) if len(agents) > 1 else _name(agents[0], "agent"),
            value=_name(value, "value"),
            time=None if time is None else _name(time, "time"),
            weight=None if weight is None else _name(weight, "weight"),
            label=None if label is None else _name(label, "label"),
            covariates=tuple(_name(each, "covariates") for each in columns),
        )


def unit_unknown(half_life: float | None, time: str | None) -> DataError:
    """The refusal of a half-life in seconds where times are not dates."""
    return DataError(f"a half-life of {half_life:,.15g} seconds, but {time} holds plain numbers: it must be a number "
                     "in their unit. Leave the unit of the half-life out.")  # fmt: skip


class Table(NamedTuple):
    """Samples sorted by agent; within an agent by time, or in the order of the rows if no time was given.

    labels      the label of each agent, in order of first appearance
    start       the samples of agent a are value[start[a]:start[a + 1]]
    value       the samples, all finite; may be a memmap
    time        seconds since the first row, or plain numbers; None if no time was given
    weight      a sample of weight w counts as w samples; None: every weight is 1
    label       known group of each agent, -1 if unknown; None if no labels were given
    covariates  (n_agents, n_covariates): the mean of each covariate for each agent
    notes       what was done to the rows (left out, sorted, ...), one sentence each
    dates       whether times are seconds; otherwise their unit is not known
    parts       if several columns identify the agent: its label in each of them
    group_names the names of known groups
    """

    labels: Array
    start: Integers
    value: Floats
    time: Floats | None
    weight: Floats | None
    label: Integers | None
    covariates: Floats | None
    notes: tuple[str, ...]
    names: Names
    dates: bool = False
    parts: tuple[Array, ...] = ()
    group_names: tuple[Any, ...] = ()

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
    decimal: str = ".",
    thousands: str | None = None,
    time_format: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    progress: Progress | None = None,
    memory: int = MEMORY,
) -> Table:
    """The samples of a table, agent by agent.

    source      a file (CSV, TSV, JSON lines, Parquet, Arrow, .xlsx, .ods; text may be compressed), a folder of Parquet
                files, "-" (CSV from stdin), a data frame (pandas, polars, pyarrow, ...), a dict of arrays, or an
                iterator of such batches
    agent       the column that identifies the agent; several columns make labels like "DM / 3"
    value       the column of samples
    time        the column by which an agent's samples are sorted: dates or numbers
    weight      the column of weights: a sample of weight w counts as w samples
    label       the column of known groups, one per agent
    covariates  columns of numbers that may predict an agent's mean
    decimal     the decimal sign of numbers in text: "." or ","
    thousands   the sign between groups of three digits in text: ".", ",", " " or "'"
    time_format how dates in text are written, as in `datetime.strptime`
    encoding    of a text file, such as "latin-1" or "utf-16"; None: UTF-8
    sheet       of a spreadsheet; None: the first one that is not empty
    memory      bytes of rows kept in memory; the rest goes to a temporary file

    Rows without agent, value, time or weight are left out, and `notes` says how many. A column of numbers may hold yes
    and no (true and false, y and n, t and f) instead, which count as 1 and 0. Infinite values, negative
    weights, text in a column of numbers and agents with two labels are refused. Messages count rows from 1.
    """
    names = Names.of(agent, value, time=time, weight=weight, label=label, covariates=covariates)
    form = TableFormat(decimal, thousands, time_format, encoding, sheet)
    return read_samples(source, names, form, memory=memory, progress=progress)


def read_samples(
    source: Any, names: Names, form: TableFormat, *, memory: int = MEMORY, progress: Progress | None = None
) -> Table:  # fmt: skip
    """`read_table` for names that are checked."""
    with _read(source, names, form, progress, memory=memory) as reader:
        return reader.table()


def read_moments(
    source: Any, names: Names, form: TableFormat, *, seed: int = 0, ordered: bool = False,
    progress: Progress | None = None,
) -> AgentMoments:  # fmt: skip
    """The moments of a table without time. Rows are read once and none is kept, so memory is that of the agents."""
    with _read(source, names, form, progress, seed=seed, ordered=ordered) as reader:
        return reader.moments()


@contextlib.contextmanager
def _read(
    source: Any, names: Names, form: TableFormat, progress: Progress | None, **options: Any
) -> Iterator[TableReader]:  # fmt: skip
    """A reader that has read all rows."""
    form = form.checked()
    if form.time_format is not None and names.time is None:
        raise DataError(f"time_format={shorten(form.time_format)} needs a column of times, but no time was given. Try "
                        "time=... (--time).")  # fmt: skip
    from colme.data.read.reader import TableReader  # imports pyarrow, which is only needed to read

    with contextlib.closing(TableReader(source, names, form, **options)) as reader:
        for _ in reader:
            if progress is not None:
                progress(reader.n_rows, reader.total)
        yield reader


def _name(name: Any, what: str) -> Any:
    """The name of a column; anything that cannot be one is refused."""
    if not isinstance(name, Hashable) or name in (None, "", ()):
        raise ColumnError(f"{what}={shorten(name)}: it must be the name of a column. Try one of the table's columns.")
    return name
