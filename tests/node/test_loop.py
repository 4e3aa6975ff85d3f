"""The loop of a node, in virtual time: when it ticks, which samples it takes, how it ends, and its status."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import colme
from colme.errors import NodeError
from colme.node.core import MOST_SENDERS, Core
from colme.node.device import RELEASE
from colme.node.io.journal import Journal
from colme.node.io.sources import GrowingFile, SampleSource
from colme.node.io.status import StatusServer, ask, metrics
from colme.node.loop import Loop
from colme.node.store import AgentStore
from tests.support.node_fleet import environment, free_port, until
from tests.support.nodes import lone_device

PERIOD = 0.05


class Script:
    """A source that gives what it is told, tick by tick."""

    def __init__(self, *ticks: list[float]):
        self.bad, self.ended, self._ticks = 0, False, list(ticks)

    def take(self) -> list[float]:
        now = self._ticks.pop(0) if self._ticks else []
        self.ended = not self._ticks
        return now

    def position(self) -> bytes | None:
        return None

    def resume(self, position: bytes) -> None: ...

    def close(self) -> None: ...


class VirtualStatusServer(StatusServer):
    """Waiting costs no time but that of a clock of its own, which may jump."""

    def __init__(self, jumps: dict[int, float] | None = None):
        super().__init__()
        self.now, self.waits, self.jumps = 100.0, 0, jumps or {}

    def wait(self, seconds: float, status: Callable[[], dict[str, Any]]) -> None:
        self.now += seconds + self.jumps.get(self.waits, 0.0)
        self.waits += 1


@pytest.fixture
def status_server() -> Iterator[VirtualStatusServer]:
    found = VirtualStatusServer()
    yield found
    found.close()


def make(
    source: SampleSource, status_server: StatusServer, store: AgentStore | None = None, method: Any = None,
    **options: Any,
) -> Loop:  # fmt: skip
    core = Core(method or colme.CLColME(sigma=1.0), "ann", ["bob"], n_agents=2)
    device = lone_device(core, store, save_every=3, source=source if store is not None else None)
    return Loop(device, source, status_server, period=PERIOD, **options)


def test_a_runner_sleeps_until_the_next_tick_and_skips_what_it_slept_through() -> None:
    status_server = VirtualStatusServer({5: 20.5 * PERIOD})
    began: list[float] = []
    loop = make(Script(*[[1.0]] * 10), status_server, clock=lambda: status_server.now, phase=0.5, until_end=True)
    tick = loop.device.tick
    loop.device.tick = lambda now, sample: (began.append(now), tick(now, sample))[1]  # type: ignore[method-assign,func-returns-value]
    loop.run()
    ticks = [(now - 100.0) / PERIOD - 0.5 for now in began]
    assert ticks == pytest.approx([0, 1, 2, 3, 4, 25.5, 26, 27, 28, 29]) and loop.ticker.late == 20


def test_all_samples_of_a_tick_count_and_ticks_without_one_are_ticks(status_server: VirtualStatusServer) -> None:
    reports: list[dict[str, Any]] = []
    loop = make(Script([1.0, 2.0, 6.0], [], [], [7.0]), status_server, clock=lambda: status_server.now,
                report=reports.extend, until_end=True, report_every=2 * PERIOD)  # fmt: skip
    loop.run()
    assert (reports[-1]["tick"], reports[-1]["samples"], reports[-1]["mean"]) == (4, 4, 4.0)
    assert [each["tick"] for each in reports] == [1, 3, 4]  # every second tick, and a last word


@pytest.mark.parametrize("method", [colme.CLColME(sigma=1.0), colme.Local(), colme.Census(sigma=1.0)], ids=repr)
def test_reports_and_status_are_json_whatever_the_method(method: Any, status_server: VirtualStatusServer) -> None:
    loop = make(Script(), status_server, method=method)
    found = loop.status()
    assert found["mean"] is None and found["samples"] == 0  # not NaN
    json.dumps(found, allow_nan=False)
    assert "colme_samples_total" in metrics(found) and "colme_mean" not in metrics(found)


@pytest.mark.parametrize("crash", ["kill", "power cut"])
def test_the_place_in_a_file_is_saved_with_what_was_learned(
    tmp_path: Path, status_server: VirtualStatusServer, crash: str
) -> None:
    """Whenever it dies, each line counts once, but for those since the last save, which are read again. After a power
    cut that is the last synced one."""
    path, log = tmp_path / "a.sqlite", tmp_path / "log"
    log.write_text("1\n2\n3\n")
    for round_ in range(4):
        source, store = GrowingFile(str(log), pytest.fail), AgentStore(path)
        loop = make(source, status_server, store)
        for _ in range(4):  # saved at every third tick
            loop._tick(time.monotonic())
            with log.open("a") as file:
                file.write(f"{10 + round_}\n4")  # the last line is not ended yet
            with log.open("a") as file:
                file.write("0\n")
        if crash == "power cut" and round_ == 1:
            store.sync()
        if crash == "power cut":  # what was not synced may be lost
            for slot in "ab":
                Path(f"{path}-recent-{slot}").unlink()
        source.close()  # the store is not closed
    source, store = GrowingFile(str(log), pytest.fail), AgentStore(path)
    loop = make(source, status_server, store)
    loop._tick(time.monotonic())
    lines = [float(line) for line in log.read_text().split()]
    core = loop.device.core
    assert core.agent.count == len(lines) and core.mean == pytest.approx(sum(lines) / len(lines))
    assert core.incarnation == 5
    store.close()
    source.close()


def test_a_node_tells_its_status_to_its_owner_only(tmp_path: Path) -> None:
    path = str(tmp_path / "ann.sock")
    port = free_port()
    status_server = StatusServer(path=path, metrics=f"127.0.0.1:{port}")
    loop = make(Script([2.0]), status_server)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with pytest.raises(NodeError, match="in use"):
        StatusServer(path=path)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        until(lambda: ask(path)["samples"] == 1)
        found = ask(path)
        assert found["name"] == "ann" and [row["name"] for row in found["neighbor_rows"]] == ["bob"]
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]  # they ask nothing, and stay
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        assert 'colme_mean{agent="ann"} 2\n' in text and "# TYPE colme_samples_total counter" in text
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        for each in idle:
            each.close()
    finally:
        loop.stop()
        thread.join()
    assert not os.path.exists(path)
    with pytest.raises(NodeError, match=r"no node answers at .*colme node run"):
        ask(path)


def test_a_socket_of_the_dead_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(path)
    dead.close()
    StatusServer(path=path).close()
    assert not os.path.exists(path)


def test_a_bad_place_of_a_socket_is_refused(tmp_path: Path) -> None:
    long, file = str(tmp_path / ("x" * 200)), tmp_path / "readings.txt"
    file.write_text("21.4\n")
    for call, sentence in (
        (lambda: StatusServer(path=long), "cannot listen"),
        (lambda: StatusServer(metrics="0.0.0.0:9464"), r"metrics='0.0.0.0:9464'.*loopback"),
        (lambda: ask(long), r"x: AF_UNIX path too long\. Start it"),
        (lambda: StatusServer(path=str(file)), r"is not a socket: it is not replaced\. Choose"),
    ):
        with pytest.raises(NodeError, match=sentence):
            call()
    assert file.read_text() == "21.4\n"


def test_a_client_that_makes_room_while_it_speaks_harms_nobody() -> None:
    port = free_port()
    status_server = StatusServer(metrics=f"127.0.0.1:{port}")
    with contextlib.closing(status_server), contextlib.ExitStack() as stack:
        clients = []
        for _ in range(9):
            clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            if len(clients) < 9:
                status_server.wait(1.0, dict)
        clients[0].sendall(b"GET")
        status_server.wait(1.0, dict)  # both at once: the first is dismissed before it is heard


NODE = """
name = "ann"
preset = "local"
tick_rate = 20.0
listen = ["tcp/127.0.0.1:{port}"]
report_every = 0.2
[method]
method = "cl-colme"
sigma = 1.0
[[neighbors]]
name = "bob"
"""


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "colme", "node", "run", "--config", str(folder / "node.toml"), *more]
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.slow
def test_a_process_saves_when_told_to_stop_and_continues(tmp_path: Path) -> None:
    """With a damaged store at first, which is set aside; and with a file for its estimates at last."""
    (tmp_path / "node.toml").write_text(NODE.format(port=free_port()))
    (tmp_path / "ann.sqlite").touch()
    first = start(tmp_path)
    assert first.stdin is not None and first.stdout is not None
    first.stdin.write("1\nnonsense\n2\n")
    first.stdin.flush()
    while json.loads(first.stdout.readline())["samples"] < 2:
        pass
    first.send_signal(signal.SIGHUP)  # nothing
    found = ask(str(tmp_path / "ann.sock"))
    sentence = "ann.sqlite is damaged (it is empty): it was set aside as ann.sqlite.corrupt-1, and a new one begins."
    assert found["bad_lines"] == 1 and found["incarnation"] >= RELEASE and found["store_warnings"] == [sentence]
    again = start(tmp_path)
    _, words = again.communicate(timeout=30)
    assert again.returncode == 1 and "in use" in words  # it runs already
    first.send_signal(signal.SIGTERM)
    out, words = first.communicate(timeout=30)
    assert first.returncode == 0 and words.splitlines()[0] == sentence
    assert "'nonsense' is not a number" in words and "saved its state" in words
    assert json.loads(out.splitlines()[-1])["mean"] == 1.5
    with (tmp_path / "node.toml").open("a") as file:
        file.write('[estimates]\nto = "file"\naddress = "estimates.jsonl"\n')
    second = start(tmp_path, "--until-end")
    out, words = second.communicate("6\n", timeout=30)
    last = json.loads((tmp_path / "estimates.jsonl").read_text().splitlines()[-1])
    assert second.returncode == 0 and out == ""
    assert re.search(r"ann runs \(incarnation \d+\) with 1 neighbor\.", words)
    assert (last["samples"], last["mean"]) == (3, 3.0)


@pytest.mark.slow
def test_at_the_limit_of_descriptors_status_answers(tmp_path: Path) -> None:
    """In a process of its own, which uses up its descriptors: one is in reserve, to accept with."""
    script = f"""
