"""What deploy/ names exists: commands, options, folders, packages. (No systemd and no container engine is needed.)"""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from colme.cli.node_command import command
from colme.node.config.tables import SOURCES

ROOT = Path(__file__).parent.parent
UNITS = sorted((ROOT / "deploy").glob("*.service"))
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text()


def settings(unit: Path) -> dict[str, list[str]]:
    """Each setting of a unit; some are given twice, and add up."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if not line.startswith(("#", "[")) and line:
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def check_words(words: list[str]) -> dict[str, object]:
    """What a command of `colme node` takes from these words; unknown ones are refused by click."""
    name, *rest = words
    found = command.commands[name]
    return click.Context(found).command.make_context(name, rest, resilient_parsing=False).params


def test_there_is_a_unit_for_agents() -> None:
    assert [unit.name for unit in UNITS] == ["colme-node@.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_what_there_is_and_locks_it_in(unit: Path) -> None:
    found = settings(unit)
    program, group, *words = shlex.split(found["ExecStart"][0])
    assert program == "/opt/colme/bin/colme" and group == "node"
    taken = str(check_words(words)["config"])
    folder = found["WorkingDirectory"][0]
    assert taken == f"{folder}/node.toml"  # as `colme node plan` names them
    assert found["Environment"] == ["COLME_NUMBA=0"] and found["KillSignal"] == ["SIGTERM"]
    for key, value in (
        ("NoNewPrivileges", "yes"), ("ProtectSystem", "strict"), ("PrivateTmp", "yes"), ("CapabilityBoundingSet", ""),
        ("MemoryDenyWriteExecute", "yes"), ("Restart", "on-failure"), ("User", "colme"),
    ):  # fmt: skip
        assert found[key] == [value], key
    families = set(found["RestrictAddressFamilies"][0].split())
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} <= families <= {"AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"}


def test_the_agent_may_write_its_folder_and_its_samples_come_from_somewhere() -> None:
    unit = UNITS[0]
    found = settings(unit)
    assert found["StateDirectory"] == ["colme/%i"] and found["WorkingDirectory"] == ["/var/lib/colme/%i"]
    named = re.findall(r'"(\w+)"', next(line for line in unit.read_text().splitlines() if "source =" in line))
    assert set(named) == set(SOURCES) - {"stdin"}


def test_the_container_starts_what_there_is_from_what_there_is() -> None:
    def words(instruction: str) -> list[str]:
        line = re.search(rf"^{instruction}.*?(\[.*\])$", CONTAINER, re.M)
        assert line is not None
        return re.findall(r'"([^"]+)"', line[1])

    assert words("ENTRYPOINT") == ["colme", "node"]
    assert check_words(words("CMD"))["config"] == "node.toml"
    assert check_words(words("HEALTHCHECK")[2:])["configs"] == ("node.toml",)
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINER, re.M):
        assert all((ROOT / name).exists() for name in line.split())


def test_the_container_holds_all_packages_of_an_agent_but_the_compiler() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(lines: list[str]) -> set[str]:
        return {re.split(r"[ ><=;\[]", line)[0] for line in lines}

    needed = names([*project["dependencies"], *extras["node"], *extras["mqtt"]])
    line = re.search(r"constraints.txt \\\n\s+(.+) \\$", CONTAINER, re.M)
    assert line is not None
    left_out = {"numba", "cryptography", "tomli-w"}  # what compiles, and what makes keys and plans
    assert set(line[1].split()) == needed - left_out
    pinned = {name.casefold() for name in names((ROOT / "constraints.txt").read_text().splitlines())}
    assert set(line[1].split()) <= pinned
    assert CONTAINER.count("3.12-slim-bookworm") == 2 and "USER 10001" in CONTAINER
