"""Kernels are compiled once, never stale, and optional. Every test looks at fresh processes."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import colme

PACKAGE = Path(colme.__file__).parent

# What every script below can say at its end: its result, and what each kernel cost.
REPORT = """
import json, sys

def report(result):
    kernels = {}
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] in ("colme", "mine"):
            for thing in vars(module).values():
                if hasattr(thing, "stats") and hasattr(thing, "py_func"):
                    kernels[f"{thing.py_func.__module__}.{thing.py_func.__name__}"] = thing.stats
    print(json.dumps({
        "result": result,
        "numba": any(name in sys.modules and sys.modules[name] for name in ("numba", "llvmlite")),
        "package": sys.modules["colme"].__file__,
        "hits": sum(sum(stats.cache_hits.values()) for stats in kernels.values()),
        "misses": sum(sum(stats.cache_misses.values()) for stats in kernels.values()),
    }))
"""

# Small kernels that keep means and cut edges; the equation that decides what is cut lives in another file.
PRUNE = """
import numpy as np
import colme
from colme._core.edges import KeptEdges
from colme.samples import observe_some
n = 12
ring = (np.arange(n)[:, None] + [-2, -1, 1, 2]) % n
graph = colme.Graph(np.arange(0, 4 * n + 1, 4), ring.astype(np.uint32).ravel())
mean, count = np.full(n, np.nan), np.zeros(n, np.int32)
edges = KeptEdges(graph, np.zeros(n, np.uint16))
for samples in np.linspace(0.0, 3.0, n) ** 2 + np.sin(np.arange(5.0 * n)).reshape(5, n):
    observe_some(mean, count, samples)
    edges.prune(mean, 1.5 / count)
left = edges.graph()
assert 0 < left.n_edges < graph.n_edges, "the intervals must part some and keep some"
report([mean.tobytes().hex(), left.indptr.tolist(), left.indices.tolist()])
"""

# A whole run that prunes and averages: its equations live in other files than its kernels.
RUN = """
import numpy as np
import colme
n = 12
ring = (np.arange(n)[:, None] + [-2, -1, 1, 2]) % n
graph = colme.Graph(np.arange(0, 4 * n + 1, 4), ring.astype(np.uint32).ravel())
samples = np.linspace(0.0, 3.0, n) ** 2 + np.sin(np.arange(20.0 * n)).reshape(20, n)
samples[3, 4] = np.nan
method = colme.CLColME(delta=0.1, sigma=0.6, clock="constant", alpha=0.7)
trace = colme.simulate(method, samples, graph=graph)
assert 0 < trace.final.graph.n_edges < graph.n_edges, "the intervals must part some and keep some"
report(trace.final.estimate.tobytes().hex())
"""

KERNEL_FILES = ("_core/consensus_kernel.py", "_core/edges.py")
"""The files of the kernels that prune and average."""
KINDS = {"kernel", "slp_kernel", "helper", "inlined", "equation"}

ONE_KERNEL = """
import numpy as np
from colme.samples import observe_some
mean, count = np.full(4, np.nan), np.zeros(4, np.int32)
for t in (1, 2):
    observe_some(mean, count, np.arange(4.0) * t)
report(mean.tolist())
"""
ONE_RESULT = [0.0, 1.5, 3.0, 4.5]


def python(code: str, *, path: Path | None = None, **environment: Path | str) -> dict[str, Any]:
    """What a fresh process reports; `path` goes first on its import path."""
    known = {name: value for name, value in os.environ.items() if name != "COLME_NUMBA"}
    if path is not None:
        known["PYTHONPATH"] = os.pathsep.join([str(path), *filter(None, [known.get("PYTHONPATH")])])
    known |= {name: str(value) for name, value in environment.items()}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", REPORT + code], env=known, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its time and size."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache that a first process has filled, and what that process reported."""
    folder = tmp_path_factory.mktemp("warm")
    return folder, python(PRUNE, COLME_CACHE_DIR=folder)


# The cache


def test_the_first_process_compiles_and_fills_the_folder_it_was_told(warm: tuple[Path, dict[str, Any]]) -> None:
    folder, first = warm
    assert first["hits"] == 0 and first["misses"] > 0
    assert any(name.endswith(".nbi") for name in files(folder))


def test_a_second_process_compiles_nothing_and_writes_nothing(warm: tuple[Path, dict[str, Any]]) -> None:
    folder, first = warm
    before = files(folder)
    second = python(PRUNE, COLME_CACHE_DIR=folder)
    assert second["hits"] > 0 and second["misses"] == 0
    assert second["result"] == first["result"]
    assert files(folder) == before


