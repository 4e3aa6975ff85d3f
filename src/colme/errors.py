"""What can go wrong, said in one sentence: what was got, the rule, the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ColmeError(ValueError):
    """The parent of every error that colme raises on purpose."""


class ScenarioError(ColmeError):
    """A scenario that cannot exist: sizes that do not add up, a negative scale, ..."""


class GraphError(ColmeError):
    """A graph that cannot exist or does not fit the agents."""


class SampleError(ColmeError):
    """Samples that cannot be used: infinite values, the wrong shape, ..."""


class MethodError(ColmeError):
    """A method whose parameters do not fit: an unstable step, a level out of range, ..."""


class RunError(ColmeError):
    """A run that cannot start: contradictory arguments, too much memory, ..."""


class CheckpointError(ColmeError):
    """A checkpoint or saved trace that is torn, foreign or of another run."""


class MissingExtra(ColmeError, ImportError):
    """An optional dependency that is needed for what was asked is not installed."""


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtra:
    return MissingExtra(f"{purpose} needs {package}, which is not installed. Try: pip install 'colme[{extra}]'")


def one_of(value: object, allowed: Iterable[str], what: str, error: type[ColmeError] = ColmeError) -> None:
    """Refuse a name that is not in the list, with the nearest match as the remedy."""
    names = list(allowed)
    if value in names:
        return
    close = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    remedy = f"Did you mean {close[0]!r}?" if close else f"Try {names[0]!r}."
    raise error(f"unknown {what} {value!r}: it must be one of {', '.join(map(repr, names))}. {remedy}")
