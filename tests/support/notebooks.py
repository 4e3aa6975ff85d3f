"""Runs notebooks with IPython, as Jupyter would, without a kernel and a server.

python -m tests.support.notebooks notebooks/*.ipynb          runs them and stores the outputs in them
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
_WIDGET = "application/vnd.jupyter.widget-view+json"
_ORDER = ("image/png", "text/html", "text/markdown", "text/plain")
"""Forms of an output that are stored: the first one there is, and text."""


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    """The cells of a notebook that are code, or markdown."""
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def printed(outputs: list[dict[str, Any]]) -> str:
    """What a cell printed."""
    return "".join("".join(each["text"]) for each in outputs if each["output_type"] == "stream")


def run(path: Path, names: tuple[str, ...] = ()) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    """The outputs of every cell of code, and the final values of some variables, from a process of its own whose
    working directory is empty. Raises if a cell fails or writes to stderr."""
    paths = os.pathsep.join([*map(str, (ROOT, ROOT / "src")), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.support.notebooks", "--json", str(path.resolve()), *names]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{path.name}: {done.stderr}")
    outputs, values = json.loads(done.stdout)
    return outputs, values


def store(path: Path) -> None:
    """Run a notebook and write its outputs into it."""
    outputs, _ = run(path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, found) in enumerate(zip(code, outputs, strict=True), start=1):
        cell["execution_count"] = number
        cell["outputs"] = [
            {"execution_count": number, **each} if each["output_type"] == "execute_result" else each for each in found
        ]
    path.write_text(json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def _run_here(path: Path, names: list[str]) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    from IPython.core.displayhook import DisplayHook
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    results: list[dict[str, Any]] = []

    class Results(DisplayHook):
        """Keeps the value of a cell's last line, where IPython's would print it."""

        def write_output_prompt(self) -> None: ...

        def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:
            results.append(format_dict)

        def finish_displayhook(self) -> None:
            self._is_active = False

    class Shell(InteractiveShell):
        displayhook_class = Results

        def enable_gui(self, gui: Any = None) -> None:
            """For %matplotlib inline: there is no event loop to prepare."""

    shell: Any = Shell.instance(colors="nocolor")
    outputs = []
    for number, cell in enumerate(cells(path, "code"), start=1):
        with capture_output() as captured:
            done = shell.run_cell(source(cell), store_history=False)
        if not done.success:
            sys.exit(f"cell {number} failed: {done.error_in_exec or done.error_before_exec!r}\n{captured.stdout}")
        if captured.stderr:
            sys.exit(f"cell {number} wrote to stderr: {captured.stderr}")
        outputs.append([
            *([{"name": "stdout", "output_type": "stream", "text": captured.stdout.splitlines(True)}]
              if captured.stdout else []),
            *(_stored(each) for each in (*(shown.data for shown in captured.outputs), *results) if _WIDGET not in each),
        ])  # fmt: skip
        results.clear()
    return outputs, {name: float(shell.user_ns[name]) for name in names}


def _stored(data: dict[str, Any]) -> dict[str, Any]:
    """A displayed value as it is stored: in its best form, and as text."""
    import base64

    kept = {}
    for form in {next(form for form in _ORDER if form in data), "text/plain"}:
        value = data[form]
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        kept[form] = value.strip() if form == "image/png" else value.splitlines(True)
    return {"data": kept, "metadata": {}, "output_type": "execute_result"}


if __name__ == "__main__":
    if sys.argv[1] == "--json":
        json.dump(_run_here(Path(sys.argv[2]), sys.argv[3:]), sys.stdout)
    else:
        for each in sys.argv[1:]:
            store(Path(each))
            print(each)
