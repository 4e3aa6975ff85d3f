"""Every kind of file that outlives its process: a later version is refused with "upgrade", a torn one in its sentence,
and nothing is ever half-written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

import colme
from colme import CLColME, CollaborativeMean
from colme.data import partials
from colme.errors import ColmeError
from colme.online.files import FORMAT as MODEL
from colme.sim.checkpoint import FORMAT as CHECKPOINT
from colme.sim.trace import FORMAT as TRACE
from colme.support.files import read_arrays, write_arrays, write_whole

SCENARIO = colme.Scenario(n_agents=8, means=(0.0, 2.0), sigma=1.0)


class Kind(NamedTuple):
    form: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    lost: str
    """What a torn file lacks; empty: it is only cut short."""
    has_method: bool


def save_model(path: Path) -> None:
    model = CollaborativeMean(CLColME(sigma=1.0, clock="own"), degree=2)
    model.learn_many(agent=np.arange(40) % 8, value=np.arange(40.0))
    model.save(path)


def simulate(path: Path) -> colme.Trace:
    return colme.simulate(CLColME(clock="own"), SCENARIO, degree=2, steps=5, checkpoint=path)


def save_moments(path: Path) -> None:
    table = partials.partial_moments({"who": ["a", "a", "b"], "x": [1.0, 3.0, 5.0]}, agent="who", value="x", seed=0)
    write_whole(path, partials.written_moments(table))


KINDS = {
    "trace": Kind(
        TRACE, lambda path: colme.simulate(CLColME(clock="own"), SCENARIO, degree=2, steps=5).save(path),
        colme.Trace.load, "mse", True,
    ),
    "model": Kind(MODEL, save_model, CollaborativeMean.load, "agents.mean", True),
    "checkpoint": Kind(CHECKPOINT, simulate, simulate, "", False),
    "moments": Kind(partials.FORMAT, save_moments, lambda path: colme.estimate(path), "", False),
}  # fmt: skip
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def rewrite(path: Path, form: str, kind: Kind, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """The same file with another format, and a change of its head and arrays."""
    if kind.form != partials.FORMAT:
        head, arrays = read_arrays(path, kind.form)
        change(head, arrays)
        write_arrays(path, form, head, arrays)
        return
    table = partials.read_moments_file(path)
    about = msgspec.json.decode(table.schema.metadata[b"colme.moments"]) | {"format": form}
    change(about, {})
    path.write_bytes(
        partials.written_moments(table.replace_schema_metadata({"colme.moments": msgspec.json.encode(about)}))
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.arrow"


@kinds
def test_a_later_version_says_upgrade(kind: Kind, path: Path) -> None:
    kind.write(path)
    name, _, version = kind.form.rpartition(" ")
    later = f"{name} {int(version) + 1}"
    rewrite(path, later, kind, lambda head, arrays: (head.clear(), head.update({"format": later}), arrays.clear()))
    with pytest.raises(ColmeError, match=rf"'{later}' where '{kind.form}' is the newest known here\. Upgrade colme\."):
        kind.read(path)


@pytest.mark.parametrize("fields", [{"clock": "window"}, {"horizon": 3}], ids=str)
@pytest.mark.parametrize("kind", [each for each in KINDS.values() if each.has_method], ids=lambda each: each.form)
def test_a_method_of_a_later_version_says_upgrade(kind: Kind, path: Path, fields: dict[str, Any]) -> None:
    kind.write(path)
    rewrite(path, kind.form, kind, lambda head, arrays: head["method"].update(fields))
    with pytest.raises(ColmeError, match=rf"needs a later version of colme: .*{next(iter(fields))}.* Upgrade colme\.$"):
        kind.read(path)


@kinds
def test_a_torn_file_is_refused_in_a_sentence(kind: Kind, path: Path) -> None:
    kind.write(path)
    good = path.read_bytes()
    for end in (0, 10, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:end])
        with pytest.raises(ColmeError, match=r"file.arrow (is torn or is not|is damaged|cannot be read|holds no)"):
            kind.read(path)
    if kind.lost:
        path.write_bytes(good)
        rewrite(path, kind.form, kind, lambda head, arrays: arrays.pop(kind.lost))
        with pytest.raises(ColmeError, match=rf"is torn: it has no '{kind.lost}'\. Delete it and start anew\."):
            kind.read(path)


@kinds
@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_nothing_is_half_written(kind: Kind, path: Path, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind.write(path)
    good = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(ColmeError, match=r"No space left on device\. Choose a folder with room"):
        kind.write(path)
    assert path.read_bytes() == good and os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("kind", [KINDS["trace"], KINDS["model"]], ids=["trace", "model"])
def test_names_are_saved_and_only_what_differs_from_the_default(kind: Kind, path: Path) -> None:
    kind.write(path)
    head, arrays = read_arrays(path, kind.form)
    fields = {"sigma": 1.0} if kind is KINDS["model"] else {}
    assert head["method"] == {"method": "cl-colme", "clock": "own"} | fields
    assert head.get("fields", {"degree": 2}) == {"degree": 2}
    assert all(array.dtype.kind in "biuf" for array in arrays.values())  # no pickle
