"""Graphs from files: every format gives the same graph, and its contents belong to the identity of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colme import graphs, lab
from colme.errors import ColmeError
from colme.lab.experiment import Experiment
from colme.sim.graph_files import read_graph

RING = graphs.ring_lattice_graph(12, 2)
TABLE: dict[str, Any] = {
    "steps": 20, "scenario": {"n_agents": 12, "means": [0.0, 3.0], "sigma": 0.5}, "methods": [{"method": "cl-colme"}],
}  # fmt: skip


def write(folder: Path, name: str) -> Path:
    """The ring, in the format that the name asks for."""
    path, edges = folder / name, RING.edges()
    if path.suffix == ".npz":
        np.savez(path, indptr=RING.indptr, indices=RING.indices)
    elif path.suffix in (".edges", ".txt"):
        path.write_text("# a ring\n\n" + "\n".join(f"{a} {b}  # an edge" for a, b in edges))
    elif path.suffix in (".csv", ".tsv"):
        path.write_text("from,to\n" + "\n".join(f"{a},{b}" for a, b in edges))
    else:
        networkx = pytest.importorskip("networkx")
        getattr(networkx, f"write_{path.suffix[1:]}")(networkx.Graph(RING.edges().tolist()), path)
    return path


NAMES = ["r.edges", "r.txt", "r.csv", "r.tsv", "r.npz", "r.graphml", "r.gml", "r.adjlist"]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_graph(name: str, tmp_path: Path) -> None:
    assert read_graph(str(write(tmp_path, name)), 12) == RING


def test_agents_without_edges_need_no_line(tmp_path: Path) -> None:
    (tmp_path / "pair.edges").write_text("0 1\n")
    assert read_graph(str(tmp_path / "pair.edges"), 4) == graphs.from_edges([(0, 1)], 4)


def test_named_nodes_are_numbered_in_the_order_of_the_file(tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    named = networkx.Graph([("north", "south"), ("south", "west")])
    networkx.write_graphml(named, tmp_path / "named.graphml")
    assert read_graph(str(tmp_path / "named.graphml"), 3) == graphs.from_edges([(0, 1), (1, 2)], 3)


WRONG = {
    "not an edge": ("0 1\n0 2 3\n", "line 2 is '0 2 3': it must be two agents"),
    "a word": ("0 1\na b\n", "line 2 is 'a b'"),
    "a loop": ("0 0\n", r"edge \(0, 0\) is a loop"),
    "twice": ("0 1\n1 0\n", r"edge \(1, 0\) is given twice"),
    "no numbers": ("a b\nb c\n", "line 2 is 'b c': it must be two agents"),
    "a heading alone": ("from to\n", "it has no edge: every line must be two agents"),
    "nothing": ("# a graph\n", "it has no edge"),
    "no whole numbers": ("0.5 1\n0 1\n", "line 1 is '0.5 1'"),
    "numbered from 1": ("1 2\n2 12\n", r"the agents are numbered 1\.\.12: they must be numbered from 0\. Subtract 1"),
    "too many agents": ("0 99\n", r"edge \(0, 99\) names an agent that does not exist"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_the_file_is_one_sentence(case: str, tmp_path: Path) -> None:
    text, said = WRONG[case]
    (tmp_path / "x.edges").write_text(text)
    with pytest.raises(ColmeError, match=rf"^x\.edges: {said}"):
        read_graph(str(tmp_path / "x.edges"), 12)


def test_a_file_of_another_size_or_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ColmeError, match=r"the graph has 12 agents and the scenario 13: .* Try n_agents = 12\."):
        read_graph(str(write(tmp_path, "r.npz")), 13)
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(ColmeError, match=r"bad\.npz: it does not hold the arrays indptr and indices"):
        read_graph(str(tmp_path / "bad.npz"), 12)
    (tmp_path / "bad.graphml").write_text("no XML")
    with pytest.raises(ColmeError, match=r"bad\.graphml: "):
        read_graph(str(tmp_path / "bad.graphml"), 12)


def names(folder: Path, graph: Any) -> list[str]:
    return [each.name for each in Experiment.parse(TABLE | {"graph": graph}, folder=folder).planned]


def test_the_contents_and_not_the_place_identify_a_run(tmp_path: Path) -> None:
    write(tmp_path, "r.edges")
    (tmp_path / "other").mkdir()
    write(tmp_path / "other", "same.edges")
    first = names(tmp_path, "r.edges")
    assert names(tmp_path, "other/same.edges") == first != names(tmp_path, "ring")
    (tmp_path / "r.edges").write_text((tmp_path / "r.edges").read_text() + "\n0 5\n")
    assert names(tmp_path, "r.edges") != first
    write(tmp_path / "other", "r.edges")
    with pytest.raises(ColmeError, match=r"two graph files are called r\.edges"):
        names(tmp_path, ["r.edges", "other/r.edges"])


def test_a_sweep_over_graphs_runs_and_its_results_outlive_the_files(tmp_path: Path) -> None:
    path = write(tmp_path, "r.edges")
    experiment = Experiment.parse(TABLE | {"graph": ["ring", "r.edges"], "degree": 2}, name="g", folder=tmp_path)
    data = lab.run(experiment, results=tmp_path / "results", jobs=1)
    assert data["graph"].values.tolist() == ["ring", "r.edges"] and data.attrs["missing"] == 0
    known, given = (data.sel({"graph": name}).mse.values for name in ("ring", "r.edges"))
    np.testing.assert_allclose(given, known, rtol=1e-6)  # the same graph; the order of neighbors may differ
    path.unlink()
    again = lab.load(tmp_path / "results" / "g")
    np.testing.assert_array_equal(again.mse.values, data.mse.values)
    assert str(tmp_path) not in json.dumps(again.attrs)
