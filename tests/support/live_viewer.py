"""Viewers of a live view, as far as tests need a browser."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from numpy.typing import NDArray

from colme.live.broadcast import Broadcast
from tests.support.live_messages import unpack

PATIENCE = 60.0
"""Seconds after which a test gives up."""


class Told(NamedTuple):
    """A message as a viewer reads it."""

    number: int
    head: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @property
    def kind(self) -> str:
        return str(self.head["kind"])


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


def ask(url: str, path: str = "", *, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """One request below the address; underscores in the names of headers stand for hyphens. `Host=""`: without one."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    try:
        connection.putrequest(method, parts.path + path, skip_host="Host" in headers, skip_accept_encoding=True)
        given = {name.replace("_", "-"): value for name, value in headers.items() if value}
        if body is not None and "Content-Length" not in given:
            given["Content-Length"] = str(len(body))
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def post(url: str, command: Any, **headers: str) -> Answer:
    body = command if isinstance(command, bytes) else json.dumps(command).encode()
    return ask(url, "control", method="POST", body=body, **({"Content_Type": "application/json"} | headers))


class LiveViewer:
    """A browser that reads the stream."""

    def __init__(self, url: str, last: int | str | None = None) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        self._connection.request("GET", parts.path + "frames", headers=headers)
        self.answer = self._connection.getresponse()
        self.status = self.answer.status

    def event(self) -> dict[str, str]:
        """The next event, field by field."""
        found: dict[str, str] = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = value
        return found

    def message(self) -> Told:
        """The next message."""
        while "id" not in (event := self.event()):
            assert event, "the stream has ended"
        return Told(int(event["id"]), *unpack(base64.b64decode(event["data"])))

    def until(self, found: Callable[[Told], bool]) -> list[Told]:
        """The messages up to the first of which this holds."""
        told = [self.message()]
        while not found(told[-1]):
            told.append(self.message())
        return told

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def messages_in(broadcast: Broadcast, last: int | None = None) -> list[Told]:
    """What a viewer who comes now gets at once."""
    viewer = broadcast.viewer(last)
    found: list[Told] = []
    while (event := broadcast.next_event(viewer)) is not None:
        found.append(Told(event.number, *unpack(event.message)))
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
