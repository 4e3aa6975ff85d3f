"""Readings arrive one by one from sensors that come and go; the model survives a restart in between.

python examples/online_loop.py [file]          (default file: online.npz, in a temporary folder)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from colme import CollaborativeMean

N_SENSORS, N_READINGS = 200, 6000
KINDS = (18.0, 21.0, 24.0)
"""Cellars, rooms and greenhouses; the model is not told which."""


def main(path: Path) -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(len(KINDS), size=N_SENSORS)
    model = CollaborativeMean()
    for reading in range(N_READINGS):
        sensor = int(rng.integers(N_SENSORS))
        model.learn_one(f"sensor-{sensor}", KINDS[kind[sensor]] + 2.5 * rng.standard_normal())
        if reading == N_READINGS // 2:  # the power fails: go on where it was
            model.save(path)
            model = CollaborativeMean.load(path)
    known = model.to_columns()
    truth = np.array([KINDS[kind[int(name.removeprefix("sensor-"))]] for name in known["agent"]])
    alone, together = (float(np.sqrt(np.mean((known[key] - truth) ** 2))) for key in ("mean", "estimate"))
    print(f"{model.n_agents} sensors, {np.median(known['n']):.0f} readings each, {len(set(known['group']))} groups")
    print(f"typical error of a sensor's own mean {alone:.2f}, of its estimate {together:.2f}")
    for name in known["agent"][:3]:
        low, high = model.interval_[name]
        print(f"{name}: {model.mean_[name]:.1f} alone, {model.estimate_[name]:.1f} in [{low:.1f}, {high:.1f}]")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "online.npz")
