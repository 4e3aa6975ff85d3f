"""What was measured, one file for each family of processors, and the ratios that were accepted: baseline.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks import machine
from benchmarks.goals import GOALS
from benchmarks.measuring import Measured
from benchmarks.methods import RunTime
from benchmarks.sizes import Cost

FOLDER = Path(__file__).resolve().parent
BASELINE = FOLDER / "baseline.json"

QUIET = 1.7
"""Load up to which nobody else is at work: one is ours, and two threads are measured for a moment."""


class Results(msgspec.Struct, frozen=True):
    """All of one run of the benchmarks."""

    machine: dict[str, str]
    load: tuple[float, float] | None
    """Least and most processes that wanted to run meanwhile, ours included; None: the system does not say."""
    table: dict[str, Measured]
    sizes: list[Cost] = []
    methods: list[RunTime] = []
    remark: str = ""
    """What else a reader must know of how this was measured, in whole sentences."""

    @property
    def processor(self) -> str:
        return self.machine["processor"]

    @property
    def family(self) -> str:
        return machine.family(self.processor)

    @property
    def quiet(self) -> bool:
        """Nobody else was at work, as far as the system says."""
        return self.load is None or self.load[1] <= QUIET


class Baseline(msgspec.Struct, frozen=True):
    """Ratios that later ones are compared with."""

    machine: dict[str, str]
    ratios: dict[str, float]


def checked_ratios(table: dict[str, Measured]) -> dict[str, float]:
    """Of the rows, those that the regression check looks at."""
    return {key: table[key].value for key, goal in GOALS.items() if key in table and goal.checked}


def write(path: Path, thing: Results | Baseline) -> None:
    content = msgspec.json.encode(rounded(msgspec.to_builtins(thing)))
    path.write_bytes(msgspec.json.format(content, indent=1) + b"\n")


def rounded(thing: Any) -> Any:
    """Four digits are more than anybody can measure again."""
    if isinstance(thing, dict):
        return {name: rounded(value) for name, value in thing.items()}
    if isinstance(thing, list):
        return [rounded(value) for value in thing]
    return float(f"{thing:.4g}") if isinstance(thing, float) else thing


def results_path(family: str) -> Path:
    """results_amd.json, results_intel.json, ..."""
    return FOLDER / f"results_{family.lower()}.json"


def read_results() -> Results:
    """The last ones of this machine's family of processors."""
    return _read(results_path(machine.family(machine.processor())), Results)


def read_all_results() -> list[Results]:
    """The last ones of every family, the newest first."""
    found = [_read(path, Results) for path in sorted(FOLDER.glob("results_*.json"))]
    if not found:
        raise SystemExit("There is no benchmarks/results_*.json. Run: python -m benchmarks")
    return sorted(found, key=lambda results: results.machine.get("measured", ""), reverse=True)


def read_baseline() -> Baseline:
    found = _read(BASELINE, Baseline)
    known = {key: ratio for key, ratio in found.ratios.items() if key in GOALS and GOALS[key].checked}
    return Baseline(found.machine, known)


File = TypeVar("File", Results, Baseline)


def _read(path: Path, kind: type[File]) -> File:
    remedy = "Run: python -m benchmarks" + (" --accept" if kind is Baseline else "")
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise SystemExit(f"benchmarks/{path.name} does not exist. {remedy}") from None
    except msgspec.DecodeError as error:
        raise SystemExit(f"benchmarks/{path.name} cannot be read: {error}. {remedy}") from None
