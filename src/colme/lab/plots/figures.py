"""`FIGURES`: the figures of an experiment, by name. What `colme plot` draws and a report shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from colme.errors import ColmeError, ExperimentError, RunError, one_of
from colme.lab.experiments.experiment import FIGURE_NAMES
from colme.lab.lines import NOT_PARAMETERS, describe, lines_of
from colme.lab.plots.subject import Drawing, Subject, initial_graph, run_shown, step_marks
from colme.spectrum import spectrum as spectrum_of
from colme.spectrum import stable_step

MOST_LINES, MOST_PANELS = 10, 24
"""Most lines in one plot; most plots in one figure."""
PICTURED, MOST_PICTURED = 80, 300
"""Agents in a picture of a graph; most agents of a graph from a file."""
DENSE = 200_000
"""Number of agents up to which a simulation for a figure is quick."""


def mse(subject: Subject) -> Drawing:
    """Mean squared error over time, with local and oracle."""
    from colme.lab import plots

    caption = "Mean squared error over all agents: median (line) and quartiles (band) over the seeds."
    return Drawing(
        "mse", _panels(subject.data, "mse", plots.plot_mse), plots.curves(subject.data, "mse", references=True), caption
    )


def relative(subject: Subject) -> Drawing:
    """Mean squared error relative to that of the local means."""
    from colme.lab import plots

    data = plots.relative_to_local(subject.data)
    caption = (
        "Mean squared error over all agents divided by that of the local means: median (line) and quartiles (band) "
        "over the seeds. Above 1, collaboration is worse than the local means."
    )
    table = plots.curves(data, plots.RELATIVE)
    return Drawing("relative", _panels(data, plots.RELATIVE, plots.plot_relative), table, caption)


def trust(subject: Subject) -> Drawing:
    """Weight that the guard gives to collaborative estimates."""
    from colme.lab import plots

    if "trust" not in subject.data or not bool(subject.data["trust"].notnull().any()):
        raise ExperimentError("the figure trust: no method of this experiment has a guard. Try guard = true in one.")
    caption = (
        "Weight of the collaborative estimate beside the own mean, on average over agents: median (line) and quartiles "
        "(band) over the seeds. At 0 agents report their own means, at 1 what the method says."
    )
    return Drawing(
        "trust", _panels(subject.data, "trust", plots.plot_trust), plots.curves(subject.data, "trust"), caption
    )


def error_rate(subject: Subject) -> Drawing:
    """Share of agents whose error exceeds the tolerance."""
    from colme.lab import plots

    by = f"{subject.data.attrs['tolerance']:g}" if "tolerance" in subject.data.attrs else "the tolerance"
    zero = "; the shaded strip at the bottom leads to zero" if bool((subject.data["error_rate"] == 0).any()) else ""
    caption = f"Share of agents whose error exceeds {by}: median (line) and quartiles (band) over the seeds{zero}."
    table = plots.curves(subject.data, "error_rate", spacing="linear", references=True)
    return Drawing("error_rate", _panels(subject.data, "error_rate", plots.plot_error_rate), table, caption)


def wrong_edges(subject: Subject) -> Drawing:
    """Share of the edges between classes that remain."""
    from colme.lab import plots
    from colme.lab.plots.output import figure_of

    table = plots.curves(subject.data, "wrong_edges", spacing="linear")
    caption = (
        "Share of the initial edges between different classes that remain: median (line) and quartiles (band) over the "
        "seeds."
    )
    figure = _panels(subject.data, "wrong_edges", plots.plot_wrong_edges)
    used = [method for method in subject.experiment.methods if not method.baseline]
    keeping = list(dict.fromkeys(method.label for method in used if not method.cuts_edges))
    if keeping and all(not method.cuts_edges for method in used):
        for axes in figure_of(figure).axes:
            axes.set_ylabel("edges between classes within one group")
        caption = caption.replace("that remain:", "whose two agents the method puts into one group (it cuts none):")
    elif keeping:
        names = " and ".join(keeping)
        caption += f" Lines of methods that cut no edges ({names}): the share whose two agents are put into one group."
    return Drawing("wrong_edges", figure, table, caption)


def time(subject: Subject) -> Drawing:
    """Time per run, and its ratio to CL-colME's."""
    from colme.lab import plots

    table = plots.time_table(subject.data)
    ratios = f" The ratios are relative to {table.attrs['reference']}." if table["ratio"].notna().any() else ""
    caption = (
        "CPU time of a run, with metrics at every recorded step and without compilation: median (bar) and quartiles "
        f"(whiskers) over the seeds.{ratios} Runs were done in parallel."
    )
    return Drawing("time", plots.plot_time(subject.data), table, caption)


