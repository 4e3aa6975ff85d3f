"""Graphs from files: edge lists, NumPy archives, and the formats that networkx reads.

    .edges .txt .csv .tsv     two agents per line, with commas or blanks; # begins a comment; one heading is skipped
    .npz                      arrays indptr and indices, as in `colme.Graph` (scipy.sparse.save_npz writes them)
    .graphml .gml .adjlist      through networkx

Agents are 0..n_agents-1. A networkx file whose nodes have other names is numbered in the order of the file.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from colme import graphs
from colme.errors import ColmeError, ExperimentError, GraphError, missing_extra
from colme.graphs import Graph

EDGE_LISTS = (".edges", ".txt", ".csv", ".tsv")
NETWORKX = {".graphml": "read_graphml", ".gml": "read_gml", ".adjlist": "read_adjlist"}
ENDINGS = (*EDGE_LISTS, ".npz", *NETWORKX)


def is_graph_file(name: str) -> bool:
    """Whether the value of `graph` names a file and not a family of graphs."""
    return "." in name or "/" in name


def find_graph(name: str, folder: Path, where: str = "the current folder") -> str:
    """The absolute path of a graph file that is named relative to a folder."""
    path = folder / name
    if path.suffix.lower() not in ENDINGS:
        raise GraphError(f"graph={name!r}: it must end in one of {', '.join(ENDINGS)}. Convert the file.")
    if not path.is_file():
        remedy = "Check the path." if Path(name).is_absolute() else f"Paths are relative to {where}."
        raise GraphError(f"graph={name!r}: there is no such file. {remedy}")
    return str(path.resolve())


def check_graph_names(files: Iterable[str]) -> None:
    """Refuse two graph files of one name: results call a graph by the name of its file."""
    seen: dict[str, str] = {}
    for file in files:
        if file and seen.setdefault(Path(file).name, file) != file:
            raise ExperimentError(f"two graph files are called {Path(file).name}: their names must differ. Rename one.")


def digest_of(path: str) -> str:
    """The hash of the contents of a graph file: it identifies the graph in the name of a run."""
    return _digest(path, _stamp(path))


def read_graph(path: str, n_agents: int) -> Graph:
    """The graph in a file, for this number of agents (an edge list does not mention agents without edges)."""
    return _graph(path, n_agents, _stamp(path))


def _stamp(path: str) -> tuple[int, int]:
    """Changes when the file does, so that what was read before is not used again."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise GraphError(f"cannot read the graph file {path}: {error.strerror}. Check the path.") from None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=64)
def _digest(path: str, stamp: tuple[int, int]) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


@lru_cache(maxsize=8)
def _graph(path: str, n_agents: int, stamp: tuple[int, int]) -> Graph:
    file = Path(path)
    try:
        graph = _read(file, n_agents)
    except (ColmeError, OSError) as error:
        raise GraphError(f"{file.name}: {error}") from None
    if graph.n_agents != n_agents:
        raise GraphError(
            f"{file.name}: the graph has {graph.n_agents} agents and the scenario {n_agents}: they must be the same. "
            f"Try n_agents = {graph.n_agents}."
        )
    return graph


def _read(file: Path, n_agents: int) -> Graph:
    ending = file.suffix.lower()
    if ending in EDGE_LISTS:
        edges = _edge_list(file.read_text(encoding="utf-8", errors="replace"))
        if edges.min() == 1 and edges.max() == n_agents:
            raise GraphError(
                f"the agents are numbered 1..{n_agents}: they must be numbered from 0. Subtract 1 from every number."
            )
        return graphs.from_edges(edges, n_agents)
    if ending == ".npz":
        return _npz(file)
    return _networkx(file, NETWORKX[ending])


def _edge_list(text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The edges in the text, at least one. Its first line that is not empty may be the heading of a table."""
    pairs: list[tuple[int, int]] = []
    first = True
    for number, line in enumerate(text.splitlines(), start=1):
        words = [word for word in re.split(r"[,;\s]+", line.partition("#")[0].strip()) if word]
        if not words:
            continue
        try:
            a, b = (int(word) for word in words)
        except ValueError:
            if first and len(words) == 2 and not any(re.match(r"[-+.]?\d", word) for word in words):
                first = False
                continue
            raise GraphError(f"line {number} is {line.strip()!r}: it must be two agents, such as 0 1.") from None
        first = False
        pairs.append((a, b))
    if not pairs:
        raise GraphError("it has no edge: every line must be two agents, such as 0 1.")
    return np.array(pairs, np.int64)


def _npz(file: Path) -> Graph:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return Graph(arrays["indptr"], arrays["indices"])
    except (KeyError, ValueError, OSError) as error:
        if isinstance(error, ColmeError):
            raise
        raise GraphError("it does not hold the arrays indptr and indices. Try scipy.sparse.save_npz.") from None


def _networkx(file: Path, reader: str) -> Graph:
    try:
        import networkx
    except ImportError:
        raise missing_extra("networkx", "graph", f"reading {file.suffix} files") from None
    try:
        found = networkx.Graph(getattr(networkx, reader)(file))
    except Exception as error:  # every reader complains in its own way
        raise GraphError(f"networkx cannot read it: {type(error).__name__}: {error}.") from None
    names = {node: str(node) for node in found}
    if set(names.values()) == {str(k) for k in range(len(names))}:
        found = networkx.relabel_nodes(found, {node: int(name) for node, name in names.items()})
    else:
        found = networkx.convert_node_labels_to_integers(found)
    return graphs.from_networkx(found)
