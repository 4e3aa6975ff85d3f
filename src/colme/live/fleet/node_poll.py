"""Ask the nodes of this machine for their status, all at once, so that one that hangs does not stall the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from colme.errors import NodeError
from colme.live.fleet.statements import Answer, Statement
from colme.node.io.status import ask

TIMEOUT = 2.0
"""Seconds after which a node that is asked counts as silent."""
MOST_AT_ONCE = 64


class NodePoll:
    """Nodes by name and socket. Each is asked at most once per poll, and not again before it has answered or failed to.

    patience  seconds that a poll waits for answers; later ones are part of the next poll
    """

    def __init__(
        self, sockets: dict[str, str], *, patience: float = 0.5, timeout: float = TIMEOUT,
        ask: Callable[..., dict[str, Any]] = ask, clock: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self._sockets, self._patience, self._timeout = sockets, patience, timeout
        self._ask, self._clock = ask, clock
        self._workers = ThreadPoolExecutor(min(len(sockets), MOST_AT_ONCE) or 1, thread_name_prefix="ask")
        self._pending: dict[str, Future[tuple[Statement | None, float]]] = {}
        self._last: dict[str, tuple[Statement | None, float]] = {}

    def __call__(self) -> list[Answer]:
        """The newest answers, of those that are still asked the last ones."""
        for name in self._sockets:
            if name not in self._pending:
                self._pending[name] = self._workers.submit(self._statement, name)
        done, _ = wait(self._pending.values(), timeout=self._patience)
        for name, future in list(self._pending.items()):
            if future in done:
                self._last[name] = future.result()
                del self._pending[name]
        now = self._clock()
        found = [(name, *self._last.get(name, (None, now))) for name in self._sockets]
        return [Answer(name, statement, now - at) for name, statement, at in found]

    def _statement(self, name: str) -> tuple[Statement | None, float]:
        try:
            status = self._ask(self._sockets[name], timeout=self._timeout)
        except (NodeError, OSError):
            return None, self._clock()
        return Statement.parse(status), self._clock()

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)
