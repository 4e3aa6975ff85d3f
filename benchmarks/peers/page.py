"""What was measured, for the eye: tables in the terminal, and docs/peers.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.table import Table

from benchmarks.held_out import HELD_OUT
from benchmarks.peers import rows
from benchmarks.peers.estimators import PEERS
from benchmarks.peers.jobs import BUDGET
from benchmarks.peers.results import PeerResults
from benchmarks.peers.scaling import LIMIT
from benchmarks.peers.tables import IN_TIME, MADE, REAL, SHUFFLED
from benchmarks.peers.trials import SMALL
from benchmarks.report import DOCS, markdown
from colme.support.files import write_whole

HEAD = """# Beside its peers

How accurate and how fast `colme.estimate` is beside mixed models and target encoders. Written by `python -m
benchmarks.peers`, which takes about half an hour of CPU time and goes on where it was interrupted; `pip install
--group peers` installs the peers, and R with lme4 is used if it is there. What it means, and when to use which:
[colme and mixed models](mixed_models.md).

{machine}

{peers}
Each runs with the defaults of its package. So does colme, `method="auto"`, as it was before this comparison was
written; nothing in it was changed for it. gpboost is told to use one thread.

## In short

Cells are tables, orders and numbers of samples: {real} of real tables, {made} of made ones. A difference counts
if it is more than two standard errors. In parentheses: how many of them are also at least {small} of the local
means' error.

{verdicts}
{losses}
"""
LOSSES = """Where colme loses by more than two standard errors and at least {small} of the local means' error, with
the methods that it chose in how many draws:

{table}"""
NO_LOSSES = "No peer is ahead by so much anywhere."
PROTOCOL = """## How it is measured

- **Learn from n samples of every agent, score on its other samples**, at least {held_out}: agents with fewer than
  n + {held_out} samples are left out of that n. Shuffled: {seeds} seeds draw the n samples, the same for all
  peers. In time order: the first n samples, one split; colme is the one peer that is given the times.
