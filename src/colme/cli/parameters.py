"""Arguments and options that several commands share, and their shell completion."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from colme.errors import ExperimentError, one_of


def option(*names_and_help: str, **more: Any) -> Any:
    """`click.option`, for its names and, last, its help."""
    *names, words = names_and_help
    return click.option(*names, help=words, **more)


def switch(*names_and_help: str) -> Any:
    """An option without a value."""
    return option(*names_and_help, is_flag=True)


class Name(click.ParamType):  # type: ignore[type-arg]
    """A name, which shells complete; the library checks it. An experiment is also a file or a folder of results."""

    def __init__(self, name: str, known: Callable[[], list[str]]) -> None:
        self.name, self.known = name, known

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        files = [CompletionItem(incomplete, type="file")] if self.name == "experiment" else []
        names = [CompletionItem(name) for name in self.known() if name.startswith(incomplete)]
        return [*files, *names]  # last item wins in bash, so files come first


def _experiments() -> list[str]:
    from colme.lab.experiment import shipped_experiments

    return [path.stem for path in shipped_experiments()]


def _methods() -> list[str]:
    from colme.methods.registry import methods_by_name

    return list(methods_by_name())


def _figures() -> list[str]:
    from colme.lab.figures import FIGURES

    return list(FIGURES)


class Number(click.FloatRange):
    """A finite number within a range; click would let NaN pass."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        number: float = super().convert(value, param, context)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number. Try 1.", param, context)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is self.max is None else super()._describe_range()


Texts = tuple[str, ...]
"""The values of an option that may be repeated."""
Whole = click.IntRange
MOST_JOBS = 1024
"""Processes or threads at once, at most."""
FILE, FOLDER, PATH = click.Path(dir_okay=False), click.Path(file_okay=False), click.Path()
EXPERIMENT = Name("experiment", _experiments)
FIGURE = Name("figure", _figures)
METHOD = Name("method", _methods)
SEED = Whole(0, 2**63 - 1)

SPARE_OF_RUNS = ("configuration", "agents", "steps", "rewire", "tolerance", "record", "precision")
"""Columns of a table of runs that a narrow terminal leaves out first."""

results_option: Any = option("--results", "Folder in which every experiment has a folder of its own.",
                             type=FOLDER, default="results", envvar="COLME_RESULTS")  # fmt: skip


def source_of(experiment: str, results: str, *, shipped_first: bool = False) -> Path | str:
    """What to report on: a folder or a file as given; a name stands for what was run last under it, or, if
    `shipped_first`, first of all for an experiment that comes with colme."""
    path, shipped = Path(experiment), _experiments()
    if path.is_dir() or path.suffix == ".toml" or (shipped_first and experiment in shipped):
        return experiment
    folder = Path(results) / path.name
    if (folder / "experiment.toml").exists():
        return folder
    if len(path.parts) == 1 and not path.exists():
        stored = sorted(each.parent.name for each in Path(results).glob("*/experiment.toml"))
        one_of(experiment, dict.fromkeys([*stored, *shipped]), "experiment", ExperimentError)
    return experiment


def parse_seeds(text: str) -> int | list[int]:
    """The value of --seeds: 10 is a number of seeds, 3,5,8 is a list of seeds."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number nor a list of numbers. Try 10, or 3,5,8.") from None
    return found if "," in text else found[0]
