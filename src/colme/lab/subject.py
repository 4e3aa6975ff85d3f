"""`Subject`: an experiment with its data, from which figures are drawn, and the runs that pictures show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colme.lab.experiments.experiment import Experiment
from colme.lab.experiments.planning import REFERENCE, Planned
from colme.lab.results import dataset
from colme.lab.runs.store import RunStore
from colme.spectrum import spectrum as spectrum_of


@dataclass(frozen=True)
class Drawing:
    """A figure, the numbers behind it, and its caption."""

    name: str
    figure: Any
    table: Any
    caption: str


@dataclass(frozen=True)
class Subject:
    """An experiment with its data: what figures are drawn from."""

    experiment: Experiment
    store: RunStore
    data: Any

    @property
    def picked(self) -> Planned:
        """The run that pictures show: the first of CL-colME, else of a method that collaborates, else of any."""

        def rank(each: Planned) -> tuple[bool, bool]:
            method = each.spec.method
            return method.label != REFERENCE, method.baseline

        return min(self.experiment.planned, key=rank)


def subject_of(experiment: Experiment, store: RunStore) -> Subject:
    """The experiment with the data of its finished runs."""
    return Subject(experiment, store, dataset(experiment, store))


def run_shown(subject: Subject) -> str:
    """The run that a picture shows, in words."""
    from colme.lab.lines import NOT_PARAMETERS, describe

    each = subject.picked
    swept = [str(dim) for dim in subject.data["mse"].dims if dim not in NOT_PARAMETERS]
    parameters = each.spec.parameters()
    words = [describe(name, parameters[name]) for name in swept if name in parameters]
    return f"Shown: {', '.join([each.label, *words, f'seed {each.spec.seed}'])}."


def initial_graph(subject: Subject) -> tuple[Any, str]:
    """The graph on which the run that pictures show starts, and its description."""
    from colme.lab.plots.spectra import MOST

    spec = subject.picked.spec.with_fewer_agents(MOST)
    made = spec.first_graph()
    kind = f"the graph {Path(spec.graph_file).name}" if spec.graph_file else f"a {spec.graph} graph"
    return made, f"{kind} of {made.n_agents:,} agents and {made.n_edges:,} edges"


def step_marks(subject: Subject) -> dict[str, float]:
    """name -> step b: the fastest step and the limit of stability on the initial graph."""
    made, _ = initial_graph(subject)
    found = spectrum_of(made)
    return {"fastest": found.fastest_step, "limit of stability": 2.0 / found.largest}
