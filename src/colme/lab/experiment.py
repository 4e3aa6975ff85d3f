"""`Experiment`: an experiment file (TOML), read and checked, and the runs it asks for.

    title = "Two hidden classes"
    seeds = 10
    steps = 2000
    [scenario]
    n_agents = [1000, 5000]            # a list is a sweep
    means = [1.2, 2.0]
    sigma = 2.0
    [[methods]]
    method = "cl-colme"
    level = ["agent", "edge"]
    [[methods]]
    method = "local"

The keys at the top are the fields of `Setup` and `Head`, the keys of [scenario] those of `colme.Scenario`, the keys of
[[methods]] those of the method. A method's table may also override the scenario or the set-up for that method
(`scenario.n_agents = 1000`, `steps = 500`, `seeds = 2`) and set its `label`. Paths (`modules`, `graph`) are relative to
the file.
"""

from __future__ import annotations

import copy
import itertools
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from colme.errors import ColmeError, ExperimentError, one_of, shorten
from colme.lab.planning import Planned, cases_of, convert_fields, located, plan_method, seeds_of
from colme.methods import Method
from colme.methods.registry import methods_by_name
from colme.metrics import METRICS
from colme.scenario import Scenario
from colme.sim.graph_files import check_graph_names
from colme.sim.spec import RunSpec, Setup
from colme.support.structs import Configuration, read_toml

TIME_RATIO = "time_ratio"
"""A metric that only expected numbers have: the time of a method divided by that of CL-colME."""
WORST_RATIO, MEAN_COVERAGE = "worst_ratio", "mean_coverage"
"""Two more: the largest error relative to that of local means, from step 3 on (before, nothing could be judged), and
the coverage of 90 % intervals, on average from step 10 on; both of means over the seeds."""
BOUNDS = ("", "at most", "at least")
STATISTICS = ("median", "mean")


class Expected(Configuration, frozen=True, kw_only=True):
    """A number to compare a measurement with: from theory, from an independent computation, or from a paper.

    method     the label of the method. In a file a list of labels, or of names in `where`, stands for one table each
    metric     one of colme.metrics.METRICS; or "time_ratio": its time divided by that of CL-colME (with the same
               parameters); or "worst_ratio": its largest error relative to local means, from step 3 on; or
               "mean_coverage": the coverage of 90 % intervals, on average from step 10 on
    t          the step at which it is expected; or
    below      the level below which the metric falls: the expected value is the first step at which it does
    value      the expected value
    bound      "at most" or "at least" if the value is a promise, which the table says to hold or not
    statistic  of the seeds, "median" (default) or "mean": a mean is compared with the mean of what was measured
    source     where the value comes from ("published: ..." if a paper prints it)
    where      which parameters, where they are swept: { level = "agent" }
    """

    refusal = ExperimentError

    method: str
    metric: str = "mse"
    t: int | None = None
    below: float | None = None
    value: float
    bound: str = ""
    statistic: str = "median"
    source: str = ""
    where: dict[str, bool | int | float | str | tuple[float, ...]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.metric, (*METRICS, TIME_RATIO, WORST_RATIO, MEAN_COVERAGE), "metric", ExperimentError)
        one_of(self.statistic, STATISTICS, "statistic", ExperimentError)
        one_of(self.bound, BOUNDS, "bound", ExperimentError)
        if self.metric in METRICS and (self.t is None) == (self.below is None):
            raise ExperimentError(
                f"t={self.t} and below={self.below}: an expected number has exactly one of them. Try t=1000."
            )


