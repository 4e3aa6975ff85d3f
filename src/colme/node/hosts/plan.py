"""The plan of a fleet with many agents per host: the neighbors of each, on its own host and on others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colme.errors import NodeError, whole
from colme.graphs import Graph, from_edges, random_regular_graph
from colme.method import Method
from colme.node.config.presets import default_degree
from colme.node.hosts.frame import HELLO, LOANS
from colme.node.hosts.graph import split
from colme.node.hosts.links import HostLinks

AGENTS, ESTIMATES = "agents.csv", "estimates.csv"


class ManyAgents:
    """The same number of agents on each host, with random neighbors on all hosts."""

    def __init__(self, names: Sequence[str], agents: int, method: Method, *, degree: int | None = None, seed: int = 0):
        n = len(names) * whole(agents, "agents", "agents=1000", NodeError)
        if degree is None:
            degree = default_degree(n)
        graph = random_regular_graph(n, degree, rng=seed)
        owner = np.repeat(np.arange(len(names)), agents)
        self.graphs, _ = split(graph, owner.tolist(), names)
        self.names = list(names)
        pairs = np.unique(owner[graph.edges()], axis=0)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        self.between_hosts: Graph = from_edges(pairs, len(names))
        kind = LOANS if getattr(method, "consensus", "") == "flow" else HELLO
        parts = [
            HostLinks(each, name, kind, silent=method.baseline).n_parts
            for each, name in zip(self.graphs, names, strict=True)
        ]
        self.table: dict[str, Any] = {
            "n_agents": n,
            "n_edges": max(1, graph.n_edges),
            "host": {"agents": AGENTS, "estimates": ESTIMATES, "parts": max(1, *parts)},
        }

    def write(self, folder: Path) -> None:
        """Write the list of agents into the folder of each host."""
        for name, graph in zip(self.names, self.graphs, strict=True):
            graph.write(folder / name / AGENTS)
