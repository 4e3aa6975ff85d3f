"""`plan_method`: from the tables of an experiment file to the list of its runs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from colme.errors import ColmeError, ExperimentError, one_of, shorten
from colme.methods import METHODS, CLColME, Method
from colme.scenario import Scenario, check_seed
from colme.sim.graph_files import find_graph, is_graph_file
from colme.sim.spec import RunSpec, Setup
from colme.support import structs
from colme.support.structs import accept

MOST_SEEDS = 100_000
REFERENCE = CLColME.label
"""The method to whose time the times of the others are given as ratios."""
BENCHMARKS = tuple(method.label for method in METHODS if method.baseline)
"""Labels of the methods that do not collaborate: the others are compared with them."""


def tag_of(method: Method) -> str:
    """The name of a method in files."""
    return str(method.__struct_config__.tag)


@dataclass(frozen=True)
class Planned:
    """One run of an experiment: its label in tables, what determines it, and the name that follows from that."""

    label: str
    spec: RunSpec
    module: str | None = None
    """The hash of the Python file that defines the method, if it does not come with colme."""

    @property
    def configuration(self) -> dict[str, Any]:
        return self.spec.plain() | ({"module": self.module} if self.module else {})

    @property
    def name(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self.configuration, order="sorted")).hexdigest()[:16]

    @property
    def size(self) -> int:
        """Agents times steps."""
        return self.spec.source.n_agents * self.spec.steps


def plan_method(
    table: dict[str, Any],
    entry: dict[str, Any],
    seeds: tuple[int, ...],
    known: dict[str, tuple[type[Method], str | None]],
    path: str,
    case: dict[str, Any],
    folder: Path,
) -> list[Planned]:
    """The runs of one [[methods]] table, in one of the [[cases]] (an empty one if there are none)."""
    if "method" not in entry:
        raise ExperimentError(
            f"{path}.method is missing: every [[methods]] table names its method. Try method = 'cl-colme'."
        )
    with located(path):
        one_of(entry["method"], known, "method", ExperimentError)
    kind, module = known[entry["method"]]
    if not _takes_part(entry, case, table, path):
        return []
    own_scenario = entry.get("scenario", {})
    if not isinstance(own_scenario, dict):
        raise ExperimentError(f"{path}.scenario={shorten(own_scenario)}: it is a table. Write scenario.n_agents = 100.")
    setup = Setup.__struct_fields__
    others = (*setup, "label", "scenario", "seeds", "cases")
    own_fields = {key: value for key, value in entry.items() if key not in ("method", *others)}
    of_case = {key: value for key, value in case.items() if key not in setup}
    place = f"case {case['case']!r}" if case else ""
    methods = _combinations(kind, [(own_fields, path)], others)
    scenarios = _combinations(Scenario, [(table["scenario"], "scenario"), (of_case, place),
                                         (own_scenario, f"{path}.scenario")])  # fmt: skip
    parts = ((table, ""), (case, ""), (entry, path))
    setups = _combinations(Setup, [({key: part[key] for key in setup if key in part}, at) for part, at in parts])
    with located(path):
        label = convert_field(entry.get("label", kind.label), str, "label")
        if "seeds" in entry:
            seeds = seeds_of(convert_field(entry["seeds"], int | tuple[int, ...], "seeds"))
    for cells in setups:
        graph, whole = cells.get("graph", ("", ""))
        if is_graph_file(graph):
            with located(whole.rpartition(".")[0]):
                cells["graph"] = find_graph(graph, folder, "the experiment file"), whole
    for each in msgspec.structs.fields(Scenario):
        if each.required and each.name not in scenarios[0]:
            raise ExperimentError(f"scenario: {each.name} is missing. See help(colme.Scenario).")
    made = [_made(kind, cells, path) for cells in methods]
    first = [
        _made(RunSpec, cells, "", method=method, source=scenario)
        for scenario in [_made(Scenario, cells, "scenario") for cells in scenarios]
        for cells in setups
        for method in made
    ]
    return [  # what is refused is so for all seeds: one is checked
        Planned(label, spec if seed == spec.seed else msgspec.structs.replace(spec, seed=seed), module)
        for spec in first
        for seed in seeds
    ]


def cases_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """The [[cases]] of an experiment, each with a name and its changes of scenario and set-up; one without changes if
    there are none."""
    cases = table.get("cases", [{}])
    known = (*Scenario.__struct_fields__, *Setup.__struct_fields__)
    if not isinstance(cases, list) or not cases or not all(isinstance(case, dict) for case in cases):
        raise ExperimentError(f"cases={shorten(cases)}: they are tables. Write [[cases]].")
    if "cases" in table:
        names = [case.get("case") for case in cases]
        for i, case in enumerate(cases):
            with located(f"cases[{i}]"):
                if not isinstance(case.get("case"), str) or not case["case"] or names.count(case["case"]) > 1:
                    raise ExperimentError(
                        f"case={shorten(case.get('case'))}: every case needs a name of its own. "
                        "Write case = 'three classes'."
                    )
                for key in case:
                    one_of(key, known, "key", ExperimentError)
    return cases


def _takes_part(entry: dict[str, Any], case: dict[str, Any], table: dict[str, Any], path: str) -> bool:
    """Whether a method runs in a case: in all, unless it lists its cases."""
    if "cases" not in entry:
        return True
    with located(path):
        wanted = convert_field(entry["cases"], tuple[str, ...], "cases")
        for name in wanted:
            one_of(name, [each["case"] for each in table.get("cases", ())], "case", ExperimentError)
    return case.get("case") in wanted


def seeds_of(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """10 stands for the seeds 0 to 9; a list for itself."""
    if isinstance(seeds, int) and seeds > MOST_SEEDS:
        raise ExperimentError(f"seeds={seeds}: at most {MOST_SEEDS:,} are allowed. Try seeds = 10, or [{seeds}].")
    every = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not every or len(set(every)) < len(every):
        got = seeds if isinstance(seeds, int) else shorten(list(seeds))
        raise ExperimentError(f"seeds={got}: there must be at least one seed, each once. Try seeds = 10.")
    return tuple(check_seed(seed) for seed in every)


Cell = tuple[Any, str]
"""A value of a field, and where it is in the file."""


def _combinations(
    struct: type[msgspec.Struct], tables: Iterable[tuple[dict[str, Any], str]], others: Iterable[str] = ()
) -> list[dict[str, Cell]]:
    """Every combination of the values of tables whose keys are the fields of a struct, the last key fastest; a later
    table replaces what an earlier one has. `others` are further keys that are allowed there.

    A list is a sweep, unless the field itself takes a list (`means`): there, a list of lists is."""
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    choices: dict[str, list[Cell]] = {}
    for table, path in tables:
        for key, value in table.items():
            with located(path):
                one_of(key, (*fields, *others), "key")
            whole = f"{path}.{key}".lstrip(".")
            values = _values(value, fields[key], whole)
            choices[key] = [(each, f"{whole}[{i}]" if values[1:] else whole) for i, each in enumerate(values)]
    return [dict(zip(choices, cells, strict=True)) for cells in itertools.product(*choices.values())]


def _made(struct: Any, cells: dict[str, Cell], path: str, **others: Any) -> Any:
    """A struct; an error that names a field says where in the file it is, and which value of a sweep it was."""
    try:
        return struct(**{key: value for key, (value, _) in cells.items()}, **others)
    except ColmeError as error:
        message = str(error)
        named = re.match(r"(?:unknown )?(\w+)", message)  # "delta=2: ..." or "unknown level 'x': ..."
        if named is None or named[1] not in cells:
            with located(path):
                raise
        value, place = cells[named[1]]
        rest = message.removeprefix(named[1]) if message.startswith(f"{named[1]}=") else f"={shorten(value)}: {message}"
        raise ExperimentError(place + rest) from None


def _values(value: Any, kind: Any, path: str) -> list[Any]:
    """One value, or several if it is a sweep."""
    if not isinstance(value, list):
        return [convert_field(value, kind, path)]
    with contextlib.suppress(msgspec.ValidationError):
        return [accept(value, kind)]
    if not value:
        raise ExperimentError(f"{path}=[]: a sweep needs at least one value. Leave the key out for its default.")
    swept = []
    for i, each in enumerate(value):
        if isinstance(each, list) and len(each) == 1:  # [2.0] is 2.0 where the field takes a number too
            with contextlib.suppress(msgspec.ValidationError):
                swept.append(accept(each[0], kind))
                continue
        swept.append(convert_field(each, kind, f"{path}[{i}]"))
    for i, each in enumerate(swept):
        if each in swept[:i]:
            raise ExperimentError(f"{path}[{i}]={shorten(each)} is twice in the list. Leave one out.")
    return swept


located = functools.partial(structs.located, refusal=ExperimentError)
"""Errors raised inside name the place in the experiment file."""
convert_fields = functools.partial(structs.convert_fields, refusal=ExperimentError)
convert_field = functools.partial(structs.convert_field, refusal=ExperimentError)
