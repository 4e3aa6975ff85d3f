"""What every method promises. `check_method(MyMethod(...))` raises an AssertionError that names the broken promise.

Promises are small functions of a `Case`; add one here and every method must keep it.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from colme.confidence import FEWEST_SAMPLES
from colme.errors import SampleError, shorten
from colme.graphs import Graph, from_edges, random_regular_graph
from colme.lockstep import Outboxes, agents_of, deliver, lockstep, step_together
from colme.method import EVERYONE, Agent, Inbox, State
from colme.methods import Method
from colme.node.net.memory import MemoryNetwork, lockstep_over
from colme.recording import Recording
from colme.samples import draw
from colme.scenario import Scenario
from colme.sim.run import Run
from colme.sim.sampling import BLOCK, Sampler
from colme.sim.simulation import simulate
from colme.sim.spec import RunSpec
from colme.support.arrays import Array, Floats

__all__ = ["PROMISES", "check_method", "lockstep"]

Reference = Callable[[Floats, Graph, Array, Any], Floats]
"""Estimates (steps, agents) from (samples, graph, classes, sigma), from code that the method does not share."""

N, STEPS, SIGMA = 24, 60, 0.5
WIDTH = 2.0 * math.sqrt(3.0) * SIGMA
"""The samples are uniform, so that every bound applies."""
SCENARIO = Scenario(n_agents=N, means=(0.0, 1.25), sigma=SIGMA, distribution="uniform")
HEARD = 2e-6
"""Rounding of estimates heard in float32, relative to the spread of the data (2^-24 per exchange, many exchanges)."""


@dataclass(frozen=True)
class Case:
    """A method under test, and a small world in which classes do part: 24 agents, two means 2.5 sigma apart."""

    method: Method
    reference: Reference | None = None

    @property
    def samples(self) -> Floats:
        return draw(SCENARIO, 5, STEPS)

    @property
    def classes(self) -> Array:
        return SCENARIO.populate(5).class_

    @property
    def graph(self) -> Graph:
        return random_regular_graph(N, 6, rng=3)

    def gappy(self) -> Floats:
        """Samples with gaps: a third missing, some agents late, one never there."""
        samples = self.samples
        samples[np.random.default_rng(1).random(samples.shape) < 0.3] = np.nan
        samples[:20, :5] = np.nan
        samples[:, 7] = np.nan
        return samples

    def worlds(self) -> dict[str, tuple[Floats, Any]]:
        """Samples and sigmas that methods may treat in different ways."""
        uneven = np.where(np.arange(N) % 2, 4.0, 1.0) * (self.samples - np.where(self.classes, 1.25, 0.0))
        unequal = np.linspace(0.3, 0.7, N)
        return {"all samples": (self.samples, SIGMA), "gaps": (self.gappy(), SIGMA),
                "unequal sigma": (self.samples, unequal), "unequal noise": (uneven, SIGMA)}  # fmt: skip

    def record(self, samples: Floats, **known: Any) -> Recording:
        """A recording of samples, and what is known about them."""
        known = {"classes": self.classes, "sigma": SIGMA, "width": WIDTH, **known}
        return Recording(samples, **known)

    def start(self, source: Scenario | Recording, checkpoint: Path | None = None, **fields: Any) -> Run:
        """A run of the method before its first step."""
        spec = RunSpec(**{"method": self.method, "source": source, "graph": self.graph} | fields)
        return Run([spec], checkpoint=checkpoint)

    def run(
        self, samples: Floats, *, graph: Graph | None = None, precision: str = "mixed",
        loss: float = 0.0, **known: Any,
    ) -> Floats:  # fmt: skip
        """The array form: estimates (steps, agents)."""
        recording = self.record(samples, **known)
        recording.loss = loss
        run = self.start(recording, graph=self.graph if graph is None else graph, precision=precision)
        estimates = np.empty(samples.shape)
        for t in range(1, len(samples) + 1):
            run.step(t)
            estimates[t - 1] = run.states[0].estimate + recording.origin
        return estimates


def _same(got: Array, wanted: Array, what: str, tolerance: float = 0.0) -> None:
    assert got.shape == wanted.shape, f"{what}: shapes {got.shape} and {wanted.shape}"
    off = ~((got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (np.abs(got - wanted) <= tolerance))
    if off.any():
        where = tuple(int(k) for k in np.argwhere(off)[0])
        place = f"step {where[0] + 1}, agent {where[1]}" if len(where) == 2 else f"place {where[0]}"
        raise AssertionError(
            f"{what}, {place}: got {got[where]}, wanted {wanted[where]} ({int(off.sum())} differences, tolerance "
            f"{tolerance:g})"
        )


def agent_form_equals_array_form(case: Case) -> None:
    """One object per agent that only sends messages gives the same bits as the array, also where messages are bytes."""
    if type(case.method).agent is Method.agent:
        return
    worlds = [(name, *world, 0.0) for name, world in case.worlds().items()]
    if case.method.tolerates_loss:
        worlds.append(("lost messages", case.gappy(), SIGMA, 0.3))
    for name, samples, sigma, loss in worlds:
        origin = Recording(samples).origin
        known = {"sigma": sigma, "width": WIDTH, "classes": case.classes}
        alone = lockstep(case.method, samples - origin, case.graph, loss=loss, **known)
        _same(case.run(samples, sigma=sigma, loss=loss), alone + origin, f"array form against agent form, with {name}")
        if loss == 0.0 and (case.method.message_adapter or "").endswith(":AnyAdapter"):
            known["independent"] = True
            bytewise = lockstep_over(MemoryNetwork(seed=1), case.method, samples - origin, case.graph, **known)
            alone = lockstep(case.method, samples - origin, case.graph, **known)
            _same(bytewise, alone, f"messages as bytes against objects, with {name}")


def messages_go_to_neighbors(case: Case) -> None:
    """An outbox is a dictionary {neighbor: message}: no network delivers to agents that are not neighbors
    (EVERYONE is for simulations)."""
    if type(case.method).agent is Method.agent or case.method.by_name or case.method.baseline:
        return
    agents = agents_of(case.method, case.graph, sigma=SIGMA, width=WIDTH, classes=case.classes)
    carry = deliver(agents, set())

    def checked(outboxes: Outboxes, exchange: int) -> Mapping[Any, Inbox]:
        for a, outbox in outboxes.items():
            name = type(agents[a]).__name__
            assert isinstance(outbox, dict), (
                f"{name}.step yields {shorten(outbox)}: it must be a dictionary {{neighbor: message}}. Try "
                "dict.fromkeys(self.neighbors, message)."
            )
            for to in outbox:
                assert to == EVERYONE or to in agents[a].place.neighbors, (
                    f"agent {a} ({name}) sends a message to {shorten(to)}, which is not among its neighbors "
                    f"{agents[a].place.neighbors}. Send to neighbors only."
                )
        return carry(outboxes, exchange)

    for row in case.samples[:5]:
        step_together(agents, row, checked)


def matches_the_reference(case: Case) -> None:
    """The independent reading of the paper agrees, up to the rounding of what neighbors hear."""
    if case.reference is None:
        return
    for samples, sigma in case.worlds().values():
        wanted, known = case.reference(samples, case.graph, case.classes, sigma), {"sigma": sigma, "independent": True}
        _same(case.run(samples, **known), wanted, "reference, mixed precision", HEARD * np.nanmax(np.abs(samples)))
        _same(case.run(samples, **known, precision="double"), wanted, "reference, double precision", 1e-11)


def seed_decides_everything(case: Case) -> None:
    """The same seed gives the same bits, another seed other ones."""
    first, again, other = (simulate(case.method, SCENARIO, degree=6, steps=30, seed=s) for s in (4, 4, 5))
    _same(first.final.estimate, again.final.estimate, "same seed")
    _same(first.mse, again.mse, "same seed, mse")
    assert not np.array_equal(first.final.estimate, other.final.estimate), "another seed gave the same estimates"


def threads_and_blocks_do_not_matter(case: Case) -> None:
    """Seeds side by side, or samples in blocks of another size, change no bit."""
    alone = [simulate(case.method, SCENARIO, degree=6, steps=30, seed=s) for s in range(3)]
    together = simulate(case.method, SCENARIO, degree=6, steps=30, seeds=range(3), n_jobs=3)
    for one, other in zip(alone, together, strict=True):
        _same(other.final.estimate, one.final.estimate, "three threads")
    many = msgspec.structs.replace(SCENARIO, n_agents=200, skip_rate=0.1)
    graph = random_regular_graph(200, 6, rng=1)
    ends = []
    for block in (BLOCK, 64, 128, 7 * 200):  # many steps at a time; agents in parts of 64, of 128; seven steps
        run = case.start(many, graph=graph, steps=20, seed=3)
        run.sampler = Sampler(run.stream, run.world, run.recorder.steps, block)
        run.go(None, threading.Event())
        ends.append(run.states[0].estimate)
    for end in ends[1:]:
        _same(end, ends[0], "samples in blocks of another size")


def resume_is_invisible(case: Case) -> None:
    """A run that is stopped and continued ends in the same bits as one that is not. Intervals that fail often are tried
    too: then a cut that was forgotten is not made again."""
    loose = [msgspec.structs.replace(case.method, gamma=0.9)] if hasattr(case.method, "gamma") else []
    for method, samples in itertools.product((case.method, *loose), (case.samples, case.gappy())):
        recording = case.record(samples)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.npz"
            whole = case.start(recording, method=method).go(None, threading.Event())[0]
            broken = case.start(recording, path, method=method)
            for t in range(1, 24):
                broken.step(t)
            broken.save()
            resumed = case.start(recording, path, method=method)
            assert resumed.world.t == 23, f"resumed at step {resumed.world.t} instead of 23"
            trace = resumed.go(None, threading.Event())[0]
        for name in ("wrong_edges", "lost_edges", "isolated"):
            _same(getattr(trace, name), getattr(whole, name), f"resumed run, {name}")
        _same(trace.final.estimate, whole.final.estimate, "resumed run, estimate")
        assert trace.final.graph == whole.final.graph, "resumed run ended with another graph"


def relabelling_relabels(case: Case) -> None:
    """Agents have no favorite numbers (but for methods that go round by number, such as colME)."""
    names = np.random.default_rng(8).permutation(N)
    old = np.argsort(names)
    if case.method.by_name:
        return
    wanted = case.run(case.samples)
    got = case.run(case.samples[:, old], graph=case.graph.relabel(names), classes=case.classes[old])
    _same(got[:, names], wanted, "relabelled agents", 1e-12)


def shift_and_scale_pass_through(case: Case) -> None:
    """Celsius or Fahrenheit: estimates of c x + d are c times the estimates of x, plus d."""
    wanted = case.run(case.samples)
    spread = float(np.abs(case.samples).max())
    for scale, shift in ((1.0, 1e6), (1024.0 if case.method.unit_matters else 1000.0, 0.0), (0.5, -40.0)):
        got = case.run(scale * case.samples + shift, sigma=scale * SIGMA, width=scale * WIDTH)
        rounding = HEARD * scale * spread + 1e-12 * abs(shift)  # the shifted samples themselves are rounded
        _same(got, scale * wanted + shift, f"{scale} x + {shift}", rounding)


def pruning_is_monotone_and_symmetric(case: Case) -> None:
    """Links are given up by both ends and, if irrevocable, for good."""
    for samples in (case.samples, case.gappy()):
        run = case.start(case.record(samples))
        trace = run.go(None, threading.Event())[0]
        adjacency = trace.final.graph.adjacency()
        assert (adjacency == adjacency.T).all() and not adjacency.diagonal().any(), "the final graph is not simple"
        if case.method.irrevocable:
            assert (np.diff(trace.wrong_edges) <= 0).all(), "an edge between classes came back"
            assert (np.diff(trace.lost_edges) >= 0).all(), "a cut edge came back"
            assert (np.diff(trace.isolated) >= 0).all(), "an isolated agent got an edge"
        one_sided = getattr(run.states[0], "one_sided", 0)
        assert one_sided == 0, f"{one_sided} edges were given up by one end only: compare what both ends know"


def mass_is_conserved(case: Case) -> None:
    """Where local means stay put, exchanges only move mass: the mean of all estimates stays put too.

    The means are close together, so that no edge is cut and all clocks agree; and it ends before any agent makes
    intervals of the samples' own deviation, which is zero here."""
    if not case.method.conserves:
        return
    values = 0.01 * case.samples[0]
    steps = min(FEWEST_SAMPLES) - 1
    wanted = np.full(steps, values.mean())
    for precision, tolerance in (("double", 1e-14), ("mixed", HEARD)):
        estimates = case.run(np.tile(values, (steps, 1)), precision=precision)
        assert np.ptp(estimates[-1]) < 0.5 * np.ptp(values), "the agents did not exchange anything"
        _same(estimates.mean(axis=1), wanted, "mean of estimates", tolerance * np.abs(values).max())


