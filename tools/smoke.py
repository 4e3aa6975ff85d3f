"""A smoke test of an installed colme: a few real calls for each extra, through the package and the `colme` command.

    python -I tools/smoke.py base data        in an empty folder, by the Python of the environment to test

`-I` keeps the checkout and PYTHONPATH out, so only what is installed is tested. It prints one line per part and ends
with exit code 1 at the first part that fails. `tools/release_check.py` runs it in many environments.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

PARTS: dict[str, Callable[[], None]] = {}
COLME = Path(sysconfig.get_path("scripts")) / "colme"


def part(function: Callable[[], None]) -> Callable[[], None]:
    PARTS[function.__name__] = function
    return function


def colme(*words: str, code: int = 0, stdin: str | None = None) -> str:
    """What the command prints on stdout; it must end with this exit code."""
    done = subprocess.run([COLME, *words], input=stdin, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == code, f"colme {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def write_readings(path: str = "readings.csv") -> list[tuple[str, float]]:
    """Readings of 40 sensors of two classes."""
    draw = random.Random(0)
    rows = [(f"s{k}", draw.gauss(3.0 * (k % 2), 1.0)) for k in range(40) for _ in range(8)]
    Path(path).write_text("sensor,value\n" + "".join(f"{name},{x}\n" for name, x in rows))
    return rows


@part
def base() -> None:
    """Simulate, learn online, write a live page, list what comes with the package."""
    import colme as package

    where = Path(package.__file__)
    assert where.is_relative_to(Path(sys.prefix)), f"{where} is not what was installed in {sys.prefix}"
    assert package.__version__ == metadata.version("colme")
    assert colme("--version").split() == ["colme", package.__version__]
    for name in package.__all__:
        if name != "estimate":  # needs the extra data, as does no other name
            getattr(package, name)
    trace = package.simulate(package.CLColME(), package.Scenario(n_agents=200, means=(0.0, 3.0)), steps=200)
    assert trace.mse[-1] < trace.local_mse[-1]
    trace.save("trace.npz")
    assert package.Trace.load("trace.npz").mse[-1] == trace.mse[-1]
    page = trace.write_live("page.html").read_text(encoding="utf-8")
    assert "canvas" in page
    model = package.CollaborativeMean()
    for name, x in write_readings():
        model.learn_one(name, x)
    assert len(model.estimate_) == 40
    rows = json.loads(colme("simulate", "--n-agents", "100", "--means", "0,3", "--steps", "50", "--format", "json"))
    assert len(rows) == 2, rows
    assert "cl_colme" in colme("list", "experiments")
    assert "cl-colme" in colme("list", "methods")
    assert colme("simulate", "--steps", "none", code=2)


@part
def data() -> None:
    """Estimate a table, by Python and by the command; write and merge moments."""
    import pyarrow as pa

    import colme as package

    rows = write_readings()
    table = pa.table({"sensor": [name for name, _ in rows], "value": [x for _, x in rows]})
    result = package.estimate(table, agent="sensor", value="value")
    assert len(result.estimate) == 40
    found = json.loads(colme("estimate", "readings.csv", "--agent", "sensor", "--value", "value", "--format", "json"))
    assert len(found["agents"]) == 40
    colme("moments", "readings.csv", "--agent", "sensor", "--value", "value", "-o", "part.arrow")
    merged = json.loads(colme("estimate", "part.arrow", "--format", "json"))
    assert len(merged["agents"]) == 40


@part
def excel() -> None:
    """Estimate a spreadsheet."""
    cells = "".join(
        f'<row><c t="inlineStr"><is><t>{name}</t></is></c><c><v>{x}</v></c></row>' for name, x in write_readings()
    )
    head = '<row><c t="inlineStr"><is><t>sensor</t></is></c><c t="inlineStr"><is><t>value</t></is></c></row>'
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    with zipfile.ZipFile("readings.xlsx", "w") as file:
        file.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"></Types>',
        )
        for path, kind, target in (
            ("_rels/.rels", "officeDocument", "xl/workbook.xml"),
            ("xl/_rels/workbook.xml.rels", "worksheet", "worksheets/sheet1.xml"),
        ):
            one = f'<Relationship Id="rId1" Type="{office}/{kind}" Target="{target}"/>'
            file.writestr(path, f'<Relationships xmlns="{relations}">{one}</Relationships>')
        sheet = '<sheet name="one" sheetId="1" r:id="rId1"/>'
        file.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{sheet}</sheets></workbook>'
        )
        file.writestr(
            "xl/worksheets/sheet1.xml", f'<worksheet xmlns="{main}"><sheetData>{head}{cells}</sheetData></worksheet>'
        )
    found = json.loads(colme("estimate", "readings.xlsx", "--agent", "sensor", "--value", "value", "--format", "json"))
    assert len(found["agents"]) == 40


@part
def graph() -> None:
    """Graphs from networkx."""
    import networkx

    import colme as package

    made = package.graphs.from_networkx(networkx.random_regular_graph(4, 50, seed=1))
    assert made.n_edges == 100
    trace = package.simulate(package.CLColME(), package.Scenario(n_agents=50, means=(0.0, 3.0)), graph=made, steps=100)
    assert trace.mse[-1] < trace.local_mse[-1]


@part
def lab() -> None:
    """Run an experiment, report it, draw a figure."""
    Path("small.toml").write_text(
        'title = "Small"\nseeds = 2\nsteps = 60\ndegree = 4\nrecord = 10\n\n[scenario]\nn_agents = 60\n'
        'means = [0.0, 3.0]\n\n[[methods]]\nmethod = "cl-colme"\n\n[[methods]]\nmethod = "local"\n'
    )
    colme("run", "small.toml", "--quiet", "-j", "1")
    assert json.loads(colme("run", "small.toml", "--quiet", "-j", "1", "--format", "json"))
    colme("report", "small", "--no-figures", "-o", "report.html")
    assert "<svg" in Path("report.html").read_text(encoding="utf-8")
    colme("plot", "small", "mse", "--into", "figures")
    assert list(Path("figures").glob("*.pdf"))
    colme("run", "cl_colme", "--dry-run")  # an experiment that comes with the wheel
    import colme as package

    assert len(package.lab.to_frame(package.lab.load("results/small")))


@part
def page() -> None:
    """The page of a table, which needs the extras data and lab."""
    write_readings()
    colme("estimate", "readings.csv", "--agent", "sensor", "--value", "value", "--report", "table.html")
    assert Path("table.html").stat().st_size > 10_000


@part
def node() -> None:
    """Plan a fleet with keys; run one agent on samples from stdin; ask a running one; run three that meet over TLS."""
    Path("hosts.txt").write_text("a 127.0.0.1:17447\nb 127.0.0.1:17448\nc 127.0.0.1:17449\n")
    colme("node", "plan", "hosts.txt", "--method", "cl-colme", "--set", "sigma=1", "--degree", "2", "-o", "fleet")
    Path("one.toml").write_text(
        'name = "alone"\nn_agents = 2\nmethod = { method = "cl-colme", sigma = 1.0 }\ntick_rate = 50.0\n'
    )
    lines = colme("node", "run", "-c", "one.toml", "--until-end", stdin="".join(f"{k % 5}\n" for k in range(50)))
    last = json.loads(lines.splitlines()[-1])
    assert last["estimate"] is not None, last
    running: list[subprocess.Popen[str]] = []
    try:
        for name in "abc":
            words: list[str | Path] = [COLME, "node", "run", "-c", f"fleet/{name}/node.toml"]
            running.append(  # each that started is ended, even if the next does not start
                subprocess.Popen(
                    words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
                )
            )
        for _ in range(120):
            time.sleep(0.5)
            states = [_status(f"fleet/{name}/node.toml") for name in "abc"]
            if all(state and state["fresh"] for state in states):
                break
        else:
            raise AssertionError(f"the agents have not heard each other: {states}")
    finally:
        for each in running:
            each.terminate()
        ends = [each.communicate(timeout=60)[1] for each in running]
    assert all(each.returncode == 0 for each in running), ends


def _status(config: str) -> dict[str, Any] | None:
    done = subprocess.run([COLME, "node", "status", "-c", config, "--format", "json"], capture_output=True, text=True,
                          check=False)  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
    return found[0] if found else None


@part
def mqtt() -> None:
    """A node whose samples come from a broker starts, says that there is none, and stops."""
    Path("broker.toml").write_text(
        'name = "alone"\nn_agents = 2\nmethod = { method = "cl-colme", sigma = 1.0 }\n\n'
        '[samples]\nsource = "mqtt"\naddress = "127.0.0.1:17883/none"\n'
    )
    started = subprocess.Popen([COLME, "node", "run", "-c", "broker.toml"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    said: list[str] = []
    try:
        assert started.stderr is not None
        for line in started.stderr:
            said.append(line)
            if any("is away" in each for each in said) and any(" runs " in each for each in said):
                break
    finally:
        started.terminate()
        started.communicate(timeout=60)
    assert any("is away" in line for line in said), said
    assert started.returncode == 0, said


@part
def sklearn() -> None:
    """The encoder, in a pipeline."""
    import numpy as np
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    from colme.sklearn import MeanEncoder

    rows = write_readings()
    keys, target = np.array([[name] for name, _ in rows], dtype=object), np.array([x for _, x in rows])
    model = make_pipeline(MeanEncoder(), Ridge()).fit(keys, target)
    assert model.score(keys, target) > 0.3


@part
def notebook() -> None:
    """The widget of a trace."""
    import colme as package

    trace = package.simulate(package.CLColME(), package.Scenario(n_agents=60, means=(0.0, 3.0)), steps=60)
    assert "render" in str(trace.live()._esm)


@part
def mpi() -> None:
    """Two ranks give the bits of one process."""
    Path("ranks.py").write_text(
        "import colme\nfrom mpi4py import MPI\n"
        "scenario = colme.Scenario(n_agents=3000, means=(0.0, 3.0))\n"
        "shared = colme.simulate(colme.CLColME(), scenario, steps=20, ranks=MPI.COMM_WORLD)\n"
        "alone = colme.simulate(colme.CLColME(), scenario, steps=20)\n"
        "assert shared.mse[-1] == alone.mse[-1]\n"
    )
    mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
    done = subprocess.run([mpiexec, "-n", "2", sys.executable, "-I", "ranks.py"], capture_output=True, text=True,
                          timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def main() -> int:
    unknown = [name for name in sys.argv[1:] if name not in PARTS]
    if unknown or not sys.argv[1:]:
        print(f"usage: python -I smoke.py PART..., each one of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for name in sys.argv[1:]:
        try:
            PARTS[name]()
        except Exception as error:
            import traceback

            traceback.print_exc()
            print(f"{name}: FAILED: {type(error).__name__}: {error}")
            return 1
        print(f"{name}: fine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
