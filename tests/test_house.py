"""Rules of this code base that no linter checks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import colme
from colme.methods import Method

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "colme"
SOURCES = sorted(PACKAGE.rglob("*.py"))
NUMBA_FREE = {"kernel", "slp_kernel", "helper", "equation", "overload", "intrinsic"}


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
