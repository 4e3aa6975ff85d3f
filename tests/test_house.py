"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import colme

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "colme").rglob("*.py"))
NUMBA_FREE = {"kernel", "slp_kernel", "helper", "equation", "overload", "intrinsic"}


def _decorators(function: ast.FunctionDef) -> set[str]:
    names = set()
    for decorator in function.decorator_list:
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        names.add(node.id if isinstance(node, ast.Name) else getattr(node, "attr", ""))
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_everything_but_kernels_is_annotated(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and not _decorators(node) & NUMBA_FREE:
            arguments = [a for a in (*node.args.args, *node.args.kwonlyargs) if a.arg not in ("self", "cls")]
            bare = [a.arg for a in arguments if a.annotation is None]
            assert not bare and (node.returns is not None or node.name == "__init__"), (
                f"{path.name}: {node.name} lacks annotations ({bare})"
            )


def test_only_the_lowest_file_knows_numba() -> None:
    users = [path.name for path in SOURCES if re.search(r"^\s*(import|from) (numba|llvmlite)", path.read_text(), re.M)]
    assert users == ["jit.py"]


def test_files_stay_small() -> None:
    assert {path.name: n for path in SOURCES if (n := len(path.read_text().splitlines())) > 400} == {}


def test_public_names_exist_and_no_others() -> None:
    for name in colme.__all__:
        assert getattr(colme, name).__name__ == name
    with pytest.raises(AttributeError, match="nonsense"):
        colme.nonsense  # noqa: B018


def test_import_is_lazy() -> None:
    """`import colme` loads no numba and no numpy: whoever only asks for help should not wait for a compiler."""
    code = "import sys, colme; print([name for name in ('numba', 'numpy', 'rich', 'click') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_is_in_the_changelog() -> None:
    assert f"## {colme.__version__}" in (ROOT / "CHANGELOG.md").read_text()
