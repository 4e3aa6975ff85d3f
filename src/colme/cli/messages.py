"""`say`: print a message on stderr. Apart from `cli.output`, because a running device must not load the lab."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

import click

from colme.errors import printable

_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""Where launchers of MPI tell a process its rank, even one that finds no MPI."""
_heard = True


def only_first_rank_speaks() -> None:
    """Of processes that share their work as ranks of MPI, let the first one alone print messages."""
    global _heard
    _heard = next((os.environ[name] for name in _RANK if name in os.environ), "0") == "0"


def say(text: str) -> None:
    """Print a message on stderr, its lines `printable`. On a terminal, long lines are broken between words."""
    if not _heard:
        return
    text = "\n".join(map(printable, text.split("\n")))
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(_wrapped(line, width) for line in text.split("\n"))
    click.echo(text, err=True)


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
