"""`RowBuffer`: rows in memory up to a limit, and beyond it in a temporary file that disappears by itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from colme.errors import DataError
from colme.support.arrays import Array

CHUNK_ROWS = 1 << 16
"""Rows that are stored together: batches may be much smaller."""

Columns = tuple[Array, ...]


class RowBuffer:
    """Columns of rows, appended batch by batch; iterating returns them in the same order, any number of times."""

    def __init__(self, limit: int):
        self.limit, self.n_rows, self.n_bytes = limit, 0, 0
        self._recent: list[Columns] = []
        self._chunks: list[Columns] = []
        self._file: Any = None
        self._places: list[list[tuple[np.dtype[Any], int, int]]] = []

    def append(self, *columns: Array) -> None:
        self._recent.append(columns)
        self.n_rows += len(columns[0])
        self.n_bytes += sum(column.nbytes for column in columns)
        if sum(len(each[0]) for each in self._recent) >= CHUNK_ROWS:
            self._close_chunk()

    def _close_chunk(self) -> None:
        if self._recent:
            self._chunks.append(tuple(np.concatenate(parts) for parts in zip(*self._recent, strict=True)))
            self._recent = []
        if self.n_bytes > self.limit:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = temporary_file()
        try:
            for chunk in self._chunks:
                places = []
                for column in chunk:
                    places.append((column.dtype, self._file.tell(), len(column)))
                    self._file.write(column.data)
                self._places.append(places)
            self._file.flush()
        except OSError as error:
            raise no_room(error) from None
        self._chunks = []

    def close(self) -> None:
        """Free the memory and the temporary file."""
        if self._file is not None:
            self._file.close()
        self._recent, self._chunks, self._places = [], [], []

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    def __iter__(self) -> Iterator[Columns]:
        self._close_chunk()
        for places in self._places:
            found = []
            for dtype, offset, n in places:
                self._file.seek(offset)
                found.append(np.fromfile(self._file, dtype, n))
            yield tuple(found)
        yield from self._chunks


def temporary_file() -> Any:
    """A file without a name, which the system removes when it is closed, even after a crash."""
    try:
        return tempfile.TemporaryFile(prefix="colme-", buffering=0)
    except OSError as error:
        raise no_room(error) from None


def disk_array(dtype: Any, n: int) -> Array:
    """An array in a temporary file that lives as long as the array."""
    try:
        with temporary_file() as file:
            file.truncate(n * np.dtype(dtype).itemsize)
            return np.memmap(file, dtype, "r+", shape=(n,))
    except OSError as error:
        raise no_room(error) from None


def no_room(error: OSError) -> DataError:
    return DataError(
        f"the rows do not fit into memory, and no temporary file can be written: {error.strerror}. "
        "Set TMPDIR to a folder with room."
    )
