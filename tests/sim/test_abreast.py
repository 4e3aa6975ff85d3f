"""Eight seeds side by side give, each, the bits that they give alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from colme._core.jit import kernel
from colme._core.simd import ABREAST, lean_on_rows_by_masks, lean_on_rows_plainly
from colme.graphs import Graph, complete_graph, from_edges, gnp_random_graph, random_regular_graph
from colme.sim import simulation
from colme.sim.abreast import RunsAbreast, can_run_abreast, in_batches
from colme.sim.engine import Interrupted, Progress
from colme.sim.recorder import recorded_steps
from tests.support.same_bits import assert_same_bits

GLOBAL = colme.CLColME(delta=0.1, clock="global", level="agent")
METHODS = [
    GLOBAL,
    colme.CLColME(delta=0.1, clock="global", step=0.04),
    colme.CLColME(delta=0.5, clock="harmonic", level="agent"),
    colme.CLColME(delta=0.1, clock="constant", alpha=0.8, bound="fourth-moment"),
]
GRAPHS: dict[str, Graph] = {
    "regular": random_regular_graph(200, 6, rng=1),
    "irregular": gnp_random_graph(131, 0.05, rng=2),  # some without neighbors
    "complete": complete_graph(40),
    "no edges": from_edges([], 70),
    "one block and one": random_regular_graph(65, 4, rng=3),
}


def scenario(n_agents: int, **changes: Any) -> colme.Scenario:
    return colme.Scenario(**({"n_agents": n_agents, "means": (0.0, 1.5), "sigma": 0.8} | changes))


def side_by_side(method: colme.CLColME, source: colme.Scenario, graph: Graph, steps: int, seeds: list[int]) -> Any:
    runs = RunsAbreast(
        method, source, graph, recorded_steps("all", steps), seeds=seeds, tolerance=0.1,
        configurations=[{} for _ in seeds],
    )  # fmt: skip
    return [trace for (trace,) in runs.go(None, threading.Event())]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_each_run_has_the_bits_that_it_has_alone(method: colme.CLColME, name: str) -> None:
    graph = GRAPHS[name]
    source, seeds = scenario(graph.n_agents), [5, 0, 2**40, 7, 1, 3, 8, 2]
    for seed, trace in zip(seeds, side_by_side(method, source, graph, 150, seeds), strict=True):
        assert_same_bits(trace, colme.simulate(method, source, graph=graph, steps=150, seed=seed))


@pytest.mark.parametrize(
    "changes",
    [
        {"means": (1.0,)},
        {"means": (0.0, 1.0, 2.0, 3.0)},
        {"means": (0.0, 1.0, 1.0)},
        {"means": (1e6, 1e6 + 1.0), "sizes": (10, 110)},
        {"assignment": "random", "means": (0.0, 1.0, 2.0), "sizes": (1, 1, 60)},
        {"assignment": "blocks"},
    ],
    ids=str,
)
def test_every_kind_of_classes(changes: dict[str, Any]) -> None:
    source, graph = scenario(120, **changes), random_regular_graph(120, 6, rng=4)
    for seed, trace in enumerate(side_by_side(GLOBAL, source, graph, 120, list(range(8)))):
        assert_same_bits(trace, colme.simulate(GLOBAL, source, graph=graph, steps=120, seed=seed))


@pytest.mark.parametrize("n_seeds", [1, 6, 8])
@pytest.mark.parametrize("steps", [1, 2, 31, 32, 33, 65])
def test_any_number_of_steps_and_seeds(steps: int, n_seeds: int) -> None:
    source, graph = scenario(90), random_regular_graph(90, 6, rng=5)
    for seed, trace in enumerate(side_by_side(GLOBAL, source, graph, steps, list(range(n_seeds)))):
        assert_same_bits(trace, colme.simulate(GLOBAL, source, graph=graph, steps=steps, seed=seed))


def test_a_small_list_of_edges_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full looks at nearly every step, and at few."""
    source, graph = scenario(2000), random_regular_graph(2000, 10, rng=6)
    wanted = [colme.simulate(GLOBAL, source, graph=graph, steps=80, seed=seed) for seed in range(8)]
    for full_look in (0.0, 0.5, 1e9):
        monkeypatch.setattr("colme._core.lazy_pruning.FULL_LOOK", full_look)
        for trace, alone in zip(side_by_side(GLOBAL, source, graph, 80, list(range(8))), wanted, strict=True):
            assert_same_bits(trace, alone)


