"""`lines_of`: the lines of a figure or table, from a dataset over (method, parameters..., seed, t)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import ColmeError, missing_extra, one_of, shorten

try:
    import xarray
except ImportError:
    raise missing_extra("xarray", "lab", "tables of results") from None

NOT_PARAMETERS = ("method", "seed", "t")
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Line:
    """A method at one combination of the parameters that it has."""

    label: str
    method: str
    values: xarray.DataArray
    chosen: dict[str, int] = field(default_factory=dict)
    """Parameter -> place along its dimension, for those that make a difference to this method."""
    places: dict[str, int] = field(default_factory=dict)
    """Dimension -> place for all that were fixed, the method among them: `data.isel(line.places)`."""


def check(data: Any, variable: str, *needed: str, unknown: bool = False) -> xarray.DataArray:
    """The variable of the dataset, or a refusal; with `unknown`, it may be NaN everywhere."""
    if not isinstance(data, xarray.Dataset):
        raise ColmeError(f"data={shorten(data)}: it must be an xarray.Dataset. Try traces.to_xarray().")
    one_of(variable, map(str, data.data_vars), "metric")
    array = data[variable]
    for name in ("method", "seed", *needed):
        if name not in array.dims or array.sizes[name] == 0:
            raise ColmeError(
                f"{variable} has dimensions {_sizes(array)}: {name!r} must be one of them and not empty. "
                + (f"Try data.expand_dims({name}=[0])." if name == "seed" else f"Choose data with {name!r}.")
            )
    if not unknown and not array.notnull().any():
        raise ColmeError(
            f"{variable} is NaN everywhere ({_sizes(array)}): there is nothing to draw. Errors need known true means, "
            "shares of edges need known classes."
        )
    return array


def _sizes(array: xarray.DataArray) -> str:
    return "(" + ", ".join(f"{name}: {size}" for name, size in array.sizes.items()) + ")"


def lines_of(array: xarray.DataArray, keep: str | None = None, only: tuple[str, ...] | None = None) -> list[Line]:
    """Every method at every combination of its parameters that has numbers; dimension `keep` is left as it is."""
    found = []
    for place, method in enumerate(map(str, array["method"].values)):
        if only is None or method in only:
            found += _split(array.isel({"method": place}, drop=True), method, keep, {"method": place})
    return found


def reference_of(array: xarray.DataArray, name: str, keep: str | None = None) -> list[Line]:
    """Lines of a metric that all methods share, such as local_mse, under another name."""
    shared = array.isel({"method": 0}, drop=True)
    for place in range(1, array.sizes["method"]):
        shared = shared.fillna(array.isel({"method": place}, drop=True))
    return _split(shared, name, keep, {})


def _split(values: xarray.DataArray, method: str, keep: str | None, fixed: dict[str, int]) -> list[Line]:
    if not values.notnull().any():
        return []
    vary: list[str] = []
    fixed = dict(fixed)
    for name in [str(dim) for dim in values.dims if dim not in (*NOT_PARAMETERS, keep)]:
        if values.sizes[name] > 1 and not is_broadcast(values, name):
            vary.append(name)
        else:
            fixed[name] = int(_present(values, name)[0])
            values = values.isel({name: fixed[name]}, drop=True)
    found = []
    for places in itertools.product(*(range(values.sizes[name]) for name in vary)):
        chosen = dict(zip(vary, places, strict=True))
        part = values.isel(chosen)
        if part.notnull().any():
            words = [describe(name, values[name].values[place]) for name, place in chosen.items()]
            label = ", ".join([method, *words])
            found.append(Line(label, method, part.reset_coords(drop=True), chosen, fixed | chosen))
    return found


def is_broadcast(values: xarray.DataArray, name: str) -> bool:
    """Whether the numbers are the same at every value of a parameter (where there are numbers, and there are at two
    values at least): the method does not have this parameter, or it makes no difference here."""
    present = _present(values, name)
    first = values.isel({name: int(present[0])}, drop=True)
    return len(present) > 1 and all(first.equals(values.isel({name: int(k)}, drop=True)) for k in present[1:])


def _present(values: xarray.DataArray, name: str) -> NDArray[np.int64]:
    others = [dim for dim in values.dims if dim != name]
    return np.flatnonzero(values.notnull().any(others).values)


def describe(name: str, value: Any) -> str:
    """A value of a parameter in a label: words speak for themselves, numbers and switches need the name."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return name.replace("_", " ") if value else f"not {name.replace('_', ' ')}"
    return f"{name.replace('_', ' ')} {number(value)}"


def number(value: Any) -> str:
    """A number as people write it."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def quartiles(values: xarray.DataArray, axis: str = "seed") -> NDArray[np.float64]:
    """(3, ...): quartiles over the seeds that are there; NaN where none is."""
    numbers = np.moveaxis(values.values.astype(float), values.dims.index(axis), 0)
    numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    missing = np.isnan(numbers)
    result = np.full((3, *numbers.shape[1:]), np.nan)
    whole = ~missing.any(axis=0)  # nearly always all: NumPy's nanquantile goes through them one by one
    result[:, whole] = np.quantile(numbers[:, whole], QUARTILES, axis=0)
    some = ~whole & ~missing.all(axis=0)
    if some.any():
        result[:, some] = np.nanquantile(numbers[:, some], QUARTILES, axis=0)
    return result
