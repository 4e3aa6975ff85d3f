"""Collaborative mean estimation: many agents find out who shares their mean and learn it together, without a server.

I have a table             colme.estimate(table, agent="sensor", value="temperature")
I have a loop              model = colme.CollaborativeMean(); model.learn_one("sensor-1", 21.4); model.estimate_
I do research              colme.simulate(colme.CLColME(), colme.Scenario(n_agents=1000, means=(0, 1)), steps=1000)

The command `colme` does all of it, too, and runs agents on devices.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

if TYPE_CHECKING:
    from colme import confidence as confidence
    from colme import consensus as consensus
    from colme import data as data
    from colme import errors as errors
    from colme import graphs as graphs
    from colme import lab as lab
    from colme import methods as methods
    from colme import metrics as metrics
    from colme import node as node
    from colme import online as online
    from colme import recording as recording
    from colme import samples as samples
    from colme import scenario as scenario
    from colme import sim as sim
    from colme import sklearn as sklearn
    from colme import spectrum as spectrum
    from colme import testing as testing
    from colme.data.estimate import estimate as estimate
    from colme.errors import ColmeError as ColmeError
    from colme.graphs import Graph as Graph
    from colme.methods import Bayes as Bayes
    from colme.methods import BColME as BColME
    from colme.methods import CColME as CColME
    from colme.methods import Census as Census
    from colme.methods import CLColME as CLColME
    from colme.methods import ColME as ColME
    from colme.methods import Local as Local
    from colme.methods import Oracle as Oracle
    from colme.methods import Partition as Partition
    from colme.online import CollaborativeMean as CollaborativeMean
    from colme.recording import Recording as Recording
    from colme.scenario import Scenario as Scenario
    from colme.sim import Trace as Trace
    from colme.sim import Traces as Traces
    from colme.sim import simulate as simulate

logging.getLogger("colme").addHandler(logging.NullHandler())  # silent unless a program configures logging

# Where each public name lives. Imported on first use, so that `import colme` is quick.
_HOME = {
    "ColmeError": "colme.errors",
    "Scenario": "colme.scenario",
    "Recording": "colme.recording",
    "Graph": "colme.graphs",
    "Local": "colme.methods",
    "Oracle": "colme.methods",
    "Bayes": "colme.methods",
    "ColME": "colme.methods",
    "BColME": "colme.methods",
    "CColME": "colme.methods",
    "CLColME": "colme.methods",
    "Census": "colme.methods",
    "Partition": "colme.methods",
    "CollaborativeMean": "colme.online",
    "simulate": "colme.sim",
    "Trace": "colme.sim",
    "Traces": "colme.sim",
    "estimate": "colme.data.estimate",
}
__all__ = [*_HOME]
_MODULES = ("confidence", "consensus", "data", "errors", "graphs", "methods", "metrics", "node", "online",
            "recording", "samples", "scenario", "sim", "sklearn", "spectrum", "testing", "lab")  # fmt: skip


if not TYPE_CHECKING:  # type checkers read the imports above, and refuse any other name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"colme.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'colme' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_MODULES])
