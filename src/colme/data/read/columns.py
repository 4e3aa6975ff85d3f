"""What the cells of a column mean, numbers or labels, and where it was that they mean nothing."""

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

from colme.data.read.batches import MISSING
from colme.errors import DataError, shorten

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.IGNORECASE)
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
JOINT = " / "
"""Between the parts of a label that come from several columns."""


class Where(NamedTuple):
    """A column of a batch; `row` rows came before."""

    source: str
    column: object
    row: int = 0

    def at(self, i: int) -> str:
        """The cell of the batch's row i. Rows are counted from 1, without the header."""
        return f"{self.column} in row {self.row + int(i) + 1:,} of {self.source}"


def numbers(array: Any, where: Where) -> NDArray[np.float64]:
    """The numbers of a column, NaN where there is none; text is read, or refused."""
    array = decoded(array)
    kind = array.type
    if is_text(kind):
        return _read_numbers(known_text(array), where)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise DataError(f"{where.column} of {where.source} holds {kind}: it must hold numbers. Choose another column.")
    return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _read_numbers(text: Any, where: Where) -> NDArray[np.float64]:
    try:
        return np.asarray(text.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:  # text, or a number as Arrow does not write it, such as +1
        cells = text.to_pylist()
    for i, cell in enumerate(cells):
        if cell is not None and not NUMBER.fullmatch(cell):
            comma = re.fullmatch(r"[+-]?\d+,\d+", cell)
            remedy = "Write decimals with a point." if comma else "Repair it, or leave the cell empty."
            raise DataError(f"{where.at(i)} is {shorten(cell)}: it must be a number. {remedy}")
    return np.array([np.nan if cell is None else float(cell) for cell in cells])


def refuse(wrong: NDArray[np.bool_], values: NDArray[np.float64], where: Where, rule: str) -> None:
    """Refuse the first of the wrong values."""
    if wrong.any():
        i = int(np.argmax(wrong))
        raise DataError(f"{where.at(i)} is {values[i]:g}: {rule}")


class Coder:
    """Whole numbers for labels, in the order in which they first appear."""

    def __init__(self) -> None:
        self._code_of: dict[Any, int] = defaultdict(itertools.count().__next__)

    def __len__(self) -> int:
        return len(self._code_of)

    def codes(self, arrays: list[Any], wheres: list[Where]) -> NDArray[np.int64]:
        """Of a batch of the only column; -1 where there is no label."""
        (array,), (where,) = map(decoded, arrays), wheres
        if pa.types.is_nested(array.type) or isinstance(array.type, pa.BaseExtensionType):
            raise DataError(
                f"{where.column} of {where.source} holds {array.type}: a label must be text or a number. "
                "Turn it into text, or choose another column."
            )
        encoded = _without_nothing(array).dictionary_encode()
        labels = encoded.dictionary.to_pylist()
        found = np.full(len(labels) + 1, -1)
        found[:-1] = np.fromiter(map(self._code_of.__getitem__, labels), np.int64, len(labels))
        return found[encoded.indices.fill_null(len(labels)).to_numpy()]

    def labels(self, *, text: bool) -> NDArray[Any]:
        """All labels. Whole numbers are numbers, also those read as text (unless one of them is written otherwise)."""
        found = list(self._code_of)
        kinds = set(map(type, found))
        if text and kinds == {str} and all(map(WHOLE.fullmatch, found)):
            return np.array(list(map(int, found)), np.int64)
        if found and kinds <= {int, float}:
            numbers = np.array(found, np.float64)
            if (numbers == np.floor(numbers)).all() and (np.abs(numbers) < 2**53).all():
                return numbers.astype(np.int64)  # pandas makes floats of whole numbers where some are missing
        made = np.empty(len(found), object)
        made[:] = [_text(each) for each in found]
        return made


class Pairs:
    """A coder of labels in two columns, of which the first may be pairs again."""

    def __init__(self, first: Coder | Pairs, second: Coder):
        self.first, self.second, self._keys = first, second, Coder()

    def __len__(self) -> int:
        return len(self._keys)

    def codes(self, arrays: list[Any], wheres: list[Where]) -> NDArray[np.int64]:
        """Of a batch of the columns; -1 where a label is missing in any."""
        left, right = self.first.codes(arrays[:-1], wheres[:-1]), self.second.codes(arrays[-1:], wheres[-1:])
        keys = pa.array((left << 31) | right, mask=(left < 0) | (right < 0))
        return self._keys.codes([keys], wheres[-1:])

    def labels(self, *, text: bool) -> NDArray[Any]:
        keys = self._keys.labels(text=False).astype(np.int64)
        left, right = self.first.labels(text=text), self.second.labels(text=text)
        made = np.empty(len(keys), object)
        made[:] = [f"{left[key >> 31]}{JOINT}{right[key & (2**31 - 1)]}" for key in keys]
        return made


def coder_of(n_columns: int) -> Coder | Pairs:
    """A coder of labels in so many columns."""
    made: Coder | Pairs = Coder()
    for _ in range(n_columns - 1):
        made = Pairs(made, Coder())
    return made


def _without_nothing(array: Any) -> Any:
    """Null where a cell holds no label: empty text, NaN."""
    if is_text(array.type):
        nothing = pc.equal(array, pa.scalar("", array.type))
    elif pa.types.is_floating(array.type):
        nothing = pc.is_nan(array)
    else:
        return array
    return pc.if_else(nothing, pa.scalar(None, array.type), array) if pc.any(nothing).as_py() else array


def _text(label: Any) -> str:
    if isinstance(label, bytes):
        return label.decode("utf-8", "replace")
    return label.isoformat() if isinstance(label, datetime.date | datetime.time) else str(label)


def decoded(array: Any) -> Any:
    """The array itself, without the tricks that save memory and of which Arrow computes little."""
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.string()) if pa.types.is_string_view(array.type) else array


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def known_text(array: Any) -> Any:
    """Text without blanks around it, null where it stands for nothing."""
    text = pc.utf8_trim_whitespace(array)
    return pc.if_else(pc.is_in(text, pa.array(MISSING, text.type)), pa.scalar(None, text.type), text)
