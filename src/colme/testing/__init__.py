"""The promises every method keeps, usable by people who write their own."""

from colme.lockstep import lockstep
from colme.testing._promises import PROMISES, check_method

__all__ = ["PROMISES", "check_method", "lockstep"]
