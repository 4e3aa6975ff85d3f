"""Events per second of `CollaborativeMean`, beside loops in Python; alone: python -m benchmarks.online."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import colme
from benchmarks.measuring import Measured, Timed, Times, in_turns, ratio, timed
from colme import CollaborativeMean

MANY, SOME, FEW = 1_000_000, 100_000, 20_000
"""Events in one call of learn_many, and in loops."""
METHODS = {"local": colme.Local(), "census": colme.Census(), "CL-colME": colme.CLColME(), "C-colME": colme.CColME()}
SIZES = (10_000, 100_000)


def stream(n_agents: int, n_events: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Anybody's samples: means 0 and 1, sigma 2."""
    rng = np.random.default_rng(0)
    agent = rng.integers(0, n_agents, n_events)
    return agent, agent % 2 + 2.0 * rng.standard_normal(n_events)


def ready(method: colme.methods.Method, n_agents: int) -> CollaborativeMean:
    """A model whose agents have some samples."""
    model = CollaborativeMean(method, sigma=2.0)
    model.learn_many(agent=np.tile(np.arange(n_agents), 5), value=stream(n_agents, 5 * n_agents)[1])
    return model


def dict_of_means(agents: list[int], values: list[float]) -> dict[int, tuple[int, float]]:
    """What one writes without a library."""
    known: dict[int, tuple[int, float]] = {}
    for agent, x in zip(agents, values, strict=True):
        n, mean = known.get(agent, (0, 0.0))
        known[agent] = n + 1, mean + (x - mean) / (n + 1)
    return known


def learn_one_by_one(model: CollaborativeMean, agents: list[int], values: list[float]) -> None:
    for agent, x in zip(agents, values, strict=True):
        model.learn_one(agent, x)
    model.wait()  # for the last ones, too


def events(quick: bool) -> dict[str, Measured]:
    """Time per event of loops relative to ours, and how many events learn_one learns in a second of CPU."""
    n, rounds = 10_000, 1 if quick else 5
    agent, value = stream(n, MANY)
    columns: dict[str, Any] = {"agent": agent, "value": value}
    some = agent[:FEW].tolist(), value[:FEW].tolist()
    everything = agent.tolist(), value.tolist()
    census, consensus, single = ready(colme.Census(), n), ready(colme.CLColME(), n), ready(colme.CLColME(), n)
    works = {
        "census": timed(lambda: census.learn_many(**columns)),
        "consensus": timed(lambda: consensus.learn_many(**columns)),
        "dict": timed(lambda: dict_of_means(*everything)),
        "one": timed(lambda: learn_one_by_one(single, *some)),
        "census one": census_one_by_one(n),
    }
    times = in_turns(works, rounds)
    return {
        "online_dict": ratio(times["dict"], times["census"]),
        "online_dict_cl": ratio(times["dict"], times["consensus"]),
        "online_dict_one": ratio(times["dict"], times["census one"]).scaled(SOME / MANY),
        "online_rate": rate(times["census one"], SOME),
        "online_one": ratio(times["one"], times["consensus"]).scaled(MANY / FEW),
    }


def census_one_by_one(n_agents: int) -> Timed:
    """Events of agents that have five samples each, in a plain loop; every round has the same votes."""
    agent, value = (column[:SOME].tolist() for column in stream(n_agents, MANY))

    def run() -> float:
        model = ready(colme.Census(), n_agents)
        start = time.process_time()
        learn_one_by_one(model, agent, value)
        return time.process_time() - start

    return run


def rate(times: Times, n_events: int) -> Measured:
    """Events per second: the best round, and the quartiles."""
    low, high = np.quantile([n_events / seconds for seconds in times.rounds], (0.25, 0.75)).tolist()
    return Measured(n_events / times.best, low, high)


def from_five_samples_on(method: colme.methods.Method, n_agents: int) -> Timed:
    """A million events of agents that have five samples each, when votes are frequent."""
    agent, value = stream(n_agents, MANY)

    def run() -> float:
        model = ready(method, n_agents)
        start = time.process_time()
        model.learn_many(agent=agent, value=value)
        return time.process_time() - start

    return run


def votes(n_agents: int) -> Measured:
    """Time of the census, with its fits and judged estimates, relative to counting samples alone."""
    methods = {"local": colme.Local(), "census": colme.Census()}
    times = in_turns({name: from_five_samples_on(method, n_agents) for name, method in methods.items()}, 7)
    return ratio(times["census"], times["local"])


def main() -> None:
    for n in SIZES:
        agent, value = stream(n, MANY)
        for label, method in METHODS.items():
            model = ready(method, n)
            times = in_turns({"many": timed(lambda m=model, a=agent, v=value: m.learn_many(agent=a, value=v))}, 5)
            print(f"{label:10} {n:7} agents   {MANY / times['many'].best:.3g} events per second of CPU")
        cost = votes(n)
        print(f"census by local, five to {5 + MANY // n} samples: {cost.value:.2f} ({cost.low:.2f} .. {cost.high:.2f})")
    names = np.char.add("sensor-", stream(SIZES[0], MANY)[0].astype(str)).astype(object)
    model = ready(colme.CLColME(), SIZES[0])
    times = in_turns({"text": timed(lambda: model.learn_many(agent=names, value=value))}, 3)
    print(f"CL-colME, labels that are text: {MANY / times['text'].best:.3g} events per second of CPU")
    for key, measured in events(quick=False).items():
        print(f"{key:16} {measured.value:.3g} ({measured.low:.3g} .. {measured.high:.3g})")


if __name__ == "__main__":
    main()
