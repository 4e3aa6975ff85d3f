"""The commands of docs/howto, run as they stand there (blocks marked sh): hosts are folders of this machine, on
addresses of its loopback, and ssh, sudo, chown, systemctl and journalctl are a few lines each. The tunnel through ssh
is a real one, to an sshd with the settings of the howto (block marked sshd). Blocks marked console set up an operating
system and are not run."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colme.node.config.node_toml import NodeConfig
from colme.node.security.keys import identity
from tests.support.node_fleet import asked_of, environment, free_port, until

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
PLACES = {  # of the text -> of this machine
    "/var/lib/colme": "$LIB", "/opt/colme/bin/": "", "192.168.1.": "127.0.0.", "0.0.0.0:7501": "127.0.0.50:7501",
    "127.0.0.1:7447": "127.0.0.54:7447", "tunnel@hub.example": f"{getpass.getuser()}@127.0.0.50",
    "User tunnel": f"User {getpass.getuser()}", "hub.example": "127.0.0.50",
}  # fmt: skip
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
SSH = shutil.which("ssh")
TOOLS = {
    "colme": 'exec "$PYTHON" -m colme "$@"',
    "ssh": f'if [ "$1" = -N ]; then exec {SSH} -F $LIB/../ssh/config "$@"; fi; shift; exec bash -c "$*"',
    "sudo": 'if [ "$1" = -u ]; then shift 2; fi; exec "$@"',
    "chown": "",
    "journalctl": 'cat "$LIB/${2#colme-node@}/journal" | tail -n "$4"',
    "systemctl": r"""
