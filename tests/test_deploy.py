"""What deploy/ names exists: commands, options, folders, packages. (No systemd and no container engine is needed.)"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import click
import pytest

from colme.cli.node_command import command
from colme.node.config.tables import SOURCES
from colme.node.io.sinks import LineFile
from colme.node.io.sources import GrowingFile

ROOT = Path(__file__).parent.parent
AGENT, SENSOR = ROOT / "deploy" / "colme-node@.service", ROOT / "deploy" / "colme-sensor@.service"
ROTATION = (ROOT / "deploy" / "colme.logrotate").read_text()
LOGROTATE = shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin")
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


def test_there_is_a_unit_for_agents_and_one_for_their_sensors() -> None:
    assert sorted((ROOT / "deploy").glob("*.service")) == [AGENT, SENSOR]


def test_the_unit_of_an_agent_starts_what_there_is_and_locks_it_in() -> None:
    found = settings(AGENT)
    program, group, *words = shlex.split(found["ExecStart"][0])
    assert program == "/opt/colme/bin/colme" and group == "node"
    taken = str(check_words(words)["config"])
    folder = found["WorkingDirectory"][0]
    assert taken == f"{folder}/node.toml"  # as `colme node plan` names them
    assert found["KillSignal"] == ["SIGTERM"]
    for key, value in (
        ("NoNewPrivileges", "yes"), ("ProtectSystem", "strict"), ("PrivateTmp", "yes"), ("CapabilityBoundingSet", ""),
        ("MemoryDenyWriteExecute", "yes"), ("Restart", "on-failure"), ("User", "colme"),
    ):  # fmt: skip
        assert found[key] == [value], key
    families = set(found["RestrictAddressFamilies"][0].split())
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} <= families <= {"AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"}


def test_an_agent_starts_when_the_network_and_the_time_are_there_and_is_not_given_up() -> None:
    found = settings(AGENT)
    for key in ("Wants", "After"):
        assert set(found[key][0].split()) == {"network-online.target", "time-sync.target"}
    assert found["StartLimitIntervalSec"] == ["0"]
    lines = AGENT.read_text().splitlines()
    assert lines.index("[Unit]") < lines.index("StartLimitIntervalSec=0") < lines.index("[Service]")  # else ignored


def test_a_sensor_runs_as_the_agent_with_the_groups_of_devices_and_writes_what_the_agent_reads(tmp_path: Path) -> None:
    agent, sensor = settings(AGENT), settings(SENSOR)
    for key in ("User", "Group", "StateDirectory", "StateDirectoryMode", "WorkingDirectory", "UMask"):
        assert sensor[key] == agent[key], key
    assert set(sensor["SupplementaryGroups"][0].split()) <= {"dialout", "i2c", "spi", "gpio"}
    assert agent["PrivateDevices"] == ["yes"] and "PrivateDevices" not in sensor
    shell, flag, script = shlex.split(sensor["ExecStart"][0])
    assert (shell, flag) == ("/bin/sh", "-c") and f"file:{script.split()[-1]}" in SENSOR.read_text()
    program = tmp_path / "sensor"
    program.write_text("#!/bin/sh\necho 21.4\n")
    program.chmod(0o755)
    for _ in range(2):  # systemd starts it again
        local = script.replace("/usr/local/bin/sensor", str(program))
        subprocess.run([shell, flag, local], cwd=tmp_path, check=True)
    source = GrowingFile(str(tmp_path / "readings.txt"), pytest.fail)
    assert source.take() == [21.4, 21.4]
    source.close()


def test_the_agent_may_write_its_folder_and_its_samples_come_from_somewhere() -> None:
    unit = AGENT
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


def test_files_that_grow_are_rotated_where_agents_have_them() -> None:
    paths = re.findall(r"^(/\S+) \{$", ROTATION, re.M)
    folder = settings(AGENT)["WorkingDirectory"][0].replace("%i", "*")
    assert paths == [f"{folder}/estimates.jsonl", f"{folder}/readings.txt"]
    user = settings(AGENT)["User"][0]
    assert ROTATION.count(f"su {user} {user}") == 2


@pytest.mark.skipif(LOGROTATE is None, reason="logrotate is not installed")
def test_agents_read_and_write_on_through_logrotate(tmp_path: Path) -> None:
    """The real one, with the file as it is but for folders and users: the sensor's program keeps its file open, and the
    agent's estimates go on in a new one."""
    agent = tmp_path / "pi-1"
    agent.mkdir()
    rules = tmp_path / "colme.logrotate"
    local = re.sub(r"^ *su .*\n", "", ROTATION, flags=re.M).replace("/var/lib/colme", str(tmp_path))
    rules.write_text(local.replace("size 10M", "size 1"))
    rules.chmod(0o644)
    source = GrowingFile(str(agent / "readings.txt"), pytest.fail)
    sink = LineFile(str(agent / "estimates.jsonl"), pytest.fail)
    found: list[float] = []
    with (agent / "readings.txt").open("ab", 0) as sensor:
        for day in range(4):
            for k in range(5):
                sensor.write(b"%d\n" % (10 * day + k))
                sink([{"estimate": 10 * day + k}])
                found += source.take()
            assert LOGROTATE is not None
            subprocess.run([LOGROTATE, "--state", str(tmp_path / "state"), str(rules)], check=True)
            found += source.take()  # notices
    source.close()
    assert found == [10 * day + k for day in range(4) for k in range(5)] and sink.dropped == 0
    kept = sorted(path.name for path in agent.iterdir())
    assert "readings.txt.1" in kept and sum("estimates.jsonl." in name and name.endswith(".gz") for name in kept) >= 3
    lines = b"".join(gzip.decompress(path.read_bytes()) for path in agent.glob("estimates.jsonl.*.gz"))
    assert {json.loads(line)["estimate"] for line in lines.splitlines()} == set(found)