def edit(package: Path, equation: str, old: str, new: str) -> str:
    """Change one equation of a copy of the sources; returns the name of its file."""
    (file,) = (path for path in package.rglob("*.py") if f"def {equation}(" in path.read_text(encoding="utf-8"))
    text = file.read_text(encoding="utf-8")
    start = text.index(f"def {equation}(")
    body = re.split(r"\n(?=\S)", text[start:], maxsplit=1)[0]
    assert body.count(old) == 1, body
    file.write_text(text.replace(body, body.replace(old, new)), encoding="utf-8")
    return file.relative_to(package).as_posix()


@pytest.mark.slow
@pytest.mark.parametrize(("code", "equation", "old", "new"), [
    (PRUNE, "too_far", "> radius_a + radius_b", "> 0.8 * (radius_a + radius_b)"),
    (RUN, "blend", "step * pull", "0.5 * step * pull"),
], ids=["too_far", "blend"])  # fmt: skip
def test_editing_an_equation_leaves_no_stale_kernel_in_another_file(
    tmp_path: Path, code: str, equation: str, old: str, new: str
) -> None:
    cache, package = tmp_path / "cache", tmp_path / "colme"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    first = python(code, path=tmp_path, COLME_CACHE_DIR=cache)
    assert Path(first["package"]).parent == package
    assert edit(package, equation, old, new) not in KERNEL_FILES, "the kernel's own file"
    edited = python(code, path=tmp_path, COLME_CACHE_DIR=cache)
    assert edited["misses"] > 0 and edited["result"] != first["result"], "the old formula was computed"
    assert edited["result"] == python(code, path=tmp_path, COLME_NUMBA="0")["result"], "not the new formula either"


def test_constants_of_kernels_stand_in_files_whose_edit_compiles_again() -> None:
    """What a file with kernels imports from another file of ours, and uses in a kernel, is in a file with kernels."""
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    hashed = {path for path, text in texts.items() if "colme._core.jit import" in text or path.name == "jit.py"}
    stray = []
    for path in sorted(hashed):
        tree = ast.parse(texts[path])
        imported = {
            name.asname or name.name: PACKAGE.joinpath(*node.module.split(".")[1:])
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("colme.")
            for name in node.names
        }
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and KINDS & {
                ast.unparse(each) for each in function.decorator_list
            }:
                used = {node.id for each in function.body for node in ast.walk(each) if isinstance(node, ast.Name)}
                stray += [
                    (path.name, function.name, name)
                    for name in used & imported.keys()
                    if not hashed & {imported[name].with_suffix(".py"), imported[name] / "__init__.py"}
                ]
    assert stray == []


@pytest.mark.slow
def test_editing_a_kernel_outside_of_the_package_leaves_no_stale_kernel(tmp_path: Path) -> None:
    """A user's method: a kernel in one file, its equation in another."""
    equation = "from colme._core.jit import equation\n@equation\ndef scale(x):\n    return 2.0 * x\n"
    (tmp_path / "mine.py").write_text(
        "from colme._core.jit import kernel\n"
        "from my_equation import scale\n"
        "@kernel\n"
        "def scale_all(a):\n"
        "    for i in range(a.size):\n"
        "        a[i] = scale(a[i])\n"
    )
    run = "import numpy as np, colme, mine\na = np.ones(2)\nmine.scale_all(a)\nreport(a.tolist())"
    for factor in (2.0, 3.0):
        (tmp_path / "my_equation.py").write_text(equation.replace("2.0", str(factor)))
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)  # Python's own cache looks at whole seconds
        assert python(run, path=tmp_path, COLME_CACHE_DIR=tmp_path / "cache")["result"] == [factor, factor]


