"""`colme doctor`: check the installation."""

from __future__ import annotations

import click

from colme.cli.output import emit, format_option, say, wide_option


@click.command("doctor")
@click.option(
    "--results", type=click.Path(), default="results", show_default=True, help="Folder that must be writable."
)
@wide_option
@format_option
@click.pass_context
def command(context: click.Context, results: str, wide: bool, form: str) -> None:
    """Check the installation: versions, extras, compiled kernels, speed, cores, folders.

    Exits with 1 if a check fails; every failed check says what to do.

    \b
    Example:
      colme doctor --format json
    """
    from colme.lab.doctor import examine

    rows = examine(results)
    shown = [{"check": row.check, "found": row.found, "ok": row.ok, "remedy": row.remedy} for row in rows]
    spare = () if any(row.remedy for row in rows) else ("remedy",)
    emit(shown, form, spare=spare, wide=wide)
    wrong = sum(not row.ok for row in rows)
    say("All checks passed." if wrong == 0 else f"{wrong} of {len(rows)} checks failed.")
    context.exit(1 if wrong else 0)
