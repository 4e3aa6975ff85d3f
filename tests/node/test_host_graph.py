"""The agents of a host: lists of neighbors, and lines of samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colme.errors import NodeError
from colme.graphs import random_regular_graph
from colme.node.hosts.graph import HEADER, HostGraph, split
from colme.node.hosts.samples import AgentLineParser, together
from colme.node.io.sources import GrowingFile


def test_a_graph_over_hosts_is_still_that_graph(tmp_path: Path) -> None:
    graph = random_regular_graph(30, 4, rng=1)
    owner = np.random.default_rng(2).integers(0, 3, 30)
    names = ["north", "east", "west"]
    graphs, agents = split(graph, owner.tolist(), names)
    found = set()
    for host, own in enumerate(graphs):
        own.write(tmp_path / "agents.csv")
        again = HostGraph.read(tmp_path / "agents.csv", names[host])
        assert again.hosts == own.hosts == tuple(sorted(own.hosts))
        for name in ("indptr", "ends", "backs", "ghost_host", "ghost_number"):
            np.testing.assert_array_equal(getattr(again, name), getattr(own, name))
        for k, end in enumerate(again.ends.tolist()):
            if end < again.n_agents:
                assert again.ends[again.backs[k]] == again.rows[k] and again.rows[again.backs[k]] == end
                other = agents[host][end]
            else:
                ghost = end - again.n_agents
                assert again.backs[k] == -1 and again.spans[again.hosts[again.ghost_host[ghost] - 1]].start <= ghost
                other = agents[names.index(again.hosts[again.ghost_host[ghost] - 1])][again.ghost_number[ghost]]
            found.add((int(agents[host][again.rows[k]]), int(other)))
        row = agents[host][0]
        assert [b for a, b in sorted(found) if a == row] == sorted(graph.neighbors(int(row)).tolist())
    assert found == {(a, int(b)) for a in range(30) for b in graph.neighbors(a)}


def test_who_has_no_neighbors_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "agents.csv"
    path.write_text(f"{HEADER}\n0,2\n1,  # nobody\n2,0\n2,pi-2/33\n")
    graph = HostGraph.read(path, "pi-1")
    assert graph.degrees.tolist() == [1, 0, 2] and graph.hosts == ("pi-2",) and graph.ghost_number.tolist() == [33]
    assert graph.crossing.tolist() == [2] and graph.n_ghosts == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "line 1: '' must be 'agent,neighbor'"), (f"{HEADER}\n", "names no agents.*Add a line: 0,"),
     (f"{HEADER}\n999999999999,\n", "names agent 999999999999 but not all before it"),
     (f"{HEADER}\n0,b/99999999999999999999\n", "line 2"),
     (f"{HEADER}\n0 1\n", "line 2: '0 1' must be agent,neighbor"), (f"{HEADER}\n0,b/\n", "line 2: .*Try 0,17"),
     (f"{HEADER}\n0,-1\n", "line 2"), (f"{HEADER}\n0,1\n", "agent 1: numbers here go from 0 to 0"),
     (f"{HEADER}\n0,1\n1,\n", r"0,1: an edge of this host is listed at both its ends\. Add 1,0\."),
     (f"{HEADER}\n0,b/1\n0,b/1\n", "agent 0: a neighbor is another agent, and listed once"),
     (f"{HEADER}\n0,b/1\n1,1\n", "agent 1: a neighbor is another agent"), (f"{HEADER}\n0,a/1\n", "on 'a' itself"),
     (f"{HEADER}\n0,b/9999999999\n", "agent 9999999999: numbers"), (f"{HEADER}\n0,b?/1\n", "neighbor='b\\?'")],
)  # fmt: skip
def test_bad_lists_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "agents.csv"
    path.write_text(text)
    with pytest.raises(NodeError, match=rf"agents\.csv.*{words}"):
        HostGraph.read(path, "a")


def test_lists_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=r"cannot read .*no\.csv: .*Make it with: colme node plan --agents\."):
        HostGraph.read(tmp_path / "no.csv", "a")


def test_lines_of_agents_and_samples() -> None:
    bad: list[bytes] = []
    lines = AgentLineParser(bad.append)
    values = np.random.default_rng(1).standard_normal(1000)
    text = b"".join(b"%d\t%r\n" % (a, x) for a, x in enumerate(values.tolist())).replace(b"\t7", b"   7")
    blocks = lines.feed(text[:5000]) + lines.feed(text[5000:])
    agents, samples = together(blocks)
    assert not bad and agents.tolist() == list(range(1000)) and samples.tolist() == values.tolist()
    assert together([])[0].tolist() == [] and together(lines.feed(b"\n\n")) == together([])


@pytest.mark.parametrize(
    "wrong",
    [b"x 1", b"1", b"1 2 3", b"1.5 2", b"-1 2", b"1 nan", b"1 inf", b"1 1e400", b"1 1_0", b"1 2e", b"1 --2", b"1,2",
     b"4294967296 1", b"1 0x10", b"\xff 1", b"1" * 300 + b" 2"],
)  # fmt: skip
def test_a_bad_line_spoils_no_other(wrong: bytes) -> None:
    """Also where two wrongs look like a right: a line with a number too few, then one with a number too many."""
    bad: list[bytes] = []
    for text, more in ((b"3 1.5\n%s\n4 2.5\n" % wrong, 0), (b"3 1.5\n7\n1 2 3\n%s\n4 2.5\n" % wrong, 2)):
        bad.clear()
        agents, samples = together(AgentLineParser(bad.append).feed(text))
        assert agents.tolist() == [3, 4] and samples.tolist() == [1.5, 2.5]
        assert len(bad) == 1 + more and wrong.strip()[:250] in b"|".join(bad)


def test_sources_read_them_and_complain_once(tmp_path: Path) -> None:
    path, said = tmp_path / "samples.txt", list[str]()
    path.write_bytes(b"0 1.5\nnonsense\nmore\n2 2.5\n0 ")
    source = GrowingFile(str(path), said.append, AgentLineParser)
    assert together(source.take())[0].tolist() == [0, 2]
    position = source.position()
    with path.open("ab") as file:
        file.write(b"3.5\n")
    assert together(source.take())[1].tolist() == [3.5] and source.bad == 2
    (sentence,) = said
    assert sentence.startswith("'nonsense' is not an agent with a sample") and "Send lines like: 17 21.4" in sentence
    source.close()
    again = GrowingFile(str(path), said.append, AgentLineParser)
    assert position is not None
    again.resume(position)
    assert together(again.take())[1].tolist() == [3.5]
    again.close()