- **The noise of the target is taken out.** The mean of m held-out samples has variance s²/m around the agent's
  true mean. It is subtracted from each squared error, for all peers alike
  ([`benchmarks.held_out`](estimate.md#measured)). What is left is, on average, the squared error against the true
  mean.
- **A ratio** is the sum over draws of a peer's errors by the sum of the local means' errors; below 1, it helps.
  In parentheses is its standard error, over seeds or, in time order, over agents, which is too small where agents
  share what happens to them, such as storms. Seeds draw again from one table, so it does not tell how another table
  of the same kind would come out. (Other pages average the ratios of
  single seeds, which come out larger where local means are accurate by luck.)
- **Marks** come from paired differences on the same draws: `<` the peer is more accurate than colme by more than
  two standard errors, `=` it is within two, no mark: it is less accurate, `?` one seed, which cannot tell. Where a
  peer has fewer seeds, the marks compare these only. There are {compared:,} comparisons, so some are off by chance.
- **Intervals** of 90 %: whether the held-out mean lies in the interval, widened by the noise of that mean (radii
  are added as standard deviations are, which is exact for normal errors). Those of mixed models are from the
  conditional variance of the random effect, with the variances as estimated.
- **CPU** time is that of the fit, all threads, after a warm-up. A peer gets no further seeds of a table in an
  order once it has used {budget:.0f} s: this concerns {slow}.
- 0/1 samples are fitted as numbers by all peers but colme, which notices them. Binomial mixed models were not
  run.
- Not compared: tables with covariates, and unequal n in real tables (the made ones have them).

"""
ERRORS = """## Errors on real tables

![Error relative to local means over the number of samples, a panel for each table](figures/peers_error.svg)

*Shuffled. The scale ends at 3: on hind feet and weights, the grand mean and the TargetEncoder of
category_encoders are beyond it.*
"""
MADE_TABLES = """
## Errors on made tables

{seeds} tables each, scored against the true means. 300 agents with 5 to 29 samples each, unless said otherwise:

{worlds}
{table}"""
INTERVALS = """
## Intervals

The share of means that 90 % intervals cover, and their mean width relative to that of the local intervals
(Student's, from each agent's own variance), for each n. The encoders have none. In time order, agents that drift
have another mean later.

{table}"""
FITS = """
## CPU and memory

Median CPU seconds of a fit:

{table}"""
COSTS = """
![CPU seconds of a fit over the number of agents](figures/peers_scaling.svg)

Five samples per agent, true means N(0, 1), noise N(0, 4); one fit each, in a process of its own. Megabytes are
what the fit needed beyond the table. A peer that needs more than {limit} s of CPU time, its start included, is
not asked for more agents.

{table}"""
BEYOND = """
## What colme has no model for

Root mean squared error in predicting single rows, a fifth that was held out (mean over seeds and standard error).
Crossed: ratings by students (s) of lecturers (d), InstEval. Slopes: reaction times over days without sleep,
sleepstudy; later days: days 7 to 9 from days 0 to 6, one split.

{table}"""
FAILURES = """
## Failures

Fits that ended with an error of the package. They are in no average.

{lines}"""


def terminal_tables(results: PeerResults) -> list[Table]:
    """The verdicts, and the errors of every table."""
    tables = [_table(f"colme against (in parentheses: by at least {SMALL:g} of the local error)", *_verdicts(results))]
    for name in REAL:
        for order in (SHUFFLED, IN_TIME):
            head, body = rows.error_rows(results, name, order)
            if len(head) > 1:
                tables.append(_table(f"{name}, {order}: error / error of the local means", head, body))
    return [*tables, _table("made tables", *rows.made_rows(results)), _table("cost", *rows.cost_rows(results))]


def _table(title: str, head: list[str], body: list[list[str]]) -> Table:
    table = Table(*head, title=title)
    for row in body:
        table.add_row(*row)
    return table


def _verdicts(results: PeerResults) -> rows.Rows:
    real, made = (
        [f"{kind}: {words}" for words in ("more accurate", "tie", "less accurate")] for kind in ("real", "made")
    )
    return ["colme against", *real, *made], [list(row) for row in rows.verdict_rows(results)]


def page(results: PeerResults) -> str:
    """docs/peers.md."""
    parts = [_head(results), _protocol(results), ERRORS, *_real(results)]
    worlds = "".join(f"- **{name}**: {made.words}\n" for name, made in MADE.items())
    parts += [
        MADE_TABLES.format(seeds=results.seeds, worlds=worlds, table=markdown(*rows.made_rows(results))),
        INTERVALS.format(table=markdown(*rows.interval_rows(results))),
        FITS.format(table=markdown(*rows.fit_rows(results))),
    ]
    if results.costs:
        parts.append(COSTS.format(limit=LIMIT, table=markdown(*rows.cost_rows(results))))
    if results.beyond:
        body = [[each.question, each.model, _row_error(each.error, each.se)] for each in results.beyond]
        parts.append(BEYOND.format(table=markdown(["", "model", "error"], body)))
    failures = rows.failure_lines(results)
    return "".join([*parts, FAILURES.format(lines="".join(failures)) if failures else ""])


def _head(results: PeerResults) -> str:
    versions = [[name, results.peers.get(name, "not installed"), peer.words] for name, peer in PEERS.items()]
    losses = rows.loss_rows(results)
    table = markdown(["table", "agents", "colme", "more accurate"], losses)
    return HEAD.format(
        machine="\n".join(f"- {name}: {words}" for name, words in results.machine.items()),
        peers=markdown(["peer", "version", ""], versions), small=rows.number(SMALL),
        real=len(rows.cells_of(results, REAL)), made=len(rows.cells_of(results, MADE)),
        verdicts=markdown(*_verdicts(results)),
        losses=LOSSES.format(small=rows.number(SMALL), table=table) if losses else NO_LOSSES,
    )  # fmt: skip


def _protocol(results: PeerResults) -> str:
    shuffled = [cell for cell in results.cells if cell.order == SHUFFLED]
    slow = {peer for cell in shuffled for peer, entry in cell.peers.items() if entry.seeds < results.seeds}
    return PROTOCOL.format(
        held_out=HELD_OUT, seeds=results.seeds, budget=BUDGET, slow=" and ".join(sorted(slow)) or "none of them",
        compared=sum(bool(entry.verdict) for cell in results.cells for entry in cell.peers.values()),
    )  # fmt: skip


def _real(results: PeerResults) -> list[str]:
    """A section for each real table."""
    parts = []
    for name, real in REAL.items():
        for order in (SHUFFLED, IN_TIME):
            head, body = rows.error_rows(results, name, order)
            if len(head) > 1:
                chosen: Counter[str] = Counter()
                for cell in rows.cells_of(results, [name], order):
                    chosen.update(cell.methods)
                said = ", ".join(f"{method} {times}" for method, times in chosen.most_common())
                title = f"\n### {name}: {real.words}\n" if order == SHUFFLED else ""
                parts.append(f"{title}\n{order.capitalize()} (colme chose {said}):\n\n{markdown(head, body)}")
    return parts


def _row_error(error: float, se: float | None) -> str:
    digits = 3 if error < 10 else 1
    return f"{error:.{digits}f}" + (f" ({se:.{digits}f})" if se else "")


def write_page(results: PeerResults) -> list[Path]:
    """The page and its figures."""
    from benchmarks.peers.figures import write_figures

    write_whole(DOCS / "peers.md", page(results).encode())
    return [DOCS / "peers.md", *write_figures(results, DOCS / "figures")]
