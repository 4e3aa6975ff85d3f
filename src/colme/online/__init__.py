"""Online estimation: `CollaborativeMean` learns sample by sample, from any agent at any time."""

from colme.online.model import CollaborativeMean

__all__ = ["CollaborativeMean"]
