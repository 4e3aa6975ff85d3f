"""Rules of this code base that no linter checks, and its size.

The limits below only fall: a commit that makes the house smaller writes the new number here, and one that must raise a
number says why. A walk is what one call passes through: distinct files of the package, and functions in them.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import threading
import tokenize
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import colme
from colme.cli import main
from colme.methods import Method
from colme.node.net.memory import MemoryNetwork
from tests.support.nodes import Fleet

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "colme"
SOURCES = sorted(PACKAGE.rglob("*.py"))
NUMBA_FREE = {"kernel", "slp_kernel", "helper", "inlined", "equation", "overload", "intrinsic"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _decorators(function: ast.FunctionDef) -> set[str]:
    names = set()
    for decorator in function.decorator_list:
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        names.add(node.id if isinstance(node, ast.Name) else getattr(node, "attr", ""))
    return names


def test_everything_but_kernels_is_annotated() -> None:
    lacking = []
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef) and not _decorators(node) & NUMBA_FREE:
                arguments = [a for a in (*node.args.args, *node.args.kwonlyargs) if a.arg not in ("self", "cls")]
                bare = [a.arg for a in arguments if a.annotation is None]
                if bare or (node.returns is None and node.name != "__init__"):
                    lacking.append(f"{name_of(path)}: {node.name} {bare}")
    assert lacking == []


def test_only_the_lowest_file_knows_numba() -> None:
    users = {path.name for path in SOURCES if re.search(r"^\s*(import|from) (numba|llvmlite)", path.read_text(), re.M)}
    assert users == {"jit.py"}


def test_no_two_classes_have_one_name() -> None:
    names = Counter(node.name for path in SOURCES for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef))
    assert {name for name, n in names.items() if n > 1} == set()


def methods_below(kind: type[Method]) -> set[str]:
    """The names of all classes of methods."""
    return {kind.__name__ for kind in kind.__subclasses__()}.union(*map(methods_below, kind.__subclasses__()))


def test_only_methods_know_which_method_it_is() -> None:
    """What a method can do is said by the method: nobody else asks for its class."""
    methods = methods_below(Method)
    assert {"Local", "CLColME", "Census"} <= methods
    asking = set()
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node.args[1])}
                if asked & methods and name_of(path).split("/")[0] not in ("methods", "census"):
                    asking.add(name_of(path))
    assert asking == set()


def test_version_is_in_the_changelog() -> None:
    assert f"## {colme.__version__}" in (ROOT / "CHANGELOG.md").read_text()


LIMITS = {"tokens": 343_461, "files": 212, "classes": 377}
WALKS = {
    "simulate(CLColME)": (20, 160),
    "simulate(Census)": (24, 260),
    "estimate": (34, 215),
    "learn_one": (19, 83),
    "tick": (16, 81),
    "colme run": (38, 290),
}
NOT_COUNTED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def test_the_house_does_not_grow() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES]
    tokens = sum(
        each.type not in NOT_COUNTED for text in texts for each in tokenize.generate_tokens(io.StringIO(text).readline)
    )
    classes = sum(isinstance(node, ast.ClassDef) for path in SOURCES for node in ast.walk(tree(path)))
    size = {"tokens": tokens, "files": len(SOURCES), "classes": classes}
    assert {name: size[name] for name, limit in LIMITS.items() if size[name] > limit} == {}, size


def _walks(folder: Path) -> dict[str, Callable[[], Any]]:
    scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    rows = "".join(f"s{i % 7},{i * 37 % 11}\n" for i in range(200))
    (folder / "t.csv").write_text("sensor,value\n" + rows)
    (folder / "x.toml").write_text(
        'seeds = 1\nsteps = 20\n[scenario]\nn_agents = 50\nmeans = [0.0, 1.0]\n[[methods]]\nmethod = "cl-colme"\n'
    )
    fleet = Fleet(colme.CLColME(), colme.graphs.from_edges([(0, 1), (1, 2), (0, 2)]), MemoryNetwork(), sigma=1.0)

    def learn() -> None:
        model = colme.CollaborativeMean()
        model.learn_one("a", 1.0)
        assert model.estimate_["a"] == 1.0

    def run() -> None:
        with pytest.raises(SystemExit, match=r"^0$"):
            main(
                [
                    "run",
                    str(folder / "x.toml"),
                    "--results",
                    str(folder),
                    "--force",
                    "--quiet",
                    "--backend",
                    "threading",
                ]
            )

    return {
        "simulate(CLColME)": lambda: colme.simulate(colme.CLColME(), scenario, steps=20),
        "simulate(Census)": lambda: colme.simulate(colme.Census(), scenario, steps=20),
        "estimate": lambda: colme.estimate(str(folder / "t.csv"), agent="sensor", value="value"),
        "learn_one": learn,
        "tick": lambda: fleet.tick(1.0),
        "colme run": run,
    }


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_does_not_grow(name: str, tmp_path: Path) -> None:
    walked = _walks(tmp_path)[name]
    walked()  # imports and kernels are not part of the walk
    seen = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_qualname))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        walked()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files, functions = len({file for file, _ in seen}), len(seen)
    assert files <= WALKS[name][0] and functions <= WALKS[name][1], f"{name}: {files} files, {functions} functions"
