"""One pass over many rows: moments by agent beside the group_by of Polars and DuckDB, and the memory that it takes.

Alone, and larger: python -m benchmarks.streaming --rows 1e8 --generated 1e9. Works are measured in turns, by the clock
on the wall (all of them use several cores, if there are) and in CPU time; memory is the peak of a fresh process.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.estimates import STATUS, estimated, most_memory
from benchmarks.measuring import Measured, Times, order, ratio
from colme._core.jit import HAVE_NUMBA
from colme.data.moments import AgentMoments
from colme.data.read.format import TableFormat
from colme.data.read.table import Names, read_moments

ROWS, AGENTS = 20_000_000, 1_000_000
TOGETHER = 1 << 20
"""Rows of a batch, and of a row group of a file."""
NAMES = Names("agent", "value")
FRESH = """
import sys
from benchmarks.estimates import estimated, most_memory
from benchmarks.streaming import moments
work = {"moments": moments, "estimate": estimated}[sys.argv[1]]
work(sys.argv[2])
print(most_memory())
"""
GB = 1e9


def generated(n_rows: int, n_agents: int, *, text: bool = False) -> Iterator[dict[str, Any]]:
    """Batches of samples with a standard deviation of 2 of agents in no order, whose means are 0, 1 or 4."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rng = np.random.default_rng(0)
    mean = rng.choice([0.0, 1.0, 4.0], n_agents)
    for first in range(0, n_rows, TOGETHER):
        agent = rng.integers(0, n_agents, min(TOGETHER, n_rows - first))
        value = mean[agent] + 2.0 * rng.standard_normal(len(agent))
        named = pc.binary_join_element_wise("user-", pa.array(agent).cast(pa.string()), "") if text else agent
        yield {"agent": named, "value": value}


def write_table(path: Path, n_rows: int, n_agents: int, *, text: bool) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.schema({"agent": pa.string() if text else pa.int64(), "value": pa.float64()})
    with pq.ParquetWriter(path, kind) as file:
        for batch in generated(n_rows, n_agents, text=text):
            file.write_table(pa.table(batch, schema=kind))


def moments(source: Any) -> AgentMoments:
    return read_moments(source, NAMES, TableFormat())


def pushed_down(frame: Any) -> AgentMoments:
    from colme.data.read.engines import engine_moments, lazy_frame

    found = lazy_frame(frame)
    assert found is not None
    return engine_moments(found, NAMES, seed=0)


def works_on(path: Path) -> dict[str, Callable[[], object]]:
    """What is compared: the moments of a file by us, by engines, and by us through engines. `plain` is the count, the
    mean and the variance; `same` has the extremes and cubes, too, which we ask an engine for."""
    import duckdb
    import polars as pl

    x = pl.col("value")
    plain = [pl.len().alias("n"), x.mean().alias("mean"), x.var().alias("variance")]
    away = x - 1.0
    more = [x.min().alias("low"), x.max().alias("high"), (away * away * away).sum().alias("cube")]
    sql = "select agent, count(value), avg(value), var_samp(value)"
    also = ", min(value), max(value), sum((value - 1) * (value - 1) * (value - 1))"
    group = f"from '{path}' group by agent"
    return {
        "ours": lambda: moments(path),
        "polars plain": lambda: pl.scan_parquet(path).group_by("agent").agg(*plain).collect(engine="streaming"),
        "polars same": lambda: pl.scan_parquet(path).group_by("agent").agg(*plain, *more).collect(engine="streaming"),
        "polars pushed down": lambda: pushed_down(pl.scan_parquet(path)),
        "duckdb plain": lambda: duckdb.sql(f"{sql} {group}").to_arrow_table(),
        "duckdb same": lambda: duckdb.sql(f"{sql}{also} {group}").to_arrow_table(),
        "duckdb pushed down": lambda: pushed_down(duckdb.sql(f"select * from '{path}'")),
    }


