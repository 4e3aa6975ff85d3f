"""The core of a host: many agents in one process, in arrays. Like `core.Core`, it does no I/O and reads no clock.

From the perspective of host H, at one of its own ticks:

(1) it takes the samples that arrived, each for one of its agents
(2) it reads the parts of the frames of other hosts. A part that is older than one it has, or invalid in any field, is
    refused and counted. The state of an agent that is a neighbor of one here counts as long as it is fresh; flows count
    once
(3) all its agents make one step, with each other as in the simulator and with agents elsewhere as devices do
(4) edges to other hosts that this step has cut are sent in lists, with backoff, until the other host acknowledges them
(5) the new state of the agents that still have neighbors elsewhere goes out as a frame, in parts

The caller saves `state()` while it is `urgent`, and only then asks for `messages()`: a cut that could be lost in a
crash is never sent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.consensus import START
from colme.errors import NodeError, positive, whole
from colme.method import Method
from colme.node.hosts import kernels
from colme.node.hosts.frame import HELLO, LOANS, Frame, pack_frame, unpack_frame
from colme.node.hosts.graph import HostGraph
from colme.node.hosts.links import HostLinks
from colme.node.hosts.state import freeze_host, thaw_host
from colme.node.messages.adapters import check_device_step
from colme.node.messages.wire import LARGEST, WireError
from colme.node.security.trust import MOST_NEWS, PAUSE

AgentSamples = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Numbers of agents, and a sample of each, in the order of arrival."""
NO_SAMPLES: AgentSamples = np.empty(0, np.int64), np.empty(0)


