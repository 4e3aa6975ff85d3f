"""`FIGURES`: the figures of an experiment, by name. What `colme plot` draws and a report shows.

To add one, write a function here that draws it, below `@figure`: its name and the first line of its docstring are those
of the figure. Plotting is imported where it is needed, for names of figures are checked when an experiment is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from colme.consensus import stable_step
from colme.errors import ColmeError, ExperimentError, RunError, one_of
from colme.lab.experiment import Experiment
from colme.lab.planning import REFERENCE, Planned, tag_of
from colme.lab.results import ExperimentSource, dataset, opened
from colme.lab.runs.store import RunStore
from colme.spectrum import spectrum as spectrum_of

MOST_LINES, MOST_PANELS = 10, 24
"""Most lines in one plot; most plots in one figure."""
PICTURED, MOST_PICTURED = 80, 300
"""Agents in a picture of a graph; most agents of a graph from a file."""
DENSE = 200_000
"""Number of agents up to which a simulation for a figure is quick."""
BANDS = "median (line) and quartiles (band) over the seeds"


class Drawing(NamedTuple):
    """A figure, the numbers behind it, its caption, and its name, once it is known."""

    figure: Any
    table: Any
    caption: str
    name: str = ""


Draw = Callable[["Subject"], Drawing]
FIGURES: dict[str, Draw] = {}
"""Every figure by name."""


def figure(draw: Draw) -> Draw:
    """Register a figure under the name of the function."""
    FIGURES[draw.__name__] = draw
    return draw


@figure
def mse(subject: Subject) -> Drawing:
    """Mean squared error over time, with local and oracle."""
    return _over_time(subject, "mse", f"Mean squared error over all agents: {BANDS}.")


@figure
def error_rate(subject: Subject) -> Drawing:
    """Share of agents whose error exceeds the tolerance."""
    from colme.lab.plots.lines import tolerance_of

    zero = "; the shaded strip at the bottom leads to zero" if bool((subject.data["error_rate"] == 0).any()) else ""
    caption = f"Share of agents whose error exceeds {tolerance_of(subject.data)}: {BANDS}{zero}."
    return _over_time(subject, "error_rate", caption)


@figure
def wrong_edges(subject: Subject) -> Drawing:
    """Share of the edges between classes that remain."""
    caption = f"Share of the initial edges between different classes that remain: {BANDS}."
    used = [method for method in subject.experiment.methods if not method.baseline]
    keeping = list(dict.fromkeys(method.label for method in used if not method.cuts_edges))
    if keeping:
        names = " and ".join(keeping)
        caption += f" Lines of methods that cut no edges ({names}): the share whose two agents are put into one group."
    return _over_time(subject, "wrong_edges", caption)


@figure
def relative(subject: Subject) -> Drawing:
    """Mean squared error relative to that of the local means."""
    caption = (
        f"Mean squared error over all agents divided by that of the local means: {BANDS}. Above 1, collaboration is "
        "worse than the local means."
    )
    return _over_time(subject, "relative_mse", caption)


@figure
def trust(subject: Subject) -> Drawing:
    """Weight that the guard gives to collaborative estimates."""
    if "trust" not in subject.data or not bool(subject.data["trust"].notnull().any()):
        raise ExperimentError("the figure trust: no method of this experiment has a guard. Try guard = true in one.")
    caption = (
        f"Weight of the collaborative estimate beside the own mean, on average over agents: {BANDS}. At 0 agents "
        "report their own means, at 1 what the method says."
    )
    return _over_time(subject, "trust", caption)


@figure
def time(subject: Subject) -> Drawing:
    """Time per run, and its ratio to CL-colME's."""
    from colme.lab.plots.lines import plot_time
    from colme.lab.rows import time_table

    table = time_table(subject.data)
    ratios = f" The ratios are relative to {table.attrs['reference']}." if table["ratio"].notna().any() else ""
    caption = (
        "CPU time of a run, with metrics at every recorded step and without compilation: median (bar) and quartiles "
        f"(whiskers) over the seeds.{ratios} Runs were done in parallel."
    )
    return Drawing(plot_time(subject.data), table, caption)


