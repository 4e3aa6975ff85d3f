"""Everything that a method file needs, in one place. `_skeleton` shows how it fits together."""

from colme._jit import at, equation, kernel, lanes_like
from colme._slots import block_of
from colme.confidence import too_far
from colme.graphs import Graph
from colme.methods._base import EVERYONE, Agent, Inbox, Method, Place, Round, State, World
from colme.methods._consensus import ConsensusAgent, ConsensusMethod, ConsensusState
from colme.methods._intervals import IntervalAgent, IntervalMethod, PruningState, parted

__all__ = [
    "EVERYONE", "Agent", "ConsensusAgent", "ConsensusMethod", "ConsensusState", "Graph", "Inbox", "IntervalAgent",
    "IntervalMethod", "Method", "Place", "PruningState", "Round", "State", "World", "at", "block_of", "equation",
    "kernel", "lanes_like", "parted", "too_far",
]  # fmt: skip
