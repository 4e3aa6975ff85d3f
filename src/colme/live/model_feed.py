"""The feed of an online model: a frame whenever it has learned more samples.

Agents and edges have places in lists that only grow, for frames refer to places. An agent that is forgotten (`forget`,
`max_agents`) keeps its place, with nothing known about it; if it comes back, it has this place again. When more
forgotten agents than present ones are in the list, or the list of edges is full and most of them are cut, the lists are
made anew and the view begins again: a start with another `run`.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import positive
from colme.live.growing import GrowingLists
from colme.live.messages import Codes, bits, end, note, pack, panel_of, short_name, to_codes
from colme.online.model import CollaborativeMean, FirstAgents
from colme.support.columns import Label

if TYPE_CHECKING:
    from colme.live.widget import LiveWidget

MOST_AGENTS = 2000
"""Agents that are shown: the first ones."""
MOST_EDGES = 100_000
ROOM = 1000
"""Forgotten agents that the list always has room for."""
SHARE = 0.05
"""Share of the time that is spent looking at the model, at most."""


class ModelFeed:
    """The messages about a model. It does not keep the model alive."""

    def __init__(self, model: CollaborativeMean):
        self._model = weakref.ref(model)
        self._t, self._seen = -1, (-1, -1)  # samples, and agents, that were shown last
        self._lists = GrowingLists()

    @property
    def gone(self) -> bool:
        """The model does not exist any more."""
        return self._model() is None

    def news(self) -> list[bytes]:
        """What has to be sent: nothing, if no sample was learned and no agent forgotten since the last time; else a
        frame, and before it a start if there are new agents or edges."""
        model = self._model()
        if model is None or (model.n_samples, model.n_agents) == self._seen:
            return []
        first = model.first_agents(MOST_AGENTS)
        self._t, self._seen = first.n_samples, (first.n_samples, first.n_agents)
        at = self._placed(first.columns["agent"])
        alive = None if first.edges is None else self._alive(at[first.edges])
        if self._crowded(len(at), alive):
            self._lists = GrowingLists()
            at = self._placed(first.columns["agent"])
            alive = None if first.edges is None else self._alive(at[first.edges])
        method = model.method
        start = self._lists.start(
            title=f"{method.label}, online", unit="samples", n_agents=first.n_agents,
            panels=[panel_of(method, graph=alive is not None)],
            names=[short_name(str(label)) for label in self._lists.agents],
        )  # fmt: skip
        return [*start, self._frame(first, model.level, at, alive)] if self._t > 0 else start

    def _placed(self, labels: list[Label]) -> NDArray[np.int64]:
        """The places of agents, new ones at the end."""
        places = self._lists.agents
        return np.array([places.setdefault(label, len(places)) for label in labels], np.int64)

    def _alive(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which edges of the list are among these pairs of places; new ones go to its end, as long as there is room."""
        edges, found = self._lists.edges, []
        for a, b in np.sort(pairs, axis=1).tolist():
            place = edges.setdefault((a, b), len(edges)) if len(edges) < MOST_EDGES else edges.get((a, b))
            if place is not None:
                found.append(place)
        alive = np.zeros(len(edges), bool)
        alive[found] = True
        return alive

    def _crowded(self, n_present: int, alive: NDArray[np.bool_] | None) -> bool:
        """Most of the list is past."""
        if len(self._lists.agents) > 2 * n_present + ROOM:
            return True
        return alive is not None and len(alive) == MOST_EDGES and 2 * int(alive.sum()) < MOST_EDGES

    def _frame(self, first: FirstAgents, level: float, at: NDArray[np.int64], alive: NDArray[np.bool_] | None) -> bytes:
        n, columns = len(self._lists.agents), first.columns

        def spread(values: Any, rest: float = np.nan) -> NDArray[np.float64]:
            """Numbers of agents, by place."""
            out = np.full(n, rest)
            out[at] = values
            return out

        estimate, group = columns["estimate"], np.full(n, -1, np.int64)
        group[at] = columns["group"]
        arrays: dict[str, NDArray[Any] | Codes] = {
            "mean": to_codes(spread(columns["mean"])),
            "count": spread(np.minimum(columns["n"], 2**32 - 1), 0.0).astype(np.uint32),
            "0/estimate": to_codes(spread(estimate)),
            "0/group": self._lists.groups.renumber(group),
            "0/below": to_codes(spread(estimate - columns["lower"])),
            "0/above": to_codes(spread(columns["upper"] - estimate)),
        }
        if alive is not None:
            arrays["0/alive"] = bits(alive)
        n_groups = len(np.unique(columns["group"]))
        panel = {"level": level, "metrics": {"trust": first.trust, "n_groups": n_groups}}
        return pack({"kind": "frame", "t": self._t, "panels": [panel]}, arrays)


def follow(model: CollaborativeMean, *, every: float, height: int) -> LiveWidget:
    """A widget that follows the model, in a thread of its own."""
    from colme.live.widget import LiveWidget  # which needs an extra

    pause = positive(every, "every", "every=0.5")
    feed = ModelFeed(model)
    widget = LiveWidget(feed.news(), height=height)
    threading.Thread(target=_poll, args=(feed, widget, pause), name="colme-live", daemon=True).start()
    return widget


def _poll(feed: ModelFeed, widget: LiveWidget, every: float) -> None:
    pause = every
    while not widget.closed.wait(pause):
        if feed.gone:
            widget.publish(end())
            return
        began = time.perf_counter()
        try:
            news = feed.news()
        except Exception as error:  # whoever learns will see it, too; a view must not print into the notebook
            widget.publish(note(f"The view has stopped: {error}"), end())
            return
        widget.publish(*news)
        pause = max(every, (time.perf_counter() - began) / SHARE)
