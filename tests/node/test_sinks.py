"""Sinks of estimates: whole lines, never blocking, and what could not be delivered is counted."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path

import pytest

import colme
from colme.node.config.node_toml import NodeConfig
from colme.node.config.tables import Estimates
from colme.node.io.mqtt import MqttSink
from colme.node.io.sinks import LineFile, open_sink, to_line
from tests.support.node_fleet import until

REPORT = {"name": "ann", "estimate": 1.5}


def config(to: str, address: str = "") -> NodeConfig:
    return NodeConfig(name="ann", method=colme.Local(), estimates=Estimates(to=to, address=address))


def test_a_file_may_be_moved_away_or_cut_short_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "estimates.jsonl"
    sink = open_sink(config("file", str(path)), pytest.fail)
    for each in ("moved", "cut", "stays"):
        sink([REPORT | {"name": each}])
        sink([REPORT])
        assert [json.loads(line)["name"] for line in path.read_text().splitlines()] == [each, "ann"]
        if each == "moved":
            path.rename(tmp_path / "old")
        elif each == "cut":
            path.write_text("")
    sink.close()
    assert sink.dropped == 0 and len((tmp_path / "old").read_text().splitlines()) == 2


def test_a_file_that_cannot_be_written_is_told_once_and_tried_again(tmp_path: Path) -> None:
    folder, said = tmp_path / "later", list[str]()
    sink = LineFile(str(folder / "x"), said.append)
    for _ in range(3):
        sink([REPORT])
    assert sink.dropped == 3 and len(said) == 1 and "No such file or directory. Estimates are dropped" in said[0]
    folder.mkdir()
    sink([REPORT])
    assert json.loads((folder / "x").read_text()) == REPORT and sink.dropped == 3
    full = LineFile("/dev/full", said.append)
    full([REPORT])
    assert full.dropped == 1 and "No space left" in said[1]


def test_a_line_that_was_torn_by_a_full_disk_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, said, write = tmp_path / "x", list[str](), os.write
    sink = LineFile(str(path), said.append)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:10]))
        sink([REPORT])
    sink([REPORT])
    sink([REPORT])
    torn, *whole = path.read_text().splitlines()
    assert len(torn) == 10 and [json.loads(line) for line in whole] == [REPORT] * 2 and sink.dropped == 1


class Broker:
    """Of a few lines: it takes one client at a time, and says what was published."""

    def __init__(self, port: int = 0, *, reads: bool = True):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = int(self.listener.getsockname()[1])
        self.reads, self.heard, self.client = reads, bytearray(), None
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    client: socket.socket | None

    def _serve(self) -> None:
        self.client, _ = self.listener.accept()
        with contextlib.suppress(OSError):  # it was closed
            self.client.recv(1024)  # CONNECT
            self.client.sendall(b"\x20\x02\0\0")
            while self.reads and (chunk := self.client.recv(4096)):
                self.heard += chunk

    def close(self) -> None:
        if self.client is not None:
            with contextlib.suppress(OSError):  # the other end was faster
                self.client.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        for each in (self.listener, self.client):
            if each is not None:
                each.close()


def test_estimates_by_mqtt_go_on_when_the_broker_comes_back() -> None:
    broker = Broker()
    said: list[str] = []
    sink = open_sink(config("mqtt", f"127.0.0.1:{broker.port}/house/7"), said.append)
    packet = b"\x00\x07house/7" + to_line(REPORT).rstrip()
    for again in (True, False):

        def arrives(broker: Broker = broker) -> bool:
            sink([REPORT])
            return bytes([0x30, len(packet)]) + packet in broker.heard

        until(arrives)
        broker.close()
        until(lambda before=sink.dropped: (sink([REPORT]), sink.dropped > before)[1])  # type: ignore[misc,func-returns-value]
        if again:
            broker = Broker(broker.port)
    sink.close()
    place = f"the broker at 127.0.0.1:{broker.port} (estimates.address)"
    assert len(said) == 2 and said[0].startswith(f"{place} is away: the connection ended")  # once a minute
    assert said[1] == f"{place} is back."


def test_a_broker_that_does_not_answer_is_mentioned_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said: list[str] = []
    sink = open_sink(config("mqtt", f"127.0.0.1:{port}/house/7"), said.append)
    until(lambda: bool(said))
    sink.close()
    place = f"the broker at 127.0.0.1:{port} (estimates.address)"
    assert said == [f"{place} is away: it does not answer. It is dialed until it answers."]


def test_a_broker_that_does_not_read_takes_no_memory() -> None:
    broker = Broker(reads=False)
    sink = MqttSink(config("mqtt", f"127.0.0.1:{broker.port}/house/7"), lambda _: None)
    until(sink._client.is_connected)
    report = {"name": "x" * 100_000}
    until(lambda: sink([report]) or sink.dropped >= 20)  # type: ignore[func-returns-value]
    assert len(sink._client._out_packet) <= 1
    broker.close()
    sink.close()