def scaling(subject: Subject) -> Drawing:
    """Time per agent and step as the number of agents grows."""
    from colme.lab import plots

    caption = (
        "CPU time per agent and step, with metrics at the recorded steps and without compilation: median (line) and "
        "quartiles (band) over the seeds."
    )
    return Drawing("scaling", plots.plot_scaling(subject.data), plots.scaling_table(subject.data), caption)


def parameter(subject: Subject) -> Drawing:
    """Mean squared error against the first swept number."""
    from colme.lab import plots

    data = subject.data
    numeric = [
        str(dim) for dim in data["mse"].dims
        if dim not in ("method", "seed", "t") and np.issubdtype(data[dim].dtype, np.number)
    ]  # fmt: skip
    if not numeric:
        raise ColmeError("no number is swept: the figure 'parameter' needs one. Try step = [0.05, 0.1] in a method.")
    name = numeric[0]
    marks = step_marks(subject) if name == "step" else None
    recorded = data["t"].values[data["mse"].notnull().any([dim for dim in data["mse"].dims if dim != "t"]).values]
    parts = (8, 4, 2, 1) if len(lines_of(data["mse"], keep=name)) == 1 else (1,)  # many methods: only how they end
    at = sorted({int(recorded[np.abs(recorded - recorded[-1] / part).argmin()]) for part in parts})
    when = ", ".join(f"{step:,}" for step in at)
    caption = (
        f"Mean squared error at t = {when} against {name.replace('_', ' ')}: median (line) and quartiles (band) over "
        "the seeds."
        + (" Dotted lines: the fastest step and the limit of stability of the initial graph." if marks else "")
    )
    return Drawing(
        "parameter",
        plots.plot_parameter(data, name, at=at, marks=marks),
        plots.parameter_table(data, name, at=at),
        caption,
    )


def density(subject: Subject) -> Drawing:
    """Density of all agents' estimates over time: one cloud that splits into classes."""
    from colme.lab import plots

    spec = subject.picked.spec
    if spec.source.n_agents > DENSE:
        spec = spec.with_fewer_agents(DENSE)
    found = plots.estimate_density(
        spec.method, spec.source, degree=spec.degree, graph=spec.graph, steps=spec.n_steps, seed=spec.seed
    )
    caption = (
        f"Density of the estimates of all {spec.source.n_agents:,} agents at every step of one run, each column "
        f"scaled by its maximum. {run_shown(subject)}"
    )
    return Drawing("density", plots.plot_density(found), found, caption)


def graph(subject: Subject) -> Drawing:
    """A small graph before the first and after the last step."""
    import pandas
    from matplotlib.figure import Figure

    from colme.lab import plots
    from colme.lab.plots.graph import panel_height

    picked = subject.picked.spec
    spec = picked.with_fewer_agents(MOST_PICTURED if picked.graph_file else PICTURED)
    spec = msgspec.structs.replace(spec, degree=min(spec.degree or 6, 6))
    found = plots.separation(
        spec.method, spec.source, degree=spec.degree, graph=spec.graph, steps=spec.n_steps, seed=spec.seed
    )
    figure = Figure(figsize=(7.2, panel_height(found, 3.6)), layout="constrained")
    for axes, when in zip(figure.subplots(1, 2), ("before", "after"), strict=True):
        plots.plot_graph(found, when, axes)
    alive = {tuple(edge) for edge in found.after.edges().tolist()}
    edges = found.before.edges()
    table = pandas.DataFrame(
        {"a": edges[:, 0], "b": edges[:, 1], "wrong": found.wrong(found.before),
         "alive": [tuple(edge) in alive for edge in edges.tolist()]}
    )  # fmt: skip
    caption = (
        f"A small simulation with the same parameters: {spec.source.n_agents} agents and {len(edges)} edges, "
        f"before the first sample and after t = {spec.n_steps:,}. {run_shown(subject)}"
    )
    if not spec.method.cuts_edges:
        caption += f" On the right are the edges between agents of one group: {spec.method.label} cuts none."
    return Drawing("graph", figure, table, caption)


def census(subject: Subject) -> Drawing:
    """How a census works: one agent's bins, its histogram round by round, the mixture, the posterior."""
    from matplotlib.figure import Figure

    from colme.lab import plots

    for each in subject.experiment.planned:
        if each.spec.method.__struct_config__.tag == "census":
            break
    else:
        raise ColmeError("no method is a census: the figure 'census' needs one. Add method = 'census'.")
    found = plots.explain_census(
        each.spec.method, each.spec.source, degree=each.spec.degree, graph=each.spec.graph,
        steps=min(150, each.spec.n_steps), seed=each.spec.seed,
    )  # fmt: skip
    figure = Figure(figsize=(9.6, 6.6), layout="constrained")
    for axes, part in zip(figure.subplots(2, 2).ravel(), plots.PARTS, strict=True):
        plots.plot_census(found, part, axes)
    words = ", ".join(part for part in (each.spec.source.case, f"agent {found.agent}", f"t = {found.t}") if part)
    caption = (
        f"How a census works ({words}). 1: the agent's mass; the local means of all agents, which it does not know, "
        "are scaled to a maximum of 1. 2: its histogram after some rounds of consensus. 3: the mixture fitted to its "
        "last histogram; dotted lines are the locations of the components. 4: the estimate for any local mean."
    )
    return Drawing("census", figure, found.table(), caption)


