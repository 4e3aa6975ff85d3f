"""Report and status of a host of many agents, and the file of their estimates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from colme._core.files import write_text
from colme.errors import RunError

if TYPE_CHECKING:
    from colme.node.config.node_toml import NodeConfig
    from colme.node.hosts.host import HostCore

Report = Callable[[dict[str, Any]], None]


def report_of_host(device: Any) -> dict[str, Any]:
    """All agents in one line. Fields of a single agent are None; the file `host.estimates` has them."""
    core: HostCore = device.core
    return {
        "name": core.name,
        "tick": core.epoch,
        "samples": int(core.count.sum()),
        "mean": None,
        "radius": None,
        "estimate": None,
        "neighbors": float(core.alive.sum() / core.n_agents),
        "cut": int((~core.alive).sum()),
        "agents": core.n_agents,
        "moved": device.moved,
    }


def status_of_host(device: Any, now: float) -> dict[str, Any]:
    """Everything there is to know about a running host, except for the estimates."""
    core: HostCore = device.core
    graph, present = core.graph, device.transport.present()
    wanted = core.wanted
    fresh = core.fresh(now) & wanted
    rows = []
    for host, span in graph.spans.items():
        last = core.heard_at[span].max()
        marks = [mark for (name, _), mark in core.links.marks.items() if name == host]
        rows.append(
            {
                "name": host,
                "fresh": bool(fresh[span].sum() == wanted[span].sum()),
                "present": host in present,
                "age": None if np.isinf(last) else now - last,
                "incarnation": max(marks)[0] if marks else None,
                "agents": int(wanted[span].sum()),
                "fresh_agents": int(fresh[span].sum()),
            }
        )
    return report_of_host(device) | {
        "method": msgspec.to_builtins(core.method),
        "incarnation": core.incarnation,
        "fresh": int(fresh.sum()),
        "refused": dict(core.refused),
        "cut_names": [],
        "neighbor_rows": rows,
    }


def write_estimates(core: HostCore, path: str) -> None:
    """Write agent, samples, mean, radius and estimate of all agents of this host, atomically."""
    columns = (core.count, core.mean, core.radius[: core.n_agents], core.estimate)
    rows = zip(range(core.n_agents), *(column.tolist() for column in columns), strict=True)
    lines = [f"{a},{n},{mean!r},{radius!r},{estimate!r}" for a, n, mean, radius, estimate in rows]
    write_text(Path(path), "\n".join(["agent,samples,mean,radius,estimate", *lines]) + "\n")


def with_estimates(report: Report, core: HostCore, config: NodeConfig, say: Callable[[str], None]) -> Report:
    """Wrap `report`: with each report the estimates are written to their file, if one is configured. If that fails, the
    first failure is reported, and the agents go on."""
    path, told = config.host.estimates if config.host else "", False

    def both(status: dict[str, Any]) -> None:
        nonlocal told
        report(status)
        if path:
            try:
                write_estimates(core, path)
            except RunError as error:
                if not told:
                    say(f"{error} Until then there are no new estimates in it.")
                told = True

    return both
