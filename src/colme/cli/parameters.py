"""Arguments and options that several commands share, and their shell completion."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class ExperimentArgument(click.ParamType):  # type: ignore[type-arg]
    """A TOML file, a folder of results, or the name of an experiment that comes with colme."""

    name = "experiment"

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from colme.lab.experiment import shipped_experiments

        names = [CompletionItem(path.stem) for path in shipped_experiments() if path.stem.startswith(incomplete)]
        return [CompletionItem(incomplete, type="file"), *names]  # last item wins in bash, so files come first


class MethodName(click.ParamType):  # type: ignore[type-arg]
    """The name of a method, as in files."""

    name = "method"

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from colme.methods import METHODS

        tags = [str(method.__struct_config__.tag) for method in METHODS]
        return [CompletionItem(tag) for tag in tags if tag.startswith(incomplete)]


class FigureName(click.ParamType):  # type: ignore[type-arg]
    """The name of a figure."""

    name = "figure"

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from colme.lab.figures import FIGURES

        return [CompletionItem(name) for name in FIGURES if name.startswith(incomplete)]


class Number(click.FloatRange):
    """A finite number within a range; click would let NaN pass."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        number: float = super().convert(value, param, context)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number. Try 1.", param, context)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is self.max is None else super()._describe_range()


MOST_JOBS = 1024
"""Processes or threads at once, at most."""
EXPERIMENT = ExperimentArgument()
FIGURE = FigureName()
METHOD = MethodName()
SEED = click.IntRange(0, 2**63 - 1)

SPARE_OF_RUNS = ("configuration", "agents", "steps", "rewire", "tolerance", "record", "precision")
"""Columns of a table of runs that a narrow terminal leaves out first."""

results_option: Any = click.option(
    "--results", type=click.Path(file_okay=False), default="results", show_default=True, envvar="COLME_RESULTS",
    help="Folder in which every experiment has a folder of its own.",
)  # fmt: skip


def source_of(experiment: str, results: str) -> Path | str:
    """What to report on: a folder or a file as given; a name stands for what was run last under it."""
    from colme.errors import ExperimentError, one_of
    from colme.lab.experiment import shipped_experiments

    path = Path(experiment)
    if path.is_dir() or path.suffix == ".toml":
        return experiment
    folder = Path(results) / path.name
    if (folder / "experiment.toml").exists():
        return folder
    if len(path.parts) == 1 and not path.exists():
        stored = sorted(each.parent.name for each in Path(results).glob("*/experiment.toml"))
        shipped = [each.stem for each in shipped_experiments()]
        one_of(experiment, dict.fromkeys([*stored, *shipped]), "experiment", ExperimentError)
    return experiment


def known_source(experiment: str, results: str) -> Path | str:
    """What to run: as `source_of`, but a name first of all stands for an experiment that comes with colme."""
    from colme.lab.experiment import shipped_experiments

    shipped = experiment in {path.stem for path in shipped_experiments()}
    return (
        experiment if shipped and not Path(experiment, "experiment.toml").exists() else source_of(experiment, results)
    )


def parse_seeds(text: str) -> int | list[int]:
    """The value of --seeds: 10 is a number of seeds, 3,5,8 is a list of seeds."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        message = f"{text!r} is neither a number nor a list of numbers. Try 10, or 3,5,8."
        raise click.BadParameter(message, param_hint="--seeds") from None
    return found if "," in text else found[0]


def absolute_graphs(changes: dict[str, Any]) -> dict[str, Any]:
    """The changes made by flags, with absolute paths for graph files: a path on the command line is relative to the
    current folder, a path in an experiment file to the file."""
    from colme.sim.graph_files import is_graph_file

    def absolute(graph: Any) -> Any:
        if isinstance(graph, list):
            return [absolute(each) for each in graph]
        return str(Path(graph).absolute()) if isinstance(graph, str) and is_graph_file(graph) else graph

    return changes | ({"graph": absolute(changes["graph"])} if "graph" in changes else {})
