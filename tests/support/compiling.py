"""Source for a fresh process: `forbid()` makes every further compilation an error."""

FORBID = """
import json, sys
from numba.core.dispatcher import Dispatcher

compiled_before = []
honest_compile = Dispatcher.compile

def compile(self, signature):
    if forbidden:
        raise AssertionError(f"{self.py_func.__name__} was compiled although nothing may be compiled any more")
    compiled_before.append(self.py_func.__name__)
    return honest_compile(self, signature)

Dispatcher.compile = compile
forbidden = False

def forbid(yes=True):
    global forbidden
    forbidden = yes
"""
