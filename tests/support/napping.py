"""Source of a module with a slow method: it sleeps, and so takes as long on a quick machine as on a slow one. It sleeps
`nap` seconds per step or, if that is zero, as long as the environment of its process says in NAP (default: none)."""

SLOW = """
import os
import time
from typing import ClassVar
from colme import CLColME

class Nap:
    # Before every averaging: sleeps for each step since the last time, and leaves a sign that it does.

    def __init__(self, average, world, seconds, sign):
        self.average, self.world, self.sign, self.last = average, world, sign, 0
        self.seconds = seconds or float(os.environ.get("NAP", "0"))

    def __call__(self, *arguments, **options):
        if self.world.t > 12:  # not while it warms up
            if self.sign:
                open(self.sign, "w").close()
            time.sleep(self.seconds * (self.world.t - self.last))
        self.last = self.world.t
        return self.average(*arguments, **options)

class Slow(CLColME, frozen=True, kw_only=True, tag="slow"):
    label: ClassVar[str] = "slow"
    nap: float = 0.0
    sign: str = ""

    def start(self, world, graph):
        state = super().start(world, graph)
        state.average = Nap(state.average, world, self.nap, self.sign)
        return state
"""