@pytest.mark.parametrize("record", ["all", "log", 7, [3, 40]], ids=str)
def test_simulate_takes_seeds_abreast_and_nobody_can_tell(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[list[int]] = []
    honest = simulation.prepare_abreast
    monkeypatch.setattr(
        simulation, "prepare_abreast", lambda *a, seeds, **k: (used.append(seeds), honest(*a, seeds=seeds, **k))[1]
    )
    source = scenario(100)
    options: dict[str, Any] = {"degree": 6, "graph_seed": 9, "steps": 60, "record": record}
    traces = colme.simulate(GLOBAL, source, seeds=range(3, 22), n_jobs=1, **options)
    assert used == [list(range(3, 11)), list(range(11, 19))]  # the last three run alone
    for seed, trace in zip(range(3, 22), traces, strict=True):
        alone = colme.simulate(GLOBAL, source, seed=seed, **options)
        assert_same_bits(trace, alone)
        assert trace.seed == seed and trace.configuration == alone.configuration


def test_graph_seed_is_one_graph_for_all_seeds() -> None:
    one = colme.simulate(colme.Local(), scenario(60), graph_seed=4, degree=6, steps=2, seeds=[0, 1])
    digests = {str(trace.configuration["graph"]) for trace in one}
    assert len(digests) == 1
    still = colme.CLColME(delta=1e-9, clock="harmonic")  # nothing is cut: the last graph is the first one
    a, b = colme.simulate(still, scenario(60), graph_seed=4, degree=6, steps=2, seeds=[0, 1])
    assert a.final.graph == b.final.graph
    own = colme.simulate(still, scenario(60), degree=6, steps=2, seed=4)
    assert a.final.graph == own.final.graph


def test_who_can_run_abreast() -> None:
    graph, source = random_regular_graph(50, 4, rng=0), scenario(50)
    assert can_run_abreast([GLOBAL], source, graph, "mixed")
    refused: list[tuple[Any, Any, Any, str]] = [
        ([GLOBAL, GLOBAL], source, graph, "mixed"),
        ([colme.CColME(clock="global")], source, graph, "mixed"),
        ([colme.CLColME(clock="gossip")], source, graph, "mixed"),
        ([colme.CLColME(clock="own")], source, graph, "mixed"),
        ([colme.CLColME(consensus="flow")], source, graph, "mixed"),
        ([GLOBAL], source, None, "mixed"),
        ([GLOBAL], source, graph, "double"),
        ([GLOBAL], scenario(50, distribution="laplace"), graph, "mixed"),
        ([GLOBAL], scenario(50, sigma=(0.5, 1.0)), graph, "mixed"),
        ([GLOBAL], scenario(50, skip_rate=0.1), graph, "mixed"),
        ([GLOBAL], scenario(50, late_share=0.2, late_step=5), graph, "mixed"),
        ([GLOBAL], scenario(50, shift_step=5, shift_means=(1.0, 0.0)), graph, "mixed"),
        ([GLOBAL], scenario(50, means=(0.0, 1.0, 2.0, 3.0, 4.0)), graph, "mixed"),
        ([GLOBAL], colme.Recording(np.zeros((3, 50)), sigma=1.0), graph, "mixed"),
    ]
    for arguments in refused:
        assert not can_run_abreast(*arguments), arguments
    alone = [(colme.CLColME(clock="gossip"), {}), (colme.CLColME(consensus="flow"), {}), (GLOBAL, {"skip_rate": 0.2})]
    for method, changes in alone:
        both = colme.simulate(method, scenario(50, **changes), graph=graph, steps=30, seeds=range(8), n_jobs=1)
        for seed, trace in enumerate(both):  # and they still run
            assert_same_bits(trace, colme.simulate(method, scenario(50, **changes), graph=graph, steps=30, seed=seed))


def test_no_core_is_left_idle() -> None:
    seeds = list(range(16))
    assert [len(batch) for batch in in_batches(seeds, 1)] == [8, 8]
    assert [len(batch) for batch in in_batches(seeds, 2)] == [8, 8]
    assert [len(batch) for batch in in_batches(seeds, 3)] == [1] * 16
    assert [len(batch) for batch in in_batches(seeds[:15], 1)] == [8, 7]
    assert [len(batch) for batch in in_batches(seeds[:13], 1)] == [8, 1, 1, 1, 1, 1]
    for n in range(1, 20):
        assert [seed for batch in in_batches(list(range(n)), 2) for seed in batch] == list(range(n))


def test_one_graph_is_not_made_twice() -> None:
    graph = random_regular_graph(50, 4, rng=0)
    with pytest.raises(colme.errors.RunError, match="both given"):
        colme.simulate(GLOBAL, scenario(50), graph=graph, graph_seed=1)
    for bad in ("a", -1, 1.5):
        with pytest.raises(colme.errors.RunError, match=r"graph_seed=.* whole number"):
            colme.simulate(GLOBAL, scenario(50), graph_seed=bad)  # type: ignore[call-overload]


PLAIN = """
import hashlib, colme
from colme._core.simd import lean_on_rows, lean_on_rows_plainly
source = colme.Scenario(n_agents=150, means=(0.0, 1.5), sigma=0.8)
method = colme.CLColME(delta=0.1, clock="global", level="agent")
digest = hashlib.sha256()
for trace in colme.simulate(method, source, graph_seed=1, degree=6, steps=80, seeds=range(8), n_jobs=1):
    digest.update(trace.mse.tobytes() + trace.final.estimate.tobytes())
print(lean_on_rows is lean_on_rows_plainly, digest.hexdigest())
"""


def test_without_explicit_vectors_the_bits_are_the_same(tmp_path: Path) -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", PLAIN], env=os.environ | switch, capture_output=True, text=True, check=True
        ).stdout.split()
        for switch in ({"COLME_SIMD": "0", "COLME_CACHE_DIR": str(tmp_path)}, {"COLME_SIMD": "1"})
    ]
    assert answers[0][0] == "True" and answers[0][1] == answers[1][1]


