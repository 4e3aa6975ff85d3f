"""What was measured, in benchmarks/peers/results.json: one cell per table, order and n, one entry per peer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.peers.beyond import RowError
from benchmarks.peers.jobs import Record
from benchmarks.peers.scaling import Cost
from benchmarks.peers.tables import IN_TIME
from benchmarks.peers.trials import difference, ratio, verdict
from benchmarks.results import rounded

RESULTS = Path(__file__).resolve().parent / "results.json"


class Entry(msgspec.Struct, frozen=True):
    """A peer in a cell; numbers are None if every fit failed, or if there is one seed only."""

    seeds: int
    failures: int = 0
    failure: str = ""
    """What the package said, the first time."""
    ratio: float | None = None
    """Error relative to the local means'."""
    ratio_se: float | None = None
    difference: float | None = None
    """Its error minus colme's, on the same draws, relative to the local means'."""
    difference_se: float | None = None
    verdict: str = ""
    """Of the peer against colme: better, tie, worse."""
    coverage: float | None = None
    width: float | None = None
    """Mean width relative to that of the local intervals."""
    cpu: float | None = None
    """The median."""


class Cell(msgspec.Struct, frozen=True):
    """All peers on the same draws."""

    table: str
    order: str
    n: int
    n_agents: int
    peers: dict[str, Entry]
    methods: dict[str, int]
    """How often colme chose each of its methods."""


class PeerResults(msgspec.Struct, frozen=True):
    """All of one run."""

    machine: dict[str, str]
    peers: dict[str, str]
    """The versions of those that were installed."""
    seeds: int
    cells: list[Cell]
    costs: list[Cost]
    beyond: list[RowError]


def cells_of(records: Iterable[Record]) -> list[Cell]:
    """Aggregate over seeds; in time order, where there is one draw, over agents."""
    found: dict[tuple[str, str, int], dict[str, dict[int, Record]]] = {}
    for record in records:
        by_peer = found.setdefault((record.job.table, record.job.order, record.job.n), {})
        by_peer.setdefault(record.job.peer, {})[record.job.seed] = record
    return [
        Cell(*name, next(iter(peers["local"].values())).n_agents,
             {peer: _entry(peers, peer, name[1]) for peer in peers},
             dict(Counter(each.remark for each in peers["colme"].values())))
        for name, peers in found.items()
        if "colme" in peers and "local" in peers
    ]  # fmt: skip


def _entry(peers: dict[str, dict[int, Record]], peer: str, order: str) -> Entry:
    own = peers[peer]
    failed = [each for each in own.values() if each.failure]
    seeds = sorted(
        seed
        for seed, each in own.items()
        if all(rest.get(seed) and not rest[seed].failure for rest in (own, peers["colme"], peers["local"]))
    )
    words = {"failures": len(failed), "failure": failed[0].failure if failed else ""}
    if not seeds:
        return Entry(len(own), **words)  # type: ignore[arg-type]

    def draws(name: str) -> np.ndarray:
        if order == IN_TIME:
            return np.array(peers[name][seeds[0]].losses)
        return np.array([peers[name][seed].error for seed in seeds])

    against = ratio(draws(peer), draws("local"))
    beside = difference(draws(peer), draws("colme"), draws("local"))
    covered = [each for seed in seeds if (each := own[seed].covered) is not None]
    widths = [(own[seed].width or 0.0, peers["local"][seed].width or 0.0) for seed in seeds]
    return Entry(
        len(own), **words, ratio=against.value, ratio_se=_known(against.se), difference=beside.value,
        difference_se=_known(beside.se), verdict="" if peer == "colme" else verdict(beside),
        coverage=float(np.mean(covered)) if covered else None,
        width=float(np.sum(widths, 0)[0] / np.sum(widths, 0)[1]) if covered else None,
        cpu=float(np.median([each.cpu for each in own.values()])),
    )  # type: ignore[arg-type]  # fmt: skip


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def write(results: PeerResults) -> None:
    content = msgspec.json.encode(rounded(msgspec.to_builtins(results)))
    RESULTS.write_bytes(msgspec.json.format(content, indent=1) + b"\n")


def read() -> PeerResults:
    try:
        return msgspec.json.decode(RESULTS.read_bytes(), type=PeerResults)
    except FileNotFoundError:
        raise SystemExit("benchmarks/peers/results.json does not exist. Run: python -m benchmarks.peers") from None
    except msgspec.DecodeError as error:
        raise SystemExit(
            f"benchmarks/peers/results.json cannot be read: {error}. Run: python -m benchmarks.peers"
        ) from None
