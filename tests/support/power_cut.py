"""A run that fails at a step, as if somebody had pulled the plug."""

from __future__ import annotations

import pytest

from colme.sim.run import Run


def fail_at(patch: pytest.MonkeyPatch, step: int, error: type[Exception], seed: int | None = None) -> None:
    """Runs (of this seed, or of all) do every step before this one, in stretches as always, and fail there."""
    honest = Run.advance

    def advance(self: Run, first: int, last: int) -> None:
        if seed in (None, self.spec.seed):
            if first == step:
                raise error
            last = min(last, step - 1) if first < step else last
        honest(self, first, last)

    patch.setattr(Run, "advance", advance)
