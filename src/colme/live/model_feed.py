"""The feed of an online model: a frame whenever it has learned more samples.

Agents and edges have places in lists that only grow, for frames refer to places. An agent that is forgotten (`forget`,
`max_agents`) keeps its place, with nothing known about it; if it comes back, it has this place again. When more
forgotten agents than present ones are in the list, or the list of edges is full and most of them are cut, the lists are
made anew and the view begins again: a start with another `run`.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import positive
from colme.live.groups import GroupNumbers
from colme.live.messages import VERSION, Codes, end, note, pack, short_name, to_codes
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
        self._begin()

    def _begin(self) -> None:
        self._run = secrets.token_hex(8)
        self._places: dict[Label, int] = {}
        self._edges: dict[tuple[int, int], int] = {}
        self._groups = GroupNumbers()
        self._sent = (-1, -1)  # agents and edges in the last start

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
            self._begin()
            at = self._placed(first.columns["agent"])
            alive = None if first.edges is None else self._alive(at[first.edges])
        messages = []
        if self._sent != (len(self._places), len(self._edges)):
            self._sent = len(self._places), len(self._edges)
            messages.append(self._start(model, first.n_agents, alive is not None))
        if self._t > 0:
            messages.append(self._frame(first, model.level, at, alive))
        return messages

    def _placed(self, labels: list[Label]) -> NDArray[np.int64]:
        """The places of agents, new ones at the end."""
        places = self._places
        return np.array([places.setdefault(label, len(places)) for label in labels], np.int64)

    def _alive(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which edges of the list are among these pairs of places; new ones go to its end, as long as there is room."""
        edges, found = self._edges, []
        for a, b in np.sort(pairs, axis=1).tolist():
            place = edges.setdefault((a, b), len(edges)) if len(edges) < MOST_EDGES else edges.get((a, b))
            if place is not None:
                found.append(place)
        alive = np.zeros(len(edges), bool)
        alive[found] = True
        return alive

    def _crowded(self, n_present: int, alive: NDArray[np.bool_] | None) -> bool:
        """Most of the list is past."""
        if len(self._places) > 2 * n_present + ROOM:
            return True
        return alive is not None and len(alive) == MOST_EDGES and 2 * int(alive.sum()) < MOST_EDGES

    def _start(self, model: CollaborativeMean, n_agents: int, graph: bool) -> bytes:
        method = model.method
        head = {
            "kind": "start", "version": VERSION, "title": f"{method.label}, online", "unit": "samples", "log": False,
            "last": None, "n_agents": n_agents, "window": None, "run": self._run,
            "panels": [{"label": method.label, "color": method.color, "graph": graph, "cuts": method.cuts_edges}],
            "names": [short_name(str(label)) for label in self._places],
        }  # fmt: skip
        edges = np.array(list(self._edges), np.uint32).reshape(-1)
        return pack(head, {"edges": edges})

    def _frame(self, first: FirstAgents, level: float, at: NDArray[np.int64], alive: NDArray[np.bool_] | None) -> bytes:
        n, columns = len(self._places), first.columns

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
            "0/group": self._groups.renumber(group),
            "0/below": to_codes(spread(estimate - columns["lower"])),
            "0/above": to_codes(spread(columns["upper"] - estimate)),
        }
        if alive is not None:
            arrays["0/alive"] = np.packbits(alive, bitorder="little")
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