unit=${@: -1}; name=${unit#colme-node@}; home=$LIB/$name
if [ "$1" = restart ]; then
    date +%s.%N >> $home/stops
    kill $(cat $home/pid); while kill -0 $(cat $home/pid) 2>/dev/null; do sleep 0.05; done
fi
cd $home && exec colme node run --config $home/node.toml < /dev/null >> journal 2>> log &
echo $! > $home/pid
""",
}


class Site:
    """Where the commands are run."""

    def __init__(self, folder: Path):
        self.folder, self.lib = folder, folder / "lib"
        self.lib.mkdir()
        tools = folder / "tools"
        tools.mkdir()
        for name, script in TOOLS.items():
            (tools / name).write_text(f"#!/bin/bash\n{script}\n")
            (tools / name).chmod(0o755)
        self.environment = environment() | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "LIB": str(self.lib), "PYTHON": sys.executable,
        }  # fmt: skip

    def run(self, script: str) -> str:
        """What the commands print."""
        done = subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", here(script)], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def running(self, script: str) -> Iterator[None]:
        """A command that runs until it is ended."""
        process = subprocess.Popen(["bash", "-c", here(script)], cwd=self.folder, env=self.environment,
                                   stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        try:
            yield
            assert process.poll() is None, f"it ended by itself:\n{script}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()

    def status(self, name: str) -> dict[str, Any]:
        return asked_of(self.lib / name / "node.toml")

    def stop(self) -> None:
        for path in self.lib.glob("*/pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGTERM)
        for path in self.lib.glob("*/pid"):
            until(lambda path=path: not Path("/proc", path.read_text().strip()).exists())  # type: ignore[misc]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.stop()


def here(text: str) -> str:
    """A text of a howto, with the places of this machine."""
    for there, place in PLACES.items():
        text = text.replace(there, place)
    return text


def blocks(name: str, language: str = "sh") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (HOWTO / name).read_text(), re.M | re.S)


@contextlib.contextmanager
def ssh_server(site: Site, settings: str) -> Iterator[None]:
    """An sshd on loopback with these settings, and the configuration of a client that may log in."""
    assert SSHD is not None and SSH is not None
    folder, port = site.folder / "ssh", free_port()
    folder.mkdir()
    for key in (folder / "host", site.lib / "tunnel_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    shutil.copy(site.lib / "tunnel_key.pub", folder / "authorized_keys")
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.50\nPort {port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\n"
        f"PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n{settings}"
    )
    (folder / "config").write_text(
        f"Port {port}\nUserKnownHostsFile {folder}/known\nStrictHostKeyChecking no\nLogLevel ERROR\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    arguments = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(arguments, stderr=log)
    try:
        until(lambda: "Server listening" in (folder / "log").read_text())
        yield
    finally:
        server.terminate()
        server.wait()


def test_every_howto_is_run_here_and_linked() -> None:
    names = {path.name for path in HOWTO.glob("*.md") if "```sh" in path.read_text()}  # others have examples in Python
    assert names == set(re.findall(r'blocks\("(\w+\.md)"\)', Path(__file__).read_text()))
    for page in (HOWTO.parent / "node.md", HOWTO.parent.parent / "README.md"):
        assert all(f"howto/{name}" in page.read_text() for name in names)


def test_nothing_is_installed_by_name_from_an_index() -> None:
    """There the name may be somebody else's: colme comes from a path, or from files alone (--no-index)."""
    root, found = HOWTO.parents[1], 0
    for page in (root / "README.md", root / "deploy" / "Containerfile", *(root / "docs").rglob("*.md")):
        text = page.read_text().replace("\\\n", " ")
        for command in re.findall(r"\bpip3? (?:install|download|wheel)\b[^`\n]*", text):
            for word in re.findall(r"(?<![\w/.-])colme(?:\[[\w,]+\]|[=~<>]=[\d.]+)?(?=[\s'\"]|$)", command):
                found += 1
                assert "--no-index" in command, f"{page.name}: {command!r} installs {word!r} from an index"
    assert found  # that of the five Pis


@pytest.mark.network
def test_five_raspberry_pis(site: Site) -> None:
    names = [f"pi-{i}" for i in range(1, 6)]
    *setup, ask_them = blocks("five_raspberry_pis.md")
    for block in setup:
        site.run(block)
    until(lambda: all(site.status(name)["fresh"] == 2 for name in names))
    until(lambda: all(site.status(name)["samples"] == 1 for name in names))
    until(lambda: '"samples": 1' in (site.lib / "pi-1" / "journal").read_text())
    said = site.run(ask_them)
    assert "pi-1" in said and '"mean": 21.4' in said


@pytest.mark.network
@pytest.mark.skipif(SSHD is None or SSH is None, reason="openssh-server and openssh-client are not installed")
def test_behind_nat(site: Site) -> None:
    """pi-4 listens on loopback and is dialed through a port that ssh forwards."""
    (settings,) = blocks("behind_nat.md", "sshd")
    plan, tunnel, check = blocks("behind_nat.md")
    with ssh_server(site, here(settings)), contextlib.ExitStack() as stack:
        site.run(plan)
        stack.enter_context(site.running(tunnel))
        for name, reading in (("pi-4", "21.4"), ("pi-5", "21.6")):
            (site.lib / name / "readings.txt").write_text(f"{reading}\n")

        def exchanged() -> bool:
            rows = [site.status(name)["neighbor_rows"] for name in ("pi-4", "pi-5")]
            return all(len(each) == 1 and each[0].get("samples") == 1 and each[0]["estimate"] for each in rows)

        until(exchanged)
        said = site.run(check)
    assert "pi-4" in said and "pi-5" in said
    dialed = NodeConfig.read(site.lib / "pi-5" / "node.toml").neighbors[0].endpoint
    assert dialed == "tls/127.0.0.50:7501"
    assert NodeConfig.read(site.lib / "pi-4" / "node.toml").listen == ("tls/127.0.0.54:7447",)


@contextlib.contextmanager
def watched(site: Site, names: list[str]) -> Iterator[list[tuple[float, str, str, float]]]:
    """For how long each of some agents has not heard each other, all the time: (when, who, of whom, seconds)."""
    ages: list[tuple[float, str, str, float]] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            for name in names:
                rows, now = site.status(name)["neighbor_rows"], time.time()
                ages.extend((now, name, row["name"], row["age"]) for row in rows if row["age"] is not None)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield ages
    finally:
        done.set()
        thread.join()


@pytest.mark.network
def test_certificates_and_then_their_authority_are_replaced_while_agents_talk(site: Site) -> None:
    """Three agents, restarted in turn in four rounds: nobody who is not being restarted is lost for longer than the
    freshness, and whoever was is heard again."""
    names = ["pi-1", "pi-2", "pi-3"]
    hosts = "".join(f"pi-{i} 192.168.1.2{i}\\n" for i in (1, 2, 3))
    site.run(f"printf '{hosts}' > hosts.txt; colme node plan hosts.txt --set sigma=2 -o fleet; cp -r fleet/pi-? $LIB")
    site.run("for pi in pi-1 pi-2 pi-3; do systemctl enable --now colme-node@$pi; done")
    until(lambda: all(site.status(name)["fresh"] == 2 for name in names))
    freshness = NodeConfig.read(site.lib / "pi-1" / "node.toml").freshness
    before = {name: identity(site.lib / name / f"{name}.pem") for name in names}
    keys = {name: (site.lib / name / f"{name}.key").read_bytes() for name in names}
    with watched(site, names) as ages:
        for block in blocks("rotate_certificates.md"):
            site.run(block)
        until(lambda: all(site.status(name)["fresh"] == 2 for name in names))
    stops = {name: list(map(float, (site.lib / name / "stops").read_text().split())) for name in names}
    assert [len(stops[name]) for name in names] == [4] * 3 and len(ages) > 500
    for at, who, of, age in ages:
        if age > freshness:  # then it fell silent because it was told to stop
            assert any(abs(at - age - stop) < 1.0 for stop in stops[of]), (who, of, age)
        assert age < 20.0
    newest = (site.folder / "fleet" / "authority" / "ca.pem").read_bytes()
    for name in names:
        assert (site.lib / name / "ca.pem").read_bytes() == newest
        assert (site.lib / name / f"{name}.key").read_bytes() != keys[name]
        assert identity(site.lib / name / f"{name}.pem").hosts == before[name].hosts
        assert (site.lib / name / f"{name}.key").stat().st_mode & 0o077 == 0
