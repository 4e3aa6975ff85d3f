"""The figures of an experiment, by name: what `colme plot` draws and a report shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from colme.errors import ColmeError, ExperimentError, RunError, one_of
from colme.lab.experiments.experiment import FIGURE_NAMES, Experiment
from colme.lab.experiments.planning import Planned
from colme.lab.experiments.setting import Setting
from colme.lab.lines import NOT_PARAMETERS, describe, lines_of
from colme.lab.results import dataset
from colme.lab.runs.store import RunStore
from colme.lab.timing_runs import ratio_frame
from colme.methods import Census, CLColME, Local, Oracle
from colme.scenario import Scenario
from colme.sim.prepare import first_graph
from colme.spectrum import spectrum as spectrum_of

MOST_LINES, MOST_PANELS = 10, 8
"""Lines that can be told apart in one plot; plots that fit below each other."""
PICTURED = 80
"""Agents in a picture of the graph."""
DENSE = 200_000
"""Agents up to which a simulation for a picture is quick."""


@dataclass(frozen=True)
class Drawing:
    """A figure, the numbers behind it, and what to say below it."""

    name: str
    figure: Any
    table: Any
    caption: str


@dataclass(frozen=True)
class Subject:
    """What figures are drawn of."""

    experiment: Experiment
    store: RunStore
    data: Any

    @property
    def picked(self) -> Planned:
        """The run that pictures show: CL-colME if it is there, else the first that collaborates, else the first."""
        alone = (Local, Oracle)
        ranked = sorted(
            self.experiment.planned,
            key=lambda each: (not isinstance(each.setting.method, CLColME), isinstance(each.setting.method, alone)),
        )
        return ranked[0]


def mse(subject: Subject) -> Drawing:
    """Mean squared error over time, with local and oracle."""
    from colme.lab import plots

    caption = "Mean squared error of all agents: median and quartiles over the seeds."
    return Drawing(
        "mse", _panels(subject.data, "mse", plots.plot_mse), plots.curves(subject.data, "mse", references=True), caption
    )


def relative(subject: Subject) -> Drawing:
    """Mean squared error as a share of that of agents who learn alone."""
    from colme.lab import plots

    data = plots.relative_to_local(subject.data)
    caption = (
        "Mean squared error of all agents divided by that of agents who learn alone: median and quartiles over the "
        "seeds. Above 1 collaboration harms."
    )
    table = plots.curves(data, plots.RELATIVE)
    return Drawing("relative", _panels(data, plots.RELATIVE, plots.plot_relative), table, caption)


def error_rate(subject: Subject) -> Drawing:
    """Share of agents that are off by more than the tolerance."""
    from colme.lab import plots

    by = f"{subject.data.attrs['tolerance']:g}" if "tolerance" in subject.data.attrs else "the tolerance"
    zero = "; the shaded strip is zero" if bool((subject.data["error_rate"] == 0).any()) else ""
    caption = f"Share of agents whose estimate is off by more than {by}{zero}."
    table = plots.curves(subject.data, "error_rate", spacing="linear", references=True)
    return Drawing("error_rate", _panels(subject.data, "error_rate", plots.plot_error_rate), table, caption)


def wrong_edges(subject: Subject) -> Drawing:
    """Share of the edges between classes that are still alive."""
    from colme.lab import plots

    table = plots.curves(subject.data, "wrong_edges", spacing="linear")
    caption = "Edges between agents of different classes that are still alive, as a share of those at the start."
    return Drawing("wrong_edges", _panels(subject.data, "wrong_edges", plots.plot_wrong_edges), table, caption)


def time(subject: Subject) -> Drawing:
    """Time per run, and its ratio to CL-colME's."""
    from colme.lab import plots

    caption = (
        "CPU time of a run, metrics at every recorded step included and compilation excluded; whiskers are quartiles "
        "over the seeds. Runs share the machine with each other: for careful ratios see experiments/timing.toml."
    )
    return Drawing("time", plots.plot_time(subject.data), plots.time_table(subject.data), caption)


