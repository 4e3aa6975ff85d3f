"""`read_summaries`: tables that hold summaries of samples instead of samples, as moments.

    means   the mean of an agent's samples, its standard error and, if known, the number of samples: meta-analysis,
            small-area estimation
    rates   successes and trials
    counts  events and the exposure in which they were counted: person-years, hours, area

Rows of the same agent are added up. There are no rows to put into folds, so these are drawn by thinning.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np

from colme.data.moments import AgentMoments, FoldMoments
from colme.data.read.arrow_columns import Where
from colme.data.read.batches import Batch
from colme.data.read.format import TableFormat
from colme.data.read.numbers import refuse
from colme.data.read.reader import TableReader
from colme.data.read.table import Names, Progress
from colme.data.thinning import thinned, thinned_counts, thinned_means, thinned_successes
from colme.errors import DataError, shorten
from colme.support.arrays import Array, Floats, Integers, Mask

_LARGEST = 1e50
"""Bound on means and standard errors: their fourth powers must be finite."""
_MOST = 2**53
"""Bound on counts: larger ones are not whole as floats."""


class Columns(NamedTuple):
    """Which columns hold the summaries; those of one kind, and None for the others."""

    mean: str | None = None
    se: str | None = None
    n: str | None = None
    successes: str | None = None
    trials: str | None = None
    events: str | None = None
    exposure: str | None = None

    @classmethod
    def of(cls, given: dict[str, str | None], value: str | None, other: dict[str, Any]) -> Columns:
        """The columns of summaries; combinations that make no sense are refused."""
        columns = cls(**{role: name for role, name in given.items() if name is not None})
        for roles in (("mean", "se"), ("successes", "trials")):
            for one, needed in (roles, roles[::-1]):
                if given[one] is not None and given[needed] is None:
                    raise DataError(f"{one}={given[one]!r} needs {needed}, too. Try {needed}=...")
        if columns.n is not None and columns.mean is None:
            raise DataError(f"n={columns.n!r} needs the mean and its standard error, too. Try mean=..., se=...")
        if columns.exposure is not None:
            if value is None:
                raise DataError(f"exposure={columns.exposure!r} needs the column of counts, too. Try value=...")
            columns = columns._replace(events=value)
        kinds = [roles for roles in ("mean", "successes", "exposure") if getattr(columns, roles) is not None]
        if len(kinds) > 1 or (value is not None and columns.exposure is None):
            both = [*kinds, "value"] if value is not None and columns.exposure is None else kinds
            raise DataError(f"{both[0]} and {both[1]} were given: a table holds samples, means, rates or counts. Give "
                            "the columns of one of these.")  # fmt: skip
        name = next((name for name, each in other.items() if each is not None), None)
        if name is not None:
            raise DataError(f"{name}={shorten(other[name])} with {kinds[0]}={getattr(columns, kinds[0])!r}: summaries "
                             f"have no single samples. Leave {name} out.")  # fmt: skip
        return columns

    @property
    def given(self) -> dict[str, str]:
        return {role: name for role, name in self._asdict().items() if name is not None}

    @property
    def law(self) -> str:
        """The law of the samples; "" for means, which may have any."""
        return "binomial" if self.successes is not None else "Poisson" if self.exposure is not None else ""


def read_summaries(
    source: Any, names: Names, columns: Columns, form: TableFormat, *, seed: int, progress: Progress | None = None
) -> AgentMoments:  # fmt: skip
    """The moments of a table of summaries."""
    with contextlib.closing(SummaryReader(source, names, columns, form)) as reader:
        for _ in reader:
            if progress is not None:
                progress(reader.n_rows, reader.total)
        return reader.summarized(seed)


class SummaryReader(TableReader):
    """Reads summaries instead of samples."""

    def __init__(self, source: Any, names: Names, columns: Columns, form: TableFormat):
        super().__init__(source, names, form.checked(), more=tuple(columns.given.values()))
        self.columns = columns
        self.left_out |= dict.fromkeys(columns.given.values(), 0)
        self.parts: list[tuple[Array, ...]] = []

    def _columns(self, batch: Batch, keep: Mask) -> list[Floats]:
        found = {}
        for role, name in self.columns.given.items():
            found[role] = self._numbers(batch, name, "it must be finite. Leave the row out.")
            keep &= self._keep(~np.isnan(found[role]), name, keep)
        _check(found, {role: self._where(name) for role, name in self.columns.given.items()})
        if "trials" in found:
            keep &= self._keep(found["trials"] > 0.0, "zero", keep)
        return list(found.values())

    def _store(self, code: Integers, columns: list[Floats]) -> None:
        self.parts.append((code, *columns))

    def summarized(self, seed: int) -> AgentMoments:
        """The moments of all rows, in folds by thinning."""
        self._check_not_empty()
        labels, parts, label, covariates, notes = self._agents()
        code, *columns = (np.concatenate(each) for each in zip(*self.parts, strict=True))
        code = (np.cumsum(self.count > 0) - 1)[code]
        # folds do not depend on the order of the rows
        order = np.argsort(labels.astype(str), kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        folds, count, sigma = _folded(self.columns, place[code], columns, len(labels), seed)
        unknown = np.full(len(labels), np.nan)
        resolution = 1.0 if self.columns.law else 0.0
        return AgentMoments(
            labels, folds.select(place), unknown, unknown, None, resolution, 1.0, label, covariates, notes, self.names,
            parts, self.columns.law, sigma, count[place], self._group_names(),
        )  # fmt: skip


def _check(found: dict[str, Floats], where: dict[str, Where]) -> None:
    """Refuse what cannot be a summary."""

    def wrong(role: str, cells: Mask, rule: str) -> None:
        refuse(cells & ~np.isnan(found[role]), found[role], where[role], rule)

    for role in ("n", "successes", "trials", "events"):
        if role in found:
            x = found[role]
            wrong(
                role, (x != np.floor(x)) | (x > _MOST), "it must be a whole number. Correct it, or leave the row out."
            )
    for role in ("successes", "trials", "events"):
        if role in found:
            wrong(role, found[role] < 0.0, "it must not be negative. Correct it, or leave the row out.")
    if "mean" in found:
        far = f"it must be below {_LARGEST:g}. Try another unit."
        wrong("mean", np.abs(found["mean"]) > _LARGEST, far)
        wrong("se", found["se"] <= 0.0, "a standard error must be above 0. Correct it, or leave the row out.")
        wrong("se", (found["se"] > _LARGEST) | (found["se"] < 1.0 / _LARGEST), far)
    if "n" in found:
        wrong("n", found["n"] < 1.0, "an agent has at least one sample. Correct it, or leave the row out.")
    if "trials" in found:
        more = found["successes"] > found["trials"]
        i = int(np.argmax(more))
        wrong("successes", more, f"it must be at most the number of trials, {found['trials'][i]:g}. Are the columns "
                                 "exchanged?")  # fmt: skip
    if "exposure" in found:
        wrong("exposure", found["exposure"] <= 0.0, "an exposure must be above 0. Correct it, or leave the row out.")


def _folded(
    columns: Columns, code: Integers, found: list[Floats], n_agents: int, seed: int
) -> tuple[FoldMoments, Integers, float | None]:  # fmt: skip
    """(folds, counts to report, the known standard deviation of a sample of weight 1)."""

    def total(values: Floats) -> Floats:
        return np.bincount(code, values, n_agents).astype(np.float64)

    if columns.law:
        y, n = (total(each) for each in found)
        events = np.rint(y).astype(np.int64)
        if columns.law == "Poisson":
            return thinned_counts(events, n, seed), events, None
        trials = np.rint(n).astype(np.int64)
        return thinned_successes(trials, events, seed), trials, None
    mean, se = found[:2]
    n = found[2] if columns.n is not None else np.ones(len(mean))
    weight = n if columns.n is not None else 1.0 / np.square(se)
    whole = total(weight)
    middle = total(weight * mean) / whole
    if columns.n is None:
        return thinned_means(middle, whole, seed), total(n).astype(np.int64), 1.0
    square = total((n - 1.0) * n * np.square(se) + n * np.square(mean - middle[code]))
    count = np.rint(whole).astype(np.int64)
    return thinned(FoldMoments(count, whole, whole, whole, middle, square), seed), count, None
