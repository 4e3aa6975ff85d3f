"""Source for a fresh process: `compiled()` is kernel -> how many signatures it was compiled for."""

COMPILED = """
import json, sys

def compiled():
    kernels = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "colme":
            for thing in vars(module).values():
                if hasattr(thing, "signatures") and hasattr(thing, "py_func"):
                    kernels[f"{thing.py_func.__module__}.{thing.py_func.__name__}"] = len(thing.signatures)
    return kernels
"""