@figure
def scaling(subject: Subject) -> Drawing:
    """Time per agent and step as the number of agents grows."""
    from colme.lab.plots.lines import plot_scaling, scaling_table

    caption = (
        "CPU time per agent and step, with metrics at the recorded steps and without compilation: median (line) and "
        "quartiles (band) over the seeds."
    )
    return Drawing(plot_scaling(subject.data), scaling_table(subject.data), caption)


@figure
def parameter(subject: Subject) -> Drawing:
    """Mean squared error against the first swept number."""
    from colme.lab.plots.lines import parameter_table, plot_parameter
    from colme.lab.rows import lines_of, parameters_of

    data = subject.data
    numeric = [name for name in parameters_of(data["mse"]) if np.issubdtype(data[name].dtype, np.number)]
    if not numeric:
        raise ColmeError("no number is swept: the figure 'parameter' needs one. Try step = [0.05, 0.1] in a method.")
    name = numeric[0]
    marks = {}
    if name == "step":
        found = spectrum_of(initial_graph(subject)[0])
        marks = {"fastest": found.fastest_step, "limit of stability": 2.0 / found.largest}
    recorded = data["t"].values[data["mse"].notnull().any([dim for dim in data["mse"].dims if dim != "t"]).values]
    parts = (8, 4, 2, 1) if len(lines_of(data["mse"], keep=name)) == 1 else (1,)  # many methods: only how they end
    at = sorted({int(recorded[np.abs(recorded - recorded[-1] / part).argmin()]) for part in parts})
    when = ", ".join(f"{step:,}" for step in at)
    caption = (
        f"Mean squared error at t = {when} against {name.replace('_', ' ')}: median (line) and quartiles (band) over "
        "the seeds."
        + (" Dotted lines: the fastest step and the limit of stability of the initial graph." if marks else "")
    )
    table = parameter_table(data, name, at=at)
    return Drawing(plot_parameter(data, name, at=at, marks=marks), table, caption)


@figure
def density(subject: Subject) -> Drawing:
    """Density of all agents' estimates over time: one cloud that splits into classes."""
    from colme.lab import plots

    spec = subject.picked.spec
    if spec.source.n_agents > DENSE:
        spec = spec.with_fewer_agents(DENSE)
    found = plots.estimate_density(spec.method, spec.source, **spec.but("method", "source"))
    caption = (
        f"Density of the estimates of all {spec.source.n_agents:,} agents at every step of one run, each column "
        f"scaled by its maximum. {run_shown(subject)}"
    )
    return Drawing(plots.plot_density(found), found, caption)


@figure
def graph(subject: Subject) -> Drawing:
    """A small graph before the first and after the last step."""
    import pandas

    from colme.lab import plots
    from colme.lab.plots._style import panels
    from colme.lab.plots.graph import panel_height

    picked = subject.picked.spec
    spec = picked.with_fewer_agents(MOST_PICTURED if picked.graph_file else PICTURED)
    spec = msgspec.structs.replace(spec, degree=min(spec.degree or 6, 6))
    found = plots.separation(spec.method, spec.source, **spec.but("method", "source"))
    with panels(1, 2, (7.2, panel_height(found, 3.6))) as axes:
        for ax, when in zip(axes, ("before", "after"), strict=True):
            plots.plot_graph(found, when, ax)
    edges = found.before.edges()
    alive = {tuple(edge) for edge in found.after.edges().tolist()}
    table = pandas.DataFrame(edges, columns=["a", "b"]).assign(
        wrong=found.wrong(found.before), alive=[tuple(edge) in alive for edge in edges.tolist()]
    )
    caption = (
        f"A small simulation with the same parameters: {spec.source.n_agents} agents and {len(edges)} edges, "
        f"before the first sample and after t = {spec.steps:,}. {run_shown(subject)}"
    )
    if not spec.method.cuts_edges:
        caption += f" On the right are the edges between agents of one group: {spec.method.label} cuts none."
    return Drawing(axes[0].figure, table, caption)


