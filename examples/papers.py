"""The tables of docs/methods.md, from the papers' own settings.

python examples/papers.py clocks | aaai | tmlr          (seconds each)
python examples/papers.py aaai-colme                    (colME with 10^4 agents: 1.3 GB and a quarter of an hour)
"""

from __future__ import annotations

import sys

import numpy as np

import colme


def clocks() -> None:
    """CL-colME's experiment under the five clocks: mean squared error over ten seeds."""
    scenario = colme.Scenario(n_agents=5000, means=(1.2, 2.0), sigma=2.0)
    methods = [
        colme.CLColME(level="agent", step=0.1, clock=clock, alpha=0.9 if clock == "constant" else None)
        for clock in ("harmonic", "own", "global", "gossip", "constant")
    ]
    traces = colme.simulate(methods, scenario, steps=3000, seeds=range(10), record=100, progress=True)
    for method in methods:
        rows = traces.select(method=method)
        print(
            f"{method.clock:9}", *(f"{np.mean([row.at(t)['mse'] for row in rows]):.2e}" for t in (100, 400, 1000, 3000))
        )
    print("local    ", *(f"{np.mean([row.at(t)['local_mse'] for row in rows]):.2e}" for t in (100, 400, 1000, 3000)))


def aaai(methods: list[colme.methods.Method], seeds: range) -> None:
    """First step at which at most one agent in a thousand is off by more than .1."""
    scenario = colme.Scenario(n_agents=10_000, means=(0.0, 1.0), sigma=2.0, assignment="random")
    for method in methods:
        traces = colme.simulate(method, scenario, degree=10, steps=1400, seeds=seeds, progress=True)
        print(method, [int(trace.t[trace.error_rate < 1e-3][0]) for trace in traces])


def tmlr() -> None:
    """Mean squared errors of colME's three weights, asking all in turn or only who is not excluded."""
    scenario = colme.Scenario(n_agents=200, means=(0.2, 0.4, 0.8), sigma=0.5)
    methods = [
        colme.ColME(delta=0.001, weights=weights, restricted=restricted)
        for restricted in (True, False)
        for weights in ("simple", "soft", "aggressive")
    ]
    traces = colme.simulate(methods, scenario, steps=2500, seeds=range(5), progress=True)
    for method in methods:
        rows = traces.select(method=method)
        errors = [f"{np.mean([row.at(t)['mse'] for row in rows]):.1e}" for t in (100, 500, 1000, 2500)]
        wrong = np.mean([row.at(1000)["wrong_edges"] for row in rows])
        print(method, *errors, f"wrong links at t=1000: {wrong:.1%}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["clocks"]:
            clocks()
        case ["aaai"]:
            c, cl = colme.CColME(clock="global"), colme.CLColME(clock="global", step=0.1)
            aaai([c, cl, colme.BColME(depth=4)], range(4))
        case ["aaai-colme"]:
            aaai([colme.ColME(delta=0.1, queries=10)], range(1))
        case ["tmlr"]:
            tmlr()
        case _:
            sys.exit(__doc__)