def spectrum(subject: Subject) -> Drawing:
    """Eigenvalues of the initial graph's Laplacian, of I - bL and of the Metropolis matrix."""
    from matplotlib.figure import Figure

    from colme.lab import plots

    made, words = initial_graph(subject)
    step = "auto" if "step" in subject.data.dims else getattr(subject.picked.spec.method, "step", "auto")
    step = float(step) if isinstance(step, float | int) else stable_step(made)
    figure = Figure(figsize=(9.4, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    plots.plot_spectrum(made, left)
    plots.plot_averaging(made, step, right)
    regular = bool((made.degrees == made.degrees[0]).all())
    line = " with the density of an infinite random regular graph (line)" if regular else ""
    caption = (
        f"Left: eigenvalues of the Laplacian L of {words}{line}. Right: eigenvalues of the averaging matrices of "
        f"CL-colME, I - bL with b = {step:.3g}, and of C-colME, W; the slowest factor is the largest absolute value "
        "except that of the consensus itself, 1."
    )
    table = plots.spectrum_table(made).merge(plots.averaging_table(made, step), on="k")
    return Drawing("spectrum", figure, table, caption)


def stability(subject: Subject) -> Drawing:
    """Convergence factor of consensus against its step b, and the limit of stability."""
    from colme.lab import plots

    made, words = initial_graph(subject)
    caption = (
        f"Factor by which one consensus step b multiplies the slowest disagreement on {words}: theory, max |1 - b "
        "lambda| (line), and measured by repeating the step (circles). Above 1 the iteration diverges."
    )
    steps = np.linspace(0.0, 1.4 * 2.0 / spectrum_of(made).largest, 29)[1:].tolist()
    return Drawing("stability", plots.plot_stability(made, steps), plots.stability_table(made, steps), caption)


def _panels(data: Any, metric: str, plot: Callable[..., Any]) -> Any:
    """One plot, or several for the values of the first swept parameters if one would have too many lines."""
    from matplotlib.figure import Figure

    parts: list[tuple[list[str], Any]] = [([], data)]
    for name in [str(dim) for dim in data[metric].dims if dim not in NOT_PARAMETERS]:
        if all(len(lines_of(part[metric])) <= MOST_LINES for _, part in parts):
            break
        parts = [
            ([*words, describe(name, data[name].values[i])], part.isel({name: [i]}))
            for words, part in parts
            for i in range(data.sizes[name])
        ]
    parts = [(words, part) for words, part in parts if bool(part[metric].notnull().any())]
    if len(parts) == 1:
        return plot(data)
    if len(parts) > MOST_PANELS:
        raise ColmeError(
            f"{len(parts)} combinations are too many for a figure of {metric.replace('_', ' ')}: at most {MOST_PANELS} "
            "panels fit. Sweep less, or draw lab.load(...).sel(...) with lab.plots."
        )
    columns = 1 if len(parts) < 4 else 2
    rows = -(-len(parts) // columns)
    figure = Figure(figsize=(5.6 * columns, 3.3 * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (words, part) in zip(places, parts, strict=False):
        plot(part.assign_attrs(title=", ".join(words)), axes)
    for axes in places[len(parts) :]:
        axes.remove()
    return figure


FIGURES: dict[str, Callable[[Subject], Drawing]] = {name: globals()[name] for name in FIGURE_NAMES}
"""Every figure by name."""


def usual_figures(subject: Subject) -> tuple[str, ...]:
    """The figures of an experiment that does not list its figures."""
    swept = [str(dim) for dim in subject.data["mse"].dims]
    found = ["mse", "density", "graph", "wrong_edges", "error_rate", "time"]
    if "n_agents" in swept:
        found.insert(1, "scaling")
    if "step" in swept:
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
            drawn.append(FIGURES[name](subject))
        except ColmeError as error:
            failed[name] = str(error)
    if failed and not drawn:
        raise RunError(f"no figure could be drawn: {next(iter(failed.values()))}")
    return drawn, failed


def save_figures(drawings: list[Drawing], folder: Path) -> list[Path]:
    """Write SVG, PDF and CSV of each figure; return the paths."""
    from colme.lab import plots

    return [path for each in drawings for path in plots.save(each.figure, each.table, folder / each.name)]