def in_turns_by_both_clocks(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[Times, Times]]:
    """(wall, CPU) seconds of every work, in rounds."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for number in range(1, rounds + 1):
        for name in order(list(works), number):
            wall, cpu = time.perf_counter(), time.process_time()
            works[name]()
            seen[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: tuple(Times(each) for each in zip(*both, strict=True)) for name, both in seen.items()}  # type: ignore[misc]


def peak(what: str, path: Path) -> float:
    """Bytes of a fresh process that reads the moments of a file, or estimates it; NaN where nobody counts them."""
    if not STATUS.exists():
        return math.nan
    done = subprocess.run([sys.executable, "-c", FRESH, what, str(path)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def compile_all() -> None:
    for text in (False, True):
        moments(generated(1000, 10, text=text))


def rows(quick: bool) -> dict[str, Measured]:
    """Plain group_bys by us; engines are asked for more columns than these."""
    try:
        import duckdb as duckdb
        import polars as polars
    except ImportError:
        return {}
    compile_all()
    n_rows, found = ROWS // 10 if quick else ROWS, {}
    with tempfile.TemporaryDirectory() as folder:
        for key, text in (("stream", False), ("stream_text", True)):
            path = Path(folder) / f"{key}.parquet"
            write_table(path, n_rows, AGENTS // 10 if quick else AGENTS, text=text)
            works = works_on(path)
            some = {name: works[name] for name in (works if not text else ("ours", "polars plain"))}
            wall = {name: both[0] for name, both in in_turns_by_both_clocks(some, 1 if quick else 3).items()}
            found[key] = ratio(wall["polars plain"], wall["ours"])
            if not text:
                for engine in ("polars", "duckdb"):
                    found[f"push_{engine}"] = ratio(wall[f"{engine} plain"], wall[f"{engine} pushed down"])
                memory = math.nan if quick else peak("moments", path)
                found |= {} if math.isnan(memory) else {"stream_memory": Measured.once(memory / AGENTS)}
    return found


def tell_file(folder: Path, n_rows: int, n_agents: int, rounds: int, *, text: bool) -> None:
    """Measure a file with so many rows, print it, delete it."""
    path = folder / f"{'text' if text else 'whole'}.parquet"
    write_table(path, n_rows, n_agents, text=text)
    print(f"{n_rows:,} rows of {n_agents:,} agents, labels are {'text' if text else 'whole numbers'}; "
          f"{path.stat().st_size / GB:.2f} GB", flush=True)  # fmt: skip
    times = in_turns_by_both_clocks(works_on(path), rounds)
    for name, (wall, cpu) in times.items():
        by = f"{name.split()[0]} plain" if "pushed" in name else "polars plain"
        shares = [ratio(one, other).value for one, other in zip(times[by], (wall, cpu), strict=True)]
        print(f"  {name:20} {n_rows / wall.best:9.3g} rows/s, {wall.best:7.2f} s wall, {cpu.best:7.2f} s CPU; speed by "
              f"that of {by}: {shares[0]:.2f} wall, {shares[1]:.2f} CPU", flush=True)  # fmt: skip
    for what in ("moments", "estimate"):
        print(f"  peak of a process for the {what}: {peak(what, path) / GB:.2f} GB", flush=True)
    wall, cpu = time.perf_counter(), time.process_time()
    estimated(path)
    print(f"  estimate, all of it: {time.perf_counter() - wall:.1f} s wall, {time.process_time() - cpu:.1f} s CPU",
          flush=True)  # fmt: skip
    path.unlink()


def tell_generated(n_rows: int, n_agents: int) -> None:
    """Count rows that are made while they are counted, and how memory grows meanwhile."""
    making = time.process_time()
    few = 8 * TOGETHER
    for _ in generated(few, n_agents):
        pass
    making = (time.process_time() - making) / few
    peaks: list[float] = []

    def watched() -> Iterator[dict[str, Any]]:
        for k, batch in enumerate(generated(n_rows, n_agents)):
            if k * TOGETHER * 10 // n_rows > len(peaks) - 1:
                peaks.append(most_memory())
            yield batch

    wall, cpu = time.perf_counter(), time.process_time()
    found = moments(watched())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert int(found.folds.n.sum()) == n_rows
    tenths = ", ".join(f"{each / GB:.2f}" for each in peaks[1:])
    alone = n_rows / (cpu - making * n_rows)
    print(f"{n_rows:,} generated rows of {n_agents:,} agents: {n_rows / wall:.3g} rows/s wall, {n_rows / cpu:.3g} in "
          f"CPU time, {alone:.3g} without making the rows\n  peak after each tenth of the rows: {tenths} GB; in the "
          f"end {most_memory() / GB:.2f} GB", flush=True)  # fmt: skip


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", "n_rows", type=float, default=ROWS, help="Rows of the files (1e8: 1.4 GB each); 0: no files.")
@click.option("--agents", "n_agents", type=float, default=AGENTS, help="Agents.")
@click.option("--generated", "n_generated", type=float, default=1e8, help="Rows that are only generated; 0: none.")
@click.option("--labels", type=click.Choice(["whole", "text", "both"]), default="both", help="What labels are.")
@click.option("--rounds", default=3, help="Times that everything is measured.")
def main(n_rows: float, n_agents: float, n_generated: float, labels: str, rounds: int) -> None:
    """Measure one pass over many rows. Files are made in the temporary folder, and deleted."""
    if not HAVE_NUMBA:
        raise click.UsageError("without numba there is nothing to measure. Install it.")
    compile_all()
    if n_generated:  # first, while memory is that of a fresh process
        tell_generated(int(n_generated), int(n_agents))
    for text in {"whole": [False], "text": [True], "both": [False, True]}[labels] if n_rows else ():
        with tempfile.TemporaryDirectory() as folder:
            tell_file(Path(folder), int(n_rows), int(n_agents), rounds, text=text)


if __name__ == "__main__":
    main()