import os, resource, socket
from colme.node.io.status import StatusServer
server = StatusServer(path={str(tmp_path / "s")!r})
clients = [socket.socket(socket.AF_UNIX) for _ in range(2)]  # before there are no descriptors left
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError:
    pass
for client in clients:
    client.connect({str(tmp_path / "s")!r})
    client.settimeout(30)
    for _ in range(3):
        server.wait(0.1, lambda: dict(name="ann"))
    print(client.recv(100).decode().strip())
"""
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    assert [json.loads(answer) for answer in done.stdout.splitlines()] == [{"name": "ann"}] * 2


def test_refusals_are_counted_by_neighbor_and_labels_are_escaped(status_server: VirtualStatusServer) -> None:
    loop = make(Script(), status_server)
    core = loop.device.core
    core.refused["sample"] += 1
    for _ in range(3):
        core.refused.note("bob", "old")
    core.refused.note('b"o\\b', "size")  # no agent has such a name; it would be harmless
    found = loop.status()
    assert found["refused"] == {"sample": 1, "old": 3, "size": 1}
    assert found["refused_from"]["bob"] == {"old": 3} and found["neighbor_rows"][0]["refused"] == {"old": 3}
    lines = [line for line in metrics(found).splitlines() if line.startswith("colme_refused_total")]
    assert lines == [
        'colme_refused_total{agent="ann",reason="sample"} 1',
        'colme_refused_total{agent="ann",neighbor="b\\"o\\\\b",reason="size"} 1',
        'colme_refused_total{agent="ann",neighbor="bob",reason="old"} 3',
    ]
    for i in range(3 * MOST_SENDERS):  # neighbors that come and go
        core.refused.note(f"agent-{i}", "old")
    assert len(core.refused.senders) == MOST_SENDERS and core.refused["old"] == 3 + 3 * MOST_SENDERS
    assert 'reason="old"} 131' in metrics(loop.status())  # those of agents that were forgotten


def test_the_loop_shows_its_journal_the_samples_and_the_certificate(status_server: VirtualStatusServer) -> None:
    said: list[str] = []
    journal = Journal(said.append, expires=2e9, wall=lambda: 2e9 - 3600.0)
    loop = make(Script([1.0], [2.0]), status_server, clock=lambda: status_server.now, journal=journal)
    tick = loop.device.tick

    def stop_later(now: float, sample: float) -> None:
        tick(now, sample)
        if loop.device.core.epoch > 50:
            loop.stop()

    loop.device.tick = stop_later  # type: ignore[method-assign]
    loop.run()
    assert len(said) == 2 and "expires in less than 2 hours" in said[0] and "the samples have ended" in said[1]
    found = loop.status()
    assert found["certificate_days"] == pytest.approx(1 / 24) and found["samples_ended"]
    assert 'colme_certificate_expiry_timestamp_seconds{agent="ann"} 2000000000' in metrics(found)