@figure
def census(subject: Subject) -> Drawing:
    """How a census works: one agent's bins, its histogram round by round, the mixture, the posterior."""
    from colme.lab.plots._style import panels
    from colme.lab.plots.census import PARTS, explain_census, plot_census

    specs = [each.spec for each in subject.experiment.planned if tag_of(each.spec.method) == "census"]
    if not specs:
        raise ColmeError("no method is a census: the figure 'census' needs one. Add method = 'census'.")
    spec = msgspec.structs.replace(specs[0], steps=min(150, specs[0].steps))
    found = explain_census(spec)
    with panels(2, 2, (9.6, 6.6)) as axes:
        for ax, part in zip(axes, PARTS, strict=True):
            plot_census(found, part, ax)
    words = ", ".join(part for part in (spec.source.case, "agent 0", f"t = {found.t}") if part)
    caption = (
        f"How a census works ({words}). 1: the agent's mass; the local means of all agents, which it does not know, "
        "are scaled to a maximum of 1. 2: its histogram after some rounds of consensus. 3: the mixture fitted to its "
        "last histogram; dotted lines are the locations of the components. 4: the estimate for any local mean."
    )
    return Drawing(axes[0].figure, found.table(), caption)


@figure
def spectrum(subject: Subject) -> Drawing:
    """Eigenvalues of the initial graph's Laplacian, of I - bL and of the Metropolis matrix."""
    from colme.lab.plots._style import panels
    from colme.lab.plots.spectra import averaging_table, plot_averaging, plot_spectrum, spectrum_table

    made, words = initial_graph(subject)
    step = "auto" if "step" in subject.data.dims else getattr(subject.picked.spec.method, "step", "auto")
    step = float(step) if isinstance(step, float | int) else stable_step(made)
    with panels(1, 2, (9.4, 3.3)) as axes:
        plot_spectrum(made, axes[0])
        plot_averaging(made, step, axes[1])
    regular = bool((made.degrees == made.degrees[0]).all())
    line = " with the density of an infinite random regular graph (line)" if regular else ""
    caption = (
        f"Left: eigenvalues of the Laplacian L of {words}{line}. Right: eigenvalues of the averaging matrices of "
        f"CL-colME, I - bL with b = {step:.3g}, and of C-colME, W; the slowest factor is the largest absolute value "
        "except that of the consensus itself, 1."
    )
    table = spectrum_table(made).merge(averaging_table(made, step), on="k")
    return Drawing(axes[0].figure, table, caption)


@figure
def stability(subject: Subject) -> Drawing:
    """Convergence factor of consensus against its step b, and the limit of stability."""
    from colme.lab.plots.spectra import plot_stability, stability_table

    made, words = initial_graph(subject)
    caption = (
        f"Factor by which one consensus step b multiplies the slowest disagreement on {words}: theory, max |1 - b "
        "lambda| (line), and measured by repeating the step (circles). Above 1 the iteration diverges."
    )
    steps = np.linspace(0.0, 1.4 * 2.0 / spectrum_of(made).largest, 29)[1:].tolist()
    return Drawing(plot_stability(made, steps), stability_table(made, steps), caption)


