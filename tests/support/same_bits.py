"""What it means that two runs are the same: every bit of what they recorded and of where they ended."""

from __future__ import annotations

import colme
from colme.metrics import METRICS


def assert_same_bits(one: colme.Trace, other: colme.Trace) -> None:
    for name in ("t", *METRICS):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    for name in ("estimate", "mean", "count", "groups", "class_", "truth"):
        ours, theirs = getattr(one.final, name), getattr(other.final, name)
        assert (ours is None and theirs is None) or ours.tobytes() == theirs.tobytes(), name
    assert one.final.graph == other.final.graph
