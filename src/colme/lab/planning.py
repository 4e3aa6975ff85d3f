"""`plan_method`: from the tables of an experiment file to the list of its runs."""

from __future__ import annotations

import contextlib
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
from colme.support.structs import accept, reason_of

MOST_SEEDS = 100_000
REFERENCE = CLColME.label
"""The method to whose time the times of the others are given as ratios."""
BENCHMARKS = tuple(method.label for method in METHODS if method.baseline)
"""Labels of the methods that do not collaborate: the others are compared with them."""


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
        return self.spec.n_agents * self.spec.n_steps


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
    own_setup = {key: entry[key] for key in Setup.__struct_fields__ if key in entry}
    own = {"method", "label", "scenario", "seeds", "cases", *own_setup}
    setup_table = {key: source[key] for source in (table, case) for key in Setup.__struct_fields__ if key in source}
    setup_table |= own_setup
    own_scenario = entry.get("scenario", {})
    if not isinstance(own_scenario, dict):
        raise ExperimentError(f"{path}.scenario={shorten(own_scenario)}: it is a table. Write scenario.n_agents = 100.")
    of_case = {key: value for key, value in case.items() if key not in Setup.__struct_fields__}
    scenario_table = table["scenario"] | of_case | own_scenario
    own_fields = {key: entry[key] for key in entry if key not in own}
    others = (*Setup.__struct_fields__, "label", "scenario", "seeds", "cases")
    fields = combinations(own_fields, kind, dict.fromkeys(own_fields, path), others)
    place = f"case {case['case']!r}" if case else ""
    in_scenario = {
        key: f"{path}.scenario" if key in own_scenario else place if key in of_case else "scenario"
        for key in scenario_table
    }
    scenarios = combinations(scenario_table, Scenario, in_scenario)
    in_setup = {key: path if key in own_setup else "" for key in setup_table}
    setups = combinations(setup_table, Setup, in_setup)
    with located(path):
        label = convert_field(entry.get("label", kind.label), str, "label")
        if "seeds" in entry:
            seeds = seeds_of(convert_field(entry["seeds"], int | tuple[int, ...], "seeds"))
    in_method = dict.fromkeys(own_fields, path)
    made = [_made(kind, values, own_fields, in_method, path) for values in fields]
    made_scenarios = [
        _made(Scenario, _required(values), scenario_table, in_scenario, "scenario") for values in scenarios
    ]
    for values in setups:
        if is_graph_file(values.get("graph", "")):
            with located(in_setup["graph"]):
                values["graph"] = find_graph(values["graph"], folder, "the experiment file")
    return [
        Planned(label, spec, module)
        for scenario in made_scenarios
        for values in setups
        for method in made
        for spec in _specs(method, scenario, seeds, values, setup_table, in_setup)
    ]


def _specs(
    method: Method, scenario: Scenario, seeds: tuple[int, ...], values: dict[str, Any], table: dict[str, Any],
    paths: dict[str, str],
) -> list[RunSpec]:  # fmt: skip
    """A run for each seed. What is refused is so for all of them: one is checked."""
    first = _made(RunSpec, {"method": method, "source": scenario} | values, table, paths, "")
    return [first if seed == first.seed else msgspec.structs.replace(first, seed=seed) for seed in seeds]


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
    names = [each.get("case") for each in cases_of(table)]
    with located(path):
        wanted = convert_field(entry["cases"], tuple[str, ...], "cases")
        for name in wanted:
            one_of(name, [name for name in names if name], "case", ExperimentError)
    return case.get("case") in wanted