class HostCore:
    """The agents of one host.

    method       CLColME (any clock but the global one, or flows), CColME or Local
    name         name of the host; `graph`: its agents and their neighbors
    n_agents     agents in the network; `n_edges`, `degree`: its edges, and its largest degree
    sigma, width, kurtosis   what is known of the samples; sigma may be an array, one per agent
    origin, stale_after, incarnation   as in `Core`
    """

    def __init__(
        self, method: Method, name: str, graph: HostGraph, *, n_agents: int | None = None, n_edges: int | None = None,
        degree: int | None = None, sigma: Any = None, width: float | None = None, kurtosis: float = 3.0,
        origin: float = 0.0, stale_after: float = 3.0, incarnation: int = 1,
    ):  # fmt: skip
        self.method, self.name, self.graph, self.origin = method, name, graph, origin
        most = max(1, int(graph.degrees.max()))
        most = most if degree is None else max(most, whole(degree, "degree", "degree=6", NodeError))
        n, n_all = graph.n_agents, graph.n_agents + graph.n_ghosts
        n_network = n_all if n_agents is None else max(n_all, whole(n_agents, "n_agents", "n_agents=20", NodeError))
        edges = max(n_network * most // 2, 1) if n_edges is None else n_edges
        self.stale_after = positive(stale_after, "stale_after", "stale_after=3.0", NodeError)
        self.incarnation = whole(incarnation, "incarnation", "incarnation=1", NodeError)
        self._prepare(method, n_network, edges, most, sigma, width, kurtosis)
        self.refused: Counter[str] = Counter()
        self.urgent = False  # something must be saved before it is published
        self.t = 0
        self.count = np.zeros(n, np.int64)
        self.means = np.full(n_all, np.nan)
        self.radius = np.full(n_all, np.inf)
        # what agents compare: radii, or standard errors for difference tests
        self.spread = self.radius if self._test is None else np.full(n_all, np.inf)
        self.estimates = np.full(n, np.nan)
        self.heard = np.full(n_all, np.nan, np.float32)
        self.restart = np.full(n_all, START, np.int64)
        self.generation = np.zeros(n_all, np.int64)
        self.believed, self.believed_at = 0, START  # the newest generation, and when news of others last counted
        self.degree = np.concatenate([graph.degrees, np.zeros(graph.n_ghosts, np.int64)])
        self.slots = graph.ends.copy()
        flowing = self.kind == LOANS
        self.flows = np.zeros(len(self.slots)) if flowing else None
        self.theirs = np.full(len(self.slots), np.nan) if flowing else None
        self.cut_now = np.zeros(n, bool)
        self.heard_at = np.full(graph.n_ghosts, -math.inf)
        self.links = HostLinks(graph, name, self.kind, silent=method.baseline)
        self._new = np.zeros(graph.n_ghosts, bool)
        self._spare = np.empty(n, np.float32)
        self._news = np.full((2, n), START, np.int64)

    def _prepare(
        self, method: Any, n_agents: int, n_edges: int, degree: int, sigma: Any, width: Any, kurtosis: float
    ) -> None:
        self.kind, self.clock, self.fixed, self.step_size = HELLO, kernels.STILL, -1.0, 1.0
        if method.baseline:
            self._bound, self._scale, self._test = None, 1.0, None
            return
        if not hasattr(method, "clock") or method.clock == "global" or method.needs_moments:
            raise NodeError(
                f"{method!r} cannot run for many agents in one process. Try CLColME() or CColME() that compare means "
                "and have another clock than the global one, or Local()."
            )
        self._bound = method.bound_for(n_agents, n_edges, kurtosis, max_degree=degree, looks="separate")
        self._scale = method.scale_for(sigma, width)
        self._test = method.test_for(self._bound, np.max(self._scale), width, "separate")
        self.clock = {"gossip": kernels.GOSSIP, "own": kernels.OWN}.get(method.clock, kernels.STILL)
        self.fixed = -1.0 if method.alpha is None else method.alpha
        check_device_step(method, degree)
        self.step_size = method.step_size(1.0 / degree)
        self.kind = LOANS if getattr(method, "consensus", None) == "flow" else HELLO

    @property
    def n_agents(self) -> int:
        """Of this host."""
        return self.graph.n_agents

    @property
    def neighbors(self) -> list[str]:
        """Other hosts, where neighbors of agents here live."""
        return list(self.graph.hosts)

    @property
    def estimate(self) -> NDArray[np.float64]:
        """Of every agent here; NaN before its first sample."""
        return self.estimates + self.origin

    @property
    def mean(self) -> NDArray[np.float64]:
        return self.means[: self.n_agents] + self.origin

    @property
    def epoch(self) -> int:
        """Ticks so far, those of former incarnations included."""
        return self.t

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Of the slots: those that are not cut."""
        return self.slots == self.graph.ends

    def fresh(self, now: float) -> NDArray[np.bool_]:
        """Of the ghosts: those that were heard lately."""
        return np.asarray(now - self.heard_at <= self.stale_after)

    @property
    def wanted(self) -> NDArray[np.bool_]:
        """Whether each ghost is still a neighbor of an agent here."""
        graph = self.graph
        found = np.zeros(graph.n_ghosts, bool)
        found[graph.ends[graph.crossing[self.alive[graph.crossing]]] - graph.n_agents] = True
        return found

    def tick(
        self, now: float, samples: AgentSamples = NO_SAMPLES, frames: Iterable[tuple[str, bytes]] = (),
        control: Iterable[tuple[str, bytes]] = (),
    ) -> list[bytes]:  # fmt: skip
        """One step at time `now` (seconds, never falling) with the samples, parts of frames and control messages that
        came since the last. Returns the parts of the new frame: part k goes to part k of the transport."""
        self.observe(samples)  # (1)
        for host, raw in frames:
            self.hear(host, raw, now)  # (2)
        for host, raw in control:
            self._listen(host, raw)
        self.prune(self.fresh(now) if self.kind == HELLO else self._new)  # (3)
        self.average()
        return self.frame()  # (5)

    # The phases of a step, for callers with barriers between them

    def observe(self, samples: AgentSamples) -> None:
        """A new step begins, with these samples."""
        self.t += 1
        agents, values = samples
        values = values - self.origin
        good = (np.abs(values) <= LARGEST) & (agents >= 0) & (agents < self.n_agents)
        if not good.all():
            bad = int((~good & ~np.isnan(values)).sum())
            if bad:
                self.refused["sample"] += bad
            agents, values = agents[good], values[good]
        bound = self._bound
        gamma, kurtosis, fourth = (0.5, 3.0, False) if bound is None else (
            bound.gamma if self._test is None else 0.5 * bound.gamma, bound.kurtosis, bound.name == "fourth-moment",
        )  # fmt: skip
        spread = None if self._test is None else self.spread
        kernels.observe(
            agents, values, self.count, self.means, self.radius, spread, self._scale, gamma, kurtosis, fourth
        )  # fmt: skip

    def hear(self, host: str, raw: bytes, now: float, *, together: bool = False) -> bool:
        """Whether these bytes are a newer part of this host's frame. Hosts that tick together mean the same by t."""
        try:
            frame = unpack_frame(raw)
        except WireError as error:
            self.refused[error.reason] += 1
            return False
        reason = self.links.refusal(host, frame) or (frame.errors != (self._test is not None) and "sense")
        if reason:
            self.refused[reason] += 1
            return False
        self.links.mark(host, frame)
        ghosts, rows = self.links.ghosts_in(host, frame)
        at = self.n_agents + ghosts
        columns = {name: column[rows] for name, column in frame.rows.items()}
        self.means[at], self.spread[at] = columns["mean"], columns["radius"]
        self.heard[at], self.degree[at] = columns["estimate"], columns["degree"]
        self.heard_at[ghosts], self._new[ghosts] = now, True
        if frame.kind == HELLO:
            restart = columns["restart"]
            if not together:  # as many of my ticks ago as its host says of its own
                restart = np.maximum(START, self.t - np.maximum(frame.epoch - restart, 0))
            self.restart[at], self.generation[at] = restart, columns["generation"]
        elif self.theirs is not None:
            slots, items = self.links.slots_in(host, frame)
            self.theirs[slots] = frame.items["flow"][items]
        return True

    def prune(self, ghosts: NDArray[np.bool_] | None = None) -> None:
        """Cut the edges whose intervals part, or whose means differ; these ghosts count (default: all)."""
        self.use = np.ones(len(self.means), bool)
        if ghosts is not None:
            self.use[self.n_agents :] = ghosts
        if self.method.baseline:
            return
        graph, before = self.graph, self.alive if self.links.any else None
        kernels.prune(
            graph.indptr, self.slots, graph.backs, self.use, self.means, self.spread, self._test, self.degree,
            self.cut_now, self.flows,
        )  # fmt: skip
        if before is not None:
            self._parted(np.flatnonzero(before & ~self.alive))

    def average(self, *, together: bool = False) -> None:
        """The rest of the step."""
        graph = self.graph
        if self.method.baseline:
            self.estimates[:] = self.means[: self.n_agents]
            return
        if self.flows is not None and self.theirs is not None:
            kernels.lend(
                graph.indptr, self.slots, self.use, self.heard, self._spare, self.means, self.radius, self.estimates,
                self.flows, self.theirs, together, self.step_size,
            )  # fmt: skip
            self.theirs.fill(math.nan)
        else:
            kernels.lean(
                graph.indptr, self.slots, self.use, self.heard, self._spare, self.means, self.radius, self.estimates,
                self.degree, getattr(self.method, "metropolis", False), self.cut_now, self.clock, self.fixed,
                self.restart, self.generation, self._ceiling(), self._news, together, self.step_size, self.t,
            )  # fmt: skip
            self.restart[: self.n_agents] = self._news[0]
            if self.clock == kernels.GOSSIP:
                self.generation[: self.n_agents] = self._news[1]
        self.heard[: self.n_agents] = self._spare
        self.cut_now[:] = False
        self._new[:] = False

    def _ceiling(self) -> int:
        """The newest generation of restarts that counts. News of other hosts are believed a tenth of the time apart."""
        n = self.n_agents
        known = max(self.believed, int(self.generation[:n].max()))
        told = int(self.generation[n:][self.use[n:]].max(initial=0))
        if told > known and self.t >= PAUSE * self.believed_at:
            known, self.believed_at = min(told, known + MOST_NEWS), self.t
        self.believed = known
        return known

    def frame(self, turn: int = 0) -> list[bytes]:
        """The state of the agents with neighbors on other hosts, in parts."""
        return [
            pack_frame(Frame(self.kind, self.incarnation, self.t, part, rows, items, turn, self._test is not None))
            for part, (rows, items) in enumerate(self.links.parts(self))
        ]

    # Cuts between hosts

    def _parted(self, slots: NDArray[np.int64], *, known: bool = False) -> None:
        """These slots have been cut: the other hosts must know, or do."""
        if self.links.cut(slots, known=known):
            self.urgent = True

    def _listen(self, host: str, raw: bytes) -> None:
        try:
            slots, news = self.links.listen(host, raw, self.alive, self.refused)
        except WireError as error:
            self.refused[error.reason] += 1
            return
        self.urgent |= news
        self.sever(slots)
        self._parted(slots, known=True)

    def sever(self, slots: NDArray[np.int64]) -> None:
        """Cut these slots, which live."""
        graph = self.graph
        kernels.sever_all(graph.rows, self.slots, graph.backs, self.degree, self.cut_now, self.flows, slots)

    def messages(self) -> list[tuple[str, bytes]]:
        """Control messages for other hosts. While it is urgent to save there are none."""
        return [] if self.urgent else self.links.messages(self.incarnation, self.t, self.alive)

    # What survives a restart

    def state(self) -> bytes:
        return freeze_host(self)

    def saved(self) -> None:
        """The last `state()` is on the disk."""
        self.urgent = False

    def restore(self, raw: bytes) -> None:
        """Go on from a saved state of the same agents, method and edges."""
        thaw_host(self, raw)
