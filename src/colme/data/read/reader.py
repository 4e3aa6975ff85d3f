"""`TableReader`: read a table batch by batch, check every row, keep what is needed, count what is left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Hashable, Iterator
from typing import Any

import numpy as np

from colme.data.moments import AgentMoments, RunningMoments
from colme.data.read.arrow_columns import LabelEncoder, Where, encoder_of
from colme.data.read.batches import Batch
from colme.data.read.format import TableFormat
from colme.data.read.grouping import group_rows
from colme.data.read.numbers import NumberColumn, Signs, refuse
from colme.data.read.row_buffer import RowBuffer
from colme.data.read.sources import open_source
from colme.data.read.table import MEMORY, NAMED, Names, Table
from colme.data.read.times import TimeColumn
from colme.errors import DataError
from colme.support.arrays import Array, Floats, Integers, Mask

LARGEST = 1e300
"""Bound on values: sums of larger ones could overflow."""
HEAVIEST = 1e30
"""Bound on weights, and its inverse from below: squares of sums of others could overflow."""


class TableReader:
    """Reads all batches while it is iterated over; then `table` returns the samples by agent.

    If there is a seed, samples are only counted, in random folds, and `moments` returns what is known of them."""

    def __init__(
        self, source: Any, names: Names, form: TableFormat, *, memory: int = MEMORY, seed: int | None = None,
        ordered: bool = False, more: tuple[str, ...] = (),
    ):  # fmt: skip
        self.names = names
        self.agent: tuple[Hashable, ...] = names.agent if isinstance(names.agent, tuple) else (names.agent,)
        singles = (names.value, names.time, names.weight, names.label, *names.covariates, *more)
        wanted = list(dict.fromkeys([*self.agent, *(each for each in singles if each is not None)]))
        self.source = open_source(source, form)
        self.batches = self.source.read(wanted)
        self.n_rows = 0
        self.left_out = {"agent": 0, "value": 0, "time": 0, "weight": 0, "zero": 0}
        signs = Signs(form.decimal, form.thousands)
        self.agents, self.groups = encoder_of(len(self.agent)), LabelEncoder()
        self.times = TimeColumn(signs, form.time_format)
        self.numbers: dict[str, NumberColumn] = defaultdict(lambda: NumberColumn(signs))
        self.rows = RowBuffer(memory)
        self.running = None if seed is None else RunningMoments(seed, ordered=ordered)
        self.count: Integers = np.zeros(0, np.int64)
        self.label: Integers = np.zeros(0, np.int64)
        self.sums: Floats = np.zeros((0, 2 * len(names.covariates)))

    def close(self) -> None:
        """Free the rows, and end what reads the table."""
        self.rows.close()
        if isinstance(self.batches, Generator):
            self.batches.close()

    @property
    def total(self) -> int | None:
        """The number of rows in all, if known."""
        return self.source.total(self.n_rows)

    def __iter__(self) -> Iterator[None]:
        for batch in self.batches:
            n_rows = len(next(iter(batch.values())))
            if n_rows:
                self._add(batch)
                self.n_rows += n_rows
            yield

    def _add(self, batch: Batch) -> None:
        names = self.names
        code = self.agents.codes([batch[each] for each in self.agent], [self._where(each) for each in self.agent])
        keep = self._keep(code >= 0, "agent")
        self._grow()
        if names.label is not None:
            self._add_labels(code, batch[names.label])
        columns = self._columns(batch, keep)
        if not keep.all():
            code, columns = code[keep], [column[keep] for column in columns]
        if self.running is None:
            self.count += np.bincount(code, minlength=len(self.count))
        for k, name in enumerate(names.covariates):
            x = self._numbers(batch, name, "covariates must be finite. Leave the cell empty.")[keep]
            known = ~np.isnan(x)
            self.sums[:, 2 * k] += np.bincount(code[known], x[known], len(self.count))
            self.sums[:, 2 * k + 1] += np.bincount(code[known], minlength=len(self.count))
        self._store(code, columns)

    def _columns(self, batch: Batch, keep: Mask) -> list[Floats]:
        """The times, values and weights of a batch; `keep` becomes false where one is missing."""
        names = self.names
        rule = f"values must be finite and below {LARGEST:g}. Leave the row out."
        columns = [self._numbers(batch, names.value, rule)]
        keep &= self._keep(~np.isnan(columns[0]), "value", keep)
        if names.time is not None:
            time = self.times.times(batch[names.time], self._where(names.time))
            refuse(np.isinf(time), time, self._where(names.time), "times must be finite. Leave the row out.")
            keep &= self._keep(~np.isnan(time), "time", keep)
            columns.insert(0, time)
        if names.weight is not None:
            weight = self._numbers(batch, names.weight, "weights must be finite. Correct it, or leave the row out.")
            rule = "weights must not be negative. Correct it, or leave the row out."
            refuse(weight < 0, weight, self._where(names.weight), rule)
            extreme = (weight > HEAVIEST) | ((weight > 0) & (weight < 1 / HEAVIEST))
            rule = f"weights must lie between {1 / HEAVIEST:g} and {HEAVIEST:g}, or be 0. Try another unit."
            refuse(extreme, weight, self._where(names.weight), rule)
            keep &= self._keep(~np.isnan(weight), "weight", keep)
            keep &= self._keep(weight != 0, "zero", keep)
            columns.append(weight)
        return columns

    def _store(self, code: Integers, columns: list[Floats]) -> None:
        if self.running is None:
            self.rows.append(code, *columns)
        else:
            self.running.add(code, columns[0], columns[1] if self.names.weight is not None else None, len(self.agents))

    def _where(self, column: Hashable) -> Where:
        return Where(self.source.name, column, self.n_rows)

    def _numbers(self, batch: Batch, column: str, rule: str) -> Floats:
        found = self.numbers[column].numbers(batch[column], self._where(column))
        refuse(np.abs(found) > LARGEST, found, self._where(column), rule)
        return found

    def _keep(
        self, good: Mask, what: str, among: Mask | None = None
    ) -> Mask:  # fmt: skip
        """Count the rows that are left out, each one once."""
        self.left_out[what] += int(np.count_nonzero(~good if among is None else ~good & among))
        return good

    def _grow(self) -> None:
        new = len(self.agents) - len(self.label)
        if not new:
            return
        self.count = np.append(self.count, np.zeros(new, np.int64))
        self.label = np.append(self.label, np.full(new, -1))
        self.sums = np.vstack([self.sums, np.zeros((new, self.sums.shape[1]))])

    def _add_labels(self, code: Integers, array: Any) -> None:
        where = self._where(self.names.label)
        group = self.groups.codes([array], [where])
        known = np.flatnonzero((code >= 0) & (group >= 0))
        agents, first = np.unique(code[known], return_index=True)
        new = self.label[agents] < 0
        self.label[agents[new]] = group[known[first[new]]]
        other = self.label[code[known]] != group[known]
        if other.any():
            i = known[np.argmax(other)]
            agent = self.agents.labels(text=self.source.text)[code[i]]
            both = self.groups.labels(text=False)[[self.label[code[i]], group[i]]]
            raise DataError(
                f"{where.at(i)} is {both[1]!s:.40}, but {agent!s:.40} had {both[0]!s:.40} before: an agent can have "
                "only one label. Correct it, or leave the column out."
            )

    def table(self) -> Table:
        """The samples of all rows, agent by agent."""
        self._check_not_empty()
        names, there = self.names, self.count > 0
        by_time = names.time is not None
        grouped = group_rows(self.rows, self.count, by_time=by_time)
        self.rows.close()
        labels, parts, label, covariates, notes = self._agents(grouped.disordered, grouped.tied)
        return Table(
            labels,
            grouped.start[np.append(there, True)],
            grouped.columns[1 if by_time else 0],
            grouped.columns[0] if by_time else None,
            grouped.columns[-1] if names.weight is not None else None,
            label,
            covariates,
            notes,
            names,
            by_time and not self.times.numeric,
            parts,
            self._group_names(),
        )

    def moments(self) -> AgentMoments:
        """The moments of all rows."""
        assert self.running is not None
        self.count = self.running.count(len(self.agents))
        self._check_not_empty()
        labels, parts, label, covariates, notes = self._agents()
        there = self.count > 0
        counted = self.running.moments(np.arange(len(there)), self.names)
        counted = counted if there.all() else counted.select(there)
        return counted._replace(labels=labels, parts=parts, label=label, covariates=covariates, notes=notes,
                                group_names=self._group_names())  # fmt: skip

    def _group_names(self) -> tuple[Any, ...]:
        """The names of known groups, by code."""
        return () if self.names.label is None else tuple(self.groups.labels(text=self.source.text).tolist())

    def _agents(self, disordered: int = 0, tied: int = 0) -> tuple[Any, Any, Any, Any, tuple[str, ...]]:
        """Labels, their parts, known groups and covariates of agents with a sample, and what was done to the rows."""
        there = self.count > 0
        labels = self.agents.labels(text=self.source.text)
        known = self.names.label is not None
        if known and not (self.label[there] >= 0).any():
            raise no_label(self.names.label, self.source.name)
        covariates, notes = self._covariates(there)
        every = (*self._notes(labels[~there], disordered, tied), *notes)
        parts = self.agents.parts(text=self.source.text) if len(self.agent) > 1 else []
        label = self.label[there] if known else None
        return labels[there], tuple(each[there] for each in parts), label, covariates, every

    def _check_not_empty(self) -> None:
        name = self.source.name
        if self.n_rows == 0:
            raise DataError(f"{name} has no rows: a table needs at least one. Write it again.")
        if not self.count.sum():
            causes = {key: n for key, n in self.left_out.items() if n}
            key = max(causes, key=lambda each: causes[each])
            column = " and ".join(map(str, self.agent)) if key == "agent" else self._column(key)
            what = "weight above 0" if key == "zero" else column
            raise DataError(f"no row of {name} can be used: {causes[key]:,} of {self.n_rows:,} have no {what}. "
                            f"Choose another column than {column}, or leave it out.")  # fmt: skip

    def _column(self, key: str) -> str:
        return str(self.names.weight if key == "zero" else getattr(self.names, key, key))

    def _covariates(self, there: Mask) -> tuple[Floats | None, list[str]]:
        """Each agent's mean of every covariate; agents without one get the mean of the others."""
        if not self.names.covariates:
            return None, []
        return mean_covariates(self.sums[there, 0::2], self.sums[there, 1::2], self.names.covariates, self.source.name)

    def _notes(self, empty: Array, disordered: int, tied: int) -> list[str]:
        notes = list(self.source.notes)
        notes += [f"Yes and no in {name} count as 1 and 0." for name, each in self.numbers.items() if each.yes_or_no]
        notes += rows_left_out(self.left_out, self.names)
        if n := len(empty):
            listed = ", ".join(f"{each!s:.40}" for each in empty[:NAMED])
            listed += f" and {n - NAMED:,} more" if n > NAMED else ""
            notes.append(f"{_agents(n)} without a sample {_were(n)} left out: {listed}.")
        if disordered:
            time = self.names.time
            notes.append(f"The samples of {_agents(disordered)} were not in order of {time} and were sorted.")
        if tied:
            same = (
                f"{_rows(tied)} {'has' if tied == 1 else 'have'} the same {self.names.time} as another row of the agent"
            )
            notes.append(f"{same}; these stay in the order of the rows.")
        return notes


