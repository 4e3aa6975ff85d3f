"""`CollaborativeMean`: learns from samples that arrive one by one, from any agent at any time.

There is no common step. An event is one sample x of one agent a, and the state changes only at events:

(1) a updates its count and mean:                   n_a <- n_a + 1,  X_a <- X_a + (x - X_a) / n_a
(2) edges to neighbors whose interval does not overlap a's are cut, at both ends: |X_a - X_b| > R_a + R_b; with
    cut="difference" those whose mean differs, by the test for any counts (`colme.confidence`)
(3) a's clock gives                                 alpha = k / (k + 1), k own samples since the last restart
(4) a moves towards the kept neighbors:             z = y_a + b * sum over kept j of (y_j - y_a)
(5) and towards its own mean:                       y_a <- (1 - alpha) X_a + alpha z

X_b, R_b and y_b are what b published at its own last event. These are the equations of CL-colME; C-colME has
Metropolis' weights in (4). Local has only (1), and so has the census, whose other equations are evaluated at votes and
when an estimate is asked for (`colme.online.rules`). At a vote, between two events, estimates are judged by the samples
since the last one (`colme.online.guard`).

Clocks. A step is an own sample. A cut is dated by the number of its event. "own": an agent restarts at its first event
after it lost a neighbor to a cut, made by either end. "gossip": it also restarts when a kept neighbor knows of a later
cut than it does itself. "global": when there was a cut anywhere. At a restart k = 1.

Neighbors. With `degree`, a new agent asks random agents until (degree + 1) // 2 have become its neighbors, and an agent
with fewer than `degree`, because it is new or because of cuts, asks one more at each of its events. The agent that is
asked accepts if it has fewer than 1.5 degree neighbors and the two intervals overlap. So an agent whose edges were
cut looks for others. Which agents are asked depends on the seed and on what was learned before. With `graph`, edges are
only cut.

Scale. If sigma is not known, each agent estimates its own, moderated by the pooled one
(`colme.noise`); no edge is cut before all agents together have 30 degrees of freedom. All agents are
in one process, so the pooled variance is simply available.

Level. All but "agent" divide delta by the number of agents so far, at the time when an agent computes its radius;
intervals that hold at all times need no more for edges that are added later. Difference tests (cut="difference") at
level "edge" divide it by the 0.75 degree N edges for which N agents so far have room, or by those of `graph`. To them
each edge that is made counts: while N_0 agents become N, at most delta (1 + ln(N / N_0)) edges of one class are lost on
average, and alpha more for each edge that replaces another.

Forgetting. With `half_life` a sample's weight halves in this time, in units of `t` (seconds for dates); n is then the
effective number (sum w)^2 / sum w^2, and k is at most n.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from colme._core.random import key_of
from colme.confidence import check_probability
from colme.errors import MethodError, RunError, SampleError, positive, shorten, whole
from colme.graphs import DEFAULT_DEGREE, Graph, from_edges
from colme.method import named
from colme.methods import Census, Method
from colme.methods.registry import method_from, plain_form
from colme.online.agents import AgentTable, AgentView
from colme.online.files import FORMAT, pack, unpack
from colme.online.kernel import COUNT, DEGREE, EVENTS, MEAN, TIME, first_backwards, learn_events
from colme.online.rules import BackgroundVote, Rule, rule_of
from colme.scenario import check_seed
from colme.support.arrays import Floats, Integers
from colme.support.columns import Label, Labels, as_events, as_label, as_time, as_value, columns_of
from colme.support.files import PathLike, names_known, nothing_missing, read_arrays, write_arrays
from colme.support.saved import from_arrays, to_arrays
from colme.support.tables import html_fragment, html_table, interval, number

_MOST_WAITING = 256
"""Events of learn_one that are learned together, at most: they take less than a millisecond."""
_PLAIN = 1e100
"""A float below it, in absolute value, is a sample; `as_value` checks everything else."""
_LISTED = 10
"""Agents in the table of a notebook."""


class FirstAgents(NamedTuple):
    """The first agents of a model, all at one moment; see `CollaborativeMean.first_agents`."""

    n_samples: int
    """Samples learned so far, by all agents."""
    n_agents: int
    trust: float
    """The weight of the guard, on average over all agents."""
    columns: dict[str, Any]
    """What `to_columns` returns, of the first agents."""
    edges: Integers | None
    """The edges among them: pairs of rows of `columns`, smaller one first. None: the method needs no edges."""


class CollaborativeMean:
    """An estimate of each agent's mean from a stream of samples, better than its own samples give.

    method      Census(guard=True) (the default), Census(..), CLColME(..), CColME(..) or Local()
    degree      neighbors that an agent looks for (CL-colME and C-colME)
    graph       instead of degree: a `colme.Graph`, whose agents are 0, 1, .., or pairs of labels
    sigma       the scale of the samples, if it is known and the method does not carry it; else it is estimated
    half_life   time in which a sample's weight halves; every sample then needs a time
    level       of the intervals: the probability with which they hold
    max_agents  when another agent comes beyond this number, the one with the oldest last sample is forgotten
    seed        of the random choice of neighbors
    background  whether votes, which fit the census anew, are held in a thread of their own while learning goes on;
                estimates are those of the vote before until one is done, see `wait`
    independent whether the samples of an agent are known to be independent; if not, the model learns how they depend on
                each other (`colme.dependence`)

    Agents are named by text or whole numbers. `estimate_`, `interval_`, `groups_`, `mean_` and `count_` are mappings by
    agent; `trust_` is the weight that a guard gives to estimates. Memory is that of the agents, a few hundred bytes
    each; samples are not kept.

    Threads may share a model: calls are atomic. Compiled work releases the GIL.

    >>> model = CollaborativeMean(sigma=1.0)
    >>> for day in range(20):
    ...     for sensor in range(50):
    ...         model.learn_one(sensor, float(sensor % 2) + (0.5 if (day + sensor // 2) % 2 else -0.5))
    >>> round(model.mean_[7], 1), round(model.estimate_[7], 1), model.count_[7]
    (1.0, 1.0, 20)

    See also: estimate, Census, CLColME, simulate
    """

    def __init__(
        self,
        method: Method | None = None,
        *,
        degree: int = DEFAULT_DEGREE,
        graph: Graph | Iterable[tuple[Any, Any]] | None = None,
        sigma: float | None = None,
        half_life: float | None = None,
        level: float = 0.9,
        max_agents: int | None = None,
        seed: int = 0,
        background: bool = False,
        independent: bool = False,
    ):
        self.method = Census(guard=True) if method is None else method
        if not isinstance(self.method, Method):
            raise MethodError(f"method={shorten(method)}: it must be a method. Try colme.Census().")
        self.degree = whole(degree, "degree", "degree=10", MethodError, low=1)
        self.sigma = None if sigma is None else positive(sigma, "sigma", "sigma=2.0", MethodError)
        self.half_life = None if half_life is None else positive(half_life, "half_life", "half_life=60.0", MethodError)
        check_probability("level", level)
        self.level = float(level)
        self.max_agents = None if max_agents is None else whole(max_agents, "max_agents", "max_agents=10", MethodError)
        self.seed = check_seed(seed)
        self.background, self.independent = bool(background), bool(independent)
        self._lock = RLock()
        self._vote: BackgroundVote | None = None
        self._waiting: list[Any] = []  # slot, value and time of events that learn_one took and that are not learned yet
        self._times: dict[int, float] = {}  # of the latest of them, by slot
        self._enough = 0  # entries of `_waiting` at which to look whether it is time to learn them
        labels, edges = ([], None) if graph is None else _named(graph)
        if graph is not None and max_agents is not None:
            raise MethodError("max_agents= with graph=: a graph fixes the agents. Leave max_agents out.")
        self._open(labels, edges)

    def _open(self, labels: list[Label], edges: Graph | None) -> None:
        self.has_graph = edges is not None
        self._rule = rule_of(self.method, self.sigma, self.degree, edges)
        self._agents = self._rule.table = AgentTable(
            self._rule.max_neighbors, votes=self._rule.votes,
            dependent=self.method.learns_dependence and not self.independent,
        )  # fmt: skip
        self._rule.half_life = self.half_life or -1.0
        if edges is not None:
            self._agents.settle(labels, edges.edges())

    @property
    def _table(self) -> AgentTable:
        """The agents after all events so far; `_agents` lacks those that wait."""
        self._learn_waiting()
        return self._agents

    def __repr__(self) -> str:
        fields = [f"{name}={value!r}" for name, value in self._changed().items()]
        return f"CollaborativeMean({', '.join([repr(self.method), *fields])})"

    def _changed(self) -> dict[str, Any]:
        """The arguments, besides method and graph, that differ from their default."""
        usual = CollaborativeMean.__init__.__kwdefaults__ or {}
        return {name: getattr(self, name) for name in usual if name != "graph" and getattr(self, name) != usual[name]}

    # learning

    def learn_one(self, agent: Any, x: Any, t: Any = None) -> None:
        """A sample x of an agent, at time t (only needed, and only looked at, with half_life).

        It is checked now, and learned together with those that follow: before anything is asked of the model, at the
        event of a vote, and after 256 of them. So results are those of a model that learns every sample at once.
        """
        label = agent if type(agent) is str or type(agent) is int else as_label(agent)
        value = x if type(x) is float and -_PLAIN < x < _PLAIN else as_value(x)
        timed = self.half_life is not None and self._needs_times(t is not None)
        time = (t if type(t) is float and math.isfinite(t) else as_time(t)) if timed else 0.0
        with self._lock:
            slot = self._agents.index.get(label)
            if slot is None:
                if self._agents.n_agents == self.max_agents or self.has_graph:
                    self._learn([label], np.array([value]), np.array([time]) if timed else None)
                    return
                slot, self._enough = self._agents.admit(label), 0
            elif timed:
                self._check_order(label, slot, time)
            waiting = self._waiting
            waiting.extend((slot, value, time))  # all or nothing, if an interrupt comes
            if timed:
                self._times[slot] = time
            if len(waiting) >= self._enough:
                self._look_ahead()

    def _check_order(self, label: Label, slot: int, time: float) -> None:
        """Refuse a time before that of the agent's last sample, which may be waiting."""
        latest = self._times.get(slot)
        if latest is None:
            self._agents.reserve()
            latest = self._agents.agents[slot, TIME]
        if time < latest:
            _refuse_backwards(label, time)

    def _look_ahead(self) -> None:
        """Learn the events that wait if they are many or a vote is due, else decide how many may wait."""
        events, n_agents = self._rule.stops.tolist()
        enough = 3 * min(_MOST_WAITING, events - self._agents.counters.item(EVENTS))
        if len(self._waiting) >= enough or self._agents.n_agents >= n_agents:
            self._learn_waiting()
        else:
            self._enough = enough

    def _learn_waiting(self) -> None:
        """Learn the events that wait. An interrupt, or a vote that fails, loses none and repeats none."""
        if not self._waiting:
            return
        with self._lock:
            waiting, table = self._waiting, self._agents
            table.reserve()
            slots, values = np.fromiter(waiting[::3], np.int64), np.fromiter(waiting[1::3], np.float64)
            times = None if self.half_life is None else np.fromiter(waiting[2::3], np.float64)
            before, self._waiting = table.counters[EVENTS], []
            try:
                self._times.clear()
                self._enough = 0
                self._run(slots, values, times)
            except BaseException:
                rest = self._waiting[:0] = waiting[3 * int(table.counters[EVENTS] - before) :]
                self._times.update(zip(rest[::3], rest[2::3], strict=True))
                raise

    def learn_many(self, frame: Any = None, /, *, agent: Any = "agent", value: Any = "value", time: Any = None) -> None:
        """Many samples, row by row: exactly what learn_one would do in a loop, compiled.

        frame: a data frame or a dict of arrays, with agent, value and time the names of its columns; or no frame, and
        agent, value and time arrays. Rows without a value (NaN, None) are left out. Anything else that cannot be
        learned refuses all rows before one is learned; messages count rows from 1.
        """
        columns = {"agent": agent, "value": value, "time": time}
        if frame is not None:
            columns = columns_of(frame, columns)
        timed = self._needs_times(columns.get("time") is not None)
        labels, values, times = as_events(
            columns["agent"], columns["value"], columns.get("time") if timed else None
        )  # fmt: skip
        with self._lock:
            self._learn(labels, values, times)

    def _needs_times(self, given: bool) -> bool:
        if self.half_life is not None and not given:
            raise SampleError(
                f"half_life={self.half_life:g} and no time: forgetting needs the time of every sample. "
                "Give it, or leave half_life out."
            )
        return self.half_life is not None

    def _learn(self, labels: Labels, values: Floats, times: Floats | None) -> None:
        table = self._table
        n_agents, n_slots = table.n_agents, len(table.labels)
        slots = table.slots_of(labels)
        came = table.n_agents - n_agents
        if came and self.has_graph:
            first = table.newest(came)[-1]
            table.withdraw(n_agents, n_slots)
            table.slot(first)  # which refuses it
        if times is not None:
            latest = np.full(len(table.labels), -np.inf)
            latest[table.present] = table.agents[table.present, TIME]
            if (row := first_backwards(slots, times, latest)) >= 0:
                label = table.labels[slots[row]]
                table.withdraw(n_agents, n_slots)
                _refuse_backwards(label, times[row])
        if came and self.max_agents is not None and table.n_agents > self.max_agents:
            table.withdraw(n_agents, n_slots)
            self._learn_and_forget(labels if isinstance(labels, list) else labels.tolist(), values, times)
        else:
            table.reserve()
            self._run(slots, values, times)

    def _run(self, slots: Integers, values: Floats, times: Floats | None) -> None:
        table, keys = self._table, key_of(self.seed)
        done = 0
        while done < len(slots):
            rule = self._rule
            done += learn_events(
                slots[done:], values[done:], None if times is None else times[done:], table.agents, table.numbers,
                table.roster, table.places, table.counters, table.pool, table.neighbors, table.batches,
                rule.half_life, rule.sigma, rule.parameters, rule.clock, rule.root, rule.factors, rule.stops, *keys,
            )  # fmt: skip
            if rule.due:
                self.wait()
                if self.background:
                    self._vote = BackgroundVote(self._rule)
                else:
                    self._rule.vote()

    def wait(self) -> None:
        """Wait for the vote that is under way in the background, if there is one. From then on, and up to the next
        vote, the model has the same bits as one that does not use the background."""
        with self._lock:
            self._learn_waiting()
            if self._vote is not None:
                vote, self._vote = self._vote, None
                self._rule = vote.rule_for(self._table)

    def _latest(self) -> Rule:
        """The rule after all events so far and the last vote that is done."""
        self._learn_waiting()
        if self._vote is not None and self._vote.done:
            self.wait()
        return self._rule

    def _learn_and_forget(self, labels: list[Label], values: Floats, times: Floats | None) -> None:
        """Learn in pieces; an agent is forgotten between two of them."""
        table, first = self._table, 0
        slots = np.empty(len(labels), np.int64)

        def learn_until(end: int) -> None:
            table.reserve()
            self._run(slots[first:end], values[first:end], None if times is None else times[first:end])

        for row, label in enumerate(labels):
            if label not in table.index and table.n_agents == self.max_agents:
                learn_until(row)
                self.wait()
                table.forget(table.least_recent())
                first = row
            slots[row] = table.index[label]
        learn_until(len(labels))

    def forget(self, agent: Any) -> None:
        """Remove an agent: its samples, its estimate and its edges."""
        with self._lock:
            self.wait()
            self._table.forget(self._table.slot(as_label(agent)))

    def merge(self, other: CollaborativeMean) -> None:
        """Add what another model learned from other samples, of the same or of other agents.

        Counts, means and variances are those of all samples together. New agents bring their edges along, as far as
        there is room; of a given graph, the edges remain that both models have kept. Estimates of agents that both know
        are averaged by their weights, and all clocks restart.
        """
        if not isinstance(other, CollaborativeMean) or other is self:
            raise RunError(f"cannot merge {shorten(other)}: it must be another CollaborativeMean. Try one from load().")
        for name in ("method", "degree", "sigma", "half_life", "has_graph"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                raise RunError(f"cannot merge: {name} is {ours!r} here and {theirs!r} there, it must be the same. Make "
                               "both models alike.")  # fmt: skip
        first, second = sorted((self, other), key=id)  # the same order in every thread
        with first._lock, second._lock:
            first.wait()
            second.wait()
            table, came = self._table, other._table
            together = len(table.index.keys() | came.index.keys())
            if self.has_graph and table.index.keys() != came.index.keys():
                raise RunError("cannot merge: the graphs have different agents. Make both models with the same graph.")
            if self.max_agents is not None and together > self.max_agents:
                raise RunError(f"cannot merge: there would be {together} agents, and max_agents={self.max_agents}. "
                               "Forget some first.")  # fmt: skip
            merged = table.merge(came, self._rule.half_life)
            if table.neighbors is not None:
                self._rule.update_radii()
                table.merge_edges(came, *merged, given=self.has_graph, test=self._rule.test)
            self._rule.renew()
            self._rule.vote()

    # what it knows

    @property
    def n_agents(self) -> int:
        return self._agents.n_agents  # an agent is admitted at once, even if its sample waits

    @property
    def n_samples(self) -> int:
        """Samples learned so far, those of agents that were forgotten included."""
        with self._lock:
            return int(self._agents.counters[EVENTS]) + len(self._waiting) // 3

    @property
    def trust_(self) -> float:
        """The weight that the guard gives to collaborative estimates now, on average over agents; 1 without a guard."""
        with self._lock:
            trust = self._latest().trust(self._table.present)
            return float(trust.mean()) if len(trust) else math.nan

    @property
    def mean_(self) -> AgentView[float]:
        """Local means; NaN without a sample."""
        return self._view(lambda slots: self._table.agents[slots, MEAN].tolist())

    @property
    def count_(self) -> AgentView[int]:
        """Samples seen."""
        return self._view(lambda slots: self._table.numbers[slots, COUNT].tolist())

    @property
    def estimate_(self) -> AgentView[float]:
        """Collaborative estimates; NaN without a sample."""
        return self._view(lambda slots: self._latest().estimate(slots).tolist())

    @property
    def interval_(self) -> AgentView[tuple[float, float]]:
        """(lower, upper). For the census a posterior interval at `level`, widened where a guard finds it too narrow;
        docs/online.md says in which worlds it covers as much. For the others around the own mean, made to hold with
        that probability at all times together, so that early on a collaborative estimate may lie outside."""

        def ends(slots: Integers) -> list[tuple[float, float]]:
            lower, upper = self._latest().interval(slots, self.level)
            return list(zip(lower.tolist(), upper.tolist(), strict=True))

        return self._view(ends)

    @property
    def groups_(self) -> AgentView[int]:
        """The group that each agent is found in: a component of the census, or agents connected by kept edges."""
        return self._view(lambda slots: self._latest().group(slots)[0].tolist())

    def _view(self, answer: Callable[[Integers], list[Any]]) -> AgentView[Any]:
        return AgentView(lambda: self._table, self._lock, answer)

    def neighbors(self, agent: Any) -> tuple[Label, ...]:
        """The neighbors that an agent averages with now; empty for methods that need no edges."""
        with self._lock:
            table, slot = self._table, self._table.slot(as_label(agent))
            if table.neighbors is None:
                return ()
            return tuple(table.labels_of(table.neighbors[slot, : table.numbers[slot, DEGREE]].astype(np.int64)))

    def to_columns(self) -> dict[str, Any]:
        """All results: agent (a list); n, mean, estimate, lower, upper, group, probability (arrays)."""
        with self._lock:
            return self._columns(self._table.present.copy())

    def _columns(self, slots: Integers) -> dict[str, Any]:
        table, rule = self._table, self._latest()
        lower, upper = rule.interval(slots, self.level)
        group, probability = rule.group(slots)
        return {
            "agent": table.labels_of(slots), "n": table.numbers[slots, COUNT], "mean": table.agents[slots, MEAN],
            "estimate": rule.estimate(slots), "lower": lower, "upper": upper, "group": group,
            "probability": probability,
        }  # fmt: skip

    def first_agents(self, n: int) -> FirstAgents:
        """The first n agents in the order of `to_columns`, and the edges among them, all at one moment.

        Agents are in the order of their arrival, except that the last one takes the place of one that is forgotten.
        """
        n = whole(n, "n", "n=2000")
        with self._lock:
            table, trust = self._table, self.trust_
            slots = table.present[:n].copy()
            edges = None
            if table.neighbors is not None:
                degree, row = table.numbers[slots, DEGREE], np.full(len(table.labels), -1, np.int64)
                row[slots] = np.arange(len(slots))
                there = np.arange(table.neighbors.shape[1]) < degree[:, None]
                ends = np.column_stack([np.repeat(np.arange(len(slots)), degree), row[table.neighbors[slots][there]]])
                edges = ends[ends[:, 0] < ends[:, 1]]
            return FirstAgents(self.n_samples, self.n_agents, trust, self._columns(slots), edges)

    # in a notebook

    def _repr_html_(self) -> str:
        with self._lock:
            first = self.first_agents(_LISTED)
        columns = {name: list(values) for name, values in first.columns.items()}
        rows = [
            {
                "agent": str(agent), "n": number(int(n)), "mean": number(float(mean)),
                "estimate": number(float(estimate)), f"{100 * self.level:.3g}% interval": interval(lower, upper),
                "group": str(group),
            }
            for agent, n, mean, estimate, lower, upper, group in zip(*list(columns.values())[:7], strict=True)
        ]  # fmt: skip
        trust = "" if math.isnan(first.trust) else f", trust {first.trust:.3g}"
        known = f"{first.n_agents:,} agent{'s' * (first.n_agents != 1)}, {first.n_samples:,} samples{trust}."
        note = f"The first {len(rows)} agents; to_columns() returns all." if first.n_agents > len(rows) else ""
        return html_fragment(repr(self), [known], html_table(rows, words=("agent", "group")), note)

    def live(self, *, every: float = 0.5, height: int = 640) -> Any:
        """A widget for notebooks that follows the model while it learns, in this or in other threads.

        every   seconds between two looks at the model; longer if a look takes more than a twentieth of that
        height  of the widget, in pixels

        Of more than 2000 agents the first 2000 are shown. The widget does not keep the model alive, and stops when the
        model is gone or the widget is closed (`close()`).
        """
        return named("colme.live.model_feed:follow")(self, every=every, height=height)

    # copies and files

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # other threads may be learning
            self.wait()
            return copy.deepcopy({name: each for name, each in vars(self).items() if name != "_lock"})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = RLock()

    def save(self, path: PathLike) -> None:
        """Everything in one file, which is never half-written: the old file stays until the new one is whole."""
        with self._lock:
            self.wait()
            fields = {name: value for name, value in self._changed().items() if name != "background"}
            head = {"method": plain_form(self.method), "fields": fields}
            if self.has_graph:  # which decided the parameters
                head["graph"] = self._rule.parameters._asdict()
            write_arrays(path, FORMAT, head, pack(self._table) | to_arrays(self._rule, "rule"))

    @classmethod
    def load(cls, path: PathLike) -> CollaborativeMean:
        """A saved model: what it learns from now on has the same bits as if it had never been saved."""
        head, arrays = read_arrays(path, FORMAT)
        with nothing_missing(path):
            method, fields, graph = head["method"], head["fields"], head.get("graph")
            with names_known(path):
                model = cls(method_from(method), **fields)
                model.has_graph = graph is not None
                model._rule.parameters = model._rule.parameters._replace(**graph or {})
            unpack(model._table, arrays)
            from_arrays(model._rule, "rule", arrays)
        return model


def _named(graph: Any) -> tuple[list[Label], Graph]:
    """Labels, and the graph of their numbers."""
    if isinstance(graph, Graph):
        return list(range(graph.n_agents)), graph
    try:
        pairs = [(as_label(a), as_label(b)) for a, b in graph]
    except (TypeError, ValueError) as error:
        if isinstance(error, SampleError):
            raise
        raise MethodError(
            f"graph={shorten(graph)}: it must be a colme.Graph or pairs of agents. Try graph=[('a', 'b'), ('b', 'c')]."
        ) from None
    number: dict[Label, int] = {}
    edges = [(number.setdefault(a, len(number)), number.setdefault(b, len(number))) for a, b in pairs]
    return list(number), from_edges(edges)


def _refuse_backwards(label: Label | None, time: float) -> None:
    raise SampleError(
        f"time {time:g} of agent {label!r} is before that of its last sample: times of an agent must not go backwards. "
        "Sort by time first."
    )