class Head(Configuration, frozen=True, kw_only=True):
    """The keys of an experiment file besides those of `Setup`, `scenario` and `methods`.

    title      one line
    about      what the experiment shows
    reference  the paper
    seeds      the number of seeds, or a list of seeds
    figures    the figures of the report, in order (see: colme list figures)
    modules    Python files with methods of your own, relative to the experiment file
    expected   numbers to compare the measurements with
    """

    refusal = ExperimentError

    title: str = ""
    about: str = ""
    reference: str = ""
    seeds: int | tuple[int, ...] = 1
    figures: tuple[str, ...] | None = None
    modules: tuple[str, ...] = ()
    expected: tuple[Expected, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.figures:
            from colme.lab.figures import FIGURES  # it imports this module

            for name in self.figures:
                one_of(name, FIGURES, "figure", ExperimentError)


@dataclass(frozen=True)
class Experiment:
    """An experiment file, read and checked: `Experiment.read(path)` or `Experiment.parse(table)`.

    >>> from colme import lab
    >>> experiment = lab.Experiment.read("cl_colme")
    >>> experiment.title, len(experiment.planned)
    ('CL-colME: 5,000 agents, two hidden classes', 60)

    See also: run, load
    """

    name: str
    head: Head
    planned: tuple[Planned, ...]
    table: dict[str, Any]
    """The contents of the file, with the changes made by flags."""
    modules: tuple[Path, ...] = ()

    @classmethod
    def read(cls, path: str | Path, changes: dict[str, Any] | None = None) -> Experiment:
        """Read a TOML file, or one of the experiments that come with colme by name."""
        path = find(path)
        table = read_toml(path, ExperimentError, "Try: colme list experiments.")
        with located(f"{path}: "):
            return cls.parse(table, name=path.stem, folder=path.parent, changes=changes)

    @classmethod
    def parse(
        cls,
        table: dict[str, Any],
        *,
        name: str = "experiment",
        folder: Path | str = ".",
        changes: dict[str, Any] | None = None,
    ) -> Experiment:
        """Check a table of the same form as the file; `changes` are flat, field -> value (see `change`).

        folder   the folder to which paths in the table are relative"""
        table = _plain(table)
        top = ("scenario", "cases", "methods", *Setup.__struct_fields__, *Head.__struct_fields__)
        for key in table:
            one_of(key, top, "key", ExperimentError)
        for key in ("scenario", "methods"):
            if not table.get(key):
                write = "[scenario]" if key == "scenario" else "[[methods]]"
                raise ExperimentError(f"{key} is missing: an experiment has a scenario and methods. Add {write}.")
        if not isinstance(table["scenario"], dict):
            raise ExperimentError(f"scenario={shorten(table['scenario'])}: it is a table. Write [scenario].")
        if not isinstance(table["methods"], list) or not all(isinstance(entry, dict) for entry in table["methods"]):
            raise ExperimentError(f"methods={shorten(table['methods'])}: they are tables. Write [[methods]].")
        cases = cases_of(table)
        head = _head_of(table)
        modules = tuple(Path(folder) / each for each in head.modules)
        known = methods_by_name(modules, ExperimentError)
        if changes:
            table = change(table, changes, {name: method for name, (method, _) in known.items()})
            head, cases = _head_of(table), cases_of(table)
        planned: list[Planned] = []
        seeds = seeds_of(head.seeds)
        for case in cases:
            for i, entry in enumerate(table["methods"]):
                planned += plan_method(table, entry, seeds, known, f"methods[{i}]", case, Path(folder))
        seen: set[tuple[str, str]] = set()
        for each in planned:
            if (each.label, each.name) in seen:
                raise ExperimentError(f"methods has {each.spec.method!r} twice. Leave one out, or label it.")
            seen.add((each.label, each.name))
        check_graph_names(each.spec.graph_file for each in planned)
        planned.sort(key=lambda each: each.spec.seed)  # all methods of the first seed, then of the next
        labels = dict.fromkeys(each.label for each in planned)
        parameters = {name for each in planned for name in each.spec.parameters()} if head.expected else set()
        for i, expected in enumerate(head.expected):
            with located(f"expected[{i}]"):
                one_of(expected.method, labels, "method", ExperimentError)
                for key in expected.where:
                    one_of(key, parameters, "parameter")
        return cls(name, head, tuple(planned), table, modules)

    def without_expected(self) -> Experiment:
        """The same runs without the expected numbers."""
        table = {key: value for key, value in self.table.items() if key != "expected"}
        return replace(self, head=msgspec.structs.replace(self.head, expected=()), table=table)

    def check(self) -> dict[str, str]:
        """Find what would fail only when it runs: a graph that does not exist, a step that is not stable on its graph.

        Returns `cannot_run`. A method of which no combination can run is an error."""
        refused = self.cannot_run()
        able = {each.label for each in self.planned if each.name not in refused}
        for each in self.planned:
            if each.label not in able:
                raise ExperimentError(refused[each.name])
        return refused

    def cannot_run(self) -> dict[str, str]:
        """Name of the run -> reason, for what would fail when it runs. Graphs are checked for the first seed of every
        combination."""
        reasons: dict[tuple[Any, ...], str] = {}
        found = {}
        for each in self.planned:
            combination = (each.label, *each.spec.but("seed").values())
            if combination not in reasons:
                reasons[combination] = why_not(each.label, each.spec)
            if reasons[combination]:
                found[each.name] = reasons[combination]
        return found

    @property
    def title(self) -> str:
        return self.head.title or self.name

    @property
    def methods(self) -> list[Method]:
        """All methods, each once."""
        return list(dict.fromkeys(each.spec.method for each in self.planned))

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {len(self.planned)} runs)"