def test_progress_and_stopping() -> None:
    news: list[Progress] = []
    source, graph = scenario(50), random_regular_graph(50, 4, rng=0)
    colme.simulate(GLOBAL, source, graph=graph, steps=40, seeds=range(8), n_jobs=1, progress=news.append)
    assert {(each.seed, each.step) for each in news if each.step == 40} == {(seed, 40) for seed in range(8)}
    stop = threading.Event()
    stop.set()
    runs = RunsAbreast(
        GLOBAL, source, graph, recorded_steps("all", 100), seeds=[0, 1], tolerance=0.1, configurations=[{}, {}]
    )
    with pytest.raises(Interrupted):
        runs.go(None, stop)


@kernel
def _by_masks(heard, own, indices, masks, first, last, pull):
    lean_on_rows_by_masks(heard, own, indices, masks, first, last, pull, np.uint64(0))


@kernel
def _plainly(heard, own, indices, masks, first, last, pull):
    lean_on_rows_plainly(heard, own, indices, masks, first, last, pull, np.uint64(0))


def test_vectors_and_plain_loop_have_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    u64 = np.uint64
    for degree in (0, 1, 2, 7, 40):
        heard: NDArray[np.float32] = (rng.standard_normal(50 * ABREAST) * 10.0 ** rng.integers(-3, 4)).astype(
            np.float32
        )
        indices = rng.integers(0, 50, 60).astype(np.uint32)
        masks = rng.integers(0, 256, 60).astype(np.uint8)
        pulls = np.full((2, ABREAST), np.nan, np.float32)
        for pull, form in zip(pulls, (_by_masks, _plainly), strict=True):
            form(heard, u64(3 * ABREAST), indices, masks, u64(5), u64(5 + degree), pull)
        assert pulls[0].tobytes() == pulls[1].tobytes()
        rows, kept = heard.reshape(-1, ABREAST), (masks[5 : 5 + degree, None] >> np.arange(ABREAST)) & 1
        wanted = ((rows[indices[5 : 5 + degree]].astype(float) - rows[3]) * kept).sum(axis=0)
        assert np.allclose(pulls[0], wanted, rtol=0, atol=1e-6 * np.abs(heard).max() * max(1, degree))