def scaling(subject: Subject) -> Drawing:
    """Time per agent and step as the number of agents grows."""
    from colme.lab import plots

    caption = "CPU time per agent and step, metrics at the recorded steps included and compilation excluded."
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
    marks = _step_marks(subject) if name == "step" else None
    recorded = data["t"].values[data["mse"].notnull().any([dim for dim in data["mse"].dims if dim != "t"]).values]
    parts = (8, 4, 2, 1) if len(lines_of(data["mse"], keep=name)) == 1 else (1,)  # many methods: only how they end
    at = sorted({int(recorded[np.abs(recorded - recorded[-1] / part).argmin()]) for part in parts})
    caption = f"Mean squared error against {name.replace('_', ' ')}: median and quartiles."
    return Drawing(
        "parameter",
        plots.plot_parameter(data, name, at=at, marks=marks),
        plots.parameter_table(data, name, at=at),
        caption,
    )


def density(subject: Subject) -> Drawing:
    """Everybody's estimate over time: one cloud that splits into classes."""
    from colme.lab import plots

    setting = subject.picked.setting
    if setting.scenario.n_agents > DENSE:
        setting = _few(setting, DENSE)
    options = setting.options()
    found = plots.estimate_density(
        setting.method, setting.scenario, degree=options["degree"], graph=options["graph"], steps=setting.setup.steps,
        seed=setting.seed,
    )  # fmt: skip
    caption = (
        f"The estimates of all {setting.scenario.n_agents:,} agents, how many say what at every time: one cloud "
        f"becomes as many lines as there are classes. {_which(subject)}"
    )
    return Drawing("density", plots.plot_density(found), found, caption)


def graph(subject: Subject) -> Drawing:
    """The graph before and after the classes have separated, for a few agents."""
    import pandas
    from matplotlib.figure import Figure

    from colme.lab import plots

    setting = _few(subject.picked.setting, PICTURED)
    setup = msgspec.structs.replace(setting.setup, degree=min(setting.setup.degree or 6, 6))
    setting = msgspec.structs.replace(setting, setup=setup)
    options = setting.options()
    found = plots.separation(
        setting.method, setting.scenario, degree=options["degree"], graph=options["graph"], steps=setup.steps,
        seed=setting.seed,
    )  # fmt: skip
    figure = Figure(figsize=(7.2, 3.7), layout="constrained")
    for axes, when in zip(figure.subplots(1, 2), ("before", "after"), strict=True):
        plots.plot_graph(found, when, axes)
    alive = {tuple(edge) for edge in found.after.edges().tolist()}
    edges = found.before.edges()
    table = pandas.DataFrame(
        {"a": edges[:, 0], "b": edges[:, 1], "wrong": found.wrong(found.before),
         "alive": [tuple(edge) in alive for edge in edges.tolist()]}
    )  # fmt: skip
    caption = (
        f"A small population of the same kind: {setting.scenario.n_agents} agents and {len(edges)} edges, before the "
        f"first sample and after the last. {_which(subject)}"
    )
    return Drawing("graph", figure, table, caption)


def census(subject: Subject) -> Drawing:
    """How a census works: a ballot, the votes of one agent round by round, the tribes, the posterior."""
    from matplotlib.figure import Figure

    from colme.lab import plots

    for each in subject.experiment.planned:
        if isinstance(each.setting.method, Census):
            break
    else:
        raise ColmeError("no method is a census: the figure 'census' needs one. Add method = 'census'.")
    options = each.setting.options()
    found = plots.explain_census(
        each.setting.method, each.setting.scenario, degree=options["degree"], graph=options["graph"],
        steps=min(150, each.setting.setup.steps), seed=each.setting.seed,
    )  # fmt: skip
    figure = Figure(figsize=(9.6, 6.6), layout="constrained")
    for axes, part in zip(figure.subplots(2, 2).ravel(), plots.PARTS, strict=True):
        plots.plot_census(found, part, axes)
    words = ", ".join(part for part in (each.setting.scenario.case, f"agent {found.agent}", f"t = {found.t}") if part)
    return Drawing("census", figure, found.table(), f"How a census works ({words}).")


def spectrum(subject: Subject) -> Drawing:
    """Eigenvalues of the Laplacian of the graph everybody begins on."""
    from colme.lab import plots

    made, words = _first_graph(subject)
    caption = f"Eigenvalues of the Laplacian of {words}; the line is the density of an infinite random regular graph."
    return Drawing("spectrum", plots.plot_spectrum(made), plots.spectrum_table(made), caption)


