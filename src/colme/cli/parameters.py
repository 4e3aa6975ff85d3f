"""Arguments that several commands take, and how the shell completes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class Experiment(click.ParamType):  # type: ignore[type-arg]
    """A TOML file, a folder of results, or the name of an experiment that comes with colme."""

    name = "experiment"

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from colme.lab.experiments.experiment import shipped_experiments

        names = [CompletionItem(path.stem) for path in shipped_experiments() if path.stem.startswith(incomplete)]
        return [CompletionItem(incomplete, type="file"), *names]  # bash forgets what stands before "file"


class MethodName(click.ParamType):  # type: ignore[type-arg]
    """The name of a method in files and flags."""

    name = "method"

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from colme.methods import METHODS

        tags = [str(method.__struct_config__.tag) for method in METHODS]
        return [CompletionItem(tag) for tag in tags if tag.startswith(incomplete)]


class FigureName(click.ParamType):  # type: ignore[type-arg]
    """The name of a figure."""

    name = "figure"

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from colme.lab.plots.figures import FIGURES

        return [CompletionItem(name) for name in FIGURES if name.startswith(incomplete)]


EXPERIMENT = Experiment()
FIGURE = FigureName()
METHOD = MethodName()

results_option: Any = click.option(
    "--results", type=click.Path(file_okay=False), default="results", show_default=True, envvar="COLME_RESULTS",
    help="The folder under which every experiment has its own.",
)  # fmt: skip


def source_of(experiment: str, results: str) -> Path | str:
    """What to report: a folder or a file as it is, and by a name what was run under it last."""
    path = Path(experiment)
    if path.is_dir() or path.suffix == ".toml":
        return experiment
    folder = Path(results) / path.name
    return folder if (folder / "experiment.toml").exists() else experiment


def known_source(experiment: str, results: str) -> Path | str:
    """What to run: the same, but a name is first of all that of an experiment that comes with colme."""
    from colme.lab.experiments.experiment import shipped_experiments

    shipped = experiment in {path.stem for path in shipped_experiments()}
    return (
        experiment if shipped and not Path(experiment, "experiment.toml").exists() else source_of(experiment, results)
    )


def parse_seeds(text: str) -> int | list[int]:
    """10 is how many, 3,5,8 are which."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        message = f"{text!r} is neither a number nor a list. Try 10, or 3,5,8."
        raise click.BadParameter(message, param_hint="--seeds") from None
    return found if "," in text else found[0]
