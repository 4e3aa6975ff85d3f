"""An experiment file says what to run: fields are keys, lists are sweeps, mistakes are answered with their place."""

from __future__ import annotations

import datetime
import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colme
from colme import lab
from colme.errors import ColmeError, ExperimentError
from colme.lab.experiment import Experiment, Head, shipped_experiments
from colme.lab.figures import FIGURES
from colme.lab.planning import Planned
from colme.lab.rows import expected_rows
from colme.lab.runs.store import RunStore, toml_of
from colme.methods import METHODS
from colme.scenario import Scenario
from colme.sim.spec import Setup, flat_name

ROOT = Path(__file__).parents[2]
SKELETON = ROOT / "src" / "colme" / "methods" / "skeleton.py"
BASE = """
seeds = 2
steps = 20
[scenario]
n_agents = 30
means = [0.0, 1.0]
[[methods]]
method = "cl-colme"
"""
EXPECTED = """
[[expected]]
method = "CL-colME"
t = 10
value = 1.0
"""


def write(folder: Path, text: str, name: str = "x.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def table(**more: Any) -> dict[str, Any]:
    """A small experiment; `scenario` and `methods` are filled in unless given."""
    small = {"n_agents": 30, "means": [0.0, 1.0]}
    return {"steps": 20, "scenario": small, "methods": [{"method": "cl-colme"}]} | more


def plan(**more: Any) -> tuple[Planned, ...]:
    return Experiment.parse(table(**more)).planned


def values(field: str, **more: Any) -> list[Any]:
    return [each.spec.parameters()[field] for each in plan(**more)]


# A field is a key

# Another value than the one it has in `field_table`, for every field there is.
OF_SCENARIO: dict[str, Any] = {
    "case": "x", "n_agents": 32, "means": [0.0, 2.0], "sigma": 3.0, "sizes": [10, 20], "assignment": "random",
    "distribution": "uniform", "df": 7.0, "skip_rate": 0.1, "late_share": 0.2, "late_step": 5, "shift_step": 9,
    "shift_means": [1.0, 3.0], "spread": 0.3, "spread_shape": "uniform", "loss": 0.1,
    "told_sigma": 3.0,
}  # fmt: skip
OF_SETUP: dict[str, Any] = {
    "degree": 4, "graph": "ring", "rewire": 0.3, "steps": 21, "tolerance": 0.2, "record": "log", "precision": "double",
}  # fmt: skip
OF_METHODS: dict[str, Any] = {
    "delta": 0.2, "level": "agent", "gamma": 0.01, "sigma": 3.0, "bound": "fourth-moment", "kurtosis": 4.0,
    "width": 2.0, "clock": "harmonic", "alpha": 0.7, "step": 0.05, "depth": 3, "weights": "soft",
    "restricted": False, "queries": 2, "consensus": "flow", "estimate_sigma": True, "restart": True, "refresh": 1.1,
    "rounds": 5, "fits": "own", "statistics": ["mean", "deviation"],
    "cut": "difference", "guard": True,
}  # fmt: skip
ONLY_ONE = {("colme", "cut"), ("colme", "guard")}
"""Fields that take a single value."""
METHOD_FIELDS = [(method, field) for method in METHODS for field in method.__struct_fields__
                 if (method.__struct_config__.tag, field) not in ONLY_ONE]  # fmt: skip
EVERY_FIELD = [
    *(("scenario", field) for field in Scenario.__struct_fields__),
    *(("set-up", field) for field in Setup.__struct_fields__),
    *((str(method.__struct_config__.tag), field) for method, field in METHOD_FIELDS),
]


def field_table(owner: str, field: str, *, changed: bool) -> dict[str, Any]:
    """A table in which one field may be changed; what it needs besides is there in both."""
    scenario: dict[str, Any] = {"n_agents": 30, "means": [0.0, 1.0]}
    entry: dict[str, Any] = {"method": owner if owner not in ("scenario", "set-up") else "cl-colme"}
    if field.startswith("shift"):
        scenario |= {"shift_step": 7, "shift_means": [1.0, 2.0]}
    if owner in ("census", "partition") and field == "guard":
        entry["guard"] = False
    if field == "alpha":
        entry |= {"clock": "constant", "alpha": 0.5}
    whole: dict[str, Any] = {"steps": 20, "scenario": scenario, "methods": [entry]}
    if changed and owner == "scenario":
        scenario[field] = OF_SCENARIO[field]
    elif changed and owner == "set-up":
        whole[field] = OF_SETUP[field]
    elif changed:
        entry[field] = OF_METHODS[field]
    return whole


def test_the_tables_above_know_every_field() -> None:
    assert set(OF_SCENARIO) == set(Scenario.__struct_fields__)
    assert set(OF_SETUP) == set(Setup.__struct_fields__)
    assert set(OF_METHODS) == {field for _, field in METHOD_FIELDS}


@pytest.mark.parametrize(("owner", "field"), EVERY_FIELD)
def test_every_field_is_a_key_that_changes_this_field_the_name_of_the_run_and_nothing_else(
    owner: str, field: str
) -> None:
    (before,) = Experiment.parse(field_table(owner, field, changed=False)).planned
    (after,) = Experiment.parse(field_table(owner, field, changed=True)).planned
    old, new = before.spec.parameters(), after.spec.parameters()
    flat = field if owner in ("scenario", "set-up") else flat_name(field)
    asked = {"scenario": OF_SCENARIO, "set-up": OF_SETUP}.get(owner, OF_METHODS)[field]
    assert {name for name in old if old[name] != new[name]} == {flat}
    assert new[flat] == (tuple(asked) if isinstance(asked, list) else asked)
    assert before.name != after.name


@pytest.mark.parametrize(("owner", "field"), EVERY_FIELD)
def test_a_change_goes_where_the_file_would_have_it(owner: str, field: str) -> None:
    flat = field if owner in ("scenario", "set-up") else flat_name(field)
    asked = {"scenario": OF_SCENARIO, "set-up": OF_SETUP}.get(owner, OF_METHODS)[field]
    changed = Experiment.parse(field_table(owner, field, changed=False), changes={flat: asked})
    written = Experiment.parse(field_table(owner, field, changed=True))
    assert [each.name for each in changed.planned] == [each.name for each in written.planned]


def test_a_change_reaches_all_methods_that_have_the_field_and_overrules_what_they_say_for_themselves() -> None:
    methods = [
        {"method": "cl-colme", "delta": 0.3}, {"method": "c-colme"}, {"method": "local", "scenario": {"n_agents": 10}},
        {"method": "oracle", "steps": 7},
    ]  # fmt: skip
    given = table(methods=methods)
    experiment = Experiment.parse(given, changes={"delta": 0.05, "n_agents": 24, "steps": 9})
    assert [each.spec.parameters().get("delta") for each in experiment.planned] == [0.05, 0.05, None, None]
    assert {each.spec.source.n_agents for each in experiment.planned} == {24}
    assert {each.spec.steps for each in experiment.planned} == {9}
    assert given["methods"][0]["delta"] == 0.3 and given["steps"] == 20, "what was given must stay as it was"


def test_a_change_to_a_list_is_a_sweep_and_all_methods_of_a_seed_come_before_the_next_seed() -> None:
    both = table(methods=[{"method": "cl-colme"}, {"method": "local"}])
    planned = Experiment.parse(both, changes={"level": ["agent", "edge"], "seeds": [4, 7]}).planned
    assert [(each.label, each.spec.parameters().get("level"), each.spec.seed) for each in planned] == [
        (*line, seed) for seed in (4, 7) for line in (("CL-colME", "agent"), ("CL-colME", "edge"), ("local", None))
    ]


def test_keys_of_a_methods_table_override_the_rest_for_this_method_only() -> None:
    own = {"method": "local", "label": "mine", "scenario": {"sigma": 3.0}, "steps": 7, "degree": 4, "seeds": [5]}
    others, mine = plan(methods=[{"method": "cl-colme"}, own])
    assert (others.label, mine.label) == ("CL-colME", "mine")
    assert mine.spec.source == Scenario(n_agents=30, means=(0.0, 1.0), sigma=3.0)
    assert others.spec.source == Scenario(n_agents=30, means=(0.0, 1.0))
    assert (mine.spec.steps, mine.spec.degree, others.spec.steps, others.spec.degree) == (7, 4, 20, None)
    assert (mine.spec.seed, others.spec.seed) == (5, 0)


# A list is a sweep


def test_several_sweeps_multiply() -> None:
    planned = plan(
        seeds=3, degree=[2, 4], scenario={"n_agents": [20, 30], "means": [0.0, 1.0]},
        methods=[{"method": "cl-colme", "level": ["agent", "edge"], "delta": [0.1, 0.2]}, {"method": "local"}],
    )  # fmt: skip
    assert len(planned) == len({each.name for each in planned}) == 3 * 2 * 2 * (2 * 2 + 1)
    combinations = {
        (s.source.n_agents, s.degree, s.method.level, s.method.delta, s.seed)
        for s in (each.spec for each in planned)
        if isinstance(s.method, colme.CLColME)
    }
    assert combinations == set(itertools.product((20, 30), (2, 4), ("agent", "edge"), (0.1, 0.2), range(3)))


def of_scenario(**more: Any) -> dict[str, Any]:
    return {"scenario": {"n_agents": 30, "means": [0.0, 1.0]} | more}


def test_a_list_is_one_value_where_the_field_takes_a_list_and_a_list_of_lists_is_a_sweep() -> None:
    assert values("means", **of_scenario(means=[0.0, 2.0])) == [(0.0, 2.0)]
    assert values("means", **of_scenario(means=[[0.0, 2.0], [1.0], [3, 4, 5]])) == [(0, 2), (1,), (3, 4, 5)]
    assert values("sigma", **of_scenario(sigma=[1.0, 2.0])) == [(1.0, 2.0)]
    assert values("sigma", **of_scenario(sigma=[[1.0, 2.0], [2.0, 1.0]])) == [(1.0, 2.0), (2.0, 1.0)]
    assert values("sizes", **of_scenario(sizes=[10, 20])) == [(10, 20)]
    assert values("sizes", **of_scenario(sizes=[[10, 20], [20, 10]])) == [(10, 20), (20, 10)]
    one_each = [0.25] * 15 + [0.5] * 15
    assert values("skip_rate", **of_scenario(skip_rate=one_each)) == [tuple(one_each)]
    assert values("skip_rate", **of_scenario(skip_rate=[one_each, [0.5] * 30])) == [tuple(one_each), (0.5,) * 30]
    assert values("record", record=[5, 10]) == [(5, 10)]
    assert values("record", record=[[5, 10], [6, 11]]) == [(5, 10), (6, 11)]


def test_a_list_of_one_is_the_number_where_the_field_takes_a_number_too() -> None:
    assert values("sigma", **of_scenario(sigma=[[2.0], [3.0]])) == [2.0, 3.0]
    assert values("sigma", **of_scenario(sigma=[2.0, [1.0, 2.0]])) == [2.0, (1.0, 2.0)]
    assert values("skip_rate", **of_scenario(skip_rate=[[0.1], [0.2]])) == [0.1, 0.2]
    assert values("means", **of_scenario(means=[[2.0], [3.0]])) == [(2.0,), (3.0,)]


def test_seeds_are_how_many_or_which() -> None:
    assert [each.spec.seed for each in plan(seeds=3)] == [0, 1, 2]
    assert [each.spec.seed for each in plan(seeds=[8, 3])] == [3, 8]
    assert [each.spec.seed for each in plan()] == [0]


# Mistakes

Case = tuple[str, tuple[str, ...]]
# What the file is, and fragments of the message in order: the place, what was got, the rule or the remedy.
BAD: dict[str, Case] = {
    # unknown keys
    "typo at the top": (BASE.replace("steps", "stesp"), ("x.toml: ", "'stesp'", "Did you mean 'steps'?")),
    "typo in scenario": (
        BASE.replace("n_agents", "n_agent"), ("x.toml: scenario: ", "'n_agent'", "Did you mean 'n_agents'?"),
    ),
    "typo in a method": (BASE + "dleta = 0.1", ("x.toml: methods[0]: ", "'dleta'", "Did you mean 'delta'?")),
    "typo in a method's own scenario": (
        BASE + "scenario.n_agent = 10", ("x.toml: methods[0].scenario: ", "'n_agent'", "Did you mean 'n_agents'?"),
    ),
    "typo in expected": (
        BASE + EXPECTED + "metrc = 'mse'", ("x.toml: expected[0]", "metrc", "Did you mean 'metric'?"),
    ),
    "typo in the name of a method": (
        BASE.replace("cl-colme", "cl-colm"), ("x.toml: methods[0]", "'cl-colm'", "Did you mean 'cl-colme'?"),
    ),
    # wrong types
    "word for a number at the top": (BASE.replace("20", "'a'"), ("x.toml: steps='a'", "a whole number")),
    "word for a number of agents": (BASE.replace("30", "'a'"), ("x.toml: scenario.n_agents='a'", "a whole number")),
    "word in a sweep of agents": (
        BASE.replace("30", "[30, 'x']"), ("x.toml: scenario.n_agents[1]='x'", "a whole number"),
    ),
    "one mean": (BASE.replace("[0.0, 1.0]", "3.0"), ("x.toml: scenario.means=3.0", "it must be a list")),
    "list and number": (BASE.replace("[0.0, 1.0]", "[[0.0], 3.0]"), ("x.toml: scenario.means[1]=3.0", "a list")),
    "word for delta": (BASE + "delta = ['x']", ("x.toml: methods[0].delta[0]='x'", "it must be a number")),
    "word among seeds": (BASE.replace("seeds = 2", "seeds = [1, 'x']"), ("x.toml: seeds[1]", "a whole number")),
    "number for a title": ("title = 3" + BASE, ("x.toml: title", "it must be a word")),
    "number for a label": (BASE + "label = 3", ("x.toml: methods[0].label", "it must be a word")),
    "word for figures": ("figures = 'mse'" + BASE, ("x.toml: figures", "it must be")),
    "word for a expected step": (
        BASE + EXPECTED.replace("10", "'x'"), ("x.toml: expected[0].t", "a whole number"),
    ),
    "nothing expected": (BASE + EXPECTED.replace("value = 1.0", ""), ("x.toml: expected[0]", "value")),
    "list for the method": (BASE.replace('"cl-colme"', '["cl-colme"]'), ("x.toml: methods[0]", "['cl-colme']")),
    "number for scenario": ("scenario = 3\nmethods = [{method = 'local'}]", ("x.toml: scenario=3", "[scenario]")),
    "table for methods": (
        "methods = {method = 'local'}\nscenario = {n_agents = 3, means = [0.0]}", ("x.toml: methods=", "[[methods]]"),
    ),
    "words for methods": (
        "methods = ['local']\nscenario = {n_agents = 3, means = [0.0]}", ("x.toml: methods=['local']", "[[methods]]"),
    ),
    "number for a method's scenario": (BASE + "scenario = 3", ("x.toml: methods[0].scenario=3", "table")),
    # rules
    "no steps": (BASE.replace("20", "0"), ("x.toml: steps=0", "from 1 to 1000000000", "Try steps=2000")),
    "no agents": (BASE.replace("30", "0"), ("x.toml: scenario.n_agents=0", "from 1 to", "Try n_agents=5000")),
    "no means": (BASE.replace("[0.0, 1.0]", "[]"), ("x.toml: scenario.means=()", "finite mean", "Try means=")),
    "too large a delta": (BASE + "delta = [0.1, 2.0]", ("x.toml: methods[0].delta[1]=2.0", "between", "Try delta=0.1")),
    "unknown level": (BASE + "level = 'agnet'", ("x.toml: methods[0].level='agnet'", "Did you mean 'agent'?")),
    "unknown graph": ("graph = 'rng'" + BASE, ("x.toml: graph='rng'", "graph 'rng'", "Did you mean 'ring'?")),
    "rewired twice": ("rewire = 2.0" + BASE, ("x.toml: rewire=2.0", "between 0 and 1", "Try rewire=0.1")),
    "recorded too late": ("record = [5, 30]" + BASE, ("x.toml: record=(5, 30)", "1..20", "Try record='log'")),
    "no seeds": (BASE.replace("seeds = 2", "seeds = 0"), ("x.toml: seeds=0", "at least one seed", "Try seeds = 10")),
    "seed twice": (BASE.replace("seeds = 2", "seeds = [1, 1]"), ("x.toml: seeds=[1, 1]", "each once", "Try")),
    "negative seed": (BASE.replace("seeds = 2", "seeds = [-1]"), ("x.toml: seed", "-1", "Try")),
    "value twice": (BASE + "delta = [0.1, 0.2, 0.1]", ("x.toml: methods[0].delta[2]=0.1", "twice", "Leave one out")),
    "empty sweep": (BASE + "delta = []", ("x.toml: methods[0].delta=[]", "at least one value", "Leave the key out")),
    "method twice": (
        BASE + "[[methods]]\nmethod = 'cl-colme'", ("x.toml: methods", "CLColME() twice", "Leave one out, or label"),
    ),
    "no scenario": ("methods = [{method = 'local'}]", ("x.toml: scenario is missing", "[scenario]")),
    "no methods": ("[scenario]\nn_agents = 3\nmeans = [0.0]", ("x.toml: methods is missing", "[[methods]]")),
    "no agents at all": (BASE.replace("n_agents = 30", ""), ("x.toml: scenario", "n_agents is missing")),
    "no name of a method": (
        BASE.replace("method =", "label ="), ("x.toml: methods[0].method is missing", "Try method = 'cl-colme'"),
    ),
    "unknown metric": (
        BASE + EXPECTED + "metric = 'msee'", ("x.toml: expected[0]", "'msee'", "Did you mean 'mse'?"),
    ),
    "expected at a step and below": (
        BASE + EXPECTED + "below = 1.0", ("x.toml: expected[0]", "t=10 and below=1.0", "Try t=1000"),
    ),
    "expected nowhere": (
        BASE + EXPECTED.replace("t = 10", ""), ("x.toml: expected[0]", "t=None and below=None", "Try t=1000"),
    ),
    "expected of nobody": (
        BASE + EXPECTED.replace("CL-", "CM-"), ("x.toml: expected[0]", "'CM-colME'", "Did you mean 'CL-colME'?"),
    ),
    "expected where there is nothing": (
        BASE + EXPECTED + "where.levl = 'edge'", ("x.toml: expected[0]", "'levl'", "Did you mean 'level'?"),
    ),
    "more steps than there are": ("record = 'log'" + BASE.replace("20", "1e300"), ("x.toml: steps=",)),
    # not TOML
    "no value": ("steps =\n", ("x.toml is not TOML", "line 1", "Mend")),
    "table not closed": ("steps = 1\n\n[scenario\n", ("x.toml is not TOML", "line 3", "Mend")),
    # modules
    # graphs
    "no such graph file": ("graph = 'no.edges'" + BASE, ("x.toml: ", "graph='no.edges'", "no such file", "relative")),
    "unknown kind of graph file": ("graph = 'x.toml'" + BASE, ("x.toml: ", "graph='x.toml'", "must end in one of")),
    "no such module": ("modules = ['no.py']" + BASE, ("x.toml: ", "no.py", "No such file", "relative to the file")),
}  # fmt: skip


def assert_in_order(text: str, fragments: tuple[str, ...]) -> None:
    place = 0
    for fragment in fragments:
        found = text.find(fragment, place)
        assert found >= 0, f"{fragment!r} is not in {text[place:]!r}"
        place = found + len(fragment)


def assert_reads_well(text: str) -> None:
    assert "\n" not in text
    assert re.search(r"[.?)]$", text) and not re.search(r"[.?!]\.$", text), text
    assert "msgspec" not in text and "$" not in text and "`" not in text, text


@pytest.mark.parametrize("case", BAD, ids=list(BAD))
def test_a_mistake_is_answered_with_the_file_the_path_in_it_and_a_remedy(case: str, tmp_path: Path) -> None:
    text, fragments = BAD[case]
    with pytest.raises(ExperimentError) as refused:
        Experiment.read(write(tmp_path, text))
    assert_in_order(str(refused.value), fragments)
    assert_reads_well(str(refused.value))


@pytest.mark.parametrize("case", ["number for scenario", "table for methods", "words for methods",
                                  "list for the method", "typo in a method"])  # fmt: skip
def test_a_mistake_is_answered_as_well_when_flags_change_something(case: str, tmp_path: Path) -> None:
    text, fragments = BAD[case]
    for changes in ({"n_agents": 10}, {"delta": 0.2}, {"seeds": 3}):
        with pytest.raises(ExperimentError) as refused:
            Experiment.read(write(tmp_path, text), changes)
        if "delta" not in changes:
            assert_in_order(str(refused.value), fragments)


def test_files_that_are_not_there_or_not_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"cannot read .*no\.toml: No such file.* Try: colme list experiments\."):
        Experiment.read(tmp_path / "no.toml")
    (tmp_path / "x.toml").write_bytes(b"title = '\xff\xfe'")
    with pytest.raises(ExperimentError, match=r"x\.toml is not TOML: .*utf-8"):
        Experiment.read(tmp_path / "x.toml")
    with pytest.raises(ExperimentError, match=r"unknown experiment 'cl_colmee': .* Did you mean 'cl_colme'\?"):
        Experiment.read("cl_colmee")


