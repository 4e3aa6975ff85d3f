"""Every agent in one array."""

from colme.sim.simulation import simulate
from colme.sim.trace import Final, Trace, Traces

__all__ = ["Final", "Trace", "Traces", "simulate"]
