"""python -m benchmarks.peers: compare with the peers, print, write docs/peers.md."""

from __future__ import annotations

import sys

import click

from benchmarks import machine
from benchmarks.__main__ import Tell, console, errors, teller
from benchmarks.peers import beyond, jobs, lme4, page, results, scaling
from benchmarks.peers.estimators import PEERS, installed
from benchmarks.peers.jobs import Journal
from benchmarks.peers.tables import available
from benchmarks.table import ROOT

FOLDER = ROOT / "results" / "peers"
QUICK = ["hind feet", "Hsb82", "EfronMorris", "normal", "own sigmas", "three classes"]
QUICK_SEEDS = 2


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--quick", is_flag=True, help="A first impression in two minutes, of a few tables; writes no page.")
@click.option("--fresh", is_flag=True, help="Forget what an earlier run has measured.")
@click.option("--draw", is_flag=True, help="Write docs/peers.md again from benchmarks/peers/results.json.")
def command(quick: bool, fresh: bool, draw: bool) -> int:
    """Compare colme's estimates with those of mixed models and encoders (an hour), write docs/peers.md.

    Every result is saved in results/peers when it is there: after an interruption, the same command goes on.
    """
    if draw and (quick or fresh):
        raise click.UsageError("--draw measures nothing. Leave out --quick and --fresh.")
    tell = teller()
    if not draw:
        found = measure(quick, fresh, tell)
        for table in page.terminal_tables(found):
            console.print(table)
        if quick:
            return 0
        results.write(found)
    written = page.write_page(results.read()) + ([] if draw else [results.RESULTS])
    tell("written: " + ", ".join(path.relative_to(ROOT).as_posix() for path in written))
    return 0


def measure(quick: bool, fresh: bool, tell: Tell) -> results.PeerResults:
    """What is missing is measured; the rest is read."""
    peers = installed()
    for name in PEERS:
        if name not in peers:
            tell(f"[yellow]{name} is not installed, and is left out[/]")
    tables = [name for name in available() if not quick or name in QUICK]
    seeds = QUICK_SEEDS if quick else jobs.SEEDS
    versions = jobs.versions_here(seeds)
    folder = FOLDER / "quick" if quick else FOLDER
    if fresh:
        for path in folder.glob("*.jsonl"):
            path.unlink()
    records = Journal(folder / "records.jsonl", versions, jobs.Record)
    jobs.run(records, tables, list(peers), seeds, tell)
    costs = Journal(folder / "costs.jsonl", versions, scaling.Cost)
    scaling.measure_all(list(peers), scaling.QUICK if quick else scaling.SIZES, costs, tell)
    rows = Journal(folder / "beyond.jsonl", versions, beyond.RowError)
    if not rows.done and not quick and lme4.version() is not None and "InstEval" in tables:
        for each in beyond.measure_all(beyond.SEEDS, tell):
            rows.add(each)
    return results.PeerResults(machine.describe(), peers, seeds, results.cells_of(records.done), costs.done, rows.done)


def main() -> None:
    """Exit 0 ok, 1 failure, 2 usage, 130 interrupted; an error is one sentence."""
    try:
        code = command.main(prog_name="python -m benchmarks.peers", standalone_mode=False)
    except click.ClickException as error:
        errors.print(f"Error: {error.format_message()}", markup=False, highlight=False)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        errors.print("Interrupted; the same command goes on from here.")
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
