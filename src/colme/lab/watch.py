"""`WatchSession`: a simulation that is shown while it runs, and obeys those who watch it."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

from colme.errors import ColmeError, RunError, one_of, positive, printable, shorten
from colme.lab.watched_run import WATCH_FRAMES, WatchedRun
from colme.live.broadcast import Broadcast
from colme.live.messages import end, note, pack
from colme.live.simulation import SimulationFeed

FRAMES_PER_SECOND = 20.0
"""At speed 1, as far as the simulation is fast enough."""
SLOWEST, FASTEST = 0.05, 100.0
COMMANDS = ("pause", "resume", "speed", "restart")
STOP_SECONDS = 2.0


class WatchSession:
    """A run in a thread of its own, which publishes a frame at each of some steps.

    It can be paused, made faster and restarted with other values; at its end it waits for a restart. A value that is
    refused changes nothing: `control` raises the sentence, and what runs goes on."""

    def __init__(self, run: WatchedRun, broadcast: Broadcast, *, n_frames: int = WATCH_FRAMES) -> None:
        self.run, self.broadcast = run, broadcast
        self._n_frames = n_frames
        self._changed = threading.Condition()
        self._restarting = threading.Lock()
        self._stopping = False
        self._state: dict[str, float] = {"paused": False, "speed": 1.0}
        self._n_runs, self._shown_at = 0, 0.0
        self._feed: SimulationFeed | None = run.feed(n_frames)
        self._thread = threading.Thread(target=self._work, name="colme watch", daemon=True)

    def __enter__(self) -> Self:
        assert self._feed is not None
        self._show(self.run, self._feed)
        if self.run.about:
            self.broadcast.publish(note(self.run.about))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End the run. A step that takes long is not waited for."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def control(self, command: dict[str, Any]) -> dict[str, Any]:
        """Obey a command of a viewer, or raise a `ColmeError`."""
        name = command.get("command")
        one_of(name, COMMANDS, "command", RunError)
        if name == "restart":
            self._restart(command.get("values", {}))
        elif name == "speed":
            self._set("speed", positive(command.get("value"), "speed", "speed=2", RunError, low=SLOWEST, high=FASTEST))
        else:
            self._set("paused", name == "pause")
        return {}

    def _set(self, name: str, value: float) -> None:
        with self._changed:
            self._state[name] = value
            self.broadcast.publish(pack({"kind": "state"} | self._state))
            self._changed.notify_all()

    def _restart(self, values: Any) -> None:
        if not isinstance(values, dict):
            raise RunError(f"values={shorten(values)}: they must be an object, field by field.")
        with self._restarting:  # one after the other; what runs goes on meanwhile
            run = self.run.changed(values)
            self._show(run, run.feed(self._n_frames))

    def _show(self, run: WatchedRun, feed: SimulationFeed) -> None:
        with self._changed:
            self.run, self._feed = run, feed
            self._n_runs, self._shown_at, self._state["paused"] = self._n_runs + 1, 0.0, False
            controls = {"fields": run.form()} | self._state
            self.broadcast.publish(feed.start(run=self._n_runs, controls=controls))
            self._changed.notify_all()

    def _work(self) -> None:
        while (feed := self._next_feed()) is not None:
            try:
                self._advance(feed)
            except ColmeError as error:
                self._give_up(feed, f"The run cannot go on: {printable(error)}")
            except MemoryError:
                self._give_up(feed, "The run cannot go on: there is not enough memory. Restart with fewer agents.")
            except Exception as error:
                sentence = f"{type(error).__name__}: {printable(error)}. This is a bug in colme."
                self._give_up(feed, f"The run cannot go on: {sentence}")

    def _next_feed(self) -> SimulationFeed | None:
        """What advances next, when it is time for its next frame; None: the session ends."""
        with self._changed:
            while not self._stopping:
                if self._state["paused"] or self._feed is None or self._feed.done:
                    self._changed.wait()
                    continue
                left = self._shown_at + 1.0 / (FRAMES_PER_SECOND * self._state["speed"]) - time.monotonic()
                if left <= 0:
                    return self._feed
                self._changed.wait(left)
        return None

    def _advance(self, feed: SimulationFeed) -> None:
        """Publish the next frame, unless the run is no longer shown when it is ready."""
        target = next(step for step in feed.steps if step > feed.t)
        while feed.t < target:
            if self._stopping or self._feed is not feed:
                return
            feed.run.advance(feed.t + 1, target)
        frame = feed.frame()
        with self._changed:
            self._changed.wait_for(lambda: not self._state["paused"] or self._stopping or self._feed is not feed)
            if self._feed is feed and not self._stopping:
                self.broadcast.publish(frame)
                self._shown_at = time.monotonic()
                if feed.done:
                    self.broadcast.publish(end())

    def _give_up(self, feed: SimulationFeed, sentence: str) -> None:
        with self._changed:
            if self._feed is feed:
                self._feed = None
                self.broadcast.publish(note(sentence))
                self.broadcast.publish(end())