def _over_time(subject: Subject, metric: str, caption: str) -> Drawing:
    """A metric over time: one plot, or several for the values of the first swept parameters if one would have too many
    lines."""
    from colme.lab import plots
    from colme.lab.plots._style import panels
    from colme.lab.plots.lines import shown
    from colme.lab.rows import describe, lines_of, parameters_of

    data, table = shown(subject.data, metric), plots.curves(subject.data, metric)
    parts: list[tuple[list[str], Any]] = [([], data)]
    for name in parameters_of(data[metric]):
        if all(len(lines_of(part[metric])) <= MOST_LINES for _, part in parts):
            break
        parts = [
            ([*words, describe(name, data[name].values[i])], part.isel({name: [i]}))
            for words, part in parts
            for i in range(data.sizes[name])
        ]
    parts = [(words, part) for words, part in parts if bool(part[metric].notnull().any())]
    if len(parts) == 1:
        return Drawing(plots.plot_over_time(data, metric), table, caption)
    if len(parts) > MOST_PANELS:
        raise ColmeError(
            f"{len(parts)} combinations are too many for a figure of {metric.replace('_', ' ')}: at most {MOST_PANELS} "
            "panels fit. Sweep less, or draw lab.load(...).sel(...) with lab.plots."
        )
    columns = 1 if len(parts) < 4 else 2
    rows = -(-len(parts) // columns)
    with panels(rows, columns, (5.6 * columns, 3.3 * rows)) as axes:
        for ax, (words, part) in zip(axes, parts, strict=False):
            plots.plot_over_time(part.assign_attrs(title=", ".join(words)), metric, ax)
        for ax in axes[len(parts) :]:
            ax.remove()
    return Drawing(axes[0].figure, table, caption)


def usual_figures(subject: Subject) -> tuple[str, ...]:
    """The figures of an experiment that does not list its figures."""
    found = ["mse", "density", "graph", "wrong_edges", "error_rate", "time"]
    if "n_agents" in subject.data.dims:
        found.insert(1, "scaling")
    if "step" in subject.data.dims:
        found += ["parameter", "stability", "spectrum"]
    return tuple(found)


def draw(subject: Subject, names: tuple[str, ...] = ()) -> tuple[list[Drawing], dict[str, str]]:
    """The named figures (default: those of the experiment), and name -> reason for those that cannot be drawn."""
    asked = names or subject.experiment.head.figures or usual_figures(subject)
    for name in asked:
        one_of(name, FIGURES, "figure", ExperimentError)
    drawn, failed = [], {}
    for name in asked:
        try:
            drawn.append(FIGURES[name](subject)._replace(name=name))
        except ColmeError as error:
            failed[name] = str(error)
    if failed and not drawn:
        raise RunError(f"no figure could be drawn: {next(iter(failed.values()))}")
    return drawn, failed


def save_figures(drawings: list[Drawing], folder: Path) -> list[Path]:
    """Write SVG, PDF and CSV of each figure; return the paths."""
    from colme.lab import plots

    return [path for each in drawings for path in plots.save(each.figure, each.table, folder / each.name)]


class Subject(NamedTuple):
    """An experiment with its data: what figures are drawn from."""

    experiment: Experiment
    store: RunStore
    data: Any

    @property
    def picked(self) -> Planned:
        """The run that pictures show: the first of CL-colME, else of a method that collaborates, else of any."""
        planned = self.experiment.planned
        return min(planned, key=lambda each: (each.spec.method.label != REFERENCE, each.spec.method.baseline))


def subject_of(source: ExperimentSource, results: str | os.PathLike[str] = "results") -> Subject:
    """An experiment with its finished runs."""
    experiment, store = opened(source, results)
    return Subject(experiment, store, dataset(experiment, store))


def run_shown(subject: Subject) -> str:
    """The run that a picture shows, in words."""
    from colme.lab.rows import describe, parameters_of

    each = subject.picked
    parameters = each.spec.parameters()
    words = [describe(name, parameters[name]) for name in parameters_of(subject.data["mse"]) if name in parameters]
    return f"Shown: {', '.join([each.label, *words, f'seed {each.spec.seed}'])}."


def initial_graph(subject: Subject) -> tuple[Any, str]:
    """The graph on which the run that pictures show starts, and its description."""
    from colme.lab.plots.spectra import MOST

    spec = subject.picked.spec.with_fewer_agents(MOST)
    made = spec.first_graph()
    kind = f"the graph {Path(spec.graph_file).name}" if spec.graph_file else f"a {spec.graph} graph"
    return made, f"{kind} of {made.n_agents:,} agents and {made.n_edges:,} edges"
