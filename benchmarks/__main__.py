"""python -m benchmarks: measure, print, write down; or check for regressions."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from benchmarks import cpp_program, machine, methods, regression, report, sizes, workloads
from benchmarks.fresh import ROOT
from benchmarks.results import BASELINE, Results, read_all_results, read_baseline, read_results, results_path, write
from benchmarks.table import PARTS, Found, Part

console, errors = Console(width=118), Console(stderr=True, width=118)
Tell = Callable[[str], None]


def teller() -> Tell:
    """Says what is being measured, and the time since the start."""
    started = time.monotonic()
    return lambda words: errors.print(f"[dim]{time.monotonic() - started:5.0f} s[/]  {words}", highlight=False)


def measure_parts(parts: tuple[Part, ...], quick: bool, tell: Tell) -> Found:
    found: Found = {}
    for number, part in enumerate(parts, 1):
        tell(f"{number} of {len(parts)}: {part.words}")
        rows = part.measure(quick)
        if not rows:
            tell("... which cannot be measured here, and is left out")
        found |= rows
    return found


def parts_of(quick: bool, huge: bool, simulator: Path | None) -> tuple[Part, ...]:
    """What is measured; the C++ program first, for it may be another one than it should be."""
    some = tuple(part for part in PARTS if (huge or not part.huge) and not (quick and part.long))
    if simulator is None:
        return some
    theirs = functools.partial(cpp_program.rows, simulator)
    return Part("CL-colME and C-colME against the C++ program", theirs, ("cpp_cl", "cpp_c")), *some


def measure_all(parts: tuple[Part, ...], quick: bool, huge: bool, say: Tell) -> Results:
    """Everything, with an eye on what else the machine does."""
    loads: list[float] = []

    def tell(words: str) -> None:
        load = machine.load()
        loads.extend([] if load is None else [load])
        say(words)

    tell("do the baselines compute the same? (compiling)")
    workloads.check_baselines()
    table = measure_parts(parts, quick, tell)
    costs = [sizes.measure(size, tell) for size in (sizes.QUICK if quick else sizes.FULL) if huge or not size.huge]
    runs = [run for size in (methods.QUICK if quick else methods.FULL) for run in methods.measure(*size, tell)]
    results = Results(machine.describe(), (min(loads), max(loads)) if loads else None, table, costs, runs)
    if not results.quiet:
        tell(f"[yellow]{report.warning(results)}[/]")
    return results


def show(results: Results) -> None:
    for table in (report.terminal_table, report.size_table, report.method_table):
        console.print(table(results))


def check(from_results: bool, tell: Tell) -> int:
    """Compare with the baseline; the exit code."""
    baseline = read_baseline()
    if from_results:
        table = read_results().table
    else:
        tell("measuring the ratios again, which takes some minutes")
        workloads.check_baselines()
        table = measure_parts(tuple(part for part in PARTS if part.checked and not part.huge), False, tell)

    def again(part: Part) -> Found:
        tell(f"a ratio seems to have dropped; once more: {part.words}")
        return part.measure(False)

    lost, rest = regression.compare(table, baseline, again)
    for words in rest:
        console.print(words, highlight=False, soft_wrap=True)
    for words in lost:
        console.print(f"[red]{words}[/]", highlight=False, soft_wrap=True)
    words, code = regression.verdict(lost, baseline)
    console.print(words, highlight=False, soft_wrap=True)
    return code


def room_for_huge(huge: bool | None, tell: Tell) -> bool:
    """Ten million agents, if asked for, or if nobody said and there is memory for them."""
    if huge is None:
        huge = machine.available_memory() >= sizes.MEMORY
        if not huge:
            tell(f"less than {sizes.MEMORY / machine.GIB:.0f} GiB are free: ten million agents are left out")
    return huge


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--quick", is_flag=True, help="A first impression in less than a minute; writes nothing.")
@click.option("--huge/--no-huge", default=None, help="Ten million agents, too (default: if 16 GiB are free).")
@click.option("--check", "checking", is_flag=True, help="Fail if a ratio dropped by more than 25 %; writes nothing.")
@click.option("--from-results", is_flag=True, help="With --check: take the last results, measure only doubts.")
@click.option("--accept", is_flag=True, help="Take the ratios of the last results here as the new baseline.")
@click.option("--draw", is_flag=True, help="Write docs/speed.md again from benchmarks/results_*.json.")
@click.option(
    "--peer", envvar="PEER", type=Path, help="Folder in which the AAAI-25 C++ program is built: measure it, too."
)
def command(
    quick: bool, huge: bool | None, checking: bool, from_results: bool, accept: bool, draw: bool, peer: Path | None
) -> int:
    """Measure how fast colme is here (a quarter of an hour), write docs/speed.md and benchmarks/results_*.json."""
    asked = {"--quick": quick, "--check": checking, "--accept": accept, "--draw": draw}
    chosen = [name for name, on in asked.items() if on]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} and {chosen[1]} exclude each other. Leave one out.")
    if from_results and not checking:
        raise click.UsageError("--from-results belongs to --check. Try: python -m benchmarks --check --from-results")
    tell = teller()
    if accept:
        console.print(regression.accept(), highlight=False)
        return 0
    if checking:
        return check(from_results, tell)
    written: list[Path] = []
    if not draw:
        simulator = None if peer is None else cpp_program.find_simulator(peer)
        tell("a first impression" if quick else "this takes about a quarter of an hour; close other programs")
        huge = not quick and room_for_huge(huge, tell)
        results = measure_all(parts_of(quick, huge, simulator), quick, huge, tell)
        show(results)
        if quick:
            return 0
        written = [results_path(results.family)]
        write(written[0], results)
    written += report.write_page(read_all_results())
    tell("written: " + ", ".join(path.relative_to(ROOT).as_posix() for path in written))
    if not BASELINE.exists():
        tell("there is no baseline yet; to compare later runs with this one: python -m benchmarks --accept")
    return 0


def main() -> None:
    """Exit 0 ok, 1 failure, 2 usage, 130 interrupted; an error is one sentence."""
    try:
        code = command.main(prog_name="python -m benchmarks", standalone_mode=False)
    except click.ClickException as error:
        errors.print(f"Error: {error.format_message()}", markup=False, highlight=False)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        errors.print("Interrupted; nothing was written.")
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
