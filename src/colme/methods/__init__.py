"""The methods: the papers', one file each, and our own (`colme.census`); and all that a file with a new one needs.

`skeleton` shows how a method fits together.
"""

from colme._core.edges import agent_at, block_of
from colme._core.jit import at, equation, kernel
from colme.census.method import Census
from colme.confidence import too_far
from colme.graphs import Graph
from colme.method import EVERYONE, Agent, Inbox, Method, NeighborState, Place, Round, State, World
from colme.methods.b_colme import BColME
from colme.methods.baselines import Bayes, Local, Oracle
from colme.methods.c_colme import CColME
from colme.methods.cl_colme import CLColME
from colme.methods.colme import ColME
from colme.methods.consensus import ConsensusAgent, ConsensusMethod, ConsensusState
from colme.methods.intervals import IntervalAgent, IntervalMethod, IntervalState, PruningState, parted
from colme.methods.partition import Partition
from colme.methods.registry import METHODS, method_from

__all__ = [
    "EVERYONE",
    "METHODS",
    "Agent",
    "BColME",
    "Bayes",
    "CColME",
    "CLColME",
    "Census",
    "ColME",
    "ConsensusAgent",
    "ConsensusMethod",
    "ConsensusState",
    "Graph",
    "Inbox",
    "IntervalAgent",
    "IntervalMethod",
    "IntervalState",
    "Local",
    "Method",
    "NeighborState",
    "Oracle",
    "Partition",
    "Place",
    "PruningState",
    "Round",
    "State",
    "World",
    "agent_at",
    "at",
    "block_of",
    "equation",
    "kernel",
    "method_from",
    "parted",
    "too_far",
]  # fmt: skip