def alone_is_local(case: Case) -> None:
    """An agent without neighbors, or the only one there is, reports its own mean."""
    estimates = case.run(case.samples[:, :1], graph=from_edges([], 1), classes=np.zeros(1, int))
    local = np.cumsum(case.samples, axis=0) / np.arange(1, STEPS + 1)[:, None]
    _same(estimates, local[:, :1], "one agent", 1e-12)
    if not case.method.by_name:  # agents that may query any other need no neighbors
        edges = case.graph.edges()
        without_first = from_edges(edges[(edges != 0).all(axis=1)], N)
        if not case.method.baseline:
            _same(case.run(case.samples, graph=without_first)[:, 0], local[:, 0], "an agent without neighbors", 1e-12)


def gaps_are_skipped_and_infinities_refused(case: Case) -> None:
    """NaN is 'no sample now': an agent has an estimate from its first sample on. Infinite samples are refused."""
    samples = case.gappy()
    estimates = case.run(samples)
    seen = np.cumsum(~np.isnan(samples), axis=0) > 0
    assert np.isfinite(estimates[seen]).all(), "an agent with a sample has no estimate"
    assert np.isnan(estimates[~seen]).all(), "an agent without a sample has an estimate"
    bad = case.samples
    bad[3, 2] = np.inf
    try:
        simulate(case.method, bad)
    except SampleError as error:
        assert "agent 2 at step 4" in str(error), f"the error does not say where: {error}"
    else:
        raise AssertionError("an infinite sample was accepted")


