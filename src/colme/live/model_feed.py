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

from colme.errors import positive
from colme.live.growing import GrowingLists
from colme.live.messages import LONGEST_NAME, Arrays, bits, end, note, pack, panel_of, to_codes
from colme.online.model import CollaborativeMean, FirstAgents
from colme.support.arrays import Floats, Integers, Mask
from colme.support.columns import Label
from colme.support.tables import safe_name

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
        self._seen = (0, -1)  # samples, and agents, that were shown last
        self._lists, self._at = GrowingLists(), dict[Label, int]()

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
        self._seen = (first.n_samples, first.n_agents)
        at, alive = self._places(first)
        if self._crowded(len(at), alive):
            self._lists, self._at = GrowingLists(), {}
            at, alive = self._places(first)
        method = model.method
        start = self._lists.start(
            [safe_name(label, LONGEST_NAME) for label in self._at],
            title=f"{method.label}, online", unit="samples", n_agents=first.n_agents,
            panels=[panel_of(method, graph=alive is not None)],
        )  # fmt: skip
        return [*start, self._frame(first, at, alive)] if first.n_samples else start

    def _places(self, first: FirstAgents) -> tuple[Integers, Mask | None]:
        """The places of agents, new ones at the end, and which of the edges of the list there are; new ones go to its
        end, as long as there is room. None: the method has no edges."""
        places, edges = self._at, self._lists.edges
        at = np.array([places.setdefault(label, len(places)) for label in first.columns["agent"]], np.int64)
        if first.edges is None:
            return at, None
        pairs = list(map(tuple, np.sort(at[first.edges], axis=1).tolist()))
        for pair in pairs:
            if len(edges) < MOST_EDGES:
                edges.setdefault(pair, len(edges))
        alive = np.zeros(len(edges), bool)
        alive[[edges[pair] for pair in pairs if pair in edges]] = True
        return at, alive

    def _crowded(self, n_present: int, alive: Mask | None) -> bool:
        """Most of the list is past."""
        if len(self._at) > 2 * n_present + ROOM:
            return True
        return alive is not None and len(alive) == MOST_EDGES and 2 * int(alive.sum()) < MOST_EDGES

    def _frame(self, first: FirstAgents, at: Integers, alive: Mask | None) -> bytes:
        columns = first.columns

        def spread(values: Any, rest: float = np.nan) -> Floats:
            """Numbers of agents, by place."""
            out = np.full(len(self._at), rest)
            out[at] = values
            return out

        estimate = columns["estimate"]
        arrays: Arrays = {
            "mean": to_codes(spread(columns["mean"])),
            "count": spread(np.minimum(columns["n"], 2**32 - 1), 0.0).astype(np.uint32),
            "0/estimate": to_codes(spread(estimate)),
            "0/group": self._lists.groups.renumber(spread(columns["group"], -1.0).astype(np.int64)),
            "0/below": to_codes(spread(estimate - columns["lower"])),
            "0/above": to_codes(spread(columns["upper"] - estimate)),
        }
        if alive is not None:
            arrays["0/alive"] = bits(alive)
        return pack({"kind": "frame", "t": first.n_samples, "panels": [{}]}, arrays)


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
