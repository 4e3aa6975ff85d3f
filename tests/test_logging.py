"""colme logs as the standard library asks of libraries: named loggers, no handlers, no levels, nothing on the root."""

from __future__ import annotations

import ast
import json
import logging
import subprocess
import sys
from pathlib import Path

import colme
from colme.node.assemble import logged

PACKAGE = Path(colme.__file__).parent
CONFIGURES = {"basicConfig", "setLevel", "addHandler", "dictConfig", "fileConfig", "captureWarnings"}

NODE = """
import logging, sys
from colme.node.assemble import run_node
from colme.node.config.node_toml import NodeConfig

logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s", stream=sys.stderr)
run_node(NodeConfig.read("node.toml"), until_end=True)
"""


def test_the_package_has_a_null_handler_and_no_level() -> None:
    logger = logging.getLogger("colme")
    assert [type(each) for each in logger.handlers] == [logging.NullHandler]
    assert logger.level == logging.NOTSET and logger.propagate


def test_no_module_configures_logging_and_every_logger_is_below_colme() -> None:
    configured = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "logging" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            called = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
            if called in CONFIGURES:
                configured.add(f"{path.relative_to(PACKAGE).as_posix()} {called}")
            if called == "getLogger":
                (name,) = node.args  # type: ignore[attr-defined]
                assert isinstance(name, ast.Constant) and str(name.value).split(".")[0] == "colme", path
    assert configured == {"__init__.py addHandler"}


def test_a_sentence_is_logged_on_one_line_and_passed_on_as_it_is() -> None:
    said: list[str] = []
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("colme.node")
    logger.addHandler(handler)
    try:
        logged(logging.WARNING, said.append)("two\nlines, 100%d")
    finally:
        logger.removeHandler(handler)
    assert said == ["two\nlines, 100%d"]
    assert [(each.levelname, each.getMessage()) for each in records] == [("WARNING", "two lines, 100%d")]


def test_a_program_that_runs_a_node_reads_its_messages_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(
        'name = "ann"\nn_agents = 2\ntick_rate = 50.0\nmethod = { method = "cl-colme", sigma = 1.0 }\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", NODE],
        input="1\nnonsense\n2\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["name"] == "ann"
    levels = {line.split()[1] for line in done.stderr.splitlines() if line.startswith("colme.node ")}
    assert levels == {"INFO", "WARNING"}  # that it runs and has left; the line that is no number
    assert "colme.node INFO ann has saved its state and left." in done.stderr


def test_a_program_that_configures_nothing_reads_nothing(tmp_path: Path) -> None:
    code = "import logging, colme; logging.getLogger('colme.node').warning('not shown')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
