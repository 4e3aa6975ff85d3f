"""`NumberColumn`: a column of numbers, or of yes and no, as floats; a cell that is neither is refused with its row."""

from __future__ import annotations

import re
import shlex
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colme.data.read.arrow_columns import Where, decoded, is_text, known_text
from colme.data.read.format import DECIMALS, THOUSANDS
from colme.errors import DataError, shorten
from colme.support.arrays import Floats, Mask

ALIKE = {" ": " \u00a0\u202f", "'": "'\u2019"}
"""Signs of thousands that look alike: blanks that do not break, and the typographic apostrophe."""
WORDS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0, "y": 1.0, "n": 0.0, "t": 1.0, "f": 0.0}
NUMBER, YES_OR_NO = "a number", "yes or no"


class Signs:
    """The signs in numbers that are text: the decimal sign, and the one between groups of three digits."""

    def __init__(self, decimal: str = ".", thousands: str | None = None):
        self.decimal, self.thousands = decimal, thousands
        self._group = f"[{ALIKE.get(thousands, thousands)}]" if thousands else None
        point, digits = re.escape(decimal), "[0-9]+"
        whole = f"(?:[0-9]{{1,3}}(?:{self._group}[0-9]{{3}})+|{digits})" if thousands else digits
        self._pattern = (
            rf"[+-]?(?:{whole}(?:{point}[0-9]*)?|{point}{digits})(?:[eE][+-]?{digits})?|[+-]?(?i:inf|infinity)"
        )
        self._compiled = re.compile(self._pattern)

    @property
    def default(self) -> bool:
        return self.decimal == "." and self.thousands is None

    def fit(self, cell: str) -> bool:
        """Whether a cell is a number in these signs."""
        return self._compiled.fullmatch(cell) is not None

    def number(self, cell: str) -> float:
        """The number of a cell that fits."""
        plain = re.sub(self._group, "", cell) if self._group else cell
        return float(plain.replace(self.decimal, "."))

    def plain(self, text: Any) -> Any:
        """Text with the default signs in all cells; an Arrow error if one is not a number in these signs."""
        if self.default:
            return text
        if not pc.all(pc.match_substring_regex(text, f"^(?:{self._pattern})$"), min_count=0).as_py():
            raise pa.ArrowInvalid("not a number")
        plain = pc.replace_substring_regex(text, self._group, "") if self._group else text
        return pc.replace_substring(plain, self.decimal, ".")

    @property
    def example(self) -> str:
        """A number in these signs."""
        return f"1{self.thousands or ''}234{self.decimal}5"

    @property
    def option(self) -> str:
        """What to pass, in Python and on the command line."""
        given = {"decimal": self.decimal} if self.decimal != "." or self.thousands is None else {}
        given |= {"thousands": self.thousands} if self.thousands else {}
        python = " and ".join(f"{name}={sign!r}" for name, sign in given.items())
        shell = " ".join(f"--{name} {shlex.quote(sign)}" for name, sign in given.items())
        return f"{python} ({shell})"


LIKELY = {d: [Signs(d), *(Signs(d, t) for t in THOUSANDS if t != d)] for d in DECIMALS}


class NumberColumn:
    """The numbers of one column over all batches: all of them numbers, or all of them yes or no."""

    def __init__(self, signs: Signs):
        self._signs = signs
        self._kind: str | None = None

    @property
    def yes_or_no(self) -> bool:
        """Whether the column holds words, which count as 1 and 0."""
        return self._kind == YES_OR_NO

    def numbers(self, array: Any, where: Where) -> Floats:
        """The numbers of a batch, NaN where one is missing; text is parsed."""
        array = decoded(array)
        kind = array.type
        if is_text(kind):
            return self._parsed(known_text(array), where)
        truth = pa.types.is_boolean(kind)
        if not (
            truth or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            or pa.types.is_null(kind)
        ):  # fmt: skip
            raise DataError(
                f"{where.column} of {where.source} holds {kind}: it must hold numbers. Choose another column."
            )
        if array.null_count < len(array):
            self._kind = self._kind or (YES_OR_NO if truth else NUMBER)
            if truth != self.yes_or_no:
                i = int(np.argmax(array.is_valid()))
                raise self._wrong(str(array[i]), where.at(i))
        array = array.cast(pa.int8()) if truth else array
        return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))

    def _parsed(self, text: Any, where: Where) -> Floats:
        found, kind = None if self.yes_or_no else self._cast(text), NUMBER
        if found is None and self._kind != NUMBER:
            found, kind = _of_words(text), YES_OR_NO
        if found is None:
            return self._cell_by_cell(text.to_pylist(), where)
        if text.null_count < len(text):
            self._kind = kind
        return found

    def _cast(self, text: Any) -> Floats | None:
        """The numbers as Arrow parses them; None if it cannot: text, or a number such as +1."""
        try:
            return np.asarray(self._signs.plain(text).cast(pa.float64()).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            return None

    def _cell_by_cell(self, cells: list[str | None], where: Where) -> Floats:
        first = next(cell for cell in cells if cell is not None)
        self._kind = self._kind or (YES_OR_NO if first.lower() in WORDS else NUMBER)
        fits = self._signs.fit if self._kind == NUMBER else lambda cell: cell.lower() in WORDS
        wrong = next((i for i, cell in enumerate(cells) if cell is not None and not fits(cell)), None)
        if wrong is None:
            return np.array([np.nan if cell is None else self._signs.number(cell) for cell in cells])
        raise self._wrong(str(cells[wrong]), where.at(wrong))

    def _wrong(self, cell: str, at: str) -> DataError:
        """The error about a cell that is not of the column's kind."""
        rule, remedy = YES_OR_NO + ", as in the rows before", "Correct it, or leave the cell empty."
        if self._kind == NUMBER:
            rule = NUMBER if self._signs.default else f"{NUMBER} like {self._signs.example}"
            rule += ", as in the rows before" * (cell.lower() in WORDS)
            likely = [next((signs.option for signs in each if signs.fit(cell)), "") for each in LIKELY.values()]
            remedy = f"Try {' or '.join(filter(None, likely))}." if any(likely) else remedy
        return DataError(f"{at} is {shorten(cell)}: it must be {rule}. {remedy}")


def _of_words(text: Any) -> Floats | None:
    """1 and 0 for yes and no; None if some cell is neither."""
    places = pc.index_in(pc.utf8_lower(text), pa.array(list(WORDS), text.type))
    if places.null_count > text.null_count:
        return None
    return np.append(list(WORDS.values()), np.nan)[places.fill_null(len(WORDS)).to_numpy()]


def refuse(wrong: Mask, values: Floats, where: Where, rule: str) -> None:
    """Refuse the first of the wrong values."""
    if wrong.any():
        i = int(np.argmax(wrong))
        raise DataError(f"{where.at(i)} is {values[i]:g}: {rule}")
