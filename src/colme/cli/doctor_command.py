"""`colme doctor`: check the installation."""

from __future__ import annotations

import time

import click

from colme.cli.output import emit, format_option, say, wide_option
from colme.cli.parameters import option, switch


@click.command("doctor")
@option("--results", "Folder that must be writable.", type=click.Path(), default="results")
@switch("--compile", "ahead", "Instead of checks, compile the kernels that common commands need.")
@wide_option
@format_option
@click.pass_context
def command(context: click.Context, results: str, ahead: bool, wide: bool, form: str) -> None:
    """Check the installation: versions, extras, compiled kernels, speed, cores, folders.

    Exits with 1 if a check fails; every failed check says what to do.

    Numerical kernels are compiled when they are first needed, which takes seconds, and are then kept in a folder of the
    user (COLME_CACHE_DIR is another one). With --compile those that simulations, tables, online models and nodes need
    are compiled now: once, as the last step of an installation or of a device's image, on a processor of the kind that
    will run them. If all of them are there, it says so.

    \b
    Examples:
      colme doctor --format json
      colme doctor --compile
    """
    if ahead:
        context.exit(_compile_ahead())
    from colme.lab.doctor import examine

    rows = examine(results)
    spare = () if any(row.remedy for row in rows) else ("remedy",)
    emit([row._asdict() for row in rows], form, spare=spare, wide=wide)
    wrong = sum(not row.ok for row in rows)
    say("All checks passed." if wrong == 0 else f"{wrong} of {len(rows)} checks failed.")
    context.exit(1 if wrong else 0)


def _compile_ahead() -> int:
    """Compile the kernels, with a line of progress for each call; returns the exit code."""
    from colme._core import jit
    from colme.lab.doctor import compile_kernels

    if not jit.HAVE_NUMBA:
        why = jit.BROKEN or "COLME_NUMBA=0 switches it off"
        say(f"There is nothing to compile, for numba is not used: {why}.")
        return 1
    folder = jit.cache_folder()
    if folder is None:
        say("Compiled kernels cannot be kept: no folder is writable. Set COLME_CACHE_DIR to one that is.")
        return 1
    started = time.monotonic()
    n = compile_kernels(lambda what: say(f"kernels for: {what}"))
    seconds = time.monotonic() - started
    say(f"Compiled {n} kernels in {seconds:.0f} s, in {folder}." if n else "All kernels were compiled already.")
    return 0
