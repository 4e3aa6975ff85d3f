"""colme doctor"""

from __future__ import annotations

import click

from colme.cli.output import emit, format_option, say


@click.command("doctor")
@click.option(
    "--results", type=click.Path(), default="results", show_default=True, help="A folder that must be writable."
)
@format_option
@click.pass_context
def command(context: click.Context, results: str, form: str) -> None:
    """Check the installation: versions, compiled kernels, threads, folders.

    Exits with 1 if something is wrong; every line that is says what to do.

    \b
    Example:
      colme doctor --format json
    """
    from colme.lab.doctor import examine

    rows = examine(results)
    emit([{"check": row.check, "found": row.found, "ok": row.ok, "remedy": row.remedy} for row in rows], form)
    wrong = sum(not row.ok for row in rows)
    say("All is well." if wrong == 0 else f"{wrong} of {len(rows)} checks need your attention.")
    context.exit(1 if wrong else 0)
