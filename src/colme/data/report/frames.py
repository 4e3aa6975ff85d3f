"""`frame_of`: columns as a data frame of the library that the user has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from colme.errors import ColmeError, missing_extra, one_of

BACKENDS = ("pandas", "polars", "pyarrow")


def frame_of(columns: Mapping[str, NDArray[Any]], backend: str) -> Any:
    """The columns as a pandas or polars data frame, or a pyarrow table."""
    one_of(backend, BACKENDS, "backend", ColmeError)
    try:
        if backend == "pandas":
            import pandas

            return pandas.DataFrame(dict(columns))
        if backend == "polars":
            import polars

            return polars.DataFrame({name: values.tolist() for name, values in columns.items()})
        import pyarrow

        return pyarrow.table({name: pyarrow.array(values.tolist()) for name, values in columns.items()})
    except ImportError as error:
        raise missing_extra(backend, "data", f"a {backend} frame") from error
