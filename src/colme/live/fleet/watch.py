"""Watch a fleet: poll nodes and reports, and publish what they say."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from colme.live.fleet.feed import FleetFeed
from colme.live.fleet.node_poll import NodePoll
from colme.live.fleet.reports import ReportReader
from colme.live.messages import end


def watch_fleet(
    sockets: dict[str, str],
    publish: Callable[[bytes], None],
    *,
    reports: ReportReader | None = None,
    every: float = 1.0,
    times: int | None = None,
    stop: threading.Event | None = None,
    title: str = "",
) -> None:
    """Publish the messages of a fleet, polled every so many seconds, until `times` polls are over or `stop` is set.

    sockets  of the nodes of this machine, by name: each is asked once per poll, whatever the number of viewers
    reports  those of other nodes
    """
    stop = threading.Event() if stop is None else stop
    with contextlib.closing(NodePoll(sockets, patience=min(every / 2, 1.0))) as nodes:
        feed = FleetFeed(lambda: [*nodes(), *(() if reports is None else reports())], title=title)
        due, turn = time.monotonic(), 0
        try:
            while not stop.is_set():
                for sentence in [] if reports is None else reports.sentences():
                    feed.say(sentence)
                for message in feed.messages():
                    publish(message)
                turn += 1
                if turn == times:
                    break
                due = max(due + every, time.monotonic())
                stop.wait(due - time.monotonic())
        finally:
            publish(end())