def test_a_cache_folder_that_cannot_be_made_costs_only_the_compilation(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = python(ONE_KERNEL, COLME_CACHE_DIR=tmp_path / "file" / "below")
    assert answer["result"] == ONE_RESULT and answer["numba"]
    assert list(files(tmp_path)) == ["file"]


def test_a_full_disk_costs_only_the_compilation(tmp_path: Path) -> None:
    full = "import shutil\nshutil.disk_usage = lambda folder: shutil._ntuple_diskusage(2**40, 2**40, 0)\n"
    assert python(full + ONE_KERNEL, COLME_CACHE_DIR=tmp_path)["result"] == ONE_RESULT
    assert files(tmp_path) == {}


def test_settings_of_numba_are_put_back(tmp_path: Path) -> None:
    code = """
import gc, numba, numpy as np
from colme._core.jit import kernel, slp_kernel
seen = lambda: [numba.config.CACHE_DIR, int(numba.config.SLP_VECTORIZE), gc.isenabled()]
before = seen()
import colme.gossip, colme.sim.run
@slp_kernel
def one(a):
    a[0] += 1.0
one(np.zeros(2))
gc.disable()
one(np.zeros(2, np.float32))
report(before == seen()[:2] + [True] and not gc.isenabled())
"""
    assert python(code, COLME_CACHE_DIR=tmp_path)["result"] is True


# Without numba

EVERYTHING = """
import numpy as np
import colme
from colme.metrics import METRICS
methods = [
    colme.Local(), colme.Oracle(), colme.ColME(delta=0.1, weights="aggressive"), colme.BColME(delta=0.1),
    colme.CColME(delta=0.1), colme.CLColME(delta=0.1), colme.CLColME(delta=0.1, clock="global", step=0.1),
    colme.CLColME(delta=0.1, clock="own"), colme.CLColME(delta=0.1, consensus="flow"), colme.Partition(),
]
two = {"n_agents": 70, "means": (0.0, 2.5)}  # more than one block of 64
gaps = {"distribution": "student", "skip_rate": 0.2, "late_share": 0.2, "late_step": 6}
scenarios = {
    "gaussian": colme.Scenario(**two, sigma=0.5),
    "gaps": colme.Scenario(**two, sigma=0.5, **gaps),
    "unequal": colme.Scenario(**two, sigma=(0.3, 0.6), distribution="uniform", shift_step=9, shift_means=(1, -1)),
}
bits = {}
for kind, precision in WORLDS:
    for trace in colme.simulate(methods, scenarios[kind], degree=6, steps=12, seeds=[3], precision=precision):
        final = trace.final
        assert trace.wrong_edges[-1] < 1.0, "nothing happened"
        arrays = {name: getattr(trace, name) for name in METRICS} | {
            "estimate": final.estimate, "mean": final.mean, "count": final.count, "groups": final.groups,
            "indptr": final.graph.indptr, "indices": final.graph.indices,
        }
        for name, array in arrays.items():
            bits[f"{trace.method!r}, {kind}, {precision}: {name}"] = array.tobytes().hex()
report(bits)
"""


@pytest.mark.parametrize(
    "worlds",
    [
        pytest.param([("gaussian", "mixed")], id="gaussian"),
        pytest.param(
            [("gaussian", "mixed"), ("gaps", "mixed"), ("gaps", "double"), ("unequal", "mixed")],
            id="all",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_without_numba_every_method_gives_the_same_bits(worlds: list[tuple[str, str]]) -> None:
    code = f"WORLDS = {worlds}\n{EVERYTHING}"
    compiled, plain = python(code), python(code, COLME_NUMBA="0")
    assert compiled["numba"] and not plain["numba"], "COLME_NUMBA=0 must not even import it"
    assert compiled["result"].keys() == plain["result"].keys()
    different = [name for name, bits in compiled["result"].items() if bits != plain["result"][name]]
    assert different == []


@pytest.mark.parametrize("error", [ImportError("numba needs NumPy 2.0 or less"), SystemError("bad call")])
def test_without_a_numba_that_works_everything_runs_and_says_why_once(tmp_path: Path, error: Exception) -> None:
    (tmp_path / "numba.py").write_text(f"raise {error!r}")
    catch = (
        "import warnings\n"
        "warnings.simplefilter('always')\n"
        "caught = []\n"
        "warnings.showwarning = lambda message, *rest: caught.append(str(message))\n"
    )
    again = "colme.simulate(method, samples, graph=graph)\nreport([trace.final.estimate.tobytes().hex(), caught])\n"
    code = (catch + RUN).replace("report(trace.final.estimate.tobytes().hex())", again)
    result, caught = python(code, path=tmp_path)["result"]
    assert result == python(RUN, COLME_NUMBA="0")["result"]
    assert len(caught) == 1 and str(error) in caught[0] and "pip install" in caught[0]


# Importing


def test_import_colme_imports_neither_numba_nor_numpy() -> None:
    code = (
        "import colme\n"
        "assert colme.__version__ and 'simulate' in dir(colme)\n"
        "heavy = {'numba', 'llvmlite', 'numpy', 'msgspec', 'rich', 'click', 'xarray', 'networkx'}\n"
        "report(sorted(heavy & set(sys.modules)))\n"
    )
    assert python(code)["result"] == []


def test_every_public_name_is_there_and_others_are_not() -> None:
    assert all(getattr(colme, name).__name__ == name for name in colme.__all__)
    assert set(colme.__all__) <= set(dir(colme))
    with pytest.raises(AttributeError, match="no attribute 'simulator'"):
        _ = colme.simulator


def test_importing_every_module_compiles_nothing(tmp_path: Path) -> None:
    code = (
        "import importlib, pkgutil\n"
        "import colme\n"
        "names = [module.name for module in pkgutil.walk_packages(colme.__path__, 'colme.')]\n"
        "report([importlib.import_module(name).__name__ for name in names if not name.endswith('__main__')])\n"
    )
    assert "colme.sim.run" in python(code, COLME_CACHE_DIR=tmp_path)["result"]
    assert files(tmp_path) == {}