GARBAGE = st.recursive(
    st.integers(-3, 40) | st.floats() | st.booleans() | st.text(max_size=5) | st.dates()
    | st.sampled_from(["cl-colme", "local", "agent", "all", "mse", "CL-colME", datetime.time(1, 2)]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
KEYS = {
    (): ["scenario", "methods", "expected", "modules", *Setup.__struct_fields__, *Head.__struct_fields__],
    ("scenario",): list(Scenario.__struct_fields__),
    ("methods", 0): ["method", "label", "seeds", "steps", "scenario", *colme.CLColME.__struct_fields__],
    ("methods", 1): ["method", "label", "delta"],
    ("methods", 0, "scenario"): list(Scenario.__struct_fields__),
    ("expected", 0): ["method", "metric", "t", "below", "value", "where"],
    ("expected", 0, "where"): ["level", "n_agents", "steps"],
}
PLACES = st.sampled_from(list(KEYS)).flatmap(
    lambda path: st.tuples(st.just(path), st.sampled_from(KEYS[path]) | st.text(max_size=4))
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(PLACES, GARBAGE), min_size=1, max_size=3), st.booleans())
def test_garbage_anywhere_raises_nothing_but_a_colme_error(changes: Any, flags: bool) -> None:
    whole = table(methods=[{"method": "cl-colme", "scenario": {"n_agents": 20}}, {"method": "local"}])
    whole["expected"] = [{"method": "CL-colME", "t": 10, "value": 1.0, "where": {}}]
    for (path, key), garbage in changes:
        target: Any = whole
        for part in path:
            inner = target.get(part) if isinstance(target, dict) else target[0] if target else None
            target = inner if isinstance(inner, dict | list) else target
        if isinstance(target, dict):
            target[key] = garbage
    try:
        Experiment.parse(whole, changes={"n_agents": 12, "level": "agent"} if flags else None)
    except ColmeError as error:
        assert "\n" not in str(error)


# Names of runs


def test_defaults_may_be_said_or_left_out() -> None:
    said = {"method": "cl-colme"} | {
        field.name: field.default for field in msgspec.structs.fields(colme.CLColME) if field.default is not None
    }
    assert plan(methods=[said], graph="regular")[0].name == plan()[0].name


def test_one_run_may_stand_under_two_labels(tmp_path: Path) -> None:
    twice = table(methods=[{"method": "local", "label": "a"}, {"method": "local", "label": "b"}])
    data = lab.run(Experiment.parse(twice, name="twice"), results=tmp_path, jobs=1)
    assert len(list((tmp_path / "twice" / "runs").iterdir())) == 1
    assert data["method"].values.tolist() == ["a", "b"]
    assert np.array_equal(data["mse"].values[0], data["mse"].values[1])


# The experiments that come with colme

SHIPPED = [path.stem for path in shipped_experiments()]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_experiments_can_be_read_say_what_they_are_and_name_figures_that_exist(name: str) -> None:
    experiment = Experiment.read(name)
    assert experiment.head.title and experiment.head.about and experiment.head.reference
    assert not re.search(r"\d{4} agents|\d \d{3}", experiment.title + experiment.head.about), "numbers have commas"
    assert set(experiment.head.figures or ()) <= set(FIGURES)
    experiment.check()


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] if each == "promises" else []) for each in SHIPPED]
)
def test_shipped_experiments_find_what_they_compare_with(name: str, tmp_path: Path) -> None:
    """Few agents and seeds, but all steps: expected numbers name their step."""
    small: dict[str, Any] = {"n_agents": 24, "seeds": 1} | (
        {"steps": 60} if name in ("scaling", "census", "variance") else {}
    )
    if name == "promises":  # its graphs and classes have their numbers of agents
        small = {"steps": 12, "seeds": 1}
    experiment = Experiment.read(name, small)
    data = lab.run(experiment, results=tmp_path, jobs=1)
    assert data.attrs["missing"] == 0
    expected = tuple(each for each in experiment.head.expected if name != "promises" or each.t is None)
    rows = expected_rows(data, expected)
    assert len(rows) == len(expected)
    for row in rows:
        assert row["measured"] > 0 and row["low"] <= row["measured"] <= row["high"], row
        assert row["ratio"] == pytest.approx(row["measured"] / row["expected"])
        assert row["source"]