def configuration_round_trips(case: Case) -> None:
    """The method survives JSON, and its repr is what you would type."""
    text = msgspec.json.encode(case.method)
    assert msgspec.json.decode(text, type=type(case.method)) == case.method, f"{text!r} came back different"
    assert repr(case.method).startswith(type(case.method).__name__ + "("), repr(case.method)


def false_pruning_stays_below_delta(case: Case) -> None:
    """With one class, runs that cut any edge are rarer than delta (at the levels that promise it)."""
    method: Any = case.method
    if getattr(method, "level", "agent") == "agent" or method.gamma is not None:
        return
    runs = 40
    one_class = msgspec.structs.replace(SCENARIO, means=(1.0,))
    traces = simulate(method, one_class, degree=6, steps=150, seeds=range(runs))
    broken = sum(trace.lost_edges.max() > 0 for trace in traces)
    allowed = method.delta * runs + 3.0 * np.sqrt(method.delta * (1.0 - method.delta) * runs)
    assert broken <= allowed, f"{broken} of {runs} runs cut a true edge; delta={method.delta} allows {allowed:.1f}"


PROMISES: tuple[Callable[[Case], None], ...] = (
    messages_go_to_neighbors,
    agent_form_equals_array_form,
    matches_the_reference,
    seed_decides_everything,
    threads_and_blocks_do_not_matter,
    resume_is_invisible,
    relabelling_relabels,
    shift_and_scale_pass_through,
    pruning_is_monotone_and_symmetric,
    mass_is_conserved,
    alone_is_local,
    gaps_are_skipped_and_infinities_refused,
    configuration_round_trips,
    false_pruning_stays_below_delta,
)


def check_method(method: Method, reference: Reference | None = None) -> None:
    """Hold a method to every promise; the AssertionError names the first one it breaks.

    method     the method to check
    reference  an independent implementation to compare with: a function of samples, graph, classes and sigma

    >>> import colme
    >>> check_method(colme.Local())  # silent: every promise is kept

    See also: lockstep, Method
    """
    for promise in PROMISES:
        try:
            promise(Case(method, reference))
        except AssertionError as error:
            raise AssertionError(f"{method!r} breaks the promise {promise.__name__!r}: {error}") from error
        except AttributeError as error:
            if isinstance(error.obj, Agent | State) and not {"place", "world"} & vars(error.obj).keys():
                name = type(error.obj).__name__
                raise AssertionError(
                    f"{name} has no {error.name!r}, which {name}.__init__ leaves to its parent class. "
                    "Call super().__init__(...) first in it, with the arguments of the parent."
                ) from error
            raise
