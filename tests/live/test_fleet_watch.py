"""Watching a fleet: nodes that are asked, reports that are read, and `colme node watch --web`."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from colme.cli import node_command
from colme.errors import NodeError
from colme.live import fleet
from colme.live.fleet import LONGEST_LINE, NodePoll, ReportReader
from colme.live.fleet_feed import MOST_AGENTS, Answer
from colme.node.config.node_toml import NodeConfig
from tests.support.live_messages import unpack
from tests.support.node_fleet import until


def line(name: str, mean: float = 1.0, **more: Any) -> bytes:
    return json.dumps({"name": name, "samples": 3, "mean": mean, "estimate": mean, **more}).encode() + b"\n"


def means(answers: list[Answer]) -> dict[str, float | None]:
    return {answer.name: None if answer.statement is None else answer.statement.numbers["mean"] for answer in answers}


# Nodes that are asked


def test_a_node_that_hangs_does_not_stall_the_others_and_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_now, asked = threading.Event(), []

    def answer(path: str, timeout: float) -> dict[str, Any]:
        asked.append(path)
        if path == "hangs":
            answer_now.wait(120.0)
        return {"mean": 1.0}

    monkeypatch.setattr(fleet, "ask", answer)
    with contextlib.closing(NodePoll({"ann": "a", "bob": "hangs"}, patience=0.05)) as poll:
        until(lambda: means(poll())["ann"] == 1.0)
        assert means(poll())["bob"] is None and asked.count("hangs") == 1
        answer_now.set()
        until(lambda: means(poll())["bob"] == 1.0)


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a watch believes in."""
    now = [0.0]
    monkeypatch.setattr(fleet, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_node_that_is_slow_keeps_its_last_answer_until_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = threading.Event()
    slow.set()
    now = clock(monkeypatch)

    def answer(path: str, timeout: float) -> dict[str, Any]:
        slow.wait(120.0)
        return {"mean": 1.0}

    monkeypatch.setattr(fleet, "ask", answer)
    with contextlib.closing(NodePoll({"ann": "a"}, patience=0.05)) as poll:
        until(lambda: means(poll())["ann"] == 1.0)
        slow.clear()
        poll()
        now[0] = 5.0
        (found,) = poll()
        assert found.statement is not None and found.age == 5.0
        slow.set()


@contextlib.contextmanager
def listening(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """A process that listens where a node does, and answers as it likes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, contextlib.suppress(OSError):
                        answer(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


# Reports


@contextlib.contextmanager
def piped() -> Iterator[tuple[ReportReader, Callable[[bytes], None], Callable[[], None]]]:
    """A reader of a pipe, and how to write to it and to end it."""
    out, into = os.pipe()
    opened = [into]

    def end() -> None:
        os.close(opened.pop())

    try:
        with contextlib.closing(ReportReader(out)) as reader:
            yield reader, lambda data: _write(into, data, reader), end
    finally:
        for descriptor in (*opened, out):
            os.close(descriptor)


def _write(descriptor: int, data: bytes, reader: ReportReader) -> None:
    """Write all of it; the reader makes room in the pipe."""
    os.set_blocking(descriptor, False)
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            reader()


def test_a_file_is_read_to_its_end_and_then_followed(tmp_path: Path) -> None:
    path = tmp_path / "reports.jsonl"
    path.write_bytes(line("ann", 1.0) + line("bob", 2.0) + line("ann", 3.0))
    with contextlib.closing(ReportReader(str(path))) as reader:
        assert means(reader()) == {"ann": 3.0, "bob": 2.0}
        with path.open("ab") as more:
            more.write(line("bob", 4.0)[:20])
            more.flush()
            more.write(line("bob", 4.0)[20:])
        assert means(reader()) == {"ann": 3.0, "bob": 4.0}
    assert reader.bad == 0


def test_a_named_pipe_may_get_its_writers_later(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with contextlib.closing(ReportReader(str(path))) as reader:
        for mean in (1.0, 2.0):
            path.write_bytes(line("ann", mean))
            assert means(reader()) == {"ann": mean}


@pytest.mark.parametrize("what", ["missing", "."])
def test_what_cannot_be_read_is_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(NodeError, match=r"cannot read .*Name a file of reports, or - for stdin"):
        ReportReader(str(tmp_path / what))


def test_the_end_of_stdin_is_said_and_the_last_line_counts() -> None:
    with piped() as (reader, write, end):
        write(line("ann") + line("bob")[:-1])
        end()
        assert set(means(reader())) == {"ann", "bob"} and reader.notes == ["The reports have ended."]


BAD = [b"not JSON", b"[1, 2]", b"7", b"{}", b'{"name": 7}', b'{"name": ""}', b"\xff\xfe", b'{"name": "x"', b"[" * 5000,
       b'{"name": "x", "mean": ' + b"1" * 5000 + b"}"]  # fmt: skip


def test_bad_lines_are_counted_and_said_once() -> None:
    with piped() as (reader, write, _):
        write(b"\n".join(BAD) + b"\n\n   \n" + line("ann"))
        reader()
        assert reader.bad == len(BAD) and means(reader()) == {"ann": 1.0}
        (told,) = reader.notes
        assert told.startswith("Lines of the reports such as 'not JSON' are left out: each must be a JSON object")


def test_a_line_that_is_too_long_is_skipped_and_not_kept() -> None:
    with piped() as (reader, write, _):
        write(b'{"name": "long", "x": "' + b"x" * (5 * LONGEST_LINE) + b'"}\n' + line("ann"))
        reader()
        assert means(reader()) == {"ann": 1.0} and reader.bad == 1 and len(reader._rest) <= LONGEST_LINE + 1


def test_agents_that_report_are_bounded() -> None:
    with piped() as (reader, write, _):
        write(b"".join(line(f"n-{k}") for k in range(MOST_AGENTS + 5)))
        assert len(reader()) == MOST_AGENTS + 1, "one too many, so that the feed says it"


def test_names_of_local_agents_belong_to_their_gateway() -> None:
    with piped() as (reader, write, _):
        write(line("meter", 1.0, gateway="hub-1") + line("meter", 2.0, gateway="hub-2"))
        assert means(reader()) == {"hub-1/meter": 1.0, "hub-2/meter": 2.0}


def test_an_agent_that_has_not_reported_for_long_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock(monkeypatch)
    with piped() as (reader, write, _):
        write(line("ann"))
        reader()
        now[0] = 60.0  # a gateway reports once a minute
        assert means(reader()) == {"ann": 1.0} and reader()[0].age == 60.0
        write(line("ann", 2.0))
        assert means(reader()) == {"ann": 2.0}
        now[0] = 230.0
        assert means(reader()) == {"ann": 2.0}
        now[0] = 250.0
        assert means(reader()) == {"ann": None}


# The command


class Page:
    """A page that nobody opens. It ends the watch, as Ctrl-C does, at the first message that fulfills a condition."""

    def __init__(self) -> None:
        self.messages: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.enough: Callable[[dict[str, Any], dict[str, Any]], object] = lambda head, arrays: False

    def publish(self, message: bytes) -> None:
        self.messages.append(unpack(message))
        if self.enough(*self.messages[-1]):
            raise KeyboardInterrupt

    @property
    def kinds(self) -> list[str]:
        return [head["kind"] for head, _ in self.messages]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    made = Page()
    monkeypatch.setattr("colme.live.broadcast.Broadcast", lambda: made)

    @contextlib.contextmanager
    def live_page(broadcast: Page, **_: Any) -> Iterator[None]:
        with contextlib.suppress(KeyboardInterrupt):
            yield

    monkeypatch.setattr(node_command, "live_page", live_page)
    return made


def watch(*words: str) -> Result:
    return CliRunner().invoke(node_command.command, ["watch", *words])


def configured(folder: Path, name: str) -> Path:
    folder.mkdir()
    path = folder / "node.toml"
    path.write_text(f'name = "{name}"\n[method]\nmethod = "local"\n')
    return path


def test_the_page_shows_what_the_nodes_answer(tmp_path: Path, page: Page) -> None:
    paths = [configured(tmp_path / name, name) for name in ("ann", "bob")]
    told = json.dumps({"name": "ann", "samples": 5, "mean": 2.0, "neighbor_rows": [{"name": "bob"}]}).encode()
    page.enough = lambda head, arrays: head["kind"] == "frame" and arrays["state"].tolist() == [1, 0]
    with listening(Path(NodeConfig.read(paths[0]).socket), lambda client: client.sendall(told)):
        done = watch("--web", "--every", "0.1", "-c", str(tmp_path / "*" / "node.toml"))
    assert done.exit_code == 0 and page.messages[0][0]["names"] == ["ann", "bob"]
    assert page.messages[-2][1]["mean"][0] == 2.0 and page.kinds[-1] == "end"


def test_reports_need_no_configuration(tmp_path: Path, page: Page) -> None:
    reports = tmp_path / "reports.jsonl"
    reports.write_bytes(b"oops\n" + line("ann", 4.0))
    done = watch("--web", "--every", "0.1", "--times", "3", "--reports", str(reports))
    assert done.exit_code == 0 and page.kinds == ["start", "note", "frame", "frame", "frame", "end"]
    assert page.messages[-2][1]["mean"].tolist() == [4.0]
    assert next(head["text"] for head, _ in page.messages if "text" in head).startswith(
        "Lines of the reports such as 'oops'"
    )


REFUSED: dict[tuple[str, ...], str] = {
    ("--web", "--format", "json"): "leave --format out",
    ("--web", "--wide"): "leave --wide out",
    ("--port", "8000"): "--port is for the page",
    ("--no-open",): "--open is for the page",
    ("--reports", "-"): "--reports is for the page",
    ("--web", "--reports", "nowhere.jsonl"): "cannot read nowhere.jsonl: No such file or directory. Name a file",
    ("--times", "1", "-c", "no*.toml"): "no file is called no*.toml: a star stands for any characters. Try",
    ("--web", "-c", "a/node.toml", "-c", "b/node.toml"): "two of these nodes are called 'ann': each must",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_watched_is_refused_before_anything_is_served(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Page
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        configured(tmp_path / folder, "ann")
    done = watch(*words)
    assert done.exit_code != 0 and REFUSED[words] in f"{done.output} {done.exception}" and page.messages == []


def test_a_browser_gets_the_frames_of_a_process_until_sigterm(tmp_path: Path) -> None:
    reports = tmp_path / "reports.jsonl"
    reports.write_bytes(line("ann", 4.0))
    words = [sys.executable, "-m", "colme", "node", "watch", "--web", "--reports", str(reports), "--every", "0.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            with urllib.request.urlopen(process.stdout.readline().strip() + "frames", timeout=120) as stream:
                data = (each[6:].strip() for each in stream if each.startswith(b"data: "))
                events = (unpack(base64.b64decode(each))[0]["kind"] for each in data if each != b"1")  # 1: it is alive
                kinds = list(islice(events, 3))
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0 and kinds == ["start", "frame", "frame"]
        finally:
            process.kill()