def test_an_experiment_that_was_written_down_is_the_same_experiment(tmp_path: Path) -> None:
    shutil.copytree(shipped_experiments()[0].parent / "graphs", tmp_path / "graphs")
    for path in shipped_experiments():
        experiment = Experiment.read(path)
        again = Experiment.read(write(tmp_path, toml_of(experiment.table), path.name))
        assert [each.name for each in again.planned] == [each.name for each in experiment.planned]
        assert again.head == experiment.head


# Methods of one's own

OWN = """
modules = ["own.py"]
seeds = 2
steps = 60
degree = 6
[scenario]
n_agents = 30
means = [0.0, 3.0]
sigma = 0.5
[[methods]]
method = "one-hop"
delta = [0.1, 0.2]
[[methods]]
method = "local"
"""


def own(folder: Path, *, edit: tuple[str, str] = ("", ""), name: str = "own.py") -> Path:
    """An experiment file, with a copy of the skeleton beside it."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(SKELETON.read_text().replace(*edit))
    return write(folder, OWN)


def test_a_copy_of_the_skeleton_runs_and_its_results_outlive_it(tmp_path: Path) -> None:
    path = own(tmp_path / "mine")
    data = lab.run(path, results=tmp_path / "results", jobs=1)
    assert data["method"].values.tolist() == ["one hop", "local"] and data.attrs["missing"] == 0
    assert data["delta"].values.tolist() == [0.1, 0.2]
    at_the_end = data["mse"].isel(t=-1).median("seed")
    assert float(at_the_end.sel({"method": "one hop"}).max()) < 0.5 * float(at_the_end.sel({"method": "local"}).min())
    kept = tmp_path / "results" / "x"
    assert RunStore(kept).load_experiment()["modules"] == ["modules/own.py"]
    assert (kept / "modules" / "own.py").read_bytes() == SKELETON.read_bytes()
    names = [[each.name for each in Experiment.read(file).planned] for file in (kept / "experiment.toml", path)]
    assert names[0] == names[1]
    shutil.rmtree(tmp_path / "mine")
    code = "import sys; from colme import lab; d = lab.load(sys.argv[1]); print(d.mse.sum().item().hex(), d.missing)"
    done = subprocess.run([sys.executable, "-c", code, str(kept)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [data["mse"].sum().item().hex(), "0"]


def test_runs_of_own_methods_are_named_after_the_contents_of_the_file(tmp_path: Path) -> None:
    here = Experiment.read(own(tmp_path / "here")).planned
    there = Experiment.read(own(tmp_path / "there")).planned
    edited = Experiment.read(own(tmp_path / "edited", edit=("    Say here", "    Say it here"))).planned
    names = [[each.name for each in planned] for planned in (here, there, edited)]
    assert names[0] == names[1]
    mine = [k for k, each in enumerate(here) if each.label == "one hop"]
    assert len(mine) == 4
    for k in range(len(here)):
        assert (names[0][k] == names[2][k]) is (k not in mine), "only runs of the edited method change"


BAD_MODULES: dict[str, tuple[str, str]] = {
    "tag of ours": (SKELETON.read_text().replace('tag="one-hop"', 'tag="local"'), r"own\.py: the tag 'local' is taken"),
    "tag is a number": (
        SKELETON.read_text().replace('"one-hop"', "3"),
        r"own\.py: OneHop has no tag.* Try class OneHop\(",
    ),
    "no method": ("x = 1\n", r"own\.py has no method.* Copy .*skeleton\.py\."),
    "only methods of others": ("from colme import CLColME\n", r"own\.py has no method"),
    "syntax": ("def :\n", r"own\.py cannot be imported: SyntaxError"),
    "import": ("import no_such_package\n", r"own\.py cannot be imported: ModuleNotFoundError: No module"),
    "failure": ("1 / 0\n", r"own\.py cannot be imported: ZeroDivisionError"),
}


@pytest.mark.parametrize("case", BAD_MODULES)
def test_a_module_that_is_of_no_use_is_refused(case: str, tmp_path: Path) -> None:
    text, said = BAD_MODULES[case]
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(ExperimentError, match=said) as refused:
        Experiment.read(write(tmp_path, OWN))
    assert str(refused.value).startswith(f"{tmp_path / 'x.toml'}: ") and "\n" not in str(refused.value)


def test_modules_of_equal_names_from_two_folders_are_kept_apart(tmp_path: Path) -> None:
    for folder, tag in (("a", "one-hop"), ("b", "another")):
        own(tmp_path / folder, edit=('tag="one-hop"', f'tag="{tag}"'))
    both = OWN.replace('["own.py"]', '["a/own.py", "b/own.py"]').replace("[0.1, 0.2]", "0.1")
    path = write(tmp_path, both + '[[methods]]\nmethod = "another"\nlabel = "another"\n')
    data = lab.run(path, results=tmp_path / "results", jobs=1)
    assert data["method"].values.tolist() == ["one hop", "local", "another"] and data.attrs["missing"] == 0
    assert lab.load(tmp_path / "results" / "x").equals(data)
