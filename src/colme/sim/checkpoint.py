"""Checkpoints of a run. That of a plain run is one file. A team writes one file per worker, its part, and then the
checkpoint itself, which names them: a crash leaves the old checkpoint with its parts, or the new one.

Parts hold rows by agent (`colme.support.saved`), so that a run can be continued by another number of workers.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

from colme._core.team import Neighborhood
from colme.errors import CheckpointError, shorten
from colme.graphs import row_ends
from colme.support.arrays import Array
from colme.support.files import nothing_missing, read_arrays, write_arrays
from colme.support.saved import COMMON

FORMAT, PART_FORMAT = "colme checkpoint 1", "colme checkpoint part 1"

Arrays = dict[str, Array]


def write_checkpoint(
    path: Path, block: Neighborhood, configuration: dict[str, Any], common: Arrays, own: Arrays, split: dict[str, str]
) -> None:
    """Write what all workers have in common, and each its own arrays."""
    team = block.team
    head: dict[str, Any] = {"configuration": configuration, "split": split}
    if team.size == 1:
        write_arrays(path, FORMAT, head, common | own)
        return
    names = [f"{path.name}.{common['t']}.part{rank}-of-{team.size}" for rank in range(team.size)]
    with together(block):
        write_arrays(path.with_name(names[team.rank]), PART_FORMAT, {"t": int(common["t"])}, own)
    with together(block):
        if team.rank == 0:
            ends = [[name, block.ends[rank], block.ends[rank + 1]] for rank, name in enumerate(names)]
            write_arrays(path, FORMAT, head | {"parts": ends}, common)
            for old in path.parent.glob(f"{path.name}.*.part*"):
                if old.name not in names:
                    with contextlib.suppress(OSError):
                        old.unlink()


def read_checkpoint(path: Path, block: Neighborhood, configuration: dict[str, Any]) -> Arrays:
    """What a worker needs to continue, whoever wrote it."""
    with together(block):
        head, arrays = read_arrays(path, FORMAT)
        _check_same(path, head.get("configuration", {}), configuration)
        split = head["split"]
        if "parts" not in head:
            parts = [(0, block.n_agents, arrays)]
        else:
            parts = [
                (first, end, read_arrays(path.with_name(name), PART_FORMAT)[1]) for name, first, end in head["parts"]
                if first < block.first + block.n_own and block.first < end
            ]  # fmt: skip
        with nothing_missing(path):
            found = _join(parts, block, split)
    return arrays | found


def _check_same(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    different = [key for key in ours if theirs.get(key) != ours[key]]
    if different:
        key = different[0]
        raise CheckpointError(
            f"{path.name} belongs to another run: its {key} is {shorten(theirs.get(key))}, here it is "
            f"{shorten(ours[key])}. Use another checkpoint or delete it."
        )


def _join(parts: list[tuple[int, int, Arrays]], block: Neighborhood, split: dict[str, str]) -> Arrays:
    """The arrays of the own agents, from those of the parts."""
    if [(first, end) for first, end, _ in parts] == [(block.first, block.first + block.n_own)]:
        return parts[0][2]
    found: Arrays = {}
    pools = {rule for rule in split.values() if rule.endswith(".row")}
    for name in parts[0][2]:
        rule = split.get(name)
        if rule == COMMON or name in _RECORDED:
            found[name] = parts[0][2][name]
            continue
        rows, pool = [], 0
        for first, end, arrays in parts:
            values = arrays[name]
            low, high = max(block.first, first) - first, min(block.first + block.n_own, end) - first
            if rule in pools:
                rows.append(values)
                continue
            if rule is not None:  # so many rows per agent
                ends = row_ends(arrays[rule])
                low, high = int(ends[low]), int(ends[high])
            rows.append(values[low:high])
            if name in pools:
                rows[-1] = np.where(rows[-1] < 0, rows[-1], rows[-1] + pool)
                pool += len(arrays[next(key for key, value in split.items() if value == name)])
        found[name] = np.concatenate(rows)
    return found


_RECORDED = ("t", "steps", "of_method", "of_run")
"""In the file of a plain run, what is common to all agents."""


@contextlib.contextmanager
def together(block: Neighborhood) -> Any:
    """If an error of ours ends the work of one worker, it ends that of all, with the same words."""
    failure: CheckpointError | None = None
    try:
        yield
    except CheckpointError as error:
        failure = error
    if block.team.size > 1:
        words = np.frombuffer(f"{failure}\n".encode() if failure else b"", np.uint8)
        said = block.team.gather(words).tobytes().decode()
        if said and failure is None:
            failure = CheckpointError(said.partition("\n")[0])
    if failure is not None:
        raise failure