def seeds_of(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """10 stands for the seeds 0 to 9; a list for itself."""
    if isinstance(seeds, int) and seeds > MOST_SEEDS:
        raise ExperimentError(f"seeds={seeds}: at most {MOST_SEEDS:,} are allowed. Try seeds = 10, or [{seeds}].")
    every = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not every or len(set(every)) < len(every):
        got = shorten(seeds if isinstance(seeds, int) else list(seeds))
        raise ExperimentError(f"seeds={got}: there must be at least one seed, each once. Try seeds = 10.")
    return tuple(check_seed(seed) for seed in every)


def _made(struct: Any, values: dict[str, Any], table: dict[str, Any], paths: dict[str, str], path: str) -> Any:
    """A struct; an error that names a key says where in the file it is, and which value of a sweep it was."""
    try:
        return struct(**values)
    except ColmeError as error:
        message = str(error)
        named = re.match(r"(?:unknown )?(\w+)", message)  # "delta=2: ..." or "unknown level 'x': ..."
        key = named[1] if named else ""
        place = (
            sweep_place(table[key], Setup if struct is RunSpec else struct, key, values[key]) if key in table else ""
        )
        if message.startswith(f"{key}="):
            message = key + place + message.removeprefix(key)
        elif key in table:
            message = f"{key}{place}={shorten(values[key])}: {message}"
        with located(paths.get(key, path)):
            raise ExperimentError(message) from None


def _required(values: dict[str, Any]) -> dict[str, Any]:
    for each in msgspec.structs.fields(Scenario):
        if each.required and each.name not in values:
            raise ExperimentError(f"scenario: {each.name} is missing. See help(colme.Scenario).")
    return values


def combinations(
    table: dict[str, Any], struct: type[msgspec.Struct], paths: dict[str, str], others: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Every combination of the values of a table whose keys are the fields of a struct, the last key fastest.
    `paths` says in which table of the file each key is; `others` are further keys that are allowed there.

    A list is a sweep, unless the field itself takes a list (`means`): there, a list of lists is."""
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    choices = []
    for key, value in table.items():
        with located(paths[key]):
            one_of(key, (*fields, *others), "key")
        choices.append([(key, each) for each in _values(value, fields[key], f"{paths[key]}.{key}".lstrip("."))])
    return [dict(combination) for combination in itertools.product(*choices)]


def _values(value: Any, kind: Any, path: str) -> list[Any]:
    """One value, or several if it is a sweep."""
    try:
        return [accept(value, kind)]
    except msgspec.ValidationError as error:
        if not isinstance(value, list):
            raise ExperimentError(f"{path}={shorten(value)}: {reason_of(error)}") from None
    if not value:
        raise ExperimentError(f"{path}=[]: a sweep needs at least one value. Leave the key out for its default.")
    swept = []
    for i, each in enumerate(value):
        try:
            if isinstance(each, list) and len(each) == 1:  # [2.0] is 2.0 where the field takes a number too
                with contextlib.suppress(msgspec.ValidationError):
                    swept.append(accept(each[0], kind))
                    continue
            swept.append(accept(each, kind))
        except msgspec.ValidationError as error:
            raise ExperimentError(f"{path}[{i}]={shorten(each)}: {reason_of(error)}") from None
    for i, each in enumerate(swept):
        if each in swept[:i]:
            raise ExperimentError(f"{path}[{i}]={shorten(each)} is twice in the list. Leave one out.")
    return swept


def sweep_place(value: Any, struct: type[msgspec.Struct], key: str, chosen: Any) -> str:
    """ "[2]" for the third value of a sweep, "" for the value of a field that is not swept."""
    kind = next(field.type for field in msgspec.structs.fields(struct) if field.name == key)
    every = _values(value, kind, key)
    return f"[{every.index(chosen)}]" if len(every) > 1 else ""


def located(path: str) -> contextlib.AbstractContextManager[None]:
    """Errors raised inside name the place in the experiment file."""
    return structs.located(path, ExperimentError)


def convert_fields(values: dict[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    return structs.convert_fields(values, struct, ExperimentError)


def convert_field(value: Any, kind: Any, path: str) -> Any:
    return structs.convert_field(value, kind, path, ExperimentError)
