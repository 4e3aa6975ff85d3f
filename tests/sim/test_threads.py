"""Threads that share a run give the bits of one, fail together, and stop together."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colme
import colme.sim.checkpoint
from colme._core.team import Neighborhood, Team
from colme.errors import CheckpointError, MethodError, RunError
from colme.sim.threads import run_threads
from tests.support.in_ranks import METHODS, digest, digests


@pytest.mark.parametrize("scenario", ["complete", "gaps"])
def test_threads_give_the_bits_of_one(scenario: str) -> None:
    names = ["laplacian", "flow", "c", "b", "local", "oracle"]
    assert digests(scenario, names, threads=2) == digests(scenario, names)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["complete", "gaps", "continuum"])
@pytest.mark.parametrize("threads", [3, 4])
def test_every_method_has_the_same_bits_for_any_number_of_threads(scenario: str, threads: int) -> None:
    assert digests(scenario, list(METHODS), threads=threads) == digests(scenario, list(METHODS))


def test_a_recording_and_a_given_graph_can_be_shared() -> None:
    rng = np.random.default_rng(0)
    means = rng.integers(3, size=5000) * 1.0
    values = means + rng.normal(size=(30, 5000))
    values[rng.random(values.shape) < 0.2] = np.nan
    graph = colme.graphs.gnp_random_graph(5000, 0.002, rng=1)
    recording = colme.Recording(values, means=means, sigma=np.where(means > 1, 1.0, 1.2))
    for method in (colme.CLColME(), colme.CColME(), colme.Oracle()):
        alone, shared = (colme.simulate(method, recording, graph=graph, threads=k) for k in (1, 3))
        assert digest(alone) == digest(shared), method


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
def test_a_run_is_continued_by_another_number_of_threads(before: int, after: int, tmp_path: Path) -> None:
    names = ["laplacian", "flow", "c", "b"]
    path = tmp_path / "run.npz"
    digests("gaps", names, steps=20, threads=before, checkpoint=path)
    assert digests("gaps", names, threads=after, checkpoint=path) == digests("gaps", names)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3), (3, 2)])
def test_a_census_is_continued_by_another_number_of_threads(before: int, after: int, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    digests("complete", ["census", "guarded"], steps=20, threads=before, checkpoint=path)
    resumed = digests("complete", ["census", "guarded"], threads=after, checkpoint=path)
    assert resumed == digests("complete", ["census", "guarded"])


@pytest.mark.parametrize(("method", "options", "error", "words"), [
    (colme.CLColME(), {"threads": 0}, RunError, "threads=0"),
    (colme.CLColME(), {"threads": 8}, RunError, "8 workers share 4500 agents: each must have at least 1024 of them"),
    (colme.ColME(), {"threads": 2}, RunError, "colME cannot be shared by threads or ranks"),
    (colme.CLColME(step=0.15), {"threads": 2}, MethodError, "it must be at most 1 / max degree, 0.1"),
    (colme.CLColME(), {"threads": 2, "ranks": object()}, RunError, "threads=2 with ranks"),
])  # fmt: skip
def test_what_cannot_be_shared_is_refused(
    method: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    scenario = colme.Scenario(n_agents=4500, means=(0.0, 1.0), sigma=1.0)
    with pytest.raises(error, match=words.replace("(", r"\(")):
        colme.simulate(method, scenario, steps=5, **options)


def test_a_part_that_cannot_be_written_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.npz"
    digests("complete", ["laplacian"], steps=10, threads=2, checkpoint=path)
    whole = colme.sim.checkpoint.write_arrays

    def fail_for_one(target: Path, *arguments: Any) -> None:
        if "part1" in target.name:
            raise CheckpointError("no room")
        whole(target, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(colme.sim.checkpoint, "write_arrays", fail_for_one)
        with pytest.raises(CheckpointError, match="no room"):
            digests("complete", ["laplacian"], steps=20, threads=2, checkpoint=path)
    with np.load(path, allow_pickle=False) as file:
        assert int(file["t"]) == 10
    assert digests("complete", ["laplacian"], threads=3, checkpoint=path) == digests("complete", ["laplacian"])


def test_an_error_of_one_thread_ends_all() -> None:
    def work(team: Team) -> None:
        if team.rank == 1:
            raise ValueError("only here")
        team.wait()

    with pytest.raises(ValueError, match="only here"):
        run_threads(3, work)


def test_threads_stop_at_the_same_step_and_go_on_from_there(tmp_path: Path) -> None:
    scenario = colme.Scenario(n_agents=4500, means=(0.0, 1.0), sigma=1.0)
    path, seen = tmp_path / "run.npz", threading.Event()

    def interrupt(progress: colme.sim.run.Progress) -> None:
        if not seen.is_set() and progress.step >= 3:
            seen.set()
            raise KeyboardInterrupt

    given: dict[str, Any] = {"steps": 3000, "record": "log"}
    with pytest.raises(KeyboardInterrupt):
        colme.simulate(colme.CLColME(), scenario, threads=2, checkpoint=path, checkpoint_every=0, progress=interrupt,
                       **given)  # fmt: skip
    resumed = colme.simulate(colme.CLColME(), scenario, threads=3, checkpoint=path, **given)
    assert digest(resumed) == digest(colme.simulate(colme.CLColME(), scenario, **given))


@pytest.mark.parametrize("n_agents", [1, 1023, 1024, 1025, 5000, 2**20, 2**20 + 1, 10**7])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_blocks_are_whole_pages_that_do_not_depend_on_how_many_workers_there_are(n_agents: int, size: int) -> None:
    class Member(Team):
        def __init__(self, rank: int):
            self.rank, self.size = rank, size

    blocks = [Neighborhood(n_agents, Member(rank)) for rank in range(size)]
    whole = Neighborhood(n_agents)
    assert {block.page for block in blocks} == {whole.page} and whole.n_all_pages <= 1024
    assert [block.first for block in blocks] == blocks[0].ends[:-1] and blocks[0].ends[-1] == n_agents
    assert sum(block.n_own for block in blocks) == n_agents and all(block.first % block.page == 0 for block in blocks)
    assert sum(block.n_pages for block in blocks) == whole.n_all_pages


def test_a_neighborhood_shares_what_each_worker_wrote_for_its_own_agents() -> None:
    def work(team: Team) -> np.ndarray:
        hood = Neighborhood(5000, team)
        return hood.seen("numbers", np.arange(5000.0)[hood.own])[:5000].copy()

    assert np.array_equal(run_threads(3, work), np.arange(5000.0))
