"""Samples in and estimates out: each sample counts once, no input is fatal, nothing blocks, lines are whole, and what
could not be delivered is counted."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import colme
from colme.errors import MissingExtra, NodeError
from colme.node.config.node_toml import NodeConfig
from colme.node.config.tables import Estimates, GatewayTable, Samples
from colme.node.io import sources
from colme.node.io.mqtt import MqttSink
from colme.node.io.sinks import LineFile, LinePrinter, open_sink, to_line
from colme.node.io.sockets import listen_tcp, wait_for_addresses
from colme.node.io.sources import GrowingFile, LineParser, SampleSource, Stdin, open_source
from tests.support.node_fleet import until


def sampled(source: str, address: str) -> NodeConfig:
    return NodeConfig(name="ann", method=colme.Local(), samples=Samples(source=source, address=address))


def reported(to: str, address: str, **fields: Any) -> NodeConfig:
    node = {"name": "ann", "method": colme.Census(), "estimates": Estimates(to=to, address=address)} | fields
    return NodeConfig(**node)


def collect(source: SampleSource, n: int) -> list[float]:
    found: list[float] = []

    def enough() -> bool:
        found.extend(source.take())
        return len(found) >= n

    until(enough)
    return found


def drain(source: SampleSource) -> list[float]:
    found: list[float] = []
    while more := source.take():
        found += more
    return found


NONSENSE = (
    b"x",
    b"nan",
    b"-inf",
    b"1e999",
    b"1,5",
    b"1 2",
    b"1_000",
    b"\xff\xfe",
    b"0x10",
    b"9" * (sources.LONGEST + 1),
)


@given(st.lists(st.sampled_from([b"1", b" -2.5e3\r", b"", *NONSENSE]), max_size=20), st.integers(1, 60))
def test_lines_are_read_in_whatever_pieces_they_come(lines: list[bytes], size: int) -> None:
    complaints: list[bytes] = []
    reader = LineParser(complaints.append)
    raw = b"".join(line + b"\n" for line in lines)
    found = [x for i in range(0, len(raw), size) for x in reader.feed(raw[i : i + size])]
    assert found == [float(line) for line in lines if line in (b"1", b" -2.5e3\r")]
    assert len(complaints) == sum(line in NONSENSE for line in lines) and reader.held == 0


def test_a_line_without_end_takes_no_memory() -> None:
    complaints: list[bytes] = []
    reader = LineParser(complaints.append)
    for _ in range(100):
        assert reader.feed(b"1" * 10_000) == []
    assert len(reader._begun) <= sources.LONGEST + 1 and reader.held == 1_000_000
    assert reader.feed(b"\n5\n") == [5.0] and len(complaints) == 1


def test_stdin_never_blocks_and_ends() -> None:
    read, write = os.pipe()
    said: list[str] = []
    source = Stdin(said.append, read)
    assert source.take() == [] and not source.ended
    os.write(write, b"1\nfoo\n2\nbar\n3")
    assert source.take() == [1.0, 2.0]
    os.close(write)
    assert source.take() == [3.0] and source.ended and source.take() == []
    assert source.bad == 2 and len(said) == 1 and "'foo' is not a number" in said[0]
    os.close(read)


def test_a_file_is_followed_through_rotation_and_truncation(tmp_path: Path) -> None:
    path, said = tmp_path / "log", list[str]()
    source = GrowingFile(str(path), said.append)
    assert source.take() == [] == source.take() and len(said) == 1 and "cannot read" in said[0]  # it comes later
    path.write_text("1\n2\n3")
    assert drain(source) == [1.0, 2.0]  # 3 may become 35
    with path.open("a") as file:
        file.write("5\n")
    assert drain(source) == [35.0]
    old = path.open("a")
    path.rename(tmp_path / "log.1")
    assert drain(source) == []
    old.write("36\n")  # written by who still has the old one open
    old.close()
    path.write_text("4\n")
    assert collect(source, 2) == [36.0, 4.0]
    path.write_text("")  # cut short in place, as copytruncate does
    assert drain(source) == []
    with path.open("a") as file:
        file.write("7\n")
    assert collect(source, 1) == [7.0]
    source.close()


def test_what_is_no_file_is_told_and_waited_for(tmp_path: Path) -> None:
    path, said = tmp_path / "log", list[str]()
    source = GrowingFile(str(path), said.append)
    for make, remove in ((path.mkdir, path.rmdir), (lambda: os.mkfifo(path), path.unlink)):
        make()
        assert source.take() == [] and source.position() is None
        remove()
    assert len(said) == 1 and "not a regular file" in said[0]
    path.write_text("1\n")
    assert collect(source, 1) == [1.0]
    source.close()


def test_a_file_goes_on_where_it_was_unless_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("1\n2\n3")
    first = GrowingFile(str(path), pytest.fail)
    assert drain(first) == [1.0, 2.0]
    place = first.position()
    first.close()
    assert place is not None

    def resumed() -> list[float]:
        source = GrowingFile(str(path), pytest.fail)
        source.resume(place)
        found = drain(source)
        source.close()
        return found

    with path.open("a") as file:
        file.write("9\n")
    assert resumed() == [39.0]
    path.rename(tmp_path / "log.1")
    path.write_text("5\n6\n7\n8\n")
    assert resumed() == [5.0, 6.0, 7.0, 8.0]
    waiting = GrowingFile(str(tmp_path / "none"), lambda _: None)
    waiting.resume(place)
    assert waiting.take() == [] and waiting.position() == place  # not forgotten while the file is away
    waiting.resume(b"torn")


class Broker:
    """Of a few lines: it takes one client at a time, sends it these payloads, and says what was published."""

    client: socket.socket | None

    def __init__(self, port: int = 0, *payloads: bytes, reads: bool = True):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = int(self.listener.getsockname()[1])
        self.payloads, self.reads, self.heard, self.client = payloads, reads, bytearray(), None
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        self.client, _ = self.listener.accept()
        with contextlib.suppress(OSError):  # it was closed
            self.client.recv(1024)  # CONNECT
            self.client.sendall(b"\x20\x02\0\0")
            if self.payloads:
                number = self.client.recv(1024)[2:4]  # of SUBSCRIBE
                self.client.sendall(b"\x90\x03" + number + b"\0")
            for payload in self.payloads:
                self.client.sendall(bytes([0x30, 9 + len(payload)]) + b"\0\x07house/7" + payload)
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


def test_samples_by_mqtt() -> None:
    broker = Broker(0, b"1.5", b"?", b"2\n3")
    source = open_source(sampled("mqtt", f"127.0.0.1:{broker.port}/house/7"), lambda _: None)
    assert collect(source, 3) == [1.5, 2.0, 3.0] and source.bad == 1
    source.close()
    broker.close()


SKIPPED = "it is skipped, as others will be."


@pytest.mark.parametrize(
    ("name", "payload", "sentence"),
    [
        ("meter-1", b"?", f"'?' is not a number: {SKIPPED} Send one number per line."),
        ("", b"1", "'' in a topic is not a name: its messages are skipped. Try another topic."),
        (
            None,
            b"1",
            "'1' is not a name and a number: it is skipped, as others will be. Send lines like: meter-17 21.4",
        ),
    ],
)
def test_what_is_wrong_with_the_message_of_a_local_agent(name: str | None, payload: bytes, sentence: str) -> None:
    said: list[str] = []
    messages = sources.Messages(said.append, sources.NamedLineParser)
    messages.pull = lambda: [(name, payload), ("meter-2", b"2.5"), (name, payload)]
    assert messages.take() == [("meter-2", 2.5)] and messages.bad == 2 and said == [sentence]


# Estimates


REPORT = {"name": "ann", "estimate": 1.5}


def test_a_file_may_be_moved_away_or_cut_short_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "estimates.jsonl"
    sink = open_sink(reported("file", str(path)), pytest.fail)
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


def test_estimates_by_mqtt_go_on_when_the_broker_comes_back() -> None:
    broker = Broker()
    said: list[str] = []
    sink = open_sink(reported("mqtt", f"127.0.0.1:{broker.port}/house/7"), said.append)
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
    sink = open_sink(reported("mqtt", f"127.0.0.1:{port}/house/7"), said.append)
    until(lambda: bool(said))
    sink.close()
    place = f"the broker at 127.0.0.1:{port} (estimates.address)"
    assert said == [f"{place} is away: it does not answer. It is dialed until it answers."]


def test_a_broker_that_does_not_read_takes_no_memory() -> None:
    broker = Broker(reads=False)
    sink = MqttSink(reported("mqtt", f"127.0.0.1:{broker.port}/house/7"), lambda _: None)
    until(sink._client.is_connected)
    report = {"name": "x" * 100_000}
    until(lambda: sink([report]) or sink.dropped >= 20)  # type: ignore[func-returns-value]
    assert len(sink._client._out_packet) <= 1
    broker.close()
    sink.close()


def test_nobody_who_does_not_read_holds_a_sink() -> None:
    read, write = os.pipe()
    printer = LinePrinter(write)
    for _ in range(5000):
        printer([{"name": "ann", "estimate": 1.0}])
    assert printer.dropped > 0
    assert os.read(read, 64).startswith(b'{"name": "ann"')
    os.close(read)
    before = printer.dropped
    printer([{"name": "ann", "estimate": 1.0}])  # nobody will ever read it: no reason to stop
    assert printer.dropped == before + 1
    os.close(write)


# Addresses


def test_an_address_that_is_not_there_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """At boot, before the network has come up: first the name is unknown, then the address is not assigned."""
    seconds, said, known = [0], [], socket.getaddrinfo

    def lookup(host: str, *rest: object, **options: object) -> object:
        if seconds[0] < 3:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return known("192.0.2.1" if seconds[0] < 200 else "127.0.0.1", *rest, **options)  # type: ignore[arg-type]

    def sleep(wait: float) -> None:
        seconds[0] += 1

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    wait_for_addresses(["pi-1.local"], said.append, sleep)
    no_address, lists = "it is not an address of this machine", "`ip address` lists the addresses of this machine."
    assert seconds[0] == 200 and said == [
        f"cannot listen at pi-1.local yet: Temporary failure in name resolution. Waiting; {lists}",
        f"cannot listen at pi-1.local yet: {no_address}. Waiting (for 1 min); {lists}",
        f"cannot listen at pi-1.local yet: {no_address}. Waiting (for 2 min); {lists}",
        "pi-1.local is there after 200 s.",
    ]


def test_the_remedy_follows_from_why_listening_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, remedy in (
        (errno.EADDRINUSE, "Choose another port."), (errno.EADDRNOTAVAIL, "Choose an address of this machine"),
        (errno.EACCES, "Choose a port above 1023."), (errno.ENOMEM, "Check the address."),
    ):  # fmt: skip

        def bind(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(socket, "socket", type("Refusing", (socket.socket,), {"bind": bind}))
        with pytest.raises(NodeError, match=f"^cannot listen at 127.0.0.1:7000: {os.strerror(number)}. {remedy}"):
            listen_tcp("127.0.0.1:7000", "address")
        monkeypatch.undo()


def source(address: str) -> object:
    return open_source(sampled("mqtt", address), pytest.fail)


def sink(address: str, **fields: Any) -> object:
    return open_sink(reported("mqtt", address, **fields), pytest.fail)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "source without a topic": (lambda: source("127.0.0.1:1883"), "must be an address and a topic"),
    "source off loopback": (lambda: source("10.0.0.1:1883/house"), "off loopback TLS is required"),
    "source without a port": (lambda: source("broker/house"), r"address='broker': it must be host:port"),
    "sink without a topic": (
        lambda: sink("house"), r"estimates.address='house': it must be an address and a topic",
    ),
    "sink off loopback": (lambda: sink("10.0.0.1:1883/house"), r"estimates.*off loopback TLS is required"),
    "sink with many topics": (lambda: sink("127.0.0.1:1/a/#"), r"estimates go to one topic"),
    **{
        f"gateway, {address}": (
            lambda address=address: sink(address, gateway=GatewayTable()), "in place of one wildcard",
        )
        for address in ("127.0.0.1:1/plant/+/+/estimate", "127.0.0.1:1/plant/#", "127.0.0.1:1/a+/b")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_addresses_are_refused(case: str) -> None:
    call, sentence = REFUSED[case]
    with pytest.raises(NodeError, match=sentence):
        call()


@pytest.mark.parametrize("opened", [source, sink])
def test_mqtt_without_paho_says_what_to_install(
    opened: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(MissingExtra, match=r"paho-mqtt, which is not installed\. Try: pip install '\.\[mqtt\]'"):
        opened("127.0.0.1:1883/house")
