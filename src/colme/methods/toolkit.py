"""Everything that a method file needs, in one place. `skeleton` shows how it fits together."""

from colme._core.jit import at, equation, kernel
from colme._core.neighbor_table import agent_at, block_of
from colme.confidence import too_far
from colme.graphs import Graph
from colme.method import EVERYONE, Agent, Inbox, Method, NeighborState, Place, Round, State, World
from colme.methods.consensus import ConsensusAgent, ConsensusMethod, ConsensusState
from colme.methods.intervals import IntervalAgent, IntervalMethod, IntervalState, PruningState, parted

__all__ = [
    "EVERYONE", "Agent", "ConsensusAgent", "ConsensusMethod", "ConsensusState", "Graph", "Inbox", "IntervalAgent",
    "IntervalMethod", "IntervalState", "Method", "NeighborState", "Place", "PruningState", "Round", "State", "World",
    "agent_at", "at", "block_of", "equation", "kernel", "parted", "too_far",
]  # fmt: skip
