"""The saved attributes of objects, as arrays and as bytes, and back."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from colme.errors import CheckpointError
from colme.support.saved import from_arrays, from_bytes, from_plain, to_arrays, to_bytes, to_plain


class Part:
    saved: ClassVar[tuple[str, ...]] = ("grid",)

    def __init__(self, grid: Any):
        self.grid = grid


class Whole:
    saved: ClassVar[tuple[str, ...]] = ("count", "mean", "settled", "array", "nothing", "part")

    def __init__(self, count: int, mean: float, settled: bool, array: Any, grid: Any):
        self.count, self.mean, self.settled, self.array, self.part = count, mean, settled, array, Part(grid)
        self.nothing = None
        self.table = (self.array,)  # others may hold an array too
        self.forgotten = "not saved"


def before() -> Whole:
    return Whole(0, 0.0, False, np.zeros((2, 2)), np.zeros(3, np.int32))


def after() -> Whole:
    return Whole(7, 0.1 + 0.2, True, np.array([[1.0, np.nan], [np.inf, -0.0]]), np.arange(5, dtype=np.int32))


def assert_same(one: Whole, other: Whole) -> None:
    assert (one.count, one.mean, one.settled, one.nothing) == (other.count, other.mean, other.settled, None)
    for mine, its in ((one.array, other.array), (one.part.grid, other.part.grid)):
        assert mine.dtype == its.dtype and mine.shape == its.shape and mine.tobytes() == its.tobytes()


def test_arrays_bring_back_every_saved_attribute() -> None:
    arrays = to_arrays(after(), "state0")
    assert set(arrays) == {
        "state0.count", "state0.mean", "state0.settled", "state0.array", "state0.part.grid",
    }  # fmt: skip
    restored = before()
    from_arrays(restored, "state0", arrays)
    assert_same(restored, after())
    assert type(restored.count) is int and type(restored.settled) is bool


def test_arrays_of_the_same_shape_are_filled_in_place() -> None:
    restored = before()
    from_arrays(restored, "s", to_arrays(after(), "s"))
    assert restored.table[0] is restored.array


def test_a_missing_array_is_named() -> None:
    arrays = to_arrays(after(), "s")
    del arrays["s.part.grid"]
    with pytest.raises(KeyError, match=r"s\.part\.grid"):
        from_arrays(before(), "s", arrays)


def test_bytes_bring_back_every_saved_attribute() -> None:
    restored = before()
    from_plain(restored, Whole.saved, from_bytes(to_bytes(to_plain(after(), Whole.saved))))
    assert_same(restored, after())


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        "text",
        [1, "a", None],
        [(1, 2), {"a": []}],
        (1, (2.5, "b")),
        {"a": 1, 3: (1, 2)},
        {},
    ],
    ids=str,
)
def test_bytes_keep_every_kind_of_value(value: Any) -> None:
    holder, again = Part(value), Part(None)
    from_plain(again, ["grid"], from_bytes(to_bytes(to_plain(holder, ["grid"]))))
    assert again.grid == value and type(again.grid) is type(value)


def test_torn_bytes_are_refused() -> None:
    with pytest.raises(CheckpointError, match="torn"):
        from_bytes(to_bytes({"a": 1})[:-1])
