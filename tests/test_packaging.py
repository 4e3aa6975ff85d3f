"""What is said about the package in several places agrees: extras, bounds, versions, files."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import colme
from colme.lab.doctor import extras

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
RECIPE = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())
ONLY_COLLECT = {"all", "examples"}
"""Extras that consist of others."""
IN_CONDA = {"matplotlib": "matplotlib-base"}
"""Packages with another name there."""


def bounds(lines: list[str]) -> dict[str, str]:
    """name -> bound, as in numpy >=2.0. Markers and references to extras of colme are left out."""
    found = {}
    for line in lines:
        match = re.fullmatch(r"([\w.-]+)(\[.*\])?\s*(>=[\w.]+)?", line.split(";")[0].strip())
        assert match is not None, line
        if match[1] != "colme":
            found[match[1]] = match[3] or ""
    return found


def extra_bounds() -> dict[str, str]:
    return bounds([line for extra, lines in PROJECT["optional-dependencies"].items() for line in lines
                   if extra not in ONLY_COLLECT])  # fmt: skip


def test_one_package_has_one_lower_bound_and_no_other() -> None:
    assert all(bound.startswith(">=") for bound in (bounds(PROJECT["dependencies"]) | extra_bounds()).values())
    seen: dict[str, set[str]] = {}
    for lines in PROJECT["optional-dependencies"].values():
        for name, bound in bounds(lines).items():
            seen.setdefault(name, set()).add(bound)
    assert {name: found for name, found in seen.items() if len(found) > 1} == {}


def test_all_collects_every_extra_but_mpi_which_needs_a_launcher() -> None:
    (line,) = PROJECT["optional-dependencies"]["all"]
    collected = set(re.findall(r"\w+", line)) - {"colme"}
    assert collected == set(PROJECT["optional-dependencies"]) - ONLY_COLLECT - {"mpi"}


def test_extras_that_pages_name_exist() -> None:
    known = set(PROJECT["optional-dependencies"])
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")):
        for named in re.findall(r"(?:^|[\s'\"/])(?:\.|colme)\[([a-z][a-z,]*)\]", page.read_text()):
            assert set(named.split(",")) <= known, f"{page.name}: [{named}]"


def test_the_doctor_knows_every_extra() -> None:
    listed = {name: set(bounds(lines)) for name, lines in PROJECT["optional-dependencies"].items()}
    assert {name: set(packages) for name, packages in extras().items()} == {
        name: packages for name, packages in listed.items() if name not in ONLY_COLLECT
    }


def test_extras_have_a_smoke_test() -> None:
    parts = re.findall(r"^@part\ndef (\w+)", (ROOT / "tools" / "smoke.py").read_text(), re.M)
    assert set(PROJECT["optional-dependencies"]) - ONLY_COLLECT <= set(parts)


def test_versions_agree() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert cited == RECIPE["context"]["version"] == colme.__version__


def test_the_classifiers_begin_with_the_lowest_python() -> None:
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={versions[0]}" and len(versions) >= 3
    assert RECIPE["context"]["python_min"] == versions[0]
    asked = re.search(r"PYTHONS = \((.+)\)", (ROOT / "tools" / "release_check.py").read_text())
    assert asked is not None and re.findall(r"3\.\d+", asked[1]) == versions


def test_the_conda_recipe_asks_for_what_the_wheel_does() -> None:
    def split(lines: list[str]) -> dict[str, str]:
        found: dict[str, str] = dict(line.split(maxsplit=1) for line in lines)
        return found

    run = split(RECIPE["requirements"]["run"])
    assert run.pop("python") == ">=${{ python_min }}"
    assert run == bounds(PROJECT["dependencies"])
    limits = {IN_CONDA.get(name, name): bound for name, bound in extra_bounds().items()}
    assert split(RECIPE["requirements"]["run_constraints"]) == limits


def test_the_conda_recipe_builds_and_describes_the_same_project() -> None:
    built = bounds(PYPROJECT["build-system"]["requires"])
    host = [line.split() for line in RECIPE["requirements"]["host"]]
    assert ["hatchling", built["hatchling"]] in host
    assert RECIPE["about"]["summary"] == PROJECT["description"] and RECIPE["about"]["license"] == PROJECT["license"]
    name, _, target = PROJECT["scripts"]["colme"].partition(":")
    assert RECIPE["build"]["python"]["entry_points"] == [f"colme = {name}:{target}"]


def test_files_that_are_no_modules_are_in_the_wheel() -> None:
    """hatchling takes all of src/colme but what git ignores."""
    target: dict[str, Any] = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert target["packages"] == ["src/colme"] and not {"exclude", "include", "only-include"} & set(target)
    others = [
        path for path in (ROOT / "src" / "colme").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert {"live.js", "live.css", "live.html", "colme.mplstyle", "report.html", "py.typed"} <= {
        each.name for each in others
    }
    if (ROOT / ".git").exists():
        ignored = subprocess.run(["git", "check-ignore", *others], cwd=ROOT, capture_output=True, text=True)
        assert ignored.stdout == ""


def test_hooks_run_what_make_check_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [each["repo"] for each in hooks] == ["local"]  # nothing is fetched
    tools = {Path(shlex.split(hook["entry"])[0]).name for each in hooks for hook in each["hooks"]}
    checked = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert checked is not None and tools == set(re.findall(r"\$\(BIN\)/([\w-]+)", checked[1]))


def test_the_container_is_given_all_that_it_copies() -> None:
    given = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "deploy" / "Containerfile").read_text(), re.M)
    assert given == {name for line in copied for name in line.split()}


@pytest.mark.parametrize("name", ["bug", "promise", "question"])
def test_issue_templates_have_what_the_host_needs(name: str) -> None:
    template = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
    assert template["name"] and template["description"]
    assert all(each["type"] in ("markdown", "input", "textarea") for each in template["body"])


def test_walks_name_files_that_exist() -> None:
    text = (ROOT / "docs/developer/design.md").read_text()
    rows = [line for line in text.splitlines() if " → " in line]
    assert rows
    for row in rows:
        for name in re.findall(r"`([a-z_]+/[a-z_/]+)`", row.split("|")[2]):
            assert any((ROOT / "src" / "colme" / each).exists() for each in (name, f"{name}.py", f"{name}.js")), name
