"""`WatchedRun`: the run that `colme watch` shows, one or two methods on the same samples, and what viewers can change.

Viewers type texts into the fields of a form. Only texts that differ from what the form showed change anything, so that
all else that an experiment file says remains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from colme.errors import ColmeError, ExperimentError, one_of, shorten
from colme.graphs import default_degree
from colme.lab.experiment import Experiment, find
from colme.lab.planning import REFERENCE, Planned, convert_field
from colme.lab.results import experiment_of
from colme.live.page import compressed
from colme.live.replay import MOST_PANELS
from colme.live.simulation import N_FRAMES, SimulationFeed
from colme.methods import Method
from colme.methods.registry import methods_by_name
from colme.scenario import Scenario, check_seed
from colme.sim.spec import RunSpec, Setup
from colme.support.tables import parse_word

WATCH_FRAMES = 400
"""Frames of a run: twenty seconds of them."""
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
OF_METHODS = ("delta", "step")
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
    title      of the experiment, "" if it has none
    known      every method that can be chosen, by its name in files
    first      the methods of the experiment, as they stand there
    origin     the scenario of the experiment, whose means a viewer stretches
    kept       texts of fields that none of the methods has
    about      which of the experiment's runs it is, "" if there is but one
    """

    shown: tuple[Labeled, ...]
    spec: RunSpec
    title: str
    known: Mapping[str, type[Method]]
    first: Mapping[str, Labeled]
    origin: Scenario
    kept: Mapping[str, str] = field(default_factory=dict)
    about: str = ""

    @property
    def methods(self) -> tuple[Method, ...]:
        return tuple(method for _, method in self.shown)

    def feed(self, n_frames: int = WATCH_FRAMES) -> SimulationFeed:
        """The run from its first step on; it is refused here if it cannot run."""
        labels = [label for label, _ in self.shown]
        specs = [msgspec.structs.replace(self.spec, method=method) for method in self.methods]
        return SimulationFeed(specs, n_frames, title=self.title or " and ".join(labels), labels=labels)

    def texts(self) -> dict[str, str]:
        """What the form shows, field by field."""
        spec, scenario = self.spec, self.spec.source
        texts = dict.fromkeys(FIELDS, "") | dict(self.kept)
        texts |= {"method": tag_of(self.methods[0]), "second": "".join(map(tag_of, self.methods[1:]))}
        for name in OF_METHODS:
            values = [getattr(method, name) for method in self.methods if _has(method, name)]
            texts[name] = _text(values[0]) if values else texts[name]
        if _takes_degree(self.spec):
            texts["degree"] = _text(default_degree(scenario.n_agents) if spec.degree is None else spec.degree)
        gap = smallest_gap(scenario.means)
        texts["gap"] = _text(gap) if gap is not None else "0" if smallest_gap(self.origin.means) is not None else ""
        bernoulli = scenario.distribution == "bernoulli"
        texts["sigma"] = "" if bernoulli else _text(scenario.known_scale)
        return texts | {
            "n_agents": _text(scenario.n_agents),
            "steps": _text(spec.n_steps),
            "seed": str(self.spec.seed),
        }

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
        for name, most in MOST_ASKED.items():
            if name in new and _number(texts, name, int) > most:
                raise ExperimentError(f"{name}={texts[name]}: at most {most:,} can be asked for here. Try {most}.")
        shown = self._chosen(texts, new)
        fields = {"source": self._scenario(texts, new)} | self._setup(texts, new)
        if "seed" in new:
            fields["seed"] = check_seed(_number(texts, "seed", int))
        spec: RunSpec = msgspec.structs.replace(self.spec, method=shown[0][1], **fields)
        if new & {"n_agents", "degree"}:
            _check_room(spec)
        title = f"{self.title.removesuffix(', changed')}, changed" if self.title and new else self.title
        kept = {name: texts[name] for name in FIELDS}
        return replace(self, shown=shown, spec=spec, title=title, kept=kept, about="")

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
            if name not in new and place < len(self.shown):
                was: Labeled | None = self.shown[place]
            else:
                was = before.get(tag)
            kind = self.known[tag]
            typed = [each for each in OF_METHODS if each in new or (was is None and texts[each])]
            given = {each: _field(kind, texts, each) for each in typed if _has(kind, each)}
            label, method = was or self.first.get(tag) or (kind.label, None)
            found.append((label, kind(**given) if method is None else msgspec.structs.replace(method, **given)))
        for name in OF_METHODS:
            if name in new and not any(_has(method, name) for _, method in found):
                named = ", ".join(tag_of(method) for _, method in found)
                raise ExperimentError(
                    f"{name}={shorten(parse_word(texts[name]))}: none of the methods ({named}) has it. "
                    "Leave it as it was."
                )
        if len(found) == 2 and found[0][1] == found[1][1]:
            raise ExperimentError(
                f"method and second method are both {texts['method']}, with the same fields: they must differ. "
                "Choose another second method, or none."
            )
        return tuple(found)

    def _scenario(self, texts: dict[str, str], new: set[str]) -> Scenario:
        scenario, fields = self.spec.source, {}
        if "n_agents" in new:
            fields["n_agents"] = _number(texts, "n_agents", int)
            if scenario.sizes is not None:
                fields["assignment"] = "random"  # sizes become proportions
        if "sigma" in new:
            fields["sigma"] = _field(Scenario, texts, "sigma")
        if "gap" in new:
            fields |= self._stretched(texts)
        return msgspec.structs.replace(scenario, **fields) if fields else scenario

    def _stretched(self, texts: dict[str, str]) -> dict[str, Any]:
        """The means of the experiment, stretched about their center so that the closest classes have this distance."""
        means, later = self.origin.means, self.origin.shift_means
        first, gap = smallest_gap(means), _number(texts, "gap", float)
        if first is None:
            raise ExperimentError(f"gap={gap:g}: there is one class only, so there is no distance. Leave it empty.")
        if not 0 <= gap < math.inf:
            raise ExperimentError(f"gap={gap:g}: a distance is at least 0 and finite. Try gap=1.")
        center, factor = (min(means) + max(means)) / 2, 1.0 if texts["gap"] == _text(first) else gap / first

        def stretch(given: Iterable[float]) -> tuple[float, ...]:
            return tuple(each if factor == 1.0 else center + (each - center) * factor for each in given)

        return {"means": stretch(means)} | ({} if later is None else {"shift_means": stretch(later)})

    def _setup(self, texts: dict[str, str], new: set[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if "degree" in new:
            if not _takes_degree(self.spec):
                graph = self.spec.parameters()["graph"]
                raise ExperimentError(
                    f"degree={texts['degree']}: the graph {graph!r} has degrees of its own. Leave it empty."
                )
            fields["degree"] = _field(Setup, texts, "degree")
        if "steps" in new:
            fields |= {"steps": _number(texts, "steps", int), "record": "all"}
        return fields


def watched_run(experiment: Experiment, *, chosen: bool = False) -> WatchedRun:
    """The first runs of the first two methods of an experiment, on the samples of the first: CL-colME, if it is there,
    and methods that collaborate; if the methods were `chosen`, the first two whatever they are."""
    every = [(each.label, each.spec) for each in experiment.planned]
    ordered = every if chosen else sorted(every, key=lambda each: each[1].method.label != REFERENCE)
    if not chosen and not all(spec.method.baseline for _, spec in every):
        ordered = [each for each in ordered if not each[1].method.baseline]
    labels = list(dict.fromkeys(label for label, _ in ordered))
    refusals: list[str] = []
    picked: list[tuple[str, RunSpec]] = []
    for label in labels:
        mine = [spec for other, spec in ordered if other == label]
        if picked:
            first = picked[0][1]
            alike = [each for each in mine if each.but("method", "seed") == first.but("method", "seed")]
            mine = [msgspec.structs.replace(first, method=each.method) for each in alike or mine]
        for spec in mine:
            try:
                spec.check()
            except ColmeError as error:
                refusals.append(f"{label}: {error}")
            else:
                picked.append((label, spec))
                break
        else:
            if chosen:  # nobody asked for less
                raise ExperimentError(refusals[-1])
        if len(picked) == 2:
            break
    if not picked:
        raise ExperimentError(refusals[0])
    known = {tag: method for tag, (method, _) in methods_by_name(experiment.modules, ExperimentError).items()}
    first_of: dict[str, Labeled] = {}
    for label, spec in [*picked, *every]:
        first_of.setdefault(tag_of(spec.method), (label, spec.method))
    return WatchedRun(
        shown=tuple((label, spec.method) for label, spec in picked), spec=picked[0][1],
        title=experiment.head.title, known=known, first=first_of, origin=picked[0][1].source,
        about=_about(picked, every),
    )  # fmt: skip


def experiment_to_watch(source: Path | str, methods: tuple[str, ...], changes: dict[str, Any]) -> Experiment:
    """An experiment from a file, a name or a folder of results, with some fields changed; if methods are given, with
    these instead of its own: as it has them, or with their defaults."""
    if not methods:
        return _titled(experiment_of(source, changes).without_expected(), changed=bool(changes.keys() - {"seeds"}))
    table = {key: value for key, value in experiment_of(source).table.items() if key != "expected"}
    entries: list[dict[str, Any]] = []
    for tag in dict.fromkeys(methods):
        entries += [each for each in table["methods"] if each["method"] == tag] or [{"method": tag}]
    folder = source if Path(source).is_dir() else find(source).parent
    made = Experiment.parse(table | {"methods": entries}, name=Path(source).stem, folder=folder, changes=changes)
    return _titled(made, changed=True)


def _titled(experiment: Experiment, *, changed: bool) -> Experiment:
    """The experiment; its title says whether it is not that of the file."""
    title = experiment.head.title
    if not (changed and title):
        return experiment
    return replace(experiment, head=msgspec.structs.replace(experiment.head, title=f"{title}, changed"))


def smallest_gap(means: Iterable[float]) -> float | None:
    """The smallest distance of two different means."""
    every = sorted(set(means))
    return min((high - low for low, high in itertools.pairwise(every)), default=None)


def tag_of(method: Method) -> str:
    """The name of a method in files."""
    return str(method.__struct_config__.tag)


def _about(picked: list[tuple[str, RunSpec]], every: list[tuple[str, RunSpec]]) -> str:
    if len(every) <= len(picked):
        return ""
    words = []
    for label, spec in picked:
        mine = [other.parameters() for name, other in every if name == label]
        swept = {name: value for name, value in spec.parameters().items() if any(o[name] != value for o in mine)}
        if case := swept.pop("case", ""):  # its name says what else it has
            fields = (*Scenario.__struct_fields__, *Setup.__struct_fields__)
            swept = {name: value for name, value in swept.items() if name not in fields}
        told = [f"{name} {_text(value)}" for name, value in swept.items() if value is not None and name != "record"]
        words.append(f"{label} ({', '.join([case, *told] if case else told)})" if case or told else label)
    seed = picked[0][1].seed
    return f"Of {len(every):,} runs you see the first of {' and of '.join(words)}, with seed {seed}."


def _takes_degree(spec: RunSpec) -> bool:
    return spec.graph in _WITH_DEGREE


def _check_room(spec: RunSpec) -> None:
    n, degree = spec.source.n_agents, spec.degree
    if spec.graph == "complete":
        degree = n - 1
    if n * (degree or 0) > MOST_NEIGHBORS_ASKED:
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
        return known.default
    words = [parse_word(word) for word in texts[name].split(",")]
    return convert_field(words[0] if len(words) == 1 else words, known.type, name)


def _number(texts: dict[str, str], name: str, kind: type) -> Any:
    """A number that must be there."""
    if not texts[name]:
        raise ExperimentError(f"{name} is empty: it must be a number. Try {name}={'1' if name == 'gap' else '100'}.")
    return convert_field(parse_word(texts[name]), kind, name)


def _text(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, tuple):
        text = ",".join(map(_text, value))
        return text if len(text) <= MOST_TEXT else _LONG
    return f"{value:.12g}" if isinstance(value, float) else str(value)


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
