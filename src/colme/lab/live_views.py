"""Live views of an experiment's runs: which of them are shown, and how many frames a page has."""

from __future__ import annotations

from collections.abc import Sequence

from colme.lab.experiments.planning import Planned
from colme.live.page import compressed
from colme.live.replay import MOST_PANELS
from colme.live.simulation import N_FRAMES, SimulationFeed, messages_of

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
    start, *frames, last = messages_of(feed)
    while len(compressed([start, *frames, last])) > MOST_RECORDED and len(frames) > 2:
        frames = [*frames[:-1:2], frames[-1]]
    return [start, *frames, last]
