"""The longest pause of an event loop in which `CollaborativeMean` learns; alone: python -m benchmarks.pauses.

On a machine that has other work, the loop is also stopped by that. So the CPU time of the loop's own thread in its
longest pause is printed, too; it leaves out what the thread waits for, which is other work and the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import time

import numpy as np

import colme

BATCH, RUNS = 20, 5
SIZES = (10_000, 100_000)


async def longest(n_agents: int, *, background: bool, seed: int) -> tuple[float, float]:
    """Milliseconds between two turns of another task, at most, while agents get from 4 to 7 samples each: those of the
    clock, and of CPU of this thread."""
    rng = np.random.default_rng(seed)
    means = np.where(np.arange(n_agents) % 2, 1.2, 2.0)
    model = colme.CollaborativeMean(background=background)
    for _ in range(4):
        model.learn_many(agent=np.arange(n_agents), value=means + 2.0 * rng.standard_normal(n_agents))
    model.wait()
    agent = rng.integers(n_agents, size=3 * n_agents)
    value = means[agent] + 2.0 * rng.standard_normal(len(agent))
    pause, learning = np.zeros(2), True

    async def other() -> None:
        last = np.array([time.perf_counter(), time.thread_time()])
        while learning:
            await asyncio.sleep(0)
            now = np.array([time.perf_counter(), time.thread_time()])
            np.maximum(pause, now - last, out=pause)
            last = now

    task = asyncio.create_task(other())
    for first in range(0, len(agent), BATCH):
        model.learn_many(agent=agent[first : first + BATCH], value=value[first : first + BATCH])
        await asyncio.sleep(0)
    learning = False
    await task
    return 1e3 * float(pause[0]), 1e3 * float(pause[1])


def main() -> None:
    for background in (False, True):
        asyncio.run(longest(1000, background=background, seed=0))  # compiles
    for n_agents in SIZES:
        runs = {
            (seed, background): asyncio.run(longest(n_agents, background=background, seed=seed))
            for seed in range(RUNS) for background in (False, True)
        }  # fmt: skip
        for background in (False, True):
            clock, cpu = np.median([runs[seed, background] for seed in range(RUNS)], axis=0)
            print(f"{n_agents:>7,} agents, background={background!s:5}: {clock:5.1f} ms, CPU {cpu:.1f} ms")


if __name__ == "__main__":
    main()
