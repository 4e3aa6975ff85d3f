"""In your own loop: `CollaborativeMean` learns sample by sample, whoever sends one."""

from colme.online.model import CollaborativeMean

__all__ = ["CollaborativeMean"]
