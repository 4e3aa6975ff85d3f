"""R's lme4, where R and lme4 are installed: one R process that is asked through files.

R starts in seconds and fits in tenths of them, so the process stays. It reads a line with the paths of a question and
of an answer, writes the answer and says so in a line with its CPU seconds.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SERVER = r"""
suppressMessages({library(lme4)})
input <- file("stdin", "r")
while (length(line <- readLines(input, n = 1)) > 0) {
  paths <- strsplit(line, "\t")[[1]]
  n <- file.size(paths[1]) / 16
  raw <- file(paths[1], "rb")
  agent <- factor(readBin(raw, "double", n))
  y <- readBin(raw, "double", n)
  close(raw)
  started <- proc.time()
  fit <- suppressMessages(suppressWarnings(lmer(y ~ 1 + (1 | agent))))
  effects <- ranef(fit, condVar = TRUE)$agent
  mean <- fixef(fit)[[1]] + effects[[1]]
  error <- sqrt(as.numeric(attr(effects, "postVar")))
  took <- proc.time() - started
  raw <- file(paths[2], "wb")
  writeBin(c(mean, error), raw)
  close(raw)
  cat(took[["user.self"]] + took[["sys.self"]], "\n")
  flush(stdout())
}
"""

PREDICT = """
suppressMessages({library(lme4)})
paths <- commandArgs(TRUE)
rows <- read.csv(paths[2])
learn <- matrix(readBin(paths[3], "double", file.size(paths[3]) / 8), nrow = nrow(rows))
answer <- file(paths[4], "wb")
for (draw in seq_len(ncol(learn))) {
  fit <- suppressMessages(suppressWarnings(lmer(as.formula(paths[1]), rows[learn[, draw] == 1, ])))
  writeBin(as.numeric(predict(fit, rows, allow.new.levels = TRUE)), answer)
}
close(answer)
"""


@functools.cache
def version() -> str | None:
    """None: R or lme4 is not installed."""
    if shutil.which("Rscript") is None:
        return None
    code = 'cat(as.character(packageVersion("lme4")), " (R ", as.character(getRversion()), ")", sep = "")'
    found = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


@functools.cache
def _server() -> subprocess.Popen[str]:
    process = subprocess.Popen(["Rscript", "--vanilla", "-e", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)  # fmt: skip
    atexit.register(process.kill)
    return process


class Spent:
    """CPU seconds of the last fit, by R's own clock: this process only waits."""

    seconds = 0.0


def process_id() -> int:
    return _server().pid


def _ask(question: Path, answer: Path) -> None:
    server: Any = _server()
    server.stdin.write(f"{question}\t{answer}\n")
    server.stdin.flush()
    said = server.stdout.readline()
    if not said:
        _server.cache_clear()
        raise RuntimeError("R ended without an answer. Does Rscript -e 'library(lme4)' work?")
    Spent.seconds = float(said)


def random_intercepts(agent: NDArray[np.int64], value: Floats) -> tuple[Floats, Floats]:
    """The means of all agents, numbered from 0, and their conditional standard deviations."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "question", Path(folder) / "answer"
        question.write_bytes(agent.astype(np.float64).tobytes() + value.astype(np.float64).tobytes())
        _ask(question, answer)
        mean, error = np.fromfile(answer).reshape(2, -1)
    return mean, error


def predict(formula: str, rows: Any, draws: list[NDArray[np.bool_]]) -> Floats:
    """What a mixed model of this formula predicts for all rows of a frame, for each choice of rows to learn from."""
    with tempfile.TemporaryDirectory() as folder:
        table, learn, answer = (Path(folder) / name for name in ("rows.csv", "learn", "answer"))
        rows.to_csv(table, index=False)
        learn.write_bytes(np.array(draws, np.float64).tobytes())
        paths = [formula, str(table), str(learn), str(answer)]
        subprocess.run(["Rscript", "--vanilla", "-e", PREDICT, *paths], check=True, capture_output=True)
        return np.fromfile(answer).reshape(len(draws), len(rows))
