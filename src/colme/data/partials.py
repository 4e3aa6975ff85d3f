"""`partial_moments` and `merge_moments`: the moments of parts of a table, as Arrow tables to store, send and merge.

For whatever reads a table in parts: the partitions of Dask, Ray or Spark, a job that runs every night, or sites that
may not share their rows. `estimate` takes the merged table in place of the rows. A part holds, for each agent and each
of five random folds, the number of its samples, their weight, mean and square, and the agent's smallest and largest
sample. Nothing else leaves the part.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from colme.data.moments import N_FOLDS, AgentMoments, FoldMoments
from colme.data.read.arrow_columns import Where, encoder_of
from colme.data.read.batches import pyarrow as pa
from colme.data.read.file_errors import damaged
from colme.data.read.format import TableFormat
from colme.data.read.table import Names, Progress, read_moments
from colme.errors import DataError, shorten
from colme.support.arrays import Floats
from colme.support.files import check_format

FORMAT = "colme moments 1"
_KEY = b"colme.moments"
_OURS = "colme_"
"""How the names of columns begin that do not identify the agent."""
_SUMS = ("n", "weight", "mean", "square")


class _About(msgspec.Struct, frozen=True):
    """What the columns of a table of moments mean."""

    format: str
    agent: tuple[str, ...]
    value: str
    weight: str | None
    unit: float
    resolution: float
    notes: tuple[str, ...] = ()


def partial_moments(
    source: Any,
    *,
    agent: str | Iterable[str],
    value: str,
    weight: str | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    **form: Any,
) -> Any:
    """The moments of a part of a table, as a `pyarrow.Table` with one row per agent.

    source    whatever `estimate` takes: a file, a data frame, a batch, an iterator of batches
    agent     the column that identifies the agent, or several columns
    value     the column of samples
    weight    the column of weights
    seed      decides the random folds. Parts must not share one: the folds of an agent's samples would not be random
              over the parts. None draws it anew for each part, so that only the choice of a method may differ between
              runs.
    progress  called with (done, total) while rows are read
    form      `decimal`, `thousands`, `encoding` and `sheet`, as in `estimate`

    >>> one = partial_moments({"who": ["a", "a", "b"], "x": [1.0, 3.0, 5.0]}, agent="who", value="x", seed=0)
    >>> two = partial_moments({"who": ["b", "c"], "x": [7.0, 9.0]}, agent="who", value="x", seed=1)
    >>> merge_moments([one, two]).column("who").to_pylist()
    ['a', 'b', 'c']

    See also: merge_moments, estimate
    """
    names = Names.of(agent if isinstance(agent, str) else list(agent), value, weight=weight)
    drawn = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
    return as_table(read_moments(source, names, TableFormat(**form), seed=drawn, progress=progress))


def merge_moments(tables: Iterable[Any]) -> Any:
    """The moments of several parts together; in which order they are merged changes the last digits at most.

    tables  of `partial_moments`, or read from files of `colme moments`

    >>> parts = [{"who": ["a", "b"], "x": [1.0, 5.0]}, {"who": ["b", "c"], "x": [7.0, 9.0]}]
    >>> moments = [partial_moments(part, agent="who", value="x", seed=seed) for seed, part in enumerate(parts)]
    >>> merge_moments(moments).num_rows
    3

    See also: partial_moments, estimate
    """
    return as_table(as_moments(*tables))


def as_moments(*tables: Any) -> AgentMoments:
    """The moments that Arrow tables hold together."""
    if not tables:
        raise DataError("there are no moments to merge: at least one table is needed. Make it with partial_moments.")
    abouts = [_about(table) for table in tables]
    first = abouts[0]
    for each in abouts:
        for what in ("agent", "value", "weight"):
            one, other = (_plain(getattr(about, what)) for about in (first, each))
            if one != other:
                raise DataError(f"moments of {what}={shorten(one)} and of {what}={shorten(other)}: parts must be of "
                                "the same columns. Make them again with the same names.")  # fmt: skip
    encoder = encoder_of(len(first.agent))
    wheres = [Where("the moments", name) for name in first.agent]
    codes = [encoder.codes([part[name].combine_chunks() for name in first.agent], wheres) for part in tables]
    n_agents, unit = len(encoder), max(each.unit for each in abouts)
    n, weight, mean, square = np.zeros((len(_SUMS), n_agents, N_FOLDS))
    low, high = np.full(n_agents, np.inf), np.full(n_agents, -np.inf)
    for part, about, code in zip(tables, abouts, codes, strict=True):
        share = about.unit / unit
        more, heavier, place, around = (_folds(part, name) for name in _SUMS)
        before, whole = weight[code], weight[code] + heavier
        away = place * share - mean[code]
        fraction = heavier / np.where(whole > 0.0, whole, 1.0)
        mean[code] += fraction * away
        square[code] += around * share * share + before * fraction * away * away
        weight[code] = whole
        n[code] += more
        low[code] = np.minimum(low[code], part[f"{_OURS}low"].to_numpy() * share)
        high[code] = np.maximum(high[code], part[f"{_OURS}high"].to_numpy() * share)
    resolution = min((each.resolution * each.unit / unit for each in abouts if each.resolution > 0.0), default=0.0)
    folds = FoldMoments(n.astype(np.int64), weight, weight, n, mean, square)
    several = len(first.agent) > 1
    names = Names(first.agent if several else first.agent[0], first.value, weight=first.weight)
    notes = tuple(dict.fromkeys(note for each in abouts for note in each.notes))
    return AgentMoments(
        encoder.labels(text=False), folds, low, high, None, resolution, unit, None, None, notes, names,
        tuple(encoder.parts(text=False)) if several else (),
    )  # fmt: skip


def as_table(moments: AgentMoments) -> Any:
    """Moments as an Arrow table."""
    names = moments.names
    agent = names.agent if isinstance(names.agent, tuple) else (names.agent,)
    labels = moments.parts or (moments.labels,)
    columns = {name: pa.array(each) for name, each in zip(agent, labels, strict=True)}
    for name in _SUMS:
        for k in range(N_FOLDS):
            columns[f"{_OURS}{name}_{k}"] = pa.array(getattr(moments.folds, name)[:, k])
    columns[f"{_OURS}low"], columns[f"{_OURS}high"] = pa.array(moments.low), pa.array(moments.high)
    about = _About(FORMAT, tuple(map(str, agent)), str(names.value), names.weight, moments.unit, moments.resolution,
                   moments.notes)  # fmt: skip
    return pa.table(columns).replace_schema_metadata({_KEY: msgspec.json.encode(about)})


def is_moments(source: Any) -> bool:
    """Whether this is a table of moments, and not of samples."""
    return isinstance(source, pa.Table) and _KEY in (source.schema.metadata or {})


def moments_in(source: Any) -> AgentMoments | None:
    """The moments of parts, if that is what is given: an Arrow table, a file, or several of these."""
    parts = source if isinstance(source, list | tuple) else [source]
    tables = [read_moments_file(part) if isinstance(part, str | os.PathLike) else part for part in parts]
    if not tables or not any(map(is_moments, tables)):
        return None
    return as_moments(*tables)


def check_names(moments: AgentMoments, given: dict[str, Any]) -> None:
    """Refuse names of columns that moments do not have."""
    there = {name: each for name, each in moments.names._asdict().items() if each}
    for name, each in given.items():
        if each is not None and there.get(name) != (tuple(each) if isinstance(each, list) else each):
            has = ", ".join(f"{key}={column!r}" for key, column in there.items())
            raise DataError(f"{name}={shorten(each)}, but the source holds moments of {has}. Leave {name} out.")


def written_moments(table: Any) -> bytes:
    """The content of an Arrow file with these moments."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return bytes(sink.getvalue())


def read_moments_file(path: str | os.PathLike[str]) -> Any:
    """The table of moments in an Arrow file, or None if it holds something else."""
    if not str(path).endswith((".arrow", ".feather")):
        return None
    try:
        with pa.memory_map(os.fspath(path)) as file:
            table = pa.ipc.open_file(file).read_all()
    except FileNotFoundError:
        return None  # reading it as a table says so
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged(os.path.basename(path), error) from None
    return table if is_moments(table) else None


def _about(table: Any) -> _About:
    if not is_moments(table):
        raise DataError(f"{shorten(table)} is not a table of moments. Make one with partial_moments (colme moments).")
    try:
        about = msgspec.json.decode(table.schema.metadata[_KEY], type=dict[str, Any])
        check_format("the table of moments", about.get("format"), FORMAT, DataError)
        return msgspec.convert(about, _About)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"the moments cannot be read: {error}. Make them again with partial_moments.") from None


def _folds(table: Any, name: str) -> Floats:
    columns = [table[f"{_OURS}{name}_{k}"].to_numpy() for k in range(N_FOLDS)]
    return np.stack(columns, axis=1).astype(np.float64)


def _plain(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value
