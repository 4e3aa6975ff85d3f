"""Numbers and labels from the cells of an Arrow column; a cell that is neither is refused with its row."""

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

from colme._core.columns import row_name
from colme.data.read.batches import MISSING
from colme.errors import DataError, shorten

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.IGNORECASE)
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


def numbers(array: Any, where: Where) -> NDArray[np.float64]:
    """The numbers of a column, NaN where one is missing; text is parsed."""
    array = decoded(array)
    kind = array.type
    if is_text(kind):
        return _parsed_numbers(known_text(array), where)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise DataError(f"{where.column} of {where.source} holds {kind}: it must hold numbers. Choose another column.")
    return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _parsed_numbers(text: Any, where: Where) -> NDArray[np.float64]:
    try:
        return np.asarray(text.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:  # text, or a number that Arrow does not parse, such as +1
        cells = text.to_pylist()
    for i, cell in enumerate(cells):
        if cell is not None and not NUMBER.fullmatch(cell):
            comma = re.fullmatch(r"[+-]?\d+,\d+", cell)
            remedy = "Write decimals with a point." if comma else "Correct it, or leave the cell empty."
            raise DataError(f"{where.at(i)} is {shorten(cell)}: it must be a number. {remedy}")
    return np.array([np.nan if cell is None else float(cell) for cell in cells])


def refuse(wrong: NDArray[np.bool_], values: NDArray[np.float64], where: Where, rule: str) -> None:
    """Refuse the first of the wrong values."""
    if wrong.any():
        i = int(np.argmax(wrong))
        raise DataError(f"{where.at(i)} is {values[i]:g}: {rule}")


class LabelEncoder:
    """Codes 0, 1, ... for the labels of a column, in order of first appearance."""

    def __init__(self) -> None:
        self._code_of: dict[Any, int] = defaultdict(itertools.count().__next__)

    def __len__(self) -> int:
        return len(self._code_of)

    def codes(self, arrays: list[Any], wheres: list[Where]) -> NDArray[np.int64]:
        """The codes of a batch; -1 where the label is missing."""
        (array,), (where,) = map(decoded, arrays), wheres
        if pa.types.is_nested(array.type) or isinstance(array.type, pa.BaseExtensionType):
            raise DataError(
                f"{where.column} of {where.source} holds {array.type}: a label must be text or a number. "
                "Turn it into text, or choose another column."
            )
        encoded = _nulls_marked(array).dictionary_encode()
        labels = encoded.dictionary.to_pylist()
        found = np.full(len(labels) + 1, -1)
        found[:-1] = np.fromiter(map(self._code_of.__getitem__, labels), np.int64, len(labels))
        return found[encoded.indices.fill_null(len(labels)).to_numpy()]

    def labels(self, *, text: bool) -> NDArray[Any]:
        """All labels, by code. Whole numbers become integers, also those read from text (`text`) if all of them are."""
        found = list(self._code_of)
        kinds = set(map(type, found))
        if text and kinds == {str} and all(map(WHOLE.fullmatch, found)):
            return np.array(list(map(int, found)), np.int64)
        if found and kinds <= {int, float}:
            numbers = np.array(found, np.float64)
            if (numbers == np.floor(numbers)).all() and (np.abs(numbers) < 2**53).all():
                return numbers.astype(np.int64)  # pandas turns whole numbers into floats where some are missing
        made = np.empty(len(found), object)
        made[:] = [_text(each) for each in found]
        return made


class PairEncoder:
    """Codes for pairs of labels from two columns, of which the first may be a pair again."""

    def __init__(self, first: LabelEncoder | PairEncoder, second: LabelEncoder):
        self.first, self.second, self._keys = first, second, LabelEncoder()

    def __len__(self) -> int:
        return len(self._keys)

    def codes(self, arrays: list[Any], wheres: list[Where]) -> NDArray[np.int64]:
        """The codes of a batch; -1 where any of the labels is missing."""
        left, right = self.first.codes(arrays[:-1], wheres[:-1]), self.second.codes(arrays[-1:], wheres[-1:])
        keys = pa.array((left << 31) | right, mask=(left < 0) | (right < 0))
        return self._keys.codes([keys], wheres[-1:])

    def labels(self, *, text: bool) -> NDArray[Any]:
        keys = self._keys.labels(text=False).astype(np.int64)
        left, right = self.first.labels(text=text), self.second.labels(text=text)
        made = np.empty(len(keys), object)
        made[:] = [f"{left[key >> 31]}{JOINT}{right[key & (2**31 - 1)]}" for key in keys]
        return made


def encoder_of(n_columns: int) -> LabelEncoder | PairEncoder:
    """An encoder for labels made of this many columns."""
    made: LabelEncoder | PairEncoder = LabelEncoder()
    for _ in range(n_columns - 1):
        made = PairEncoder(made, LabelEncoder())
    return made


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