def stability(subject: Subject) -> Drawing:
    """How fast a consensus step converges, and where it stops being stable."""
    from colme.lab import plots

    made, words = _first_graph(subject)
    caption = (
        f"What is left of a disagreement after one consensus step b, on {words}: theory, max |1 - b lambda|, and "
        "measured by repeating the step. Above 1 it grows."
    )
    steps = np.linspace(0.0, 1.4 * 2.0 / spectrum_of(made).largest, 29)[1:].tolist()
    return Drawing("stability", plots.plot_stability(made, steps), plots.stability_table(made, steps), caption)


def timing(subject: Subject) -> Drawing:
    """Times of methods side by side, as ratios to CL-colME."""
    from colme.lab import plots

    table = ratio_frame(subject.experiment, subject.store)
    caption = (
        "Time relative to CL-colME's, turn by turn: median, quartiles and the ratios of all turns. The dashed line is "
        "the paper's claim, 871 s / 722 s."
    )
    return Drawing("timing", plots.plot_timing(table), table, caption)


def _panels(data: Any, metric: str, plot: Callable[..., Any]) -> Any:
    """One plot, or, if it would have more lines than can be told apart, one below the other for the values of the
    first swept parameters."""
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
    """The figures of an experiment that does not name its own."""
    if subject.experiment.head.timing is not None:
        return ("timing",)
    swept = [str(dim) for dim in subject.data["mse"].dims]
    found = ["mse", "density", "graph", "wrong_edges", "error_rate", "time"]
    if "n_agents" in swept:
        found.insert(1, "scaling")
    if "step" in swept:
        found += ["parameter", "stability", "spectrum"]
    return tuple(found)


def subject_of(experiment: Experiment, store: RunStore) -> Subject:
    return Subject(experiment, store, dataset(experiment, store))


def draw(subject: Subject, names: tuple[str, ...] = ()) -> tuple[list[Drawing], dict[str, str]]:
    """The named figures (default: those of the experiment) and, for those that cannot be drawn, why."""
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
    """SVG, PDF and CSV of each."""
    from colme.lab import plots

    return [path for each in drawings for path in plots.save(each.figure, each.table, folder / each.name)]


def _which(subject: Subject) -> str:
    """Which of the runs a picture shows."""
    each = subject.picked
    swept = [str(dim) for dim in subject.data["mse"].dims if dim not in NOT_PARAMETERS]
    parameters = each.setting.parameters()
    words = [describe(name, parameters[name]) for name in swept if name in parameters]
    return f"({', '.join([each.label, *words, f'seed {each.setting.seed}'])})"


def _first_graph(subject: Subject) -> tuple[Any, str]:
    from colme.lab.plots.spectra import MOST

    setting = _few(subject.picked.setting, MOST)
    options = setting.options()
    made = first_graph(options["graph"], options["degree"], setting.scenario.n_agents, setting.seed)
    return made, f"a {setting.setup.graph} graph of {made.n_agents:,} agents and {made.n_edges:,} edges"


def _step_marks(subject: Subject) -> dict[str, float]:
    made, _ = _first_graph(subject)
    found = spectrum_of(made)
    return {"fastest": found.fastest_step, "edge of stability": 2.0 / found.largest}


def _few(setting: Setting, most: int) -> Setting:
    """The same setting with at most so many agents, classes in the same proportions."""
    scenario = setting.scenario
    if scenario.n_agents <= most:
        return setting
    fields: dict[str, Any] = {"n_agents": most}
    if scenario.sizes is not None:
        fields |= {"assignment": "random"}  # sizes become proportions
    if isinstance(scenario.sigma, tuple) and len(scenario.sigma) != len(scenario.means):
        fields["sigma"] = scenario.sigma[:most]
    if isinstance(scenario.skip_rate, tuple):
        fields["skip_rate"] = scenario.skip_rate[:most]
    few: Scenario = msgspec.structs.replace(scenario, **fields)
    return msgspec.structs.replace(setting, scenario=few)
