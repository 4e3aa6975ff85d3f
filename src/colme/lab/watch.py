"""`colme watch`: `WatchedRun`, one or two methods on the same samples, and what viewers can change in it; and
`WatchSession`, which shows the run while it is done.

Viewers type texts into the fields of a form. Only texts that differ from what the form showed change anything, so that
all else that an experiment file says remains.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import msgspec

from colme.confidence import smallest_gap
from colme.errors import ColmeError, ExperimentError, RunError, one_of, positive, printable, shorten
from colme.graphs import default_degree
from colme.lab.experiment import Experiment, find, why_not
from colme.lab.planning import REFERENCE, Planned, convert_field, tag_of
from colme.lab.results import axes_of, experiment_of
from colme.live.broadcast import Broadcast
from colme.live.messages import end, note, pack
from colme.live.page import compressed
from colme.live.replay import MOST_PANELS
from colme.live.simulation import N_FRAMES, SimulationFeed
from colme.methods import Method
from colme.methods.registry import methods_by_name
from colme.scenario import Scenario
from colme.sim.spec import RunSpec
from colme.support.tables import parse_word

WATCH_FRAMES = 400
"""Frames of a run: twenty seconds of them."""
FRAMES_PER_SECOND = 20.0
"""At speed 1, as far as the simulation is fast enough."""
SLOWEST, FASTEST = 0.05, 100.0
COMMANDS = ("pause", "resume", "speed", "restart")
STOP_SECONDS = 2.0
MOST_ASKED = {"n_agents": 200_000, "steps": 10**6}
"""What a viewer may ask for. The command line may ask for more."""
MOST_NEIGHBORS_ASKED = 2 * 10**7
"""Neighbors of all agents together, likewise."""
MOST_TEXT = 200
"""Characters of what a viewer types into a field."""
FIELDS = {  # name -> label and kind
    "method": ("method", "choice"),
    "second": ("second method", "choice"),
    "delta": ("delta", "number"),
    "step": ("step", "text"),
    "degree": ("degree", "number"),
    "gap": ("distance of classes", "number"),
    "n_agents": ("agents", "number"),
    "sigma": ("sigma", "text"),
    "steps": ("steps", "number"),
    "seed": ("seed", "number"),
}
METHOD_FIELDS = ("delta", "step")
_WITH_DEGREE = ("regular", "gnp", "ring", "small-world")
_LONG = "one per agent"
"""The text of a sigma that is too long for a form."""

Labeled = tuple[str, Method]
"""A method and its label."""


@dataclass(frozen=True)
class WatchedRun:
    """What is shown.

    shown      one or two methods
    spec       the run of the first one
    title      of the experiment, "" if it has none or was changed
    known      every method that can be chosen, by its name in files
    first      the methods of the experiment, as they stand there
    origin     the scenario of the experiment, whose means a viewer stretches
    about      which of the experiment's runs it is, "" if there is but one
    """

    shown: tuple[Labeled, ...]
    spec: RunSpec
    title: str
    known: Mapping[str, type[Method]]
    first: Mapping[str, Labeled]
    origin: Scenario
    about: str = ""

    @property
    def methods(self) -> tuple[Method, ...]:
        return tuple(method for _, method in self.shown)

    def feed(self) -> SimulationFeed:
        """The run from its first step on; it is refused here if it cannot run."""
        labels = [label for label, _ in self.shown]
        specs = [msgspec.structs.replace(self.spec, method=method) for method in self.methods]
        return SimulationFeed(specs, WATCH_FRAMES, title=self.title or " and ".join(labels), labels=labels)

    def texts(self) -> dict[str, str]:
        """What the form shows, field by field."""
        spec, scenario = self.spec, self.spec.source
        texts = dict.fromkeys(FIELDS, "")
        texts |= {"method": tag_of(self.methods[0]), "second": "".join(map(tag_of, self.methods[1:]))}
        for name in METHOD_FIELDS:
            values = [getattr(method, name) for method in self.methods if _has(method, name)]
            texts[name] = "".join(map(_text, values[:1]))
        if spec.graph in _WITH_DEGREE:
            texts["degree"] = _text(default_degree(scenario.n_agents) if spec.degree is None else spec.degree)
        gap = _gap(scenario)
        texts["gap"] = _text(gap) if gap is not None else "" if _gap(self.origin) is None else "0"
        texts["sigma"] = "" if scenario.distribution == "bernoulli" else _text(scenario.known_scale)
        return texts | {"n_agents": str(scenario.n_agents), "steps": str(spec.steps), "seed": str(spec.seed)}

    def form(self) -> list[dict[str, Any]]:
        """The fields as the page makes a form of them."""
        tags = sorted(self.known, key=lambda tag: self.known[tag].baseline)
        choices = {"method": tags, "second": ["", *tags]}
        return [
            {"name": name, "label": label, "kind": kind, "value": text}
            | ({"choices": choices[name]} if name in choices else {})
            for (name, (label, kind)), text in zip(FIELDS.items(), self.texts().values(), strict=True)
        ]

    def changed(self, values: Mapping[str, Any]) -> WatchedRun:
        """The run with what a viewer has typed."""
        before = self.texts()
        texts = before | {name: _typed(name, text) for name, text in values.items()}
        new = {name for name, text in texts.items() if text != before[name]}
        shown = self._chosen(texts, new)
        of_scenario: dict[str, Any] = {
            name: _field(Scenario, texts, name) for name in ("n_agents", "sigma") if name in new
        }
        fields: dict[str, Any] = {
            name: _field(RunSpec, texts, name) for name in ("degree", "steps", "seed") if name in new
        }
        for name, most in MOST_ASKED.items():
            if ((of_scenario | fields).get(name) or 0) > most:
                raise ExperimentError(f"{name}={texts[name]}: at most {most:,} can be asked for here. Try {most}.")
        if "n_agents" in new and self.spec.source.sizes is not None:
            of_scenario["assignment"] = "random"  # sizes become proportions
        if "gap" in new:
            of_scenario |= self._stretched(texts)
        if "degree" in new and self.spec.graph not in _WITH_DEGREE:
            graph = self.spec.parameters()["graph"]
            raise ExperimentError(f"degree={texts['degree']}: the graph {graph!r} has its own degrees. Leave it empty.")
        source = msgspec.structs.replace(self.spec.source, **of_scenario)
        if "steps" in new:
            fields["record"] = "all"
        spec: RunSpec = msgspec.structs.replace(self.spec, method=shown[0][1], source=source, **fields)
        if new & {"n_agents", "degree"}:
            _check_room(spec)
        return replace(self, shown=shown, spec=spec, title="" if new else self.title, about="")

    def _chosen(self, texts: dict[str, str], new: set[str]) -> tuple[Labeled, ...]:
        """The methods. Those that were shown before keep their fields, apart from what has changed; a new one is as the
        experiment has it, with what the form shows."""
        if not texts["method"]:
            raise ExperimentError("method is empty: there must be a first method. Try cl-colme.")
        before: dict[str, Labeled] = {tag_of(method): (label, method) for label, method in reversed(self.shown)}
        found: list[Labeled] = []
        for place, name in enumerate(("method", "second")):
            if not (tag := texts[name]):
                continue
            one_of(tag, self.known, "method", ExperimentError)
            was = before.get(tag) if name in new else self.shown[place]
            kind = self.known[tag]
            typed = [each for each in METHOD_FIELDS if each in new or (was is None and texts[each])]
            given = {each: _field(kind, texts, each) for each in typed if _has(kind, each)}
            label, method = was or self.first.get(tag) or (kind.label, None)
            found.append((label, kind(**given) if method is None else msgspec.structs.replace(method, **given)))
        for name in METHOD_FIELDS:
            if name in new and not any(_has(method, name) for _, method in found):
                named = ", ".join(tag_of(method) for _, method in found)
                raise ExperimentError(
                    f"{name}={texts[name]}: none of the methods ({named}) has it. Leave it as it was."
                )
        if len(found) == 2 and found[0][1] == found[1][1]:
            raise ExperimentError(
                f"method and second method are both {texts['method']}, with the same fields: they must differ. "
                "Choose another second method, or none."
            )
        return tuple(found)

    def _stretched(self, texts: dict[str, str]) -> dict[str, Any]:
        """The means of the experiment, stretched about their center so that the closest classes have this distance."""
        means, later, first = self.origin.means, self.origin.shift_means, _gap(self.origin)
        if first is None:
            raise ExperimentError(
                f"gap={texts['gap']}: there is one class only, so there is no distance. Leave it empty."
            )
        if texts["gap"] in ("", _text(first)):
            return {"means": means, "shift_means": later}
        gap = convert_field(parse_word(texts["gap"]), float, "gap")
        if not 0 <= gap < math.inf:
            raise ExperimentError(f"gap={gap:g}: a distance is at least 0 and finite. Try gap=1.")
        center, factor = (min(means) + max(means)) / 2, gap / first

        def stretch(given: Iterable[float]) -> tuple[float, ...]:
            return tuple(center + (each - center) * factor for each in given)

        return {"means": stretch(means), "shift_means": later and stretch(later)}


def watched_run(experiment: Experiment, *, chosen: bool = False) -> WatchedRun:
    """The first runs of the first two methods of an experiment, on the samples of the first: CL-colME, if it is there,
    and methods that collaborate; if the methods were `chosen`, the first two whatever they are."""
    runs: dict[str, list[RunSpec]] = {}
    for each in experiment.planned:
        runs.setdefault(each.label, []).append(each.spec)
    labels = list(runs)
    if not chosen:
        labels.sort(key=lambda label: runs[label][0].method.label != REFERENCE)
        labels = [label for label in labels if not runs[label][0].method.baseline] or labels
    refusals: list[str] = []
    picked: list[tuple[str, RunSpec]] = []
    for label in labels:
        specs = runs[label]
        if picked:
            first = picked[0][1]
            alike = [spec for spec in specs if spec.but("method", "seed") == first.but("method", "seed")]
            specs = [msgspec.structs.replace(first, method=spec.method) for spec in alike or specs]
        for spec in specs:
            if not (reason := why_not(label, spec)):
                picked.append((label, spec))
                break
            refusals.append(reason)
        else:
            if chosen:  # nobody asked for less
                raise ExperimentError(refusals[-1])
        if len(picked) == 2:
            break
    if not picked:
        raise ExperimentError(refusals[0])
    known = {tag: method for tag, (method, _) in methods_by_name(experiment.modules, ExperimentError).items()}
    shown = tuple((label, spec.method) for label, spec in picked)
    every = [*shown, *((each.label, each.spec.method) for each in experiment.planned)]
    first_of = {tag_of(method): (label, method) for label, method in reversed(every)}
    spec = picked[0][1]
    about = _about(picked, experiment.planned)
    return WatchedRun(shown, spec, experiment.head.title, known, first_of, origin=spec.source, about=about)


def experiment_to_watch(source: Path | str, methods: tuple[str, ...], changes: dict[str, Any]) -> Experiment:
    """An experiment from a file, a name or a folder of results, with some fields changed; if methods are given, with
    these instead of its own: as it has them, or with their defaults. What is not as in the file has not its title."""
    made = experiment_of(source, None if methods else changes).without_expected()
    if methods:
        entries: list[dict[str, Any]] = []
        for tag in dict.fromkeys(methods):
            entries += [each for each in made.table["methods"] if each["method"] == tag] or [{"method": tag}]
        folder = source if Path(source).is_dir() else find(source).parent
        made = Experiment.parse(made.table | {"methods": entries}, name=made.name, folder=folder, changes=changes)
    if methods or changes.keys() - {"seeds"}:
        made = replace(made, head=msgspec.structs.replace(made.head, title=""))
    return made


def _gap(scenario: Scenario) -> float | None:
    """The distance of the closest two classes, if there are two."""
    return smallest_gap(scenario.means) if len(set(scenario.means)) > 1 else None


def _about(picked: list[tuple[str, RunSpec]], planned: Sequence[Planned]) -> str:
    if len(planned) <= len(picked):
        return ""
    swept, words = axes_of(planned), []
    for label, spec in picked:
        told = [f"{name} {_text(value)}" for name, value in spec.parameters().items() if name in swept]
        words.append(f"{label} ({', '.join(told)})" if told else label)
    seed = picked[0][1].seed
    return f"Of {len(planned):,} runs you see the first of {' and of '.join(words)}, with seed {seed}."


def _check_room(spec: RunSpec) -> None:
    n = spec.source.n_agents
    degree = n - 1 if spec.graph == "complete" else spec.degree or 0
    if n * degree > MOST_NEIGHBORS_ASKED:
        raise ExperimentError(
            f"n_agents={n} with degree={degree}: at most {MOST_NEIGHBORS_ASKED:,} neighbors in all can be asked for "
            "here. Ask for fewer agents or a smaller degree."
        )


def _has(method: Method | type[Method], name: str) -> bool:
    return name in method.__struct_fields__


def _typed(name: str, text: Any) -> str:
    """What was typed into a field, checked as far as it can be without knowing the others."""
    one_of(name, FIELDS, "field", ExperimentError)
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise ExperimentError(f"{name}={shorten(text)}: it must be a text of up to {MOST_TEXT} characters. Shorten it.")
    return text.strip()


def _field(struct: type[msgspec.Struct], texts: dict[str, str], name: str) -> Any:
    """The value of a field of a struct; its default if nothing was typed."""
    known = next(each for each in msgspec.structs.fields(struct) if each.name == name)
    if not texts[name]:
        if known.required:
            raise ExperimentError(f"{name} is empty: it must be a number. Try {name}=100.")
        return known.default
    words = [parse_word(word) for word in texts[name].split(",")]
    return convert_field(words[0] if len(words) == 1 else words, known.type, name)


def _text(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, tuple):
        text = ",".join(map(_text, value))
        return text if len(text) <= MOST_TEXT else _LONG
    return f"{value:.12g}" if isinstance(value, float) else str(value)


class WatchSession:
    """A run in a thread of its own, which publishes a frame at each of some steps.

    It can be paused, made faster and restarted with other values; at its end it waits for a restart. A value that is
    refused changes nothing: `control` raises the sentence, and what runs goes on."""

    def __init__(self, run: WatchedRun, broadcast: Broadcast) -> None:
        self.run, self.broadcast = run, broadcast
        self._changed = threading.Condition()
        self._restarting = threading.Lock()
        self._stopping = False
        self._state: dict[str, float] = {"paused": False, "speed": 1.0}
        self._n_runs, self._shown_at = 0, 0.0
        self._feed: SimulationFeed | None = run.feed()
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
            self._show(run, run.feed())

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
        while not feed.advance():
            if self._stopping or self._feed is not feed:
                return
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


MOST_RECORDED = 2_150_000
"""Bytes of a recording: with the renderer, and in base64, a page stays below 3 MB."""


def shown_together(planned: Sequence[Planned]) -> list[Planned]:
    """The runs of one view: those of the first seed on the first scenario and graph, at most four methods."""
    first = planned[0].spec.but("method")
    return [each for each in planned if each.spec.but("method") == first][:MOST_PANELS]


def feed_of(planned: Sequence[Planned], *, frames: int | None = None, title: str = "") -> SimulationFeed:
    """A feed of runs that have the same samples (`shown_together`)."""
    labels = [each.label for each in planned]
    if len(set(labels)) < len(labels):
        labels = [repr(each.spec.method) for each in planned]
    return SimulationFeed([each.spec for each in planned], frames or N_FRAMES, title=title, labels=labels)


def fitting_messages(feed: SimulationFeed) -> list[bytes]:
    """The recording of a run, with as many frames as a page of 3 MB can hold."""
    start, *frames, last = feed.messages()
    while len(compressed([start, *frames, last])) > MOST_RECORDED and len(frames) > 2:
        frames = [*frames[:-1:2], frames[-1]]
    return [start, *frames, last]
