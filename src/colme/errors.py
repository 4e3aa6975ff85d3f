"""What can go wrong, said in one sentence: what was got, the rule, the remedy."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable
from typing import Any


class ColmeError(ValueError):
    """The parent of every error that colme raises on purpose.

    >>> import colme
    >>> try:
    ...     colme.Scenario(n_agents=0, means=(1.0,))
    ... except colme.ColmeError as error:
    ...     print(error)
    n_agents=0: it must be a whole number from 1 to 4294967295. Try n_agents=5000.

    See also: ScenarioError, GraphError, SampleError, MethodError, RunError, DataError, NodeError
    """


Refusal = type[ColmeError]
"""The class of an error to raise."""


class ScenarioError(ColmeError):
    """A scenario that cannot exist: sizes that do not add up, a negative scale, ...

    >>> import colme
    >>> colme.Scenario(n_agents=0, means=(1.0,))
    Traceback (most recent call last):
        ...
    colme.errors.ScenarioError: n_agents=0: it must be a whole number from 1 to 4294967295. Try n_agents=5000.

    See also: Scenario, ColmeError
    """


class GraphError(ColmeError):
    """A graph that cannot exist or does not fit the agents.

    >>> from colme.graphs import from_edges
    >>> from_edges([(0, 0)])
    Traceback (most recent call last):
        ...
    colme.errors.GraphError: edge (0, 0) is a loop: an agent is no neighbor of itself. Leave loops out.

    See also: Graph, ColmeError
    """


class SampleError(ColmeError):
    """Samples that cannot be used: infinite values, the wrong shape, ...

    >>> import colme
    >>> colme.CollaborativeMean().learn_one("a", float("inf"))
    Traceback (most recent call last):
        ...
    colme.errors.SampleError: sample inf: it must be finite, and below 1e+150. Leave it out, or try another unit.

    See also: Recording, CollaborativeMean, ColmeError
    """


class MethodError(ColmeError):
    """A method whose parameters do not fit: an unstable step, a level out of range, ...

    >>> import colme
    >>> colme.CLColME(step=-1.0)
    Traceback (most recent call last):
        ...
    colme.errors.MethodError: step=-1.0: it must be positive and finite. Try step='auto'.

    See also: CLColME, ColmeError
    """


class RunError(ColmeError):
    """A run that cannot start: contradictory arguments, too much memory, ...

    >>> import colme
    >>> colme.simulate(colme.Local(), colme.Scenario(n_agents=5, means=(1.0,)), seed=1, seeds=[1])
    Traceback (most recent call last):
        ...
    colme.errors.RunError: seed=1, seeds=[1]: give one seed, or several as seeds=range(10).

    See also: simulate, ColmeError
    """


class CheckpointError(ColmeError):
    """A checkpoint or saved trace that is torn, foreign or of another run.

    >>> import colme, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "trace.npz")
    ...     path.write_bytes(b"not a trace") and None
    ...     try:
    ...         colme.Trace.load(path)
    ...     except CheckpointError as error:
    ...         print(str(error).replace(folder, ".."))
    trace.npz is torn or is not a colme trace file. Check the path, or name another file.

    See also: Trace, CollaborativeMean, ColmeError
    """


class ExperimentError(ColmeError):
    """An experiment that cannot be run: an unknown key, a bad value, a file that is not there, ...

    >>> from colme import lab
    >>> scenario = {"n_agents": 5, "means": [1.0], "sigma": -1.0}
    >>> lab.Experiment.parse({"scenario": scenario, "methods": [{"method": "local"}]})
    Traceback (most recent call last):
        ...
    colme.errors.ExperimentError: scenario.sigma=-1.0: it must be positive and finite. Try sigma=2.0.

    See also: Experiment, ColmeError
    """


class DataError(ColmeError):
    """A table that cannot be read or used: torn, empty, text where numbers must be, ...

    >>> import colme
    >>> colme.estimate({"store": [], "sales": []}, agent="store", value="sales")
    Traceback (most recent call last):
        ...
    colme.errors.DataError: the table has no rows: a table needs at least one. Write it again.

    See also: estimate, ColumnError, ColmeError
    """


class ColumnError(DataError):
    """Columns that were asked for and are not there.

    >>> import colme
    >>> colme.estimate({"store": ["a"], "sales": [1.0]}, agent="store", value="sale")
    Traceback (most recent call last):
        ...
    colme.errors.ColumnError: the table has no column 'sale': it has 'store', 'sales'. Did you mean 'sales'?

    See also: estimate, DataError, ColmeError
    """


class NodeError(ColmeError):
    """A node that cannot run: a method that no network can serve, a bad configuration, an address without TLS, ...

    >>> from colme.node.config.tables import Estimates
    >>> Estimates(to="file")
    Traceback (most recent call last):
        ...
    colme.errors.NodeError: address='': file needs one. Try address = 'estimates.jsonl'.

    See also: ColmeError
    """


class UnknownAgent(ColmeError, KeyError):
    """An agent that is not known.

    >>> import colme
    >>> model = colme.CollaborativeMean()
    >>> model.learn_one("a", 1.0)
    >>> model.estimate_["b"]
    Traceback (most recent call last):
        ...
    colme.errors.UnknownAgent: unknown agent 'b': 1 other agent is known. Learn a sample of it first.

    See also: CollaborativeMean, ColmeError
    """

    __str__ = Exception.__str__  # a KeyError would print the sentence in quotes


class MissingExtra(ColmeError, ImportError):
    """An optional dependency that is needed for what was asked is not installed.

    >>> from colme.errors import missing_extra
    >>> print(missing_extra("matplotlib", "lab", "plot_graph"))  # doctest: +NORMALIZE_WHITESPACE
    plot_graph needs matplotlib, which is not installed. Try: pip install '.[lab]' in a checkout of colme, or the wheel
    with [lab]

    See also: ColmeError
    """


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtra:
    return MissingExtra(f"{purpose} needs {package}, which is not installed. Try: {install_command(extra)}")


def install_command(extra: str) -> str:
    """How to install an extra: colme is installed from a checkout or a wheel, as the README says."""
    return f"pip install '.[{extra}]' in a checkout of colme, or the wheel with [{extra}]"


_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
"""Invisible characters that reorder the text around them."""
_CONTROLS = (*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0xD800, 0xE000))
"""Control characters, separators of lines and paragraphs, and halves of surrogate pairs."""
_SHOWN = dict.fromkeys([*_CONTROLS, *map(ord, _BIDI)], "�") | dict.fromkeys(b"\t\n\r", " ")


def printable(text: object) -> str:
    """Text that users, files or peers gave, on one line and safe to print: characters that would move the cursor,
    change colors, reorder the text or break the line are replaced. Every table, message and log line goes through it;
    JSON and CSV, which machines read, do not."""
    return str(text).translate(_SHOWN)


def shorten(value: object) -> str:
    """The repr of a value, on one line and not too long for a sentence."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def whole(
    value: Any, name: str, example: str, error: Refusal = ColmeError, *, low: int = 1, high: int | None = None
) -> int:
    """A whole number of at least `low` and at most `high`, or a refusal."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        rule = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise error(f"{name}={shorten(value)}: it must be a whole number {rule}. Try {example}.")
    return number


def positive(
    value: Any, name: str, example: str, error: Refusal = ColmeError, *, low: float = 0.0,
    high: float = math.inf,
) -> float:  # fmt: skip
    """A positive finite number, from `low` to `high`, or a refusal."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool | str) or not (0.0 < number < math.inf and low <= number <= high):
        rule = "positive and finite" if high == math.inf else f"a number from {low:g} to {high:g}"
        raise error(f"{name}={shorten(value)}: it must be {rule}. Try {example}.")
    return number


def one_of(value: object, allowed: Iterable[str], what: str, error: Refusal = ColmeError) -> None:
    """Refuse a name that is not in the list, with the nearest match as the remedy."""
    names = list(allowed)
    if value in names:
        return
    if not names:
        raise error(f"unknown {what} {value!r}: there is none to choose from. Leave it out.")
    close = nearest(value, names)
    remedy = f"Try {names[0]!r}." if close is None else f"Did you mean {close!r}?"
    raise error(f"unknown {what} {value!r}: it must be one of {', '.join(map(repr, names))}. {remedy}")


def nearest(value: object, names: Iterable[str]) -> str | None:
    """The name that was probably meant; None if there is none like it."""
    known = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(str(value).casefold(), known, n=1, cutoff=0.5)
    return known[close[0]] if close else None
