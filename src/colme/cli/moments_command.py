"""`colme moments`: write the moments of a part of a table to a file that `colme estimate` merges with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from colme.cli.estimate_command import check_targets, table_format_options
from colme.cli.output import row_progress, say
from colme.cli.parameters import FILE, PATH, SEED, Texts, option, switch


@click.command("moments")
@click.argument("file", type=PATH)
@option("--agent", "Column that identifies the agent; repeat for several columns.",
        multiple=True, required=True, metavar="COLUMN")  # fmt: skip
@option("--value", "Column of samples: numbers, or yes and no.", required=True, metavar="COLUMN")
@option("--weight", "Column of weights: a sample of weight w counts as w samples.", metavar="COLUMN")
@option("--seed", "Seed of the random folds, another one for each part (default: drawn anew).", type=SEED)
@table_format_options
@option("-o", "--output", "Write the moments to this .arrow file.", required=True, type=FILE)
@switch("-q", "--quiet", "No progress and no messages.")
def command(file: str, agent: Texts, output: str, quiet: bool, **options: Any) -> None:
    """Write the moments of a part of a table, to merge with those of other parts or sites.

    For each agent: the number, mean, squares and extremes of its samples, in five random folds. Rows stay where they
    are. Sites that may not share rows share these, and colme estimate takes all of them together.

    \b
    Examples:
      colme moments north.csv --agent user --value seconds -o north.arrow
      colme moments south.parquet --agent user --value seconds -o south.arrow
      colme estimate north.arrow south.arrow --report all.html
    """
    from colme.data.partials import partial_moments, written_moments
    from colme.support.files import write_whole

    check_targets((file,), [(output, (".arrow",))])
    with row_progress(quiet) as progress:
        table = partial_moments(file, agent=agent if len(agent) > 1 else agent[0], progress=progress, **options)
    write_whole(Path(output), written_moments(table))
    if not quiet:
        say(f"Written: {output} ({table.num_rows:,} agents)")
