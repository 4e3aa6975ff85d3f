"""A script for ranks of MPI: `simulate` a few methods in this process' ranks and print a digest of all bits of the
traces, from the first rank. Arguments: those of `digests`, as JSON."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import colme

SCENARIOS: dict[str, dict[str, Any]] = {
    "complete": {"means": (0.0, 1.2, 2.0), "sigma": 1.0, "assignment": "random"},
    "gaps": {"means": (0.0, 1.2), "sigma": (1.0, 0.5), "skip_rate": 0.3, "late_share": 0.2, "late_step": 15},
    "continuum": {"means": (0.0,), "sigma": 1.0, "spread": 0.5},
}
METHODS: dict[str, colme.methods.Method] = {
    "laplacian": colme.CLColME(), "global": colme.CLColME(clock="global"), "own": colme.CLColME(clock="own"),
    "flow": colme.CLColME(consensus="flow"), "difference": colme.CLColME(cut="difference"), "c": colme.CColME(),
    "b": colme.BColME(depth=3), "local": colme.Local(), "oracle": colme.Oracle(), "census": colme.Census(),
    "guarded": colme.CLColME(guard=True),
}  # fmt: skip


def digest(trace: colme.Trace) -> str:
    """Of all numbers of a trace."""
    found = hashlib.sha256()
    for name in colme.metrics.METRICS:
        found.update(getattr(trace, name).tobytes())
    final = trace.final
    for array in (final.estimate, final.mean, final.count, final.groups, final.graph.indptr, final.graph.indices):
        found.update(np.ascontiguousarray(array).tobytes())
    for known in (final.truth, final.class_, final.probability, final.lower, final.upper):
        found.update(b"-" if known is None else known.tobytes())
    return found.hexdigest()[:16]


def digests(
    scenario: str, methods: list[str], n_agents: int = 4500, steps: int = 40, ranks: Any = None, **options: Any
) -> dict[str, str]:
    """Of the traces of these methods, by name."""
    source = colme.Scenario(n_agents=n_agents, **SCENARIOS[scenario])
    traces = colme.simulate([METHODS[name] for name in methods], source, steps=steps, seed=3, ranks=ranks, **options)
    if ranks is not None and ranks.rank > 0:
        return {}
    return dict(zip(methods, map(digest, traces), strict=True))


def mpiexec(n_ranks: int, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in so many ranks."""
    found = Path(sys.executable).with_name("mpiexec")
    command = [str(found), "-n", str(n_ranks), sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, **options)


def digests_in_ranks(n_ranks: int, per_machine: int | None = None, **arguments: Any) -> dict[str, str]:
    """`digests`, by so many ranks; if so many of them are to count as one machine, numbers go from one to another."""
    more = {} if per_machine is None else {"COLME_RANKS_PER_MACHINE": str(per_machine)}
    done = mpiexec(n_ranks, "-m", "tests.support.in_ranks", json.dumps(arguments), env=os.environ | more)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    from mpi4py import MPI

    result = digests(**json.loads(sys.argv[1]), ranks=MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(result))