def rows_left_out(left_out: dict[str, int], names: Names) -> list[str]:
    """How many rows could not be used, by what they lack, in sentences."""
    agents = names.agent if isinstance(names.agent, tuple) else (names.agent,)
    what = {"agent": " or ".join(map(str, agents)), "zero": "a weight above 0"}
    return [
        f"{_rows(n)} without {what.get(key) or getattr(names, key, key)} {_were(n)} left out."
        for key, n in left_out.items() if n
    ]  # fmt: skip


def no_label(column: Any, table: str) -> DataError:
    """The refusal of a column of known groups that is empty."""
    return DataError(f"{column} of {table} has no label: a column of known groups needs some. Leave it out.")


def mean_covariates(total: Floats, n: Floats, names: tuple[str, ...], table: str) -> tuple[Floats, list[str]]:
    """Each agent's mean of every covariate, from sums and counts, and notes; agents without one get the mean of the
    others."""
    found, notes = np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0), []
    for k, name in enumerate(names):
        missing = n[:, k] == 0
        if missing.all():
            raise DataError(f"{name} of {table} has no numbers: a covariate needs some. Leave it out.")
        if missing.any():
            found[missing, k] = found[~missing, k].mean()
            notes.append(f"{_agents(int(missing.sum()))} without {name} got the mean of the other agents.")
    return found, notes


def _rows(n: int) -> str:
    return f"{n:,} row" + "s" * (n != 1)


def _agents(n: int) -> str:
    return f"{n:,} agent" + "s" * (n != 1)


def _were(n: int) -> str:
    return "was" if n == 1 else "were"
