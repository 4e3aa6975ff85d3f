"""Live views of an experiment's runs: which of them are shown, and how many frames a page has."""

from __future__ import annotations

from collections.abc import Sequence

from colme.lab.experiments.planning import Planned
from colme.live.simulation import MOST_AGENTS, N_FRAMES, PART, SimulationFeed, frame_steps

MOST_PANELS = 4
"""Methods side by side."""
_PAGE = 2_600_000
"""Bytes of a recording in a page, about; with the renderer it stays below 3 MB."""
_FEWEST_FRAMES = 24


def shown_together(planned: Sequence[Planned]) -> list[Planned]:
    """The runs of one view: those of the first seed on the first scenario and graph, at most four methods."""
    first = planned[0].setting
    alike = [
        each for each in planned
        if (each.setting.scenario, each.setting.setup, each.setting.seed) == (first.scenario, first.setup, first.seed)
    ]  # fmt: skip
    return alike[:MOST_PANELS]


def feed_of(planned: Sequence[Planned], *, frames: int | None = None, title: str = "") -> SimulationFeed:
    """A feed of runs that have the same samples (`shown_together`); frames: by default as many as a page can hold."""
    setting = planned[0].setting
    n_frames = fitting_frames(setting.scenario.n_agents, len(planned)) if frames is None else frames
    options = {name: value for name, value in setting.options().items() if name != "record"}
    labels = [each.label for each in planned]
    if len(set(labels)) < len(labels):
        labels = [repr(each.setting.method) for each in planned]
    return SimulationFeed(
        [each.setting.method for each in planned], setting.scenario, frame_steps(setting.setup.steps, n_frames),
        seed=setting.seed, title=title, labels=labels, **options,
    )  # fmt: skip


def fitting_frames(n_agents: int, n_methods: int) -> int:
    """Frames of which a page stays below 3 MB; at least 24, of which the page of many agents may be larger."""
    sent = n_agents if n_agents <= MOST_AGENTS else PART
    per_frame = (4 / 3) * (sent * (1.0 + 2.2 * n_methods) + 2000 * n_methods)
    return max(_FEWEST_FRAMES, min(N_FRAMES, int(_PAGE / per_frame)))
