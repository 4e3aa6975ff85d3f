"""Arrow columns: one array from any cells, their text, and labels as codes."""

from __future__ import annotations

import datetime
import itertools
import re
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from colme.data.read import label_codes
from colme.data.read.batches import MISSING
from colme.data.read.label_codes import IntegerCodes, TextCodes
from colme.errors import DataError
from colme.support.arrays import Array, Integers
from colme.support.columns import is_missing, row_name

EXACT = 2**53
"""Whole numbers below this are exact as floats."""
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
JOINT = " / "
"""Separates the parts of a label made of several columns."""


class Where(NamedTuple):
    """A column of a batch, for messages; `row` rows came before the batch."""

    source: str
    column: object
    row: int = 0

    def at(self, i: int) -> str:
        """The cell in row i of the batch."""
        return f"{self.column} in {row_name(self.row + i)} of {self.source}"


class LabelEncoder:
    """Codes 0, 1, ... for the labels of a column, in order of first appearance."""

    def __init__(self) -> None:
        self._hashed: IntegerCodes | TextCodes | None = None
        """Whole numbers or texts; labels of other types, or of several, are in the dict."""
        self._code_of: dict[Any, int] = defaultdict(itertools.count().__next__)
        self._kind: str | None = None

    def __len__(self) -> int:
        return len(self._code_of) or (self._hashed.n if self._hashed is not None else 0)

    def codes(self, arrays: list[Any], wheres: list[Where]) -> Integers:
        """The codes of a batch; -1 where the label is missing."""
        (array,), (where,) = map(decoded, arrays), wheres
        if pa.types.is_nested(array.type) or isinstance(array.type, pa.BaseExtensionType):
            raise DataError(
                f"{where.column} of {where.source} holds {array.type}: a label must be text or a number. "
                "Turn it into text, or choose another column."
            )
        array = _nulls_marked(array)
        self._check(array, where)
        found = self._codes(array)
        if len(self) > label_codes.MOST:
            raise DataError(
                f"{where.column} of {where.source} has more than {label_codes.MOST:,} different labels: that is the "
                "largest number of agents. Estimate parts of the table, or choose another column."
            )
        return found

    def _codes(self, array: Any) -> Integers:
        if not self._code_of:
            known = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
            if array.type in known and not isinstance(self._hashed, TextCodes):
                self._hashed = self._hashed or IntegerCodes()
                missing = np.asarray(array.is_null())
                whole = array.fill_null(0) if array.null_count else array
                return self._hashed.codes(whole.cast(pa.int64()).to_numpy(), missing)
            if is_text(array.type) and not isinstance(self._hashed, IntegerCodes):
                self._hashed = self._hashed or TextCodes()
                return self._hashed.codes(*_bytes(array), np.asarray(array.is_null()))
            for label in self._hashed_labels().tolist():
                self._code_of[label]
        encoded = array.dictionary_encode()
        labels = encoded.dictionary.to_pylist()
        found = np.full(len(labels) + 1, -1)
        found[:-1] = np.fromiter(map(self._code_of.__getitem__, labels), np.int64, len(labels))
        return found[encoded.indices.fill_null(len(labels)).to_numpy()]

    def _hashed_labels(self) -> Array:
        """The labels that have been hashed so far."""
        if isinstance(self._hashed, TextCodes):
            return _of_bytes(*self._hashed.texts())
        return self._hashed.labels() if self._hashed is not None else np.zeros(0, np.int64)

    def _check(self, array: Any, where: Where) -> None:
        """Refuse labels that would be mistaken for others: 7 and "7" in different batches, and rounded numbers."""
        if array.null_count == len(array):
            return
        kind = _kind(array.type)
        if self._kind not in (None, kind):
            raise DataError(
                f"{where.column} of {where.source} holds {self._kind} and then {kind}: all labels must be of one kind. "
                "Turn them into text first."
            )
        self._kind = kind
        if pa.types.is_floating(array.type):
            cells = array.to_numpy(zero_copy_only=False)
            rounded = np.isfinite(cells) & (np.abs(cells) >= EXACT)
            if rounded.any():
                i = int(np.argmax(rounded))
                raise DataError(f"{where.at(i)} is {cells[i]:.17g}: numbers from 2^53 on are rounded, and labels must "
                                "be exact. Write them as text.")  # fmt: skip

    def parts(self, *, text: bool) -> list[Array]:
        """The labels of each column."""
        return [self.labels(text=text)]

    def labels(self, *, text: bool) -> Array:
        """All labels, by code. Whole numbers become integers, also those read from text (`text`) if all of them are."""
        if isinstance(self._hashed, IntegerCodes) and not self._code_of:
            whole = self._hashed.labels()
            if ((whole > -EXACT) & (whole < EXACT)).all():
                return whole.copy()
        found: list[Any] = list(self._code_of) or self._hashed_labels().tolist()
        kinds = set(map(type, found))
        if text and kinds == {str} and all(map(WHOLE.fullmatch, found)):
            return np.array(list(map(int, found)), np.int64)
        if found and kinds <= {int, float}:
            numbers = np.array(found, np.float64)
            if (numbers == np.floor(numbers)).all() and (np.abs(numbers) < EXACT).all():
                return numbers.astype(np.int64)  # pandas turns whole numbers into floats where some are missing
        made = np.empty(len(found), object)
        made[:] = found if kinds == {str} else [_text(each) for each in found]
        return made


