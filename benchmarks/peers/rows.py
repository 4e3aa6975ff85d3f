"""What was measured, as rows of text: for the terminal and for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from benchmarks.peers.estimators import PEERS
from benchmarks.peers.results import Cell, Entry, PeerResults
from benchmarks.peers.tables import IN_TIME, MADE, REAL, SHUFFLED, TABLES
from benchmarks.peers.trials import SMALL

WITH_INTERVALS = ("colme", "local", "gpboost", "MixedLM", "lme4")
TIMED = ("arrivals", "hind feet", "InstEval", "Hsb82")
"""Real tables whose CPU seconds are listed."""
MARK = {"better": "<", "tie": "=", "worse": "", "": "?"}
Rows = tuple[list[str], list[list[str]]]
"""A head and a body."""


def number(value: float | None) -> str:
    """.081, 1.23, 12.3, 865: as many digits as can be read."""
    if value is None:
        return ""
    if abs(value) >= 99.5:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if abs(value) >= 9.95 else f"{value:.2f}" if abs(value) >= 0.9995 else f"{value:.3f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def ratio_words(entry: Entry | None) -> str:
    """A ratio with its standard error."""
    if entry is None or not entry.seeds:
        return ""
    if entry.ratio is None:
        return "failed"
    se = f" ({number(entry.ratio_se)})" if entry.ratio_se else ""
    return f"{number(entry.ratio)}{se}"


def _marked(name: str, entry: Entry | None) -> str:
    if entry is None or entry.ratio is None or name in ("colme", "local"):
        return ratio_words(entry)
    mark = MARK[entry.verdict]
    return f"{mark} {ratio_words(entry)}" if mark else ratio_words(entry)


def cells_of(results: PeerResults, tables: Iterable[str], order: str | None = None) -> list[Cell]:
    return [cell for cell in results.cells if cell.table in tables and order in (None, cell.order)]


def _others(results: PeerResults) -> list[str]:
    return [name for name in PEERS if name in results.peers and name != "colme"]


def verdict_rows(results: PeerResults) -> list[tuple[str, ...]]:
    """peer, and for real and made tables: colme is more accurate, ties, less accurate, of these by at least SMALL."""
    found = []
    for peer in _others(results):
        row = [peer]
        for tables in (REAL, MADE):
            entries = [cell.peers[peer] for cell in cells_of(results, tables) if peer in cell.peers]
            seen = Counter(entry.verdict for entry in entries)
            much = {
                verdict: sum(entry.verdict == verdict and abs(entry.difference or 0.0) >= SMALL for entry in entries)
                for verdict in ("worse", "better")
            }
            row += [f"{seen['worse']} ({much['worse']})", str(seen["tie"]), f"{seen['better']} ({much['better']})"]
        found.append(tuple(row))
    return found


def loss_rows(results: PeerResults) -> list[tuple[str, ...]]:
    """Every cell in which a peer is ahead by two standard errors and by SMALL: where, agents, colme, the peers."""
    found = []
    for cell in results.cells:
        ahead = [
            (entry.ratio or 0.0, f"{peer} {ratio_words(entry)}")
            for peer, entry in cell.peers.items()
            if entry.verdict == "better" and abs(entry.difference or 0.0) >= SMALL
        ]
        if ahead:
            chosen = ", ".join(f"{method} {times}" for method, times in Counter(cell.methods).most_common())
            own = f"{ratio_words(cell.peers['colme'])}: {chosen}"
            found.append((where(cell), str(cell.n_agents), own, ", ".join(words for _, words in sorted(ahead))))
    return found


def where(cell: Cell) -> str:
    """The cell in words."""
    return cell.table + (f", n = {cell.n}" if cell.n else "") + (", time order" if cell.order == IN_TIME else "")


def error_rows(results: PeerResults, table: str, order: str) -> Rows:
    """A row for each peer, a column for each n."""
    cells = cells_of(results, [table], order)
    head = ["", *(f"n = {cell.n} ({cell.n_agents} agents)" for cell in cells)]
    body = [
        [name, *(_marked(name, cell.peers.get(name)) for cell in cells)]
        for name in PEERS
        if name in results.peers and name != "local"
    ]
    return head, body


def made_rows(results: PeerResults) -> Rows:
    """A row for each world, a column for each peer."""
    names = [name for name in PEERS if name in results.peers and name != "local"]
    body = [[cell.table, *(_marked(name, cell.peers.get(name)) for name in names)] for cell in cells_of(results, MADE)]
    return ["", *names], body


def interval_rows(results: PeerResults) -> Rows:
    """Coverage and relative width of the peers that have intervals; a row for each table and order, with all n."""
    names = [name for name in WITH_INTERVALS if name in results.peers]
    wide = [name for name in names if name != "local"]
    body = []
    for table in TABLES:
        for order in (SHUFFLED, IN_TIME):
            cells = cells_of(results, [table], order)
            if cells:
                counts = " / ".join(str(cell.n) for cell in cells) if cells[0].n else ""
                body.append([
                    table + (", time order" if order == IN_TIME else ""), counts,
                    *(_shares(cells, name, "coverage") for name in names),
                    *(_shares(cells, name, "width") for name in wide),
                ])  # fmt: skip
    return ["", "n", *(f"{name}: covered" for name in names), *(f"{name}: width / local" for name in wide)], body


def _shares(cells: list[Cell], peer: str, field: str) -> str:
    """A number for each n, with two digits: .90 / .89."""
    found = [getattr(cell.peers[peer], field) if peer in cell.peers else None for cell in cells]
    return " / ".join("-" if each is None else f"{each:.2f}".removeprefix("0") for each in found)


def cost_rows(results: PeerResults) -> Rows:
    """CPU seconds and megabytes; a row for each peer."""
    sizes = sorted({cost.n_agents for cost in results.costs})
    by = {(cost.peer, cost.n_agents): cost for cost in results.costs}
    body = []
    for name in PEERS:
        if name not in results.peers:
            continue
        row = [name]
        for size in sizes:
            cost = by.get((name, size))
            row.append("" if cost is None else cost.failure or f"{_seconds(cost.cpu)}{_megabytes(cost.memory)}")
        largest = [cost for size in sizes if (cost := by.get((name, size))) and cost.ratio is not None]
        body.append([*row, number(largest[-1].ratio) if largest else ""])
    return ["", *(f"{size:,} agents" for size in sizes), "error / local"], body


def _seconds(cpu: float | None) -> str:
    return "" if cpu is None else "under .01 s" if cpu < 0.01 else f"{number(cpu)} s"


def _megabytes(memory: float | None) -> str:
    return "" if memory is None else f", {memory / 2**20:,.0f} MB"


def fit_rows(results: PeerResults) -> Rows:
    """Median CPU seconds of a fit on some real tables; a row for each peer."""
    cells = [cell for cell in cells_of(results, TIMED, SHUFFLED) if cell.n in (5, 20)]
    head = ["", *(f"{cell.table}, n = {cell.n} ({cell.n_agents} agents)" for cell in cells)]
    body = [
        [name, *(_seconds(cell.peers[name].cpu) if name in cell.peers else "" for cell in cells)]
        for name in PEERS
        if name in results.peers
    ]
    return head, body


def failure_lines(results: PeerResults) -> list[str]:
    """Which fits failed, with the words of the package."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in results.cells:
        for peer, entry in cell.peers.items():
            if entry.failures:
                words = f"{where(cell)} ({entry.failures} of {entry.seeds})"
                found.setdefault((peer, entry.failure), []).append(words)
    return [f'- {peer}, "{words}": {"; ".join(cells)}\n' for (peer, words), cells in found.items()]
