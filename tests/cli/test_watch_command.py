"""`colme watch` as people call it: the address on stdout, words on stderr, and Ctrl-C as its normal end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import webbrowser
from pathlib import Path
from typing import IO

import pytest

from colme import cli
from colme.lab.watch import WatchSession
from tests.support.live_viewer import PATIENCE, LiveViewer, ask, post


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_the_address_streams_and_ends_with_a_signal(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "colme", "watch", "-m", "cl-colme", "-m", "local", "--n-agents", "20", "--steps",
               "30", "--degree", "4"]  # fmt: skip
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    ) as running:
        try:
            url = line_of(running.stdout).strip()
            assert line_of(running.stderr) == "Open the address in a browser. Ctrl-C ends it.\n"
            assert ask(url).status == 200
            with LiveViewer(url) as viewer:
                first = viewer.message()
                assert [panel["label"] for panel in first.head["panels"]] == ["CL-colME", "local"]
                assert viewer.message().head["t"] == 1
                assert post(url, {"command": "restart", "values": {"delta": "2"}}).status == 400
                assert post(url, {"command": "restart", "values": {"n_agents": "10"}}).status == 200
                assert viewer.until(lambda told: told.kind == "start")[-1].head["n_agents"] == 10
            running.send_signal(number)
            out, err = running.communicate(timeout=PATIENCE)
        finally:
            running.kill()
    assert running.returncode == 0 and out == "" and err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cl_colm"], "Did you mean 'cl_colme'?"),
        (["--method", "cl-colm"], "Did you mean 'cl-colme'?"),
        (["--step", "5"], "step=5 is not stable"),
    ],
)
def test_wrong_usage_is_a_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as done:
        cli.main(["watch", *arguments])
    out, err = capsys.readouterr()
    assert done.value.code == 2 and out == "" and said in err


@pytest.mark.parametrize(("flags", "opened"), [(["--open"], 1), (["--no-open"], 0), ([], 0)])
def test_a_browser_is_opened_on_demand(
    flags: list[str], opened: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", urls.append)
    monkeypatch.setattr(WatchSession, "__enter__", lambda session: signal.raise_signal(signal.SIGTERM))
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as done:
        cli.main(["watch", "--n-agents", "20", "--steps", "5", "-q", *flags])
    out, err = capsys.readouterr()
    assert done.value.code == 0 and err == "" and urls == [out.strip()] * opened
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