def why_not(label: str, spec: RunSpec) -> str:
    """Why a run cannot be done, or "" if it can."""
    try:
        spec.check()
    except ColmeError as error:
        return f"{label}: {error}"
    return ""


def _head_of(table: dict[str, Any]) -> Head:
    fields = {key: table[key] for key in Head.__struct_fields__ if key in table}
    if isinstance(fields.get("expected"), list):
        fields["expected"] = [each for entry in fields["expected"] for each in _each_expected(entry)]
    return Head(**convert_fields(fields, Head))


def _each_expected(entry: Any) -> list[Any]:
    """An [[expected]] table for each combination, where `method` or a parameter is a list of names."""
    if not isinstance(entry, dict) or not isinstance(where := entry.get("where", {}), dict):
        return [entry]  # refused later
    choices = [
        value if isinstance(value, list) and value and all(isinstance(each, str) for each in value) else [value]
        for value in (entry.get("method"), *where.values())
    ]
    return [
        entry | {"method": method, "where": dict(zip(where, rest, strict=True))}
        for method, *rest in itertools.product(*choices)
    ]


def change(table: dict[str, Any], changes: dict[str, Any], known: dict[str, type[Method]]) -> dict[str, Any]:
    """The table with some fields changed, each where the file has it; names are flat (see `RunSpec.parameters`)."""
    table = copy.deepcopy(table)
    for name, value in changes.items():
        of_scenario = name in Scenario.__struct_fields__
        if of_scenario or name in (*Setup.__struct_fields__, *Head.__struct_fields__):
            for part in (*table["methods"], *table.get("cases", ())):  # a flag also replaces what these set
                part.pop(name, None)
                if of_scenario and isinstance(own := part.get("scenario"), dict):
                    own.pop(name, None)
            (table["scenario"] if of_scenario else table)[name] = value
            continue
        field = name.removeprefix("method_")
        tags = {tag for tag, method in known.items() if field in method.__struct_fields__}
        takers = [entry for entry in table["methods"] if str(entry.get("method")) in tags]
        if not takers:
            named = ", ".join(str(entry.get("method")) for entry in table["methods"])
            raise ExperimentError(f"{name}={shorten(value)}: none of the methods ({named}) has it. Leave it out.")
        for entry in takers:
            entry[field] = value
    return table


def _plain(value: Any) -> Any:
    """The value as a TOML file would hold it: lists for tuples and arrays, no NumPy numbers, no None."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def find(path: str | Path) -> Path:
    """The path of a file, or of an experiment that comes with colme given by name."""
    path = Path(path)
    if path.suffix == ".toml" or path.exists():
        return path
    if len(path.parts) != 1:
        raise ExperimentError(f"there is no file or folder {path}. Name a .toml file, or see: colme list experiments.")
    shipped = {each.stem: each for each in shipped_experiments()}
    one_of(str(path), shipped, "experiment", ExperimentError)
    return shipped[str(path)]


def shipped_experiments() -> list[Path]:
    """The files of the experiments that come with colme: in the checkout, else in the installation."""
    for folder in (Path(__file__).resolve().parents[3], Path(sysconfig.get_path("data")) / "share" / "colme"):
        if found := sorted((folder / "experiments").glob("*.toml")):
            return found
    return []