class PairEncoder:
    """Codes for pairs of labels from two columns, of which the first may be a pair again."""

    def __init__(self, first: LabelEncoder | PairEncoder, second: LabelEncoder):
        self.first, self.second, self._keys = first, second, LabelEncoder()

    def __len__(self) -> int:
        return len(self._keys)

    def codes(self, arrays: list[Any], wheres: list[Where]) -> Integers:
        """The codes of a batch; -1 where any of the labels is missing."""
        left, right = self.first.codes(arrays[:-1], wheres[:-1]), self.second.codes(arrays[-1:], wheres[-1:])
        keys = pa.array((left << 31) | right, mask=(left < 0) | (right < 0))
        return self._keys.codes([keys], wheres[-1:])

    def parts(self, *, text: bool) -> list[Array]:
        """The labels of each column, by code."""
        keys = self._keys.labels(text=False).astype(np.int64)
        left, right = self.first.parts(text=text), self.second.labels(text=text)
        return [*(each[keys >> 31] for each in left), right[keys & (2**31 - 1)]]

    def labels(self, *, text: bool) -> Array:
        made = np.empty(len(self), object)
        made[:] = [JOINT.join(map(str, each)) for each in zip(*self.parts(text=text), strict=True)]
        return made


def encoder_of(n_columns: int) -> LabelEncoder | PairEncoder:
    """An encoder for labels made of this many columns."""
    made: LabelEncoder | PairEncoder = LabelEncoder()
    for _ in range(n_columns - 1):
        made = PairEncoder(made, LabelEncoder())
    return made


def as_array(column: Any) -> Any:
    """One Arrow array; values of several types become text."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    if isinstance(column, pa.Array):
        return column
    try:
        made = pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        made = pa.array([None if is_missing(each) else str(each) for each in column], pa.string())
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _kind(kind: Any) -> str:
    """What a column of labels holds, in words."""
    if is_text(kind):
        return "text"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    return "dates" if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else str(kind)


def _bytes(array: Any) -> tuple[Array, NDArray[np.uint8]]:
    """(offsets, bytes) of an array of text."""
    _, offsets, data = array.buffers()
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    offset = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    return offset, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _of_bytes(offset: Integers, data: NDArray[np.uint8]) -> Array:
    """The texts of (offsets, bytes)."""
    buffers = [None, pa.py_buffer(offset), pa.py_buffer(data)]
    made = pa.Array.from_buffers(pa.large_string(), len(offset) - 1, buffers)
    return np.asarray(made.to_numpy(zero_copy_only=False))


def _nulls_marked(array: Any) -> Any:
    """The array with null where a cell is empty text or NaN."""
    if is_text(array.type):
        empty = pc.equal(array, pa.scalar("", array.type))
    elif pa.types.is_floating(array.type):
        empty = pc.is_nan(array)
    else:
        return array
    return pc.if_else(empty, pa.scalar(None, array.type), array) if pc.any(empty).as_py() else array


def _text(label: Any) -> str:
    if isinstance(label, bytes):
        return label.decode("utf-8", "replace")
    return label.isoformat() if isinstance(label, datetime.date | datetime.time) else str(label)


def decoded(array: Any) -> Any:
    """The array without dictionary, run-end or view encoding, which few of Arrow's functions support."""
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.string()) if pa.types.is_string_view(array.type) else array


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def known_text(array: Any) -> Any:
    """Text without surrounding blanks, null where it stands for a missing value."""
    text = pc.utf8_trim_whitespace(array)
    return pc.if_else(pc.is_in(text, pa.array(MISSING, text.type)), pa.scalar(None, text.type), text)
