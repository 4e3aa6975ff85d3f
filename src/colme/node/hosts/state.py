"""The saved state of a host, as bytes: numbers and arrays, see `colme.node.state`."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from colme.confidence import scale_errors
from colme.errors import CheckpointError
from colme.node.state import check_same, freeze, from_bytes, thaw, to_bytes

if TYPE_CHECKING:
    from colme.node.hosts.host import HostCore


def freeze_host(core: HostCore) -> bytes:
    n, links = core.n_agents, core.links
    arrays = {
        "count": core.count, "mean": core.means[:n], "radius": core.radius[:n], "estimate": core.estimates,
        "restart": core.restart[:n], "generation": core.generation[:n], "alive": np.packbits(core.alive),
        "known": np.packbits(links.known),
    }  # fmt: skip
    if core.flows is not None:
        arrays["flows"] = core.flows
    return to_bytes(
        _identity(core)
        | {
            "t": core.t,
            "believed": [core.believed, core.believed_at],
            "marks": [[host, part, *mark] for (host, part), mark in links.marks.items()],
            "arrays": freeze(SimpleNamespace(**arrays), tuple(arrays)),
        }
    )


def thaw_host(core: HostCore, raw: bytes) -> None:
    saved = from_bytes(raw)
    check_same(saved, _identity(core))
    try:
        found = SimpleNamespace()
        thaw(found, tuple(saved["arrays"]), saved["arrays"])
        n, n_slots = core.n_agents, len(core.slots)
        alive, known = (np.unpackbits(bits, count=n_slots).astype(bool) for bits in (found.alive, found.known))
        marks = {(str(host), int(part)): (int(i), int(e), int(t)) for host, part, i, e, t in saved["marks"]}
        core.t = int(saved["t"])
        core.believed, core.believed_at = map(int, saved["believed"])
        core.count[:], core.means[:n], core.radius[:n] = found.count, found.mean, found.radius
        if core.spread is not core.radius:
            scale_errors(core.spread[:n], core.count, core._scale)
        core.estimates[:], core.heard[:n] = found.estimate, found.estimate
        core.restart[:n], core.generation[:n] = found.restart, found.generation
        if core.flows is not None:
            core.flows[:] = found.flows
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the saved state of {core.name!r} is torn ({error}). Use another store.") from None
    core.slots[:] = np.where(alive, core.graph.ends, core.graph.rows)
    core.degree[:n] = np.bincount(core.graph.rows[alive], minlength=n)
    core.links.known[:], core.links.marks = known, marks
    core.links.resume(alive)


def _identity(core: HostCore) -> dict[str, Any]:
    graph = core.graph
    digest = hashlib.blake2b(digest_size=8)
    for part in (graph.indptr, graph.ends, graph.ghost_host, graph.ghost_number):
        digest.update(part.tobytes())
    digest.update("/".join(graph.hosts).encode())
    return {
        "name": core.name,
        "method": msgspec.json.encode(core.method).decode(),
        "origin": core.origin,
        "edges": f"{graph.n_agents} agents, {digest.hexdigest()}",
    }
